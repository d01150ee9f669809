"""The agents in the console: load, breaker, who calls whom, one agent with its errors and its ranking."""

import re
from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from console_pages import signed_in, usable_in_both_looks
from new_stores import new_store
from past_runs import write_past_runs
from remit import Brief, Capability, Code, Hub, RemitError
from remit.protocol.errors import fault
from serving import client_of, posted, serving


def office(folder: Path) -> Hub:
    hub = Hub(name="office", store=new_store(folder / "hub.db"), durability="process")

    @hub.agent("boss", may_call=["clerk", "scribe"], description="Plans the work.")
    async def boss(brief: Brief) -> object:
        return (await brief.delegate("clerk", objective=brief.text, capability="FILE")).result

    schema = {"type": "object", "properties": {"paper": {"type": "string"}}}
    filing = Capability(code="FILE", description="Files a paper.", result_schema=schema, examples=("File this",))

    @hub.agent("clerk", capabilities=[filing], description="Files papers.")
    async def clerk(_: Brief) -> object:
        return {"paper": "filed"}

    @hub.agent("deputy", capabilities=[Capability(code="FILE")])
    async def deputy(_: Brief) -> str:
        return "filed"

    @hub.agent("scribe")
    async def scribe(_: Brief) -> str:
        return "written"

    @hub.agent("broken", description="Fails all the time.")
    async def broken(_: Brief) -> str:
        raise RemitError(fault(Code.DELEGATION_FAILED, "no connection to the archive"))

    assert all((boss, clerk, deputy, scribe, broken))
    return hub


async def test_an_operator_sees_who_is_busy_who_fails_and_who_calls_whom(page: Page, tmp_path: Path) -> None:
    async with serving(office(tmp_path), console=True) as server, client_of(server) as web:
        await write_past_runs(server.api.delegations.hub.store, hours=20)
        failed: dict[str, Any] = {}
        for _ in range(5):
            _, failed = await posted(web, {"target": "broken", "user": "ben", "objective": "go"})
        await signed_in(page, server.address, "/agents")

        row = page.get_by_role("row", name=re.compile("broken"))
        await expect(row).to_contain_text("Open")
        await expect(row).to_contain_text("next probe in")
        await expect(row).to_contain_text("0%")
        await expect(page.get_by_role("row", name=re.compile("^clerk"))).to_contain_text("80%")
        await usable_in_both_looks(page)

        await page.get_by_label("Find an agent").fill("files")
        await expect(page.get_by_role("rowheader")).to_have_count(1)
        assert page.url.endswith("?q=files")
        await page.get_by_label("Find an agent").fill("nobody")
        await expect(page.get_by_text("No agent has this in its name")).to_be_visible()
        await page.get_by_label("Find an agent").fill("")

        await page.get_by_role("button", name="Who calls whom").press("Enter")
        graph = page.get_by_role("group", name="Agents and the calls between them")
        await expect(graph.get_by_role("link", name="clerk, 20 calls, 4 failed")).to_be_visible()
        calls = page.get_by_role("table")
        await expect(calls.get_by_role("row", name=re.compile("boss clerk Yes 20 4"))).to_be_visible()
        await expect(calls.get_by_role("row", name=re.compile("boss scribe Yes 0"))).to_be_visible()
        await page.get_by_role("switch", name="Also show who may call whom").click()
        await expect(calls.get_by_role("row", name=re.compile("boss scribe"))).to_have_count(0)
        await usable_in_both_looks(page)

        await graph.get_by_role("link", name=re.compile("broken")).press("Enter")
        await expect(page.get_by_role("heading", name="broken", level=1)).to_be_visible()
        errors = page.get_by_role("region", name="Last errors")
        await expect(errors.get_by_role("row")).to_have_count(6)
        await expect(errors.get_by_role("row").nth(1)).to_contain_text("no connection to the archive")
        await errors.get_by_role("link", name=f"Show run {failed['run']}").click()
        await page.wait_for_url(f"**/runs/{failed['run']}/d/{failed['run']}")


async def test_one_agent_has_its_card_its_past_and_the_reasons_of_its_rank(page: Page, tmp_path: Path) -> None:
    async with serving(office(tmp_path), console=True) as server, client_of(server) as web:
        await write_past_runs(server.api.delegations.hub.store, hours=60)
        await posted(web, {"target": "clerk", "user": "anna", "objective": "go", "capability": "FILE"})
        await signed_in(page, server.address, "/agents/clerk?days=7")

        card = page.get_by_role("region", name="Card")
        await expect(card.get_by_role("link", name="boss")).to_be_visible()
        load = page.get_by_role("region", name="Load")
        await expect(load.get_by_role("meter", name="Slots in use")).to_have_attribute("aria-valuetext", "0 of 256")
        await expect(page.get_by_text("Files a paper.")).to_be_visible()
        await page.get_by_text("Result", exact=True).click()
        await expect(page.get_by_text('"paper"')).to_be_visible()
        ranking = page.get_by_role("table", name="Who is asked first for FILE")
        await expect(ranking.get_by_role("row", name=re.compile("deputy"))).to_contain_text("little is known of it")

        chart = page.get_by_role("figure", name=re.compile("Delegations"))
        await chart.get_by_text("Show as a table").click()
        # All hours of which something is known, the current one, and the head.
        await expect(chart.get_by_role("row")).to_have_count(62)
        await usable_in_both_looks(page)
        await page.get_by_label("Period").select_option("24 hours")
        await expect(page).to_have_url(re.compile(r"/agents/clerk$"))
        await expect(chart.get_by_role("row").nth(30)).to_have_count(0)
        await expect(chart.get_by_role("row").nth(20)).to_be_visible()

        await page.goto(f"{server.address}/agents/clerc")
        await expect(page.get_by_role("alert")).to_contain_text("did you mean `clerk`?")
        await signed_in(page, server.address, "/agents", token="anna-app")
        await expect(page.get_by_text("You may not see this.")).to_be_visible()
