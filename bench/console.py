"""A run of ten thousand delegations in a browser: until it is there, and while it is scrolled.

The floor of opening is a run of ten delegations in the same browser, in turns with the large one: what is above it is
the price of size, or of a browser that has nothing of the console yet. The floor of scrolling is the time between two
frames of the same page at rest. The floor of the server is the time that its store takes to read the same records.
Without Chromium nothing is measured, and the figures are left out.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright

from harness import Figure, at_most, cpu_seconds, main, sized
from remit import Hub
from remit_server.run_trees import RunTrees

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from chromium_install import UnavailableError, chromium
from console_pages import signed_in
from long_runs import long_run
from serving import serving

MANY, FEW = sized(10_000, 100), 10
ROUNDS, FRAMES = sized((5, 180), (1, 2))
# The goals are 1.5 s for many rows, and 1 s for a new browser; a page of ten rows takes a third of a second.
OPENING = 4.0
FRESH = 3.0
SCROLLING = 1.25
SERVER = 2.5

_SCROLL = """
async ([frames, step]) => {
  const grid = document.querySelector('[role=treegrid]');
  const next = () => new Promise(requestAnimationFrame);
  await next();
  const began = performance.now();
  for (let i = 0; i < frames; i++) { grid.scrollTop += step; await next(); }
  return (performance.now() - began) / frames;
}
"""


def measure() -> list[Figure]:
    try:
        chromium()
    except UnavailableError as error:
        print(f"no Chromium: {error}", file=sys.stderr)
        return []
    return asyncio.run(_measured())


async def _measured() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        hub = Hub(store=Path(folder) / "hub.db", durability="process")
        async with serving(hub, console=True) as server, async_playwright() as playwright:
            runs = {size: await long_run(hub.store, size) for size in (MANY, FEW)}
            reading, folding = await _server(hub, runs[MANY])
            browser = await playwright.chromium.launch(executable_path=str(chromium()), args=["--no-sandbox"])
            page = await browser.new_page(viewport={"width": 1440, "height": 900})
            await signed_in(page, server.address, "/runs")
            opened = {size: float("inf") for size in runs}
            for turn in range(ROUNDS):
                for size in sorted(runs, reverse=turn % 2 == 1):
                    took = await _opened(page, f"{server.address}/runs/{runs[size]}", size)
                    opened[size] = min(opened[size], took)
            await _opened(page, f"{server.address}/runs/{runs[MANY]}", MANY)
            still = min([await page.evaluate(_SCROLL, [FRAMES, 0]) for _ in range(ROUNDS)])
            moving = min([await page.evaluate(_SCROLL, [FRAMES, 300]) for _ in range(ROUNDS)])
            fresh = min([await _fresh(browser, server.address) for _ in range(ROUNDS)])
            await browser.close()
    return [
        Figure(
            name="console: the first page in a new browser",
            value=fresh,
            unit="s",
            floor=opened[FEW],
            bound=at_most(FRESH),
        ),
        Figure(
            name="console: open 10,000 delegations",
            value=opened[MANY],
            unit="s",
            floor=opened[FEW],
            bound=at_most(OPENING),
        ),
        Figure(name="console: a frame while scrolling", value=moving, unit="ms", floor=still, bound=at_most(SCROLLING)),
        Figure(
            name="console: 10,000 delegations at the server",
            value=folding,
            unit="s",
            floor=reading,
            bound=at_most(SERVER),
        ),
    ]


async def _opened(page: Page, address: str, size: int) -> float:
    """Return the seconds until the rows of a run are there."""
    await page.goto("about:blank")
    began = time.perf_counter()
    await page.goto(address, wait_until="commit")
    await page.wait_for_selector(f'[role=treegrid][aria-rowcount="{size + 1}"] [aria-level="2"]')
    return time.perf_counter() - began


async def _fresh(browser: Browser, address: str) -> float:
    """Return the seconds until the list of runs can be used in a browser that has nothing of the console yet."""
    context = await browser.new_context()
    page = await context.new_page()
    await signed_in(page, address, "/icon.svg")
    began = time.perf_counter()
    await page.goto(f"{address}/runs", wait_until="commit")
    await page.wait_for_selector("a.run")
    took = time.perf_counter() - began
    await context.close()
    return took


async def _server(hub: Hub, run: str) -> tuple[float, float]:
    """Return the CPU time to read the records of a run, and that to make the table of its delegations of them."""
    reading = folding = float("inf")
    for _ in range(ROUNDS):
        began, seq = cpu_seconds(), 0
        while page := await hub.store.records(run=run, after=seq, limit=500):
            seq = page[-1].seq
        reading = min(reading, cpu_seconds() - began)
        began = cpu_seconds()
        changes = await RunTrees(hub.store).changes(run, 0, time.time_ns() // 1_000_000)
        assert changes is not None
        assert changes.count == MANY
        folding = min(folding, cpu_seconds() - began)
    return reading, folding


if __name__ == "__main__":
    main(measure)
