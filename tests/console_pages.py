"""What tests ask of every page of the console: that everybody can use it, and that it fits its window."""

from typing import Any, Literal, cast

from axe_playwright_python.async_playwright import Axe  # pyright: ignore[reportMissingTypeStubs]
from playwright.async_api import Page

from remit import Limits

# While a browser on a busy machine looks at a run, the run must not end: the default is 30 s for a delegation.
PATIENT = Limits(root_time_ms=1_800_000, delegation_time_ms=1_500_000)
# Rules of WCAG 2.2 up to level AA, and what the makers of axe advise besides.
_OPTIONS = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
}


async def violations(page: Page) -> list[str]:
    """Return what axe finds wrong in the page as it is now, each with the elements that it is about."""
    axe = cast("Any", Axe())  # it has no types
    found = (await axe.run(page, options=_OPTIONS)).response["violations"]
    return [f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes']]}" for each in found]


async def usable_in_both_looks(page: Page) -> None:
    """Check the page in light and dark, wide and narrow: nothing for axe to find, nothing beyond the window's edge."""
    before = page.viewport_size
    for width, height in ((1440, 900), (390, 844)):
        await page.set_viewport_size({"width": width, "height": height})
        for look in ("light", "dark"):
            await show_in(page, look)
            found = await violations(page)
            assert found == [], f"{look}, {width} px: {found}"
            beyond = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert beyond <= 0, f"{look}, {width} px: the page is {beyond} px wider than its window"
    if before is not None:
        await page.set_viewport_size(before)
    await show_in(page, "light")


async def show_in(page: Page, look: Literal["light", "dark"]) -> None:
    """Show the page in one of its two looks."""
    await page.emulate_media(color_scheme=look, reduced_motion="reduce")
    await page.wait_for_function("look => document.documentElement.dataset.theme === look", arg=look)


async def signed_in(page: Page, address: str, path: str = "/", token: str = "ops") -> None:
    """Sign the browser in with a token, and show a page of the server at *address*."""
    reply = await page.request.post(f"{address}/v1/console/session", data={"token": token}, headers={"origin": address})
    assert reply.ok, await reply.text()
    await page.goto(f"{address}/icon.svg")
    await page.evaluate("key => localStorage.setItem('remit.page-key', key)", (await reply.json())["page_key"])
    await page.goto(f"{address}{path}")
