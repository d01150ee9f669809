"""The inbox in a browser: the whole request, answers by keyboard, several at once, and two people at once."""

from pathlib import Path

from playwright.async_api import Browser, Page, expect

from console_pages import signed_in, usable_in_both_looks
from decision_team import shop_in

PATIENCE_MS = 60_000


async def test_a_question_is_answered_with_the_keyboard_and_seen_at_once_elsewhere(
    page: Page, browser: Browser, tmp_path: Path
) -> None:
    other = await browser.new_context(reduced_motion="reduce")
    other.set_default_timeout(PATIENCE_MS)
    async with shop_in(tmp_path) as shop:
        second = await other.new_page()
        await signed_in(page, shop.address, "/approvals", shop.token)
        await expect(page.get_by_role("heading", name="Nothing waits for you.")).to_be_visible()
        await signed_in(second, shop.address, "/approvals", shop.token)
        run = await shop.ask("5 euros")

        # It comes by itself, in both, and in the navigation.
        for each in (page, second):
            await expect(each.get_by_role("heading", name="May the cashier pay?")).to_be_visible()
            await expect(each.get_by_role("link", name="Approvals 1 decision waits for you")).to_be_visible()
            await expect(each.get_by_text("rule 1 of remit.toml, line 29")).to_be_visible()
        await expect(page).to_have_title("(1) Approvals · Remit")
        assert "bob@example.org" not in await page.content()
        await usable_in_both_looks(page)

        await page.keyboard.press("e")
        await page.get_by_label("New input").fill("4 euros")
        await expect(page.get_by_role("deletion")).to_have_text("5")
        await page.keyboard.press("Escape")
        await page.keyboard.press("y")
        await page.keyboard.type("known supplier")
        await expect(page.get_by_text("Ctrl+Enter Approve edited")).to_be_visible()
        await page.keyboard.press("Control+Enter")
        await expect(page.get_by_text("Approved.", exact=True)).to_be_visible()
        assert (await shop.end(run))["result"] == "paid 4 euros"

        # The other one sees who was faster.
        await expect(second.get_by_text("local approved this.")).to_be_visible()
        await expect(second.get_by_text("Reason: known supplier")).to_be_visible()
        await expect(second.get_by_role("heading", name="Answered lately")).to_be_visible()
        await expect(second).to_have_title("Approvals · Remit")
    await other.close()


async def test_no_key_alone_gives_an_answer(page: Page, tmp_path: Path) -> None:
    async with shop_in(tmp_path) as shop:
        run = await shop.ask("5 euros")
        await signed_in(page, shop.address, "/approvals", shop.token)
        sent: list[str] = []
        page.on("request", lambda each: sent.append(each.url) if each.method == "POST" else None)
        reason = page.get_by_label("Reason", exact=True)
        await reason.fill("no, wrong account")
        await expect(reason).to_have_accessible_description(
            "Saved with your decision. The agent sees it only if you reject. "
            "Ctrl+Enter once Approve or Reject is chosen"
        )
        for key in ("Enter", "Control+Enter", "Escape", "y", "Enter", "Escape", "n", "Enter"):
            await page.keyboard.press(key)
        # The answer that has the focus is named, and is given by two keys together.
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("button", name="Edit")).to_be_focused()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("button", name="Approve")).to_be_focused()
        await expect(page.get_by_text("Ctrl+Enter Approve")).to_be_visible()
        await page.keyboard.press("Shift+Tab")
        await expect(page.get_by_text("Ctrl+Enter Reject")).to_be_visible()
        await reason.focus()
        assert sent == []
        await page.keyboard.press("Control+Enter")
        await expect(page.get_by_text("Rejected.", exact=True)).to_be_visible()
        assert len(sent) == 1
        assert "no, wrong account" in (await shop.end(run))["result"]


async def test_several_questions_are_answered_at_once(page: Page, tmp_path: Path) -> None:
    async with shop_in(tmp_path) as shop:
        runs = [await shop.ask(f"{number} euros") for number in (1, 2, 3)]
        await signed_in(page, shop.address, "/approvals", shop.token)
        boxes = page.get_by_role("checkbox", name="Select: May the cashier pay?")
        await expect(boxes).to_have_count(3)
        await expect(page.get_by_role("article")).to_be_visible()  # keys are about the question that is shown
        await page.keyboard.press("x")
        await expect(page.get_by_text("1 selected")).to_be_visible()
        await page.keyboard.press("j")
        await page.keyboard.press("x")
        await expect(page.get_by_text("2 selected")).to_be_visible()
        bar = page.get_by_role("region", name="2 selected")
        await bar.get_by_label("Reason").fill("not today")
        await bar.get_by_role("button", name="Reject 2").click()
        await expect(page.get_by_text("2 answered.")).to_be_visible()
        await expect(boxes).to_have_count(1)
        assert "not today" in (await shop.end(runs[0]))["result"]
        assert "not today" in (await shop.end(runs[1]))["result"]
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_contain_text("select for an answer to several")
