"""Runs in the console: found, followed, opened however large, searched, played back, acted on and compared."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from console_pages import PATIENT, signed_in, usable_in_both_looks
from long_runs import long_run
from new_stores import new_store
from remit import Answer, Brief, Hub, Usage
from serving import serving

# A page with ten thousand delegations draws those that can be seen.
MOST_ELEMENTS = 1_500


class Office:
    """A hub whose boss asks a clerk, a careless one and a waiter, who waits until it is let go."""

    def __init__(self, folder: Path) -> None:
        self.hub = hub = Hub(store=new_store(folder / "hub.db"), durability="process", limits=PATIENT)
        self.go = asyncio.Event()
        self.waits = asyncio.Event()

        @hub.agent("clerk")
        async def clerk(brief: Brief) -> Answer:
            return Answer(f"sorted {brief.text}", usage=Usage(prompt=700, completion=90))

        @hub.agent("careless")
        async def careless(_: Brief) -> str:
            raise ValueError("no idea")

        @hub.agent("waiter")
        async def waiter(brief: Brief) -> str:
            brief.progress("half of the pages")
            self.waits.set()
            await self.go.wait()
            return "read"

        @hub.agent("boss", may_call=["clerk", "careless", "waiter"])
        async def boss(brief: Brief) -> str:
            await brief.delegate("clerk", objective="Sort the receipts of March")
            await brief.delegate("careless", objective="Lose the letters")
            if "wait" in brief.text:
                ended = await brief.delegate("waiter", objective="Read the contract")
                return f"the contract: {ended.status}"
            return f"done: {brief.text}"

        assert clerk
        assert careless
        assert waiter
        assert boss


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


async def test_runs_are_listed_searched_and_followed(page: Page, office: Office) -> None:
    hub = office.hub
    async with serving(hub, console=True) as server:
        await signed_in(page, server.address, "/runs")
        await expect(page.get_by_text('remit run AGENT "Sort my receipts"')).to_be_visible()
        await hub.ask("clerk", "Buy tea", user="ada")
        await expect(page.get_by_role("link", name="Buy tea")).to_be_visible()  # it came by itself
        lost = await hub.ask("careless", "Lose the papers", user="ben")
        await hub.ask("boss", "File all", user="ada")
        rows = page.get_by_role("table", name="Runs, newest first").get_by_role("row")
        await expect(rows).to_have_count(4)
        await usable_in_both_looks(page)
        await page.keyboard.press("/")
        await page.keyboard.type("papers")
        await expect(rows).to_have_count(2)
        await expect(page).to_have_url(re.compile(r"\?q=papers$"))
        await page.get_by_label("Outcome").select_option("failed")
        await page.get_by_role("button", name="Saved filters").click()
        await page.get_by_role("menuitem", name="Save these filters…").click()
        await page.get_by_label("Name").fill("Lost papers")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Clear filters").click()
        await expect(rows).to_have_count(4)
        await page.get_by_role("button", name="Saved filters").click()
        await page.get_by_role("menuitem", name="Lost papers", exact=True).click()
        await expect(rows).to_have_count(2)
        await expect(rows.nth(1)).to_contain_text("DELEGATION_FAILED")
        await page.reload()  # the address says it all
        await expect(page.get_by_label("Search runs")).to_have_value("papers")
        await expect(rows).to_have_count(2)
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{server.address}/runs/{lost.run}")
        await expect(page.get_by_role("heading", name="Lose the papers", level=1)).to_be_visible()
        await page.goto(f"{server.address}/runs?q=nothing+like+it")
        await expect(page.get_by_text("remit runs list")).to_be_visible()


async def test_a_run_is_followed_walked_by_keys_and_acted_on(page: Page, office: Office) -> None:
    async with serving(office.hub, console=True) as server, asyncio.TaskGroup() as group:
        asking = group.create_task(office.hub.ask("boss", "wait for it", user="ada"))
        await office.waits.wait()
        await office.hub.store.flush()
        (known,) = await office.hub.store.runs(limit=1)
        await signed_in(page, server.address, f"/runs/{known.run}")
        grid = page.get_by_role("treegrid")
        waiter = grid.get_by_role("row", name="waiter")
        await expect(waiter).to_contain_text("Running")
        await expect(waiter).to_contain_text("half of the pages")
        assert await waiter.get_attribute("aria-level") == "2"
        assert await waiter.get_attribute("aria-posinset") == "3"
        await usable_in_both_looks(page)
        # Keys: down to the last, up, collapse and expand, help.
        for key in ("j", "j", "j", "k", "j"):
            await page.keyboard.press(key)
        pointed = await grid.get_attribute("aria-activedescendant")
        assert pointed is not None
        assert await waiter.get_attribute("id") == pointed
        await page.keyboard.press("ArrowLeft")
        await page.keyboard.press("ArrowLeft")
        await expect(grid.get_by_role("row", name="boss")).to_have_attribute("aria-expanded", "false")
        await expect(waiter).to_have_count(0)
        await page.keyboard.press("ArrowRight")
        await expect(waiter).to_be_visible()
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        await page.keyboard.press("Escape")
        # Failed first, and a search that keeps who asked for it.
        await page.get_by_label("Failed first").click()
        await expect(grid.get_by_role("row").nth(2)).to_contain_text("careless")
        await page.keyboard.press("/")
        await page.keyboard.type("march")
        await expect(grid.get_by_role("row")).to_have_count(3)
        await expect(grid.get_by_role("row").nth(1)).to_contain_text("boss")
        await page.keyboard.press("Escape")
        # A part is cancelled, and the rest goes on to its end without a reload.
        await waiter.click()
        await expect(page).to_have_url(f"{server.address}/runs/{known.run}/d/{known.run}.3")
        await page.get_by_role("button", name="Cancel this part").click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel this part").click()
        await expect(waiter).to_contain_text("Cancelled")
        await expect(grid.get_by_role("row", name="boss")).to_contain_text("Success")
        await page.keyboard.press("Escape")
        await expect(page).to_have_url(f"{server.address}/runs/{known.run}")
        response = await asking
        assert response.result == "the contract: cancelled"
        # Played back: before it began, the waiter is not there.
        slider = page.get_by_role("slider", name="Play the run back")
        await slider.focus()
        await page.keyboard.press("Home")
        await expect(waiter).to_have_count(0)
        await page.get_by_role("button", name="Back to now").click()
        await expect(waiter).to_have_count(1)


async def test_a_failed_run_is_retried_and_both_are_compared(page: Page, office: Office) -> None:
    async with serving(office.hub, console=True) as server:
        first = await office.hub.ask("careless", "Lose the papers", user="ada")
        await signed_in(page, server.address, f"/runs/{first.run}")
        await page.get_by_role("button", name="Retry").click()
        await page.get_by_role("dialog").get_by_role("button", name="Retry").click()
        await expect(page).not_to_have_url(f"{server.address}/runs/{first.run}")
        await expect(page.get_by_role("log", name="Notes")).to_contain_text("The new run has begun.")
        await page.get_by_role("button", name="Compare").click()
        await page.get_by_role("dialog").get_by_role("link", name="Lose the papers").click()
        await expect(page.get_by_role("heading", name="Two runs side by side")).to_be_visible()
        await page.get_by_label("Only what differs").set_checked(False)
        await expect(page.get_by_role("grid").get_by_role("row", name="careless")).to_contain_text("Failed")
        await usable_in_both_looks(page)


async def test_a_run_with_ten_thousand_delegations_is_opened_searched_and_linked_to(page: Page, office: Office) -> None:
    async with serving(office.hub, console=True) as server:
        run = await long_run(office.hub.store, 10_000)
        await signed_in(page, server.address, f"/runs/{run}/d/{run}.77.50")
        grid = page.get_by_role("treegrid")
        await expect(grid).to_have_attribute("aria-rowcount", "10001")
        # The row of the link is there, and pointed at.
        linked = grid.get_by_role("row", selected=True)
        await expect(linked).to_contain_text("Read page 7650")
        await expect(grid).to_have_attribute("aria-activedescendant", "d-77.50")
        await grid.focus()
        await page.keyboard.press("End")
        await expect(grid.get_by_role("row", name="Read page 9999")).to_be_visible()
        await page.keyboard.press("Home")
        await expect(grid.get_by_role("row", name="boss")).to_be_visible()
        assert await page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS
        await page.keyboard.press("/")
        await page.keyboard.type("page 4321")
        await expect(grid.get_by_role("row")).to_have_count(4)
        await expect(page.get_by_text("1 of 10000")).to_be_visible()
