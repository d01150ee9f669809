"""The console of `remit up` in a real browser, beside a hostile server on another port of 127.0.0.1."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from playwright.async_api import Page, expect

from command_line import REMIT, document, remit
from remit_server.console.pages import is_built
from shared_teams import introduce, make_annas, make_bobs, relay, up
from terminals import Terminal

pytestmark = pytest.mark.skipif(not is_built(), reason="NOT TESTED: the console is not built here")

# What a page of another port can try: use the session, and look for its key.
ATTACK = """async address => {
  const tried = [];
  for (const mode of ["cors", "no-cors"]) {
    try {
      const reply = await fetch(`${address}/v1/shared/runs`, { credentials: "include", mode });
      tried.push(`${reply.type} ${await reply.text()}`);
    } catch (error) {
      tried.push("refused");
    }
  }
  const frame = document.createElement("iframe");
  frame.src = address;
  document.body.append(frame);
  await new Promise(loaded => frame.addEventListener("load", loaded));
  let within = "";
  try {
    within = frame.contentWindow.localStorage.length;
  } catch (error) {
    within = "refused";
  }
  return [tried, within, JSON.stringify(localStorage)];
}"""


@asynccontextmanager
async def hostile() -> AsyncGenerator[tuple[str, list[str]]]:
    """Serve a page on another port of 127.0.0.1, and yield its address and the cookies that it receives."""
    cookies: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        cookies.append(request.headers.get("cookie", ""))
        return web.Response(text="<!doctype html><title>Hostile</title>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", cookies
    finally:
        await runner.cleanup()


async def test_its_link_opens_what_waits_and_no_other_port_can_use_the_session(tmp_path: Path, page: Page) -> None:
    with relay(tmp_path) as gateway:
        annas = make_annas(tmp_path / "annas", gateway.said["address"])
        bobs = make_bobs(tmp_path / "bobs", gateway.said["address"])
        introduce(annas, bobs)
        with up("up", "--json", folder=bobs), up("up", "--json", folder=annas):
            address = await asyncio.to_thread(_waiting, annas)
            await page.goto(await asyncio.to_thread(_link, annas))
            # The page of the draft, without the key in its address.
            await expect(page.get_by_role("button", name="Approve").first).to_be_visible()
            run = document("pending", "list", folder=annas)["drafts"][0]["run"]
            assert page.url == f"{address}/chat/{run}"

            async with hostile() as (elsewhere, cookies):
                other = await page.context.new_page()
                await other.goto(elsewhere)
                tried, within, stored = await other.evaluate(ATTACK, address)
                assert (tried[0], tried[1].strip(), within, stored) == ("refused", "opaque", "refused", "{}")
                (cookie,) = {each for each in cookies if each}
                assert await _as_a_program(address, cookie) == {401}, "what the other server received is worth nothing"
                await other.close()

            # Another page of the same address is signed in.
            second = await page.context.new_page()
            await second.goto(f"{address}/chat/{run}")
            await expect(second.get_by_role("button", name="Approve").first).to_be_visible()
            await second.close()

            # A device that has revoked this one ends the run, and the page says so.
            assert remit("devices", "revoke", "anna", folder=bobs).returncode == 0
            await expect(page.get_by_text("The run has ended: bob has revoked this device.")).to_be_visible()
            await page.goto(await asyncio.to_thread(_link, annas))
            await expect(page).to_have_url(f"{address}/chat")


def _waiting(annas: Path) -> str:
    """Start a run whose draft waits, and return the address of the device's console."""
    with Terminal([REMIT, "chat", "mine", "bob", "--objective", "it", "--mode", "manual"], folder=annas) as chat:
        chat.wait_for("draft needs review")
    return _link(annas).partition("/v1/")[0]


def _link(folder: Path) -> str:
    done = remit("up", "--link", folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def _as_a_program(address: str, cookie: str) -> set[int]:
    """Return how the console answers a program that pretends to be its page, with the cookie alone."""
    headers: dict[str, Any] = {"cookie": cookie, "origin": address, "sec-fetch-site": "same-origin"}
    found: set[int] = set()
    async with ClientSession(address, headers=headers) as session:
        for path in ("/v1/console", "/v1/shared/runs", "/v1/shared/events"):
            async with session.get(path) as reply:
                found.add(reply.status)
        async with session.post("/v1/shared/runs", json={}) as reply:
            found.add(reply.status)
    return found
