"""The frame of the console: signing in, the two looks, the keyboard, and what it costs to load."""

from playwright.async_api import Page, expect

from console_pages import signed_in, usable_in_both_looks
from remit import Brief, Hub
from serving import serving


def hub_of() -> Hub:
    hub = Hub()

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return brief.objective

    return hub


async def test_a_person_signs_in_with_a_token_and_out_again(page: Page) -> None:
    async with serving(hub_of(), console=True) as server:
        await page.goto(f"{server.address}/runs")
        await usable_in_both_looks(page)
        await page.get_by_label("Token").fill("wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_have_text("This token is not known here.")
        await page.get_by_label("Token").fill("ops")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
        await page.get_by_role("button", name="Signed in as ops").click()
        await page.get_by_role("menuitem", name="Sign out").click()
        await expect(page.get_by_role("heading", name="Sign in to Remit")).to_be_visible()


async def test_the_first_page_takes_less_than_250_kb_and_nothing_from_elsewhere(page: Page) -> None:
    async with serving(hub_of(), console=True) as server:
        await signed_in(page, server.address, "/runs")
        await expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
        await page.wait_for_load_state("load")
        loaded = await page.evaluate(
            "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
            ".map(each => [each.name, each.transferSize])"
        )
        assert [name for name, _ in loaded if not name.startswith(server.address)] == []
        assert 20_000 < sum(size for _, size in loaded) < 250_000
