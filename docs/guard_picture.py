"""Takes a picture of a session of a coding tool in the console, for its page. Run by `make screenshots`."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from aiohttp import ClientSession, UnixConnector
from playwright.sync_api import sync_playwright

from chromium_install import chromium
from remit_guard.places import socket_of
from remit_guard.status import console_link, guard_status

SIZE = {"width": 1200, "height": 560}
PATIENCE_MS = 60_000

# Who starts whom: the session, a kind, and a task.
TREE = (
    ("shop", "explore", "Find the failing test"),
    ("Find the failing test", "explore", "List the fixtures"),
    ("List the fixtures", "explore", "Read each fixture"),
    ("shop", "general", "Mend the price of bundles"),
    ("Mend the price of bundles", "reviewer", "Look for other callers"),
    ("Mend the price of bundles", "reviewer", "Look at the migration"),
    ("shop", "general", "Write the changelog"),
)
DONE = ("List the fixtures", "Find the failing test", "Look for other callers")


def events() -> Iterable[dict[str, object]]:
    """Return what OpenCode would tell of such a session."""
    yield {"event": "created", "session": "shop", "directory": "/home/ada/shop"}
    yield {"event": "message", "session": "shop", "message": "m", "tokens": {"input": 41_200, "output": 3_100}}
    for number, (parent, kind, title) in enumerate(TREE):
        yield {
            "event": "spawn",
            "session": parent,
            "call": f"call-{number}",
            "kind": kind,
            "title": title,
            "task": title,
        }
        yield {"event": "created", "session": title, "parent": parent}
        spent = {"input": 9_000 + 4_321 * number, "output": 800 + 97 * number, "cached": 30_000}
        yield {"event": "message", "session": title, "message": "m", "tokens": spent}
    for title in DONE:
        yield {"event": "idle", "session": title}


async def tell(folder: Path) -> None:
    """Send all of it to a running guard."""
    async with ClientSession("http://guard", connector=UnixConnector(str(socket_of(folder)))) as web:
        for event in events():
            async with web.post("/hooks/opencode", json={"root": "shop", **event}) as reply:
                await reply.read()


def take(into: Path) -> None:
    """Start a guard in an empty folder, tell it of a session, and take the picture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "remit_cli", "guard"]
        variables = {**os.environ, "REMIT_GUARD": name, "LOGNAME": "ada", "USER": "ada"}
        (folder / "remit.toml").write_text("[guard]\ndepth = 2\n", encoding="utf-8")
        subprocess.run([*command, "serve", "--detach"], cwd=folder, env=variables, check=True, capture_output=True)
        try:
            assert guard_status(folder) is not None
            asyncio.run(tell(folder))
            console = console_link(folder)
            assert console is not None
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
                page = browser.new_page(viewport=SIZE, reduced_motion="reduce")  # type: ignore[arg-type]
                page.set_default_timeout(PATIENCE_MS)
                page.goto(console.link)
                page.get_by_text("A session in /home/ada/shop").first.click()
                page.get_by_text("Look at the migration").first.wait_for()
                page.wait_for_timeout(1_500)  # charts and graphs are drawn after their data has come
                page.screenshot(path=into / "console-guard.png")
                browser.close()
        finally:
            subprocess.run([*command, "stop"], cwd=folder, env=variables, check=True, capture_output=True)


if __name__ == "__main__":
    take(Path(__file__).parent / "images")
