"""The policy in a browser: a call explained guard by guard, and what a draft of the team file would change."""

from pathlib import Path

from playwright.async_api import Page, expect

from console_pages import signed_in, usable_in_both_looks
from decision_team import shop_in


async def test_a_call_is_explained_beside_what_a_draft_would_change(page: Page, tmp_path: Path) -> None:
    async with shop_in(tmp_path) as shop:
        await signed_in(page, shop.address, "/policy", shop.token)
        await expect(page.get_by_role("row", name="redaction The callee sees tokens")).to_be_visible()
        await page.get_by_label("From").fill("shop")
        await page.get_by_label("To", exact=True).fill("cashier")
        await page.get_by_label("Objective").fill("Pay bob@example.org")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Asks a person")).to_be_visible()
        await expect(page.get_by_text("EMAIL in objective: the callee sees a token")).to_be_visible()

        await page.get_by_role("button", name="Start with the present file").click()
        draft = page.get_by_label("Draft of the team file")
        text = await draft.input_value()
        await draft.fill(text.replace("max_depth = 3", "max_depth = 0").replace('then = "ask"', 'then = "allow"'))
        await page.get_by_role("button", name="Explain").click()
        await expect(page.get_by_text("2 guards decide otherwise.")).to_be_visible()
        await expect(page.get_by_role("row", name="depth changed Allowed Refused")).to_be_visible()
        await expect(page.get_by_role("row", name="team_rules changed Asked Allowed")).to_be_visible()
        await expect(page.get_by_text("limits.max_depth")).to_be_visible()
        await usable_in_both_looks(page)

        await draft.fill(text.replace("max_depth = 3", "max_deep = 3"))
        await page.get_by_role("button", name="Explain").click()
        await expect(page.get_by_role("alert")).to_contain_text("the draft of remit.toml is invalid")
        await expect(page.get_by_text("remit.toml:27 limits.max_deep")).to_be_visible()
