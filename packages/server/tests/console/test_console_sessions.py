"""Conversations in the console: the list with its filters, and one of them with its notes."""

import re
from pathlib import Path

from playwright.async_api import Page, expect

from console_pages import signed_in, usable_in_both_looks
from new_stores import new_store
from remit import Brief, Hub
from serving import serving


async def test_a_person_finds_a_conversation_and_reads_what_was_said(page: Page, tmp_path: Path) -> None:
    hub = Hub(store=new_store(tmp_path / "hub.db"), durability="process")

    @hub.agent("prime")
    async def prime(brief: Brief) -> str:
        if brief.objective == "Book the train":
            raise ValueError("sold out")
        brief.note("decision", "Receipts are sorted by month")
        return f"Done: {brief.objective}"

    assert prime
    async with serving(hub, console=True) as server:
        await signed_in(page, server.address, "/sessions")
        await expect(page.get_by_role("heading", name="No conversations yet")).to_be_visible()
        await expect(page.get_by_text("remit run AGENT")).to_be_visible()
        for objective, session in (("Sort my receipts", "receipts"), ("Write to bob@example.org", "mail")):
            await hub.ask("prime", objective, user="anna", session=session)
        for place in range(25):
            await hub.ask("prime", f"Part {place} of the receipts", user="anna", session="receipts")
        await hub.ask("prime", "Book the train", user="carl", session="train")
        await page.reload()

        table = page.get_by_role("table", name="Conversations")
        await expect(table.get_by_role("row")).to_have_count(4)
        await expect(table.get_by_role("row").nth(1)).to_contain_text("Book the train")
        await expect(table.get_by_role("row").filter(has_text="receipts")).to_contain_text("52")
        await expect(page.get_by_text("bob@example.org")).to_have_count(0)
        await usable_in_both_looks(page)

        # What is chosen stands in the address, and holds when the page is loaded anew.
        await page.get_by_label("User").fill("carl")
        await page.keyboard.press("Enter")
        await expect(table.get_by_role("row")).to_have_count(2)
        await expect(page).to_have_url(re.compile("user=carl"))
        await page.reload()
        await expect(table.get_by_role("row")).to_have_count(2)
        await page.get_by_label("Text").fill("nothing like it")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="No conversation fits the filters")).to_be_visible()
        await page.get_by_role("button", name="Clear filters").click()

        await table.get_by_role("link", name="Book the train").click()
        await expect(page.get_by_role("heading", name="Conversation with prime")).to_be_visible()
        said = page.get_by_role("region", name="Messages").get_by_role("listitem")
        await expect(said).to_have_count(2)
        await expect(said.nth(1)).to_contain_text("Failed")
        await expect(said.nth(1)).to_contain_text("DELEGATION_FAILED")
        await expect(page.get_by_text("sold out")).to_have_count(0)

        await page.goto(f"{server.address}/sessions/receipts")
        await expect(said).to_have_count(50)
        await page.get_by_role("button", name="Show earlier messages").click()
        await expect(said).to_have_count(52)
        await expect(said.first).to_contain_text("Sort my receipts")
        await expect(page.get_by_text("The conversation begins here.")).to_be_visible()
        await expect(page.get_by_text("Receipts are sorted by month")).to_be_visible()
        await usable_in_both_looks(page)
        # What is said meanwhile appears by itself.
        await hub.ask("prime", "One more", user="anna", session="receipts")
        await expect(said.last).to_contain_text("Done: One more")
        await expect(said.first.get_by_role("link", name="Open the delegation")).to_have_attribute(
            "href", re.compile("^/runs/.+/d/.+")
        )
        await page.goto(f"{server.address}/sessions/absent")
        await expect(page.get_by_role("alert")).to_contain_text("no conversation `absent`")
