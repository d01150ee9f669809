"""Takes pictures of `remit dev` in a real browser, for README and docs. Run by `make screenshots`."""

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Page, sync_playwright

from chromium_install import chromium

SIZE = {"width": 1200, "height": 750}
PATIENCE_MS = 60_000


class Picture(NamedTuple):
    """A page of the console, and what is clicked before the picture is taken."""

    name: str
    path: str
    shows: str
    """A text that is there once the page is complete."""
    click: tuple[tuple[str, str], ...] = ()
    """Roles and names, one after another."""
    look: str = "light"


def pictures(run: str, delegation: str, chat: str) -> list[Picture]:
    """Return the pictures for README and docs."""
    call = f"/runs/{run}/d/{delegation}"
    return [
        Picture("console-runs", "/runs", "Look closely at every receipt"),
        Picture("console-run", f"/runs/{run}", "Timed out"),
        Picture("console-call", call, "Tokens of its own", look="dark"),
        Picture("console-seen", call, "Tokens of its own", (("tab", "Seen and held back"),)),
        Picture("console-approvals", "/approvals", "Pay this?"),
        Picture("console-agents", "/agents?view=graph", "Who calls whom"),
        Picture("console-audit", "/audit", "The record is intact."),
        Picture("console-chat", f"/chat/{chat}", "Approve"),
        Picture("console-chat-dark", f"/chat/{chat}", "Approve", look="dark"),
    ]


def take(into: Path) -> None:
    """Start `remit dev` in an empty folder, take every picture, and stop it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "remit_cli", "dev", "--json", "--no-browser"]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            announced = json.loads(process.stdout.readline())
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
                page = browser.new_page(viewport=SIZE, reduced_motion="reduce")  # type: ignore[arg-type]
                page.set_default_timeout(PATIENCE_MS)
                page.goto(announced["link"])
                _take_all(page, announced["address"], into)
                browser.close()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def _take_all(page: Page, address: str, into: Path) -> None:
    page.get_by_role("link", name="Approvals").click()
    page.get_by_text("Pay this?").first.wait_for()  # Ada's last wish: everything before it is done
    listed = _got(page, "/v1/runs")["runs"]
    run = next(each["run"] for each in listed if each["objective"].startswith("Look closely"))
    calls = _got(page, f"/v1/runs/{run}")["delegations"]
    call = next(each["id"] for each in calls if each["target"] == "analyst" and each["status"] == "success")
    chat = _got(page, "/v1/shared/runs")["runs"][0]["id"]
    for each in pictures(run, call, chat):
        page.emulate_media(color_scheme=each.look, reduced_motion="reduce")  # type: ignore[arg-type]
        page.goto(address + each.path)
        page.get_by_text(each.shows).first.wait_for()
        for role, name in each.click:
            page.get_by_role(role, name=name).click()  # type: ignore[arg-type]
        page.wait_for_timeout(1_500)  # charts and graphs are drawn after their data has come
        page.screenshot(path=into / f"{each.name}.png")


def _got(page: Page, path: str) -> Any:
    keyed = '{headers: {"x-remit-page-key": localStorage.getItem("remit.page-key")}}'
    return page.evaluate(f"path => fetch(path, {keyed}).then(reply => reply.json())", path)


if __name__ == "__main__":
    take(Path(__file__).parent / "images")
