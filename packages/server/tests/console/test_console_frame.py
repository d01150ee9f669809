"""The frame of the console: signing in, the keyboard, a slow network, no secrets, and what it costs to load."""

import asyncio
import base64
import sqlite3
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, async_playwright, expect

from byte_proxy import ByteProxy, byte_proxy
from chats import console_world
from chromium_install import UnavailableError, chromium
from console_pages import PATIENT, echoing_hub, signed_in, usable_in_both_looks
from dev_command import Dev, dev
from new_stores import new_store
from remit import Brief, Hub
from remit_relay.commands.dev import OBJECTIVE
from remit_server.console.pages import is_built
from serving import serving
from waiting import PATIENCE_S, eventually


async def test_a_person_signs_in_with_a_token_and_out_again(page: Page) -> None:
    async with serving(echoing_hub(), console=True) as server:
        await page.goto(f"{server.address}/runs")
        await usable_in_both_looks(page)
        await page.get_by_label("Token").fill("wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_have_text("This token is not known here.")
        await page.get_by_label("Token").fill("ops")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
        await page.get_by_role("button", name="Signed in as ops").click()
        await page.get_by_role("menuitem", name="Sign out").click()
        await expect(page.get_by_role("heading", name="Sign in to Remit")).to_be_visible()


async def test_the_first_page_takes_less_than_250_kb_and_nothing_from_elsewhere(page: Page) -> None:
    async with serving(echoing_hub(), console=True) as server:
        await signed_in(page, server.address, "/runs")
        await expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
        await page.wait_for_load_state("load")
        loaded = await page.evaluate(
            "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
            ".map(each => [each.name, each.transferSize])"
        )
        assert [name for name, _ in loaded if not name.startswith(server.address)] == []
        assert 20_000 < sum(size for _, size in loaded) < 250_000


# What a phone gets at the edge of a network: 50 kB and two and a half round trips in a second.
SLOW = {"offline": False, "latency": 400, "downloadThroughput": 50_000, "uploadThroughput": 20_000}
VIEWS = ("Approvals", "Agents", "Spend", "Sessions", "Audit", "Policy", "Runs")
# More stops than any page has before its first link of the navigation comes round again.
MOST_STOPS = 80

FOCUS = """
() => {
  const at = document.activeElement;
  const style = getComputedStyle(at);
  const box = at.getBoundingClientRect();
  // Behind the last stop is the frame of the browser.
  if (at === document.body) return { name: '', seen: true, what: '' };
  return {
    name: at.getAttribute('aria-label') ?? at.textContent.trim(),
    seen: box.width > 0 && box.height > 0 && (style.outlineStyle !== 'none' || style.boxShadow !== 'none'),
    what: at.outerHTML.slice(0, 200),
  };
}
"""


class Desk:
    """A hub with a clerk whose work can be held up."""

    def __init__(self, folder: Path) -> None:
        file = folder / "hub.db"
        self.hub = hub = Hub(store=file if file.exists() else new_store(file), durability="process", limits=PATIENT)
        self.go = asyncio.Event()

        @hub.agent("clerk")
        async def clerk(brief: Brief) -> str:
            return f"sorted {brief.text}"

        @hub.agent("boss", may_call=["clerk"])
        async def boss(brief: Brief) -> str:
            await brief.delegate("clerk", objective="Sort the first half")
            await self.go.wait()
            await brief.delegate("clerk", objective="Sort the second half")
            return "sorted"

        assert clerk
        assert boss


async def test_on_a_slow_network_the_frame_comes_first_and_then_its_content(page: Page, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with serving(desk.hub, console=True) as server:
        await desk.hub.ask("clerk", "Buy tea", user="ada")
        await signed_in(page, server.address, "/runs")
        await expect(page.get_by_role("link", name="Buy tea")).to_be_visible()
        held = asyncio.Event()

        async def hold(route: Route) -> None:
            await held.wait()
            await route.continue_()

        devtools: Any = await page.context.new_cdp_session(page)
        await devtools.send("Network.enable")
        await devtools.send("Network.emulateNetworkConditions", SLOW)
        await page.route("**/v1/runs?*", hold)
        await page.goto(f"{server.address}/runs", wait_until="commit")
        # There is something to see and to press while the rows are on their way.
        await expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
        await expect(page.locator(".skeleton").first).to_be_visible()
        await page.get_by_label("Search runs").fill("tea")
        held.set()
        await expect(page.get_by_role("link", name="Buy tea")).to_be_visible()
        await expect(page.locator(".skeleton")).to_have_count(0)
        await expect(page.get_by_label("Search runs")).to_have_value("tea")


async def test_a_page_says_that_its_server_is_gone_and_goes_on_when_it_is_back(page: Page, tmp_path: Path) -> None:
    before = Desk(tmp_path)
    async with serving(before.hub, console=True) as server:
        await before.hub.ask("clerk", "Buy tea", user="ada")
        await signed_in(page, server.address, "/runs")
        await expect(page.get_by_role("link", name="Buy tea")).to_be_visible()
        port = int(server.address.rpartition(":")[2])
    await expect(page.get_by_text("Not live: trying to connect again")).to_be_visible()
    await expect(page.get_by_role("link", name="Buy tea")).to_be_visible()
    after = Desk(tmp_path)
    async with serving(after.hub, console=True, port=port):
        await after.hub.ask("clerk", "Buy milk", user="ada")
        await expect(page.get_by_role("link", name="Buy milk")).to_be_visible()
        await expect(page.get_by_role("link", name="Buy tea")).to_be_visible()
        await expect(page.get_by_text("Not live: trying to connect again")).to_have_count(0)


async def test_every_view_is_reached_with_the_keyboard_and_the_focus_is_always_seen(page: Page, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with serving(desk.hub, console=True) as server:
        await desk.hub.ask("clerk", "Buy tea", user="ada")
        await signed_in(page, server.address, "/runs")
        await expect(page.get_by_role("link", name="Buy tea")).to_be_visible()
        await page.keyboard.press("Tab")
        assert (await page.evaluate(FOCUS))["name"] == "Skip to the content"
        for view in VIEWS:
            for _ in range(MOST_STOPS):
                await page.keyboard.press("Tab")
                at = await page.evaluate(FOCUS)
                assert at["seen"], at["what"]
                if at["name"] == view:
                    break
            else:
                raise AssertionError(f"{view} is not reached with Tab")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("heading", name=view, level=1)).to_be_visible()


async def test_a_run_can_be_held_while_it_goes_on(page: Page, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with serving(desk.hub, console=True) as server, asyncio.TaskGroup() as group:
        asking = group.create_task(desk.hub.ask("boss", "Sort all", user="ada"))
        await signed_in(page, server.address, "/runs")
        await page.get_by_role("link", name="Sort all").click()
        rows = page.get_by_role("treegrid").get_by_role("row")
        await expect(rows).to_have_count(3)
        await page.keyboard.press("h")
        desk.go.set()
        await asking
        await expect(page.get_by_text("held back")).to_be_visible()
        await expect(rows).to_have_count(3)
        await page.keyboard.press("h")
        await expect(rows).to_have_count(4)
        await expect(page.get_by_role("treegrid").get_by_role("row", name="boss")).to_contain_text("Success")


async def test_a_person_who_looks_elsewhere_is_notified_without_a_word_of_what_is_said(
    page: Page, tmp_path: Path
) -> None:
    await page.context.grant_permissions(["notifications"])
    # A browser without a screen shows no notification: it is noted here, and is real otherwise. So is being hidden.
    await page.add_init_script(
        "const Real = Notification; window.shown = [];"
        "window.Notification = class extends Real {"
        "  constructor(title, more) { super(title, more); window.shown.push(`${title}. ${more.body}`); } };"
        "Object.defineProperty(document, 'hidden', { get: () => window.away === true });"
    )
    async with console_world(tmp_path) as world:
        await world.sign_in(page)
        await page.get_by_role("button", name="Notify me").click()
        await expect(page.get_by_role("button", name="Notifications are on")).to_be_visible()
        world.local.gate.clear()
        await world.begin(page, "Review the secret API")
        await page.evaluate("window.away = true")
        world.local.gate.set()
        # Asked again from here: the policy of the page lets no script of its own evaluate a text.
        shown = await eventually(lambda: page.evaluate("window.shown"), "a notification")
        assert shown == ["Remit: your decision is needed. A conversation with bob waits for you."]


_PATIENCE_MS = PATIENCE_S * 1_000
# What Ada said and the record does not hold.
UNREDACTED = (
    "DE89 3704 0044 0532 0130 00",
    "DE89370400440532013000",
    "ada.weber@example.org",
    "+49 30 901820",
    "901820",
)

# Everything that a script of the page could read or leave behind.
STORED = """async () => {
  const found = [document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage)];
  for (const each of await indexedDB.databases()) found.push(String(each.name));
  for (const each of await caches.keys()) found.push(each);
  found.push(String((await navigator.serviceWorker?.getRegistrations() ?? []).length));
  return found;
}"""


@asynccontextmanager
async def own_browser() -> AsyncGenerator[Browser]:
    """Run a browser that keeps no page for the way back: each would keep its streams, and there are six for a host."""
    try:
        program = chromium()
    except UnavailableError as error:
        pytest.skip(f"no Chromium to show the console in: {error}")
    async with async_playwright() as playwright:
        made = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield made
        await made.close()


@pytest.mark.skipif(not is_built(), reason="NOT TESTED: the console is not built here")
async def test_no_secret_is_in_any_byte_of_a_whole_session(tmp_path: Path) -> None:
    with dev(tmp_path, "example") as shown:
        runs = shown.until("/v1/runs", _is_whole)["runs"]
        (chat,) = shown.until("/v1/shared/runs", lambda found: bool(found["runs"]) and found["runs"][0]["waits"])[
            "runs"
        ]
        pages = _pages(shown, runs, chat["id"])
        async with byte_proxy() as proxy, own_browser() as browser:
            context = await browser.new_context(proxy={"server": proxy.address}, reduced_motion="reduce")
            context.set_default_timeout(_PATIENCE_MS)
            foreign: list[str] = []
            context.on(
                "request", lambda sent: None if sent.url.startswith(shown.said["address"]) else foreign.append(sent.url)
            )
            page = await context.new_page()
            await page.goto(shown.said["link"])
            for path, data in pages.items():
                await _visit(page, path)
                await _asked(proxy, f"GET {data}")
            await _act(page, f"/chat/{chat['id']}")
            stored = await page.evaluate(STORED)
            (cookie,) = await context.cookies()
            await context.close()
    secrets = list(_secrets(Path(shown.said["folder"])))
    assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
    assert foreign == [], "it asks no other host"
    assert stored[0] == "", "no script can read the session"
    assert stored[3:] == ["0"], "nothing is kept in databases, caches or workers"
    assert {"GET /v1/console", f"POST /v1/shared/runs/{chat['id']}/approve"} <= set(proxy.asked)
    everything = bytes(proxy.got) + "\n".join(stored).encode()
    assert OBJECTIVE.encode() in everything
    assert b"Claim the tax back, to [IBAN:" in everything
    assert len(secrets) > 30
    found = [name for name, secret in secrets for form in _forms(secret) if form in everything]
    assert found == []


def _is_whole(found: Any) -> bool:
    """Return whether all that the example does is done, but for what waits."""
    return any(each["objective"] == "Pay my bills." for each in found["runs"]) and len(found["runs"]) >= 11


def _pages(shown: Dev, runs: list[Any], chat: str) -> dict[str, str]:
    """Return every page of the console, those of a run for the one that waits, and what each asks for."""
    waiting, other = runs[0]["run"], runs[1]["run"]
    part = shown.get(f"/v1/runs/{waiting}")["delegations"][-1]["id"]
    return {
        "/runs": "/v1/runs?",
        "/approvals": "/v1/approvals",
        "/agents": "/v1/graph",
        "/agents/analyst": "/v1/agents/analyst",
        "/spend": "/v1/spend",
        "/sessions": "/v1/sessions",
        "/sessions/march": "/v1/sessions/march",
        "/audit": "/v1/audit",
        "/policy": "/v1/policy",
        "/chat": "/v1/shared/runs",
        f"/chat/{chat}": "/v1/shared/",
        "/devices": "/v1/shared/policies",
        f"/compare/{waiting}/{other}": f"/v1/runs/{other}/tree",
        f"/runs/{waiting}": f"/v1/runs/{waiting}/tree",
        f"/runs/{waiting}/workflow": f"/v1/runs/{waiting}/workflow",
        f"/runs/{waiting}/d/{part}": f"/v1/runs/{waiting}/delegations/",
    }


async def _asked(proxy: ByteProxy, beginning: str) -> None:
    """Return once the page has asked for its data."""
    async with asyncio.timeout(PATIENCE_S):
        while not any(each.startswith(beginning) for each in proxy.asked):
            await asyncio.sleep(0.02)


async def _visit(page: Page, path: str) -> None:
    """Go to a page, as a link in the console does, and wait until it shows what it is about."""
    await page.evaluate("path => history.pushState(null, '', path)", path)
    await expect(page.get_by_role("heading").first).to_be_visible(timeout=_PATIENCE_MS)
    await expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=_PATIENCE_MS)


async def _act(page: Page, path: str) -> None:
    """Approve the draft of the agent, and wait for the answer of the other device."""
    await _visit(page, path)
    await page.get_by_role("button", name="Approve").first.click()
    await expect(page.get_by_text("Everything else answers 401").first).to_be_visible(timeout=_PATIENCE_MS)


def _secrets(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield what nobody else may ever see: what is in the files of both devices, of the hubs and of the gateway."""
    for value in UNREDACTED:
        yield value, value.encode()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".token", ".key"):
            yield path.name, path.read_bytes().strip()
    sealed = (
        ("gateway.db", "SELECT body FROM message"),
        ("device.db", "SELECT value FROM facts"),
        ("device.db", "SELECT content FROM sessions"),
        ("device.db", "SELECT content FROM peers"),
        ("hub.db", "SELECT value FROM sealed"),
    )
    for name, query in sealed:
        for path in sorted(folder.rglob(name)):
            with closing(sqlite3.connect(path)) as file:
                for (value,) in file.execute(query):
                    yield f"{path.name}: {query}", value.encode() if isinstance(value, str) else bytes(value)


def _forms(secret: bytes) -> list[bytes]:
    """Return a secret as it may stand in a response; of base64, the part that does not depend on what is around it."""
    if len(secret) < 16:
        return [secret] if len(secret) >= 6 else []
    secret = secret[:48]
    forms = [secret, secret.hex().encode(), secret.hex().upper().encode()]
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + secret)[4:-4]
        forms += [encoded, encoded.replace(b"+", b"-").replace(b"/", b"_")]
    return forms
