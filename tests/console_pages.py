"""What tests ask of every page of the console: that everybody can use it, and that it fits its window."""

import os
from collections.abc import Mapping
from typing import Literal

from axe_playwright_python.async_playwright import Axe  # pyright: ignore[reportMissingTypeStubs]
from playwright.async_api import Page

from remit import Brief, Hub, Limits
from waiting import eventually

# While a browser on a busy machine looks at a run, the run must not end: the default is 30 s for a delegation.
PATIENT = Limits(root_time_ms=1_800_000, delegation_time_ms=1_500_000)
# Rules of WCAG 2.2 up to level AA, and what the makers of axe advise besides.
_OPTIONS = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]},
    # Nothing of what is right, which would be most of a megabyte.
    "resultTypes": ["violations"],
}
# What depends on the look or the width of a page; all the rest was found in its first view.
_OF_VIEW = {**_OPTIONS, "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block", "target-size"]}}
_RUN = """async options => (await axe.run(document, options)).violations.map(
    ({id, help, nodes}) => `${id}: ${help}: ${nodes.map(node => node.html.slice(0, 200)).join(", ")}`)"""
_Look = Literal["light", "dark"]
# Each look and each width once, then the others, which `make test-console` has besides.
_ALL_VIEWS: tuple[tuple[int, int, _Look], ...] = (
    (1440, 900, "light"),
    (390, 844, "dark"),
    (1440, 900, "dark"),
    (390, 844, "light"),
)
_VIEWS = _ALL_VIEWS if os.environ.get("REMIT_ALL_VIEWS") else _ALL_VIEWS[:2]


async def violations(page: Page, options: Mapping[str, object] = _OPTIONS) -> list[str]:
    """Return what axe finds wrong in the page as it is now, each with the elements that it is about."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(str(Axe().axe_script))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return await page.evaluate(_RUN, options)


async def usable_in_both_looks(page: Page) -> None:
    """Check the page in light and dark, wide and narrow: nothing for axe to find, nothing beyond the window's edge."""
    before = page.viewport_size
    for number, (width, height, look) in enumerate(_VIEWS):
        await page.set_viewport_size({"width": width, "height": height})
        await show_in(page, look)
        violated = await violations(page, _OF_VIEW if number and _VIEWS is not _ALL_VIEWS else _OPTIONS)
        assert violated == [], f"{look}, {width} px: {violated}"
        beyond = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert beyond <= 0, f"{look}, {width} px: the page is {beyond} px wider than its window"
    if before is not None:
        await page.set_viewport_size(before)
    await show_in(page, "light")


async def show_in(page: Page, look: _Look) -> None:
    """Show the page in one of its two looks."""
    await page.emulate_media(color_scheme=look, reduced_motion="reduce")
    await eventually(lambda: page.evaluate("document.documentElement.dataset.theme"), when=lambda now: now == look)


async def signed_in(page: Page, address: str, path: str = "/", token: str = "ops") -> None:
    """Sign the browser in with a token, and show a page of the server at *address*."""
    reply = await page.request.post(f"{address}/v1/console/session", data={"token": token}, headers={"origin": address})
    assert reply.ok, await reply.text()
    await page.goto(f"{address}/icon.svg")
    await page.evaluate("key => localStorage.setItem('remit.page-key', key)", (await reply.json())["page_key"])
    await page.goto(f"{address}{path}")


def echoing_hub() -> Hub:
    hub = Hub()

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return brief.objective

    return hub
