"""A workflow in the console: its steps as a graph and as a list, while they happen."""

import asyncio
import re
from pathlib import Path

from playwright.async_api import Page, expect

from console_pages import PATIENT, signed_in, usable_in_both_looks
from new_stores import new_store
from remit import Brief, Code, Hub, RemitError, Step, Workflow, fault
from remit_orchestrator import add_workflow
from serving import serving


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
