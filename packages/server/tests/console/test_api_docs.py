"""The page that shows the API: from this server alone, under a strict policy, on every screen."""

from functools import partial
from pathlib import Path

import pytest
from aiohttp import ClientSession
from playwright.async_api import Page, expect

from console_pages import echoing_hub, usable_in_both_looks
from remit_relay.local_api.serving import BrowserLinks, Changes, serve_shared
from remit_server.app import Api
from remit_server.console.hosts import TOKEN_FILE
from remit_server.console.pages import CSP, is_built
from remit_server.openapi import document
from serving import serving
from two_sides import two_sides

pytestmark = pytest.mark.skipif(not is_built(), reason="NOT TESTED: the console is not built here")


async def test_a_person_reads_the_api_of_a_server_without_a_token_or_the_console(page: Page) -> None:
    urls: list[str] = []
    page.on("request", lambda sent: urls.append(sent.url))
    async with serving(echoing_hub()) as server:
        reply = await page.goto(f"{server.address}/docs#ask")
        assert reply is not None
        assert reply.headers["content-security-policy"] == CSP
        ask = page.get_by_role("article", name="POST /v1/delegations", exact=True)
        await expect(ask).to_be_in_viewport()
        for width in (1440, 390):
            await page.set_viewport_size({"width": width, "height": 900})
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
        operations = sum(len(each) for each in document()["paths"].values())
        await expect(page.locator("article[id]:not([id^=schema-])")).to_have_count(operations)
        await expect(page.locator("article[id^=schema-]")).to_have_count(len(document()["components"]["schemas"]))
        await ask.get_by_text("Example").click()
        await expect(ask.get_by_role("region", name="Example")).to_contain_text('{"target":"text"')
        await ask.get_by_role("link", name="Submission").click()
        await expect(page.get_by_role("article", name="Submission", exact=True)).to_be_in_viewport()
        await page.get_by_role("searchbox").fill("approvals post")
        await expect(page.locator("article")).to_have_count(3)
        await usable_in_both_looks(page)
        assert [each for each in urls if not each.startswith(server.address)] == []


async def test_only_the_files_of_the_page_are_sent_where_there_is_no_console() -> None:
    async with serving(echoing_hub()) as server, ClientSession(server.address) as session:
        async with session.get("/docs") as reply:
            assert (reply.status, reply.headers["content-security-policy"]) == (200, CSP)
            text = await reply.text()
        assert "<script" in text
        for path in ("/", "/runs", "/docs.html", "/docs/shared", "/assets/none.js", "/assets/%2e%2e/.source"):
            async with session.get(path, headers={"accept": "text/html"}) as reply:
                assert reply.status == 404, path
        async with session.head("/docs") as reply:
            assert reply.status == 200


async def test_a_device_shows_both_of_its_apis_to_a_signed_in_browser(page: Page, tmp_path: Path) -> None:
    changes, links, token = Changes(), BrowserLinks(), tmp_path / TOKEN_FILE
    async with two_sides(tmp_path, changed=changes.changed) as sides, echoing_hub() as hub:
        operator = partial(Api, hub)
        async with serve_shared(sides.host, changes, token=token, links=links, operator=operator) as address:
            await page.goto(f"{address}/docs")
            await expect(page.get_by_role("link", name="Sign in")).to_be_visible()
            await page.goto(links.new())
            await expect(page.get_by_role("navigation")).to_be_visible()
            await page.goto(f"{address}/docs/shared")
            await expect(page.get_by_role("heading", name="Remit on this machine", level=1)).to_be_visible()
            await page.get_by_role("link", name="The API of the hub").click()
            await expect(page.get_by_role("article", name="POST /v1/delegations", exact=True)).to_be_attached()
        async with serve_shared(sides.host, changes, token=token, links=links) as address:
            await page.goto(links.new())
            await page.goto(f"{address}/docs")
            await expect(page.get_by_role("heading", name="Remit on this machine", level=1)).to_be_visible()
