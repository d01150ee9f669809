"""A whole session in a browser, and every byte of it: no token, key, ciphertext or redacted value is among them."""

import asyncio
import base64
import sqlite3
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from byte_proxy import ByteProxy, byte_proxy
from chromium_install import UnavailableError, chromium
from dev_command import Dev, dev
from remit_cli.drive.dev import CLAIM
from remit_relay.commands.dev import OBJECTIVE
from remit_server.console.pages import is_built
from waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(not is_built(), reason="NOT TESTED: the console is not built here")

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
    return any(each["objective"].startswith(CLAIM[:10]) for each in found["runs"]) and len(found["runs"]) >= 10


def _pages(shown: Dev, runs: list[Any], chat: str) -> dict[str, str]:
    """Return every page of the console, those of a run for the one with the claim, and what each asks for."""
    claim, other = runs[0]["run"], runs[1]["run"]
    part = shown.get(f"/v1/runs/{claim}")["delegations"][-1]["id"]
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
        f"/compare/{claim}/{other}": f"/v1/runs/{other}/tree",
        f"/runs/{claim}": f"/v1/runs/{claim}/tree",
        f"/runs/{claim}/workflow": f"/v1/runs/{claim}/workflow",
        f"/runs/{claim}/d/{part}": f"/v1/runs/{claim}/delegations/",
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
