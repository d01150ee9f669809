"""How the console behaves when the network is slow, the server restarts, or there is only a keyboard."""

import asyncio
from pathlib import Path
from typing import Any

from playwright.async_api import Page, Route, expect

from chats import console_world
from console_pages import PATIENT, signed_in
from new_stores import new_store
from remit import Brief, Hub
from serving import serving

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
        await page.wait_for_function("window.shown.length > 0")
        assert await page.evaluate("window.shown") == [
            "Remit: your decision is needed. A conversation with bob waits for you."
        ]
