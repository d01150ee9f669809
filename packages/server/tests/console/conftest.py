"""A real browser: one Chromium for each test process, and a fresh profile in it for each test."""

import os
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from chromium_install import UnavailableError, chromium

_ARGUMENTS = (
    *(
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--no-default-browser-check",
    ),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--remote-debugging-port=0"),
)

# It listens within a second; a busy machine takes longer.
PATIENCE_S = 120

expect.set_options(timeout=PATIENCE_S * 1_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the tests of a process share an event loop, and so what drives the browser: a process that starts slowly."""
    for item in items:
        if "chromium_address" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def chromium_address() -> Generator[str]:
    """The address of a running Chromium. Without one the test is skipped, with the reason."""
    try:
        program = chromium()
    except UnavailableError as error:
        pytest.skip(f"no Chromium to show the console in: {error}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [program, *_ARGUMENTS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": folder},
        )
        try:
            yield f"http://127.0.0.1:{_port(Path(folder) / 'DevToolsActivePort', process)}"
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    """Return the port that Chromium writes into a file once it listens."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        assert process.poll() is None, f"Chromium ended with {process.returncode}"
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.05)
    raise AssertionError(f"Chromium did not listen within {PATIENCE_S} s")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium_address: str) -> AsyncGenerator[Browser]:
    """The browser; `new_context` makes a profile of its own, for tests with two people."""
    async with async_playwright() as playwright:
        yield await playwright.chromium.connect_over_cdp(chromium_address)


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> AsyncGenerator[BrowserContext]:
    """A fresh profile."""
    made = await browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    made.set_default_timeout(PATIENCE_S * 1_000)
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext) -> AsyncGenerator[Page]:
    """An empty page in a fresh profile. An error in its code, or something that its policy forbids, fails the test."""
    made = await context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)) if is_wrong(str(error)) else None)
    made.on("console", lambda said: wrong.append(said.text) if said.type == "error" and is_wrong(said.text) else None)
    yield made
    assert wrong == []


def is_wrong(said: str) -> bool:
    """Return whether an error tells of a fault in the page, not of a refusal or a lost connection."""
    return not any(lost in said for lost in ("Failed to load resource", "Failed to fetch", "Unable to preload"))
