"""The audit log in the console: its rows, one of them, and whether it is intact, in words."""

import json
import re
import sqlite3
from pathlib import Path

from playwright.async_api import Page, expect

from console_pages import signed_in, usable_in_both_looks
from remit import Brief, Hub
from remit.policy.reception import Permission, Sender
from remit.stores.sqlite import SqliteStore
from serving import serving

READER = Sender(name="ops", permissions=frozenset({Permission.READ}))


def hub_at(path: Path) -> Hub:
    hub = Hub(store=SqliteStore(path, durability="process"))

    @hub.agent("prime", may_call=["tag"])
    async def prime(brief: Brief) -> str:
        return str((await brief.delegate("tag", objective="Name the colours")).result)

    @hub.agent("tag")
    async def tag(_: Brief) -> str:
        return "red"

    assert prime
    assert tag
    return hub


async def test_a_person_looks_through_the_record_and_is_told_that_it_is_intact(page: Page, tmp_path: Path) -> None:
    hub = hub_at(tmp_path / "hub.db")
    async with serving(hub, READER, console=True) as server:
        for _ in range(60):
            await hub.ask("prime", "Sort my receipts", user="anna")
        await hub.ask("tag", "Sort", user="bob")
        await signed_in(page, server.address, "/audit")
        verdict = page.get_by_role("region", name="Verification")
        await expect(verdict.get_by_role("heading", name="The record is intact.")).to_be_visible()
        await expect(verdict).to_contain_text("242 rows follow from one another")
        await expect(verdict).to_contain_text("Last verified")

        rows = page.get_by_role("table", name="Rows of the record, newest first").get_by_role("row")
        await expect(rows.nth(1)).to_contain_text("242")
        assert await rows.count() < 100, "only what is seen is there"

        # Rows are chosen by keyboard, and the row stands in the address.
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        detail = page.get_by_role("region", name="Row 241")
        await expect(detail).to_contain_text("user asks tag: Sort")
        await expect(detail.get_by_role("button", name="Copy the digest")).to_be_visible()
        await expect(page).to_have_url(re.compile("row=241"))
        await usable_in_both_looks(page)
        await page.keyboard.press("Escape")
        await expect(detail).to_have_count(0)

        await page.get_by_label("User").fill("bob")
        await page.keyboard.press("Enter")
        await page.get_by_label("Kind").select_option("Answer")
        await expect(rows).to_have_count(2)
        await expect(page).to_have_url(re.compile("kind=result"))
        async with page.expect_download() as waiting:
            await page.get_by_role("button", name="Export as JSON lines").click()
        exported = Path(await (await waiting.value).path()).read_text("utf-8").splitlines()
        assert [json.loads(line)["seq"] for line in exported] == [242]

        # Rows that came since are shown when a person wants them.
        await hub.ask("tag", "Sort", user="bob")
        await page.get_by_role("button", name="1 new row").click()
        await expect(rows).to_have_count(3)
        await page.get_by_role("button", name="Clear filters").click()
        await page.get_by_role("button", name="Verify again").click()
        await expect(verdict).to_contain_text("244 rows follow from one another")
        await page.get_by_label("Agent").fill("absent")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="No row fits the filters")).to_be_visible()


async def test_a_changed_row_is_named_with_what_to_do(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with hub_at(path) as hub:
        await hub.ask("prime", "Sort my receipts", user="anna")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE record SET body = replace(CAST(body AS TEXT), 'red', 'blue') WHERE seq = 3")
    connection.commit()
    connection.close()
    stranger = Sender(name="stranger")
    async with serving(hub_at(path), READER, stranger, console=True) as server:
        await signed_in(page, server.address, "/audit")
        verdict = page.get_by_role("region", name="Verification")
        await expect(verdict.get_by_role("heading", name="The record was changed in one place.")).to_be_visible()
        await expect(verdict).to_contain_text("The content is not what was recorded.")
        await expect(verdict).to_contain_text("remit audit verify --anchor FILE")
        await usable_in_both_looks(page)
        await verdict.get_by_role("button", name="Row 3").click()
        await expect(page.get_by_role("region", name="Row 3")).to_contain_text("blue")

        # Whoever may not read the record is told what is missing.
        await page.context.clear_cookies()
        await signed_in(page, server.address, "/audit", "stranger")
        await expect(page.get_by_role("heading", name="Reading the record needs the permission")).to_be_visible()
