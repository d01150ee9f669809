"""One delegation in a browser: what was seen and held back, the verdicts, the remit, and a refusal explained."""

from pathlib import Path

from playwright.async_api import Page, expect

from console_pages import signed_in, usable_in_both_looks
from decision_team import shop_in


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
