"""Spend and budgets in the console: by user, agent, capability, day and model, with estimates in money."""

import asyncio
import csv
import re
from pathlib import Path

from msgspec.structs import replace
from playwright.async_api import Page, expect

from console_pages import PATIENT, signed_in, usable_in_both_looks
from new_stores import new_store
from past_runs import write_past_runs
from remit import Brief, Hub
from remit_server.documents.spend import Pricing
from remit_server.model_prices import Price, PriceBook
from serving import client_of, posted, serving

PRICES = Pricing(price=PriceBook({"acme:large": Price(input=3.0, output=15.0)}, "EUR").price, currency="EUR")


async def test_an_operator_finds_out_who_spent_what_and_takes_it_along_as_a_file(page: Page, tmp_path: Path) -> None:
    gate = asyncio.Event()
    limits = replace(PATIENT, user_tokens_per_day=100_000)
    hub = Hub(name="office", store=new_store(tmp_path / "hub.db"), durability="process", limits=limits)

    @hub.agent("waiter")
    async def waiter(brief: Brief) -> str:
        brief.spend(prompt=700)
        await gate.wait()
        return "done"

    assert waiter
    async with serving(hub, console=True, pricing=PRICES) as server, client_of(server) as web:
        await signed_in(page, server.address, "/spend")
        await expect(page.get_by_role("heading", name="Nothing was spent in this period.")).to_be_visible()
        await expect(page.get_by_text("remit ask")).to_be_visible()

        await write_past_runs(hub.store, hours=48)
        body = {"target": "waiter", "user": "dora", "objective": "wait", "max_tokens": 1_000}
        _, begun = await posted(web, body, Prefer="respond-async")
        await page.reload()
        table = page.get_by_role("table").filter(has_text="Total")
        await expect(table.get_by_role("row")).to_have_count(4)
        await expect(table.get_by_role("row", name=re.compile("Total"))).to_contain_text("96")
        await expect(page.get_by_text("estimate").first).to_be_visible()
        await expect(table.get_by_role("row", name=re.compile("clerk"))).to_contain_text("≈ €")
        await expect(page.get_by_text(re.compile("without .* tokens whose price is unknown"))).to_be_visible()

        budgets = page.get_by_role("region", name="Budgets")
        day = budgets.get_by_role("meter", name=re.compile("dora"))
        await expect(day).to_have_attribute("aria-valuetext", "1,000 of 100K")
        await expect(budgets.get_by_role("link", name="waiter for dora")).to_have_attribute(
            "href", f"/runs/{begun['run']}"
        )
        await expect(budgets.get_by_text("Tokens of a user in a day")).to_be_visible()
        await usable_in_both_looks(page)

        # From the agent to its users, and from there back to all.
        await table.get_by_role("button", name="Show only clerk").click()
        await expect(table.get_by_role("rowheader")).to_have_count(4)
        assert {"agent=clerk", "by=user"} <= set(page.url.partition("?")[2].split("&"))
        await table.get_by_role("button", name="Sort by User").press("Enter")
        await expect(table.get_by_role("rowheader").first).to_have_text("anna")
        await table.get_by_role("button", name="Sort by User").press("Enter")
        await expect(table.get_by_role("rowheader").first).to_have_text("carla")
        await page.get_by_role("button", name="Show all again, not only Agent clerk").click()
        await page.get_by_role("button", name="Model", exact=True).click()
        await expect(table.get_by_role("rowheader", name="(unknown)")).to_be_visible()
        await expect(table.get_by_role("row", name=re.compile("acme:small"))).to_contain_text("–")

        async with page.expect_download() as downloading:
            await page.get_by_role("button", name="Export CSV").click()
        download = await downloading.value
        assert download.suggested_filename == "spend-by-model.csv"
        await download.save_as(tmp_path / "spend.csv")
        lines = (tmp_path / "spend.csv").read_text("utf-8").splitlines()
        rows = {row["model"]: row for row in csv.DictReader(lines)}
        assert rows.keys() == {"", "acme:large", "acme:small"}
        assert float(rows["acme:large"]["cost_estimate_eur"]) > 0
        assert rows["acme:small"]["cost_estimate_eur"] == ""

        await page.get_by_role("button", name="Tokens", exact=True).click()
        chart = page.get_by_role("figure", name=re.compile("Tokens"))
        await chart.get_by_text("Show as a table").click()
        await expect(chart.get_by_role("columnheader", name="written")).to_be_visible()
        await page.get_by_label("Period").select_option("From … to …")
        await expect(page.get_by_label("From", exact=True)).to_be_visible()
        await page.get_by_label("From", exact=True).fill("2020-01-01")
        await page.get_by_label("To", exact=True).fill("2020-01-02")
        await expect(page.get_by_role("heading", name="Nothing was spent in this period.")).to_be_visible()
        gate.set()
