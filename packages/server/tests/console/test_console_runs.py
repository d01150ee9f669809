"""Runs in a browser: lists, trees, one delegation, the steps of workflows."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from console_pages import PATIENT, signed_in, usable_in_both_looks
from decision_team import shop_in
from long_runs import long_run
from new_stores import new_store
from remit import Answer, Brief, Code, Hub, RemitError, Step, Usage, Workflow, fault
from remit_orchestrator import add_workflow
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


async def test_a_delegation_shows_what_its_callee_saw_beside_what_was_held_back(page: Page, tmp_path: Path) -> None:
    async with shop_in(tmp_path) as shop:
        await shop.answer(await shop.ask("4 euros", "s-1"), agree=True)
        run = await shop.ask("5 euros", "s-1")
        await shop.answer(run, agree=True)
        await signed_in(page, shop.address, f"/runs/{run}/d/{run}.2", shop.token)
        panel = page.get_by_role("complementary", name="Delegation to cashier")
        await expect(panel.get_by_text("paid 5 euros")).to_be_visible()
        await expect(panel.get_by_text("Approved by local")).to_be_visible()
        await panel.get_by_role("tab", name="Seen and held back").click()
        await expect(panel.get_by_role("heading", name="What cashier saw")).to_be_visible()
        held = panel.locator("section", has=page.get_by_role("heading", name="What was held back"))
        await expect(held.get_by_text("Beyond the count")).to_be_visible()
        await expect(held.get_by_text("4 euros", exact=True)).to_be_visible()
        await expect(held.get_by_role("row", name="objective EMAIL 1 a token")).to_be_visible()
        await expect(held.get_by_text("sign", exact=True)).to_be_visible()
        assert "bob@example.org" not in await page.content()
        await usable_in_both_looks(page)

        # With the keyboard alone.
        await panel.get_by_role("tab", name="Seen and held back").press("ArrowRight")
        verdicts = panel.get_by_role("list", name="Verdict of each guard, in the order in which they are asked")
        await expect(verdicts.get_by_role("listitem").filter(has_text="depth 1 of 3")).to_contain_text("Allowed")
        await expect(verdicts.get_by_role("listitem").filter(has_text="team_rules")).to_contain_text("Asked")
        await expect(panel.get_by_text("closed: cashier was called as usual").last).to_be_visible()
        await page.keyboard.press("ArrowRight")
        await expect(panel.get_by_text("Given back")).to_be_visible()
        await expect(panel.get_by_text("4,958")).to_be_visible()
        await page.keyboard.press("ArrowRight")
        await expect(panel.get_by_role("row").filter(has_text="delegation")).to_be_visible()


async def test_a_refusal_says_what_to_change_and_in_which_line(page: Page, tmp_path: Path) -> None:
    async with shop_in(tmp_path) as shop:
        run = await shop.ask("5 euros")
        await signed_in(page, shop.address, f"/runs/{run}/d/{run}.1", shop.token)
        panel = page.get_by_role("complementary", name="Delegation to vault")
        await expect(panel.get_by_text("shop may not call vault: its may_call does not name it")).to_be_visible()
        await expect(panel.get_by_text("agents.shop.may_call")).to_be_visible()
        await expect(panel.get_by_text("remit.toml, line 3")).to_be_visible()
        await expect(panel.get_by_text('Add "vault" to it.')).to_be_visible()
        await page.goto(f"{shop.address}/runs/{run}/d/{run}.2")
        waiting = page.get_by_role("complementary", name="Delegation to cashier")
        await waiting.get_by_role("link", name="Answer it").click()
        await expect(page.get_by_role("heading", name="May the cashier pay?")).to_be_visible()


async def test_a_person_watches_the_steps_of_a_workflow(page: Page, tmp_path: Path) -> None:
    hub = Hub(store=new_store(tmp_path / "hub.db"), durability="process", limits=PATIENT)
    begun, go_on = asyncio.Event(), asyncio.Event()
    tried: list[int] = []

    @hub.agent("worker")
    async def worker(brief: Brief) -> str:
        return f"{brief.objective} done"

    @hub.agent("shaky")
    async def shaky(_: Brief) -> str:
        tried.append(1)
        if len(tried) == 1:
            raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, "the timetable cannot be reached"))
        begun.set()
        await go_on.wait()
        return "42"

    assert worker
    assert shaky
    add_workflow(
        hub,
        Workflow(
            name="trip",
            steps=(
                Step(name="find", agent="worker", title="Find trains"),
                Step(name="price", agent="shaky", input="{find}", attempts=2, title="Compare prices"),
                Step(name="hotel", agent="worker", after=("find",), title="Find a hotel"),
                Step(name="upgrade", agent="worker", input="{price}", when="price == 0", title="Upgrade the seat"),
                Step(name="book", agent="worker", after=("price", "hotel"), title="Book all of it"),
            ),
        ),
    )
    async with serving(hub, console=True) as server:
        task = asyncio.create_task(hub.ask("trip", "Go to Bern", user="anna"))
        await begun.wait()
        await hub.store.flush()
        [run] = [each.run for each in await hub.store.runs(limit=1)]
        await signed_in(page, server.address, f"/runs/{run}/workflow")
        graph = page.get_by_role("region", name="Steps of trip as a graph")
        await expect(graph.get_by_role("link", name="Find trains: Done. Open its delegation")).to_be_visible()
        await expect(graph.get_by_role("link", name=re.compile("^Compare prices: Running"))).to_be_visible()
        await expect(graph.get_by_text("Planned")).to_have_count(2)
        await expect(page.get_by_text("2 of 5 steps done")).to_be_visible()

        # The rest happens without another click.
        go_on.set()
        await task
        await expect(page.get_by_text("4 of 4 steps done")).to_be_visible()
        steps = page.get_by_role("table", name="Steps")
        row = steps.get_by_role("row").filter(has=page.get_by_role("rowheader", name="Upgrade the seat"))
        await expect(row).to_contain_text("Skipped")
        await expect(row).to_contain_text("its condition does not hold: price == 0")
        retried = steps.get_by_role("row").filter(has=page.get_by_role("rowheader", name="Compare prices"))
        await expect(retried.get_by_role("link", name="attempt 2")).to_have_attribute(
            "href", f"/runs/{run}/d/{run}.price~2"
        )
        await expect(retried).to_contain_text("Failed")
        await usable_in_both_looks(page)

        await hub.ask("worker", "Alone", user="anna")
        [alone] = [each.run for each in await hub.store.runs(limit=1)]
        await page.goto(f"{server.address}/runs/{alone}/workflow")
        await expect(page.get_by_role("heading", name="This run followed no workflow")).to_be_visible()
        await page.goto(f"{server.address}/runs/absent/workflow")
        await expect(page.get_by_role("alert")).to_contain_text("no run `absent`")
