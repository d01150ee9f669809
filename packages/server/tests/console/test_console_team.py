"""A team in a browser: its agents, what it spends, its policy, its record, what waits for a person."""

import asyncio
import csv
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from playwright.async_api import Browser, Page, expect

from console_pages import PATIENT, signed_in, usable_in_both_looks
from decision_team import shop_in
from new_stores import new_store
from past_runs import write_past_runs
from remit import Brief, Capability, Code, Hub, RemitError
from remit.policy.reception import Permission, Sender
from remit.protocol.errors import fault
from remit.stores.sqlite import SqliteStore
from remit_server.documents.spend import Pricing
from remit_server.model_prices import Price, PriceBook
from serving import client_of, posted, serving


def office(folder: Path) -> Hub:
    hub = Hub(name="office", store=new_store(folder / "hub.db"), durability="process")

    @hub.agent("boss", may_call=["clerk", "scribe"], description="Plans the work.")
    async def boss(brief: Brief) -> object:
        return (await brief.delegate("clerk", objective=brief.text, capability="FILE")).result

    schema = {"type": "object", "properties": {"paper": {"type": "string"}}}
    filing = Capability(code="FILE", description="Files a paper.", result_schema=schema, examples=("File this",))

    @hub.agent("clerk", capabilities=[filing], description="Files papers.")
    async def clerk(_: Brief) -> object:
        return {"paper": "filed"}

    @hub.agent("deputy", capabilities=[Capability(code="FILE")])
    async def deputy(_: Brief) -> str:
        return "filed"

    @hub.agent("scribe")
    async def scribe(_: Brief) -> str:
        return "written"

    @hub.agent("broken", description="Fails all the time.")
    async def broken(_: Brief) -> str:
        raise RemitError(fault(Code.DELEGATION_FAILED, "no connection to the archive"))

    assert all((boss, clerk, deputy, scribe, broken))
    return hub


async def test_an_operator_sees_who_is_busy_who_fails_and_who_calls_whom(page: Page, tmp_path: Path) -> None:
    async with serving(office(tmp_path), console=True) as server, client_of(server) as web:
        await write_past_runs(server.api.delegations.hub.store, hours=20)
        failed: dict[str, Any] = {}
        for _ in range(5):
            _, failed = await posted(web, {"target": "broken", "user": "ben", "objective": "go"})
        await signed_in(page, server.address, "/agents")

        row = page.get_by_role("row", name=re.compile("broken"))
        await expect(row).to_contain_text("Open")
        await expect(row).to_contain_text("next probe in")
        await expect(row).to_contain_text("0%")
        await expect(page.get_by_role("row", name=re.compile("^clerk"))).to_contain_text("80%")
        await usable_in_both_looks(page)

        await page.get_by_label("Find an agent").fill("files")
        await expect(page.get_by_role("rowheader")).to_have_count(1)
        assert page.url.endswith("?q=files")
        await page.get_by_label("Find an agent").fill("nobody")
        await expect(page.get_by_text("No agent has this in its name")).to_be_visible()
        await page.get_by_label("Find an agent").fill("")

        await page.get_by_role("button", name="Who calls whom").press("Enter")
        graph = page.get_by_role("group", name="Agents and the calls between them")
        await expect(graph.get_by_role("link", name="clerk, 20 calls, 4 failed")).to_be_visible()
        calls = page.get_by_role("table")
        await expect(calls.get_by_role("row", name=re.compile("boss clerk Yes 20 4"))).to_be_visible()
        await expect(calls.get_by_role("row", name=re.compile("boss scribe Yes 0"))).to_be_visible()
        await page.get_by_role("switch", name="Also show who may call whom").click()
        await expect(calls.get_by_role("row", name=re.compile("boss scribe"))).to_have_count(0)
        await usable_in_both_looks(page)

        await graph.get_by_role("link", name=re.compile("broken")).press("Enter")
        await expect(page.get_by_role("heading", name="broken", level=1)).to_be_visible()
        errors = page.get_by_role("region", name="Last errors")
        await expect(errors.get_by_role("row")).to_have_count(6)
        await expect(errors.get_by_role("row").nth(1)).to_contain_text("no connection to the archive")
        await errors.get_by_role("link", name=f"Show run {failed['run']}").click()
        await page.wait_for_url(f"**/runs/{failed['run']}/d/{failed['run']}")


async def test_one_agent_has_its_card_its_past_and_the_reasons_of_its_rank(page: Page, tmp_path: Path) -> None:
    async with serving(office(tmp_path), console=True) as server, client_of(server) as web:
        await write_past_runs(server.api.delegations.hub.store, hours=60)
        await posted(web, {"target": "clerk", "user": "anna", "objective": "go", "capability": "FILE"})
        await signed_in(page, server.address, "/agents/clerk?days=7")

        card = page.get_by_role("region", name="Card")
        await expect(card.get_by_role("link", name="boss")).to_be_visible()
        load = page.get_by_role("region", name="Load")
        await expect(load.get_by_role("meter", name="Slots in use")).to_have_attribute("aria-valuetext", "0 of 256")
        await expect(page.get_by_text("Files a paper.")).to_be_visible()
        await page.get_by_text("Result", exact=True).click()
        await expect(page.get_by_text('"paper"')).to_be_visible()
        ranking = page.get_by_role("table", name="Who is asked first for FILE")
        await expect(ranking.get_by_role("row", name=re.compile("deputy"))).to_contain_text("little is known of it")

        chart = page.get_by_role("figure", name=re.compile("Delegations"))
        await chart.get_by_text("Show as a table").click()
        # All hours of which something is known, the current one, and the head.
        await expect(chart.get_by_role("row")).to_have_count(62)
        await usable_in_both_looks(page)
        await page.get_by_label("Period").select_option("24 hours")
        await expect(page).to_have_url(re.compile(r"/agents/clerk$"))
        await expect(chart.get_by_role("row").nth(30)).to_have_count(0)
        await expect(chart.get_by_role("row").nth(20)).to_be_visible()

        await page.goto(f"{server.address}/agents/clerc")
        await expect(page.get_by_role("alert")).to_contain_text("did you mean `clerk`?")
        await signed_in(page, server.address, "/agents", token="anna-app")
        await expect(page.get_by_text("You may not see this.")).to_be_visible()


PRICES = Pricing(price=PriceBook({"acme:large": Price(input=3.0, output=15.0)}, "EUR").price, currency="EUR")


async def test_an_operator_finds_out_who_spent_what_and_takes_it_along_as_a_file(page: Page, tmp_path: Path) -> None:
    gate = asyncio.Event()
    limits = replace(PATIENT, user_tokens_per_day=100_000)
    hub = Hub(name="office", store=new_store(tmp_path / "hub.db"), durability="process", limits=limits)

    @hub.agent("waiter")
    async def waiter(brief: Brief) -> str:
        brief.spend(prompt=700)
        await gate.wait()
        return "done"

    assert waiter
    async with serving(hub, console=True, pricing=PRICES) as server, client_of(server) as web:
        await signed_in(page, server.address, "/spend")
        await expect(page.get_by_role("heading", name="Nothing was spent in this period.")).to_be_visible()
        await expect(page.get_by_text("remit ask")).to_be_visible()

        await write_past_runs(hub.store, hours=48)
        body = {"target": "waiter", "user": "dora", "objective": "wait", "max_tokens": 1_000}
        _, begun = await posted(web, body, Prefer="respond-async")
        await page.reload()
        table = page.get_by_role("table").filter(has_text="Total")
        await expect(table.get_by_role("row")).to_have_count(4)
        await expect(table.get_by_role("row", name=re.compile("Total"))).to_contain_text("96")
        await expect(page.get_by_text("estimate").first).to_be_visible()
        await expect(table.get_by_role("row", name=re.compile("clerk"))).to_contain_text("≈ €")
        await expect(page.get_by_text(re.compile("without .* tokens whose price is unknown"))).to_be_visible()

        budgets = page.get_by_role("region", name="Budgets")
        day = budgets.get_by_role("meter", name=re.compile("dora"))
        await expect(day).to_have_attribute("aria-valuetext", "1,000 of 100K")
        await expect(budgets.get_by_role("link", name="waiter for dora")).to_have_attribute(
            "href", f"/runs/{begun['run']}"
        )
        await expect(budgets.get_by_text("Tokens of a user in a day")).to_be_visible()
        await usable_in_both_looks(page)

        # From the agent to its users, and from there back to all.
        await table.get_by_role("button", name="Show only clerk").click()
        await expect(table.get_by_role("rowheader")).to_have_count(4)
        assert {"agent=clerk", "by=user"} <= set(page.url.partition("?")[2].split("&"))
        await table.get_by_role("button", name="Sort by User").press("Enter")
        await expect(table.get_by_role("rowheader").first).to_have_text("anna")
        await table.get_by_role("button", name="Sort by User").press("Enter")
        await expect(table.get_by_role("rowheader").first).to_have_text("carla")
        await page.get_by_role("button", name="Show all again, not only Agent clerk").click()
        await page.get_by_role("button", name="Model", exact=True).click()
        await expect(table.get_by_role("rowheader", name="(unknown)")).to_be_visible()
        await expect(table.get_by_role("row", name=re.compile("acme:small"))).to_contain_text("–")

        async with page.expect_download() as downloading:
            await page.get_by_role("button", name="Export CSV").click()
        download = await downloading.value
        assert download.suggested_filename == "spend-by-model.csv"
        await download.save_as(tmp_path / "spend.csv")
        lines = (tmp_path / "spend.csv").read_text("utf-8").splitlines()
        rows = {row["model"]: row for row in csv.DictReader(lines)}
        assert rows.keys() == {"", "acme:large", "acme:small"}
        assert float(rows["acme:large"]["cost_estimate_eur"]) > 0
        assert rows["acme:small"]["cost_estimate_eur"] == ""

        await page.get_by_role("button", name="Tokens", exact=True).click()
        chart = page.get_by_role("figure", name=re.compile("Tokens"))
        await chart.get_by_text("Show as a table").click()
        await expect(chart.get_by_role("columnheader", name="written")).to_be_visible()
        await page.get_by_label("Period").select_option("From … to …")
        await expect(page.get_by_label("From", exact=True)).to_be_visible()
        await page.get_by_label("From", exact=True).fill("2020-01-01")
        await page.get_by_label("To", exact=True).fill("2020-01-02")
        await expect(page.get_by_role("heading", name="Nothing was spent in this period.")).to_be_visible()
        gate.set()


async def test_the_money_of_a_users_day_and_of_runs_is_beside_their_tokens(page: Page, tmp_path: Path) -> None:
    gate, book = asyncio.Event(), PriceBook({"acme:large": Price(input=3.0, output=15.0)})
    limits = replace(PATIENT, user_cost_per_day=2_000_000, root_cost=500_000)
    store = new_store(tmp_path / "hub.db")
    hub = Hub(name="office", store=store, durability="process", limits=limits, prices=book.cost)

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> object:
        brief.spend(prompt=10_000, model="acme:large")
        answer = (await brief.delegate("clerk", objective="File", max_cost=100_000)).result
        if brief.text == "wait":
            await gate.wait()
        return answer

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        brief.spend(prompt=20_000, model="acme:large")
        return "filed"

    assert all((boss, clerk))
    pricing = Pricing(price=book.price)
    async with serving(hub, console=True, pricing=pricing) as server, client_of(server) as web:
        body = {"target": "boss", "user": "dora", "objective": "the lease"}
        _, ended = await posted(web, body)
        assert ended["usage"]["cost"] == 90_000
        _, begun = await posted(web, {**body, "objective": "wait"}, Prefer="respond-async")
        await signed_in(page, server.address, "/spend")
        budgets = page.get_by_role("region", name="Budgets")
        day = budgets.get_by_role("meter", name="Money of dora ($0.4175 reserved)")
        await expect(day).to_have_attribute("aria-valuetext", "$0.5675 of $2.00")
        live = budgets.get_by_role("meter", name="Money", exact=True)
        await expect(live).to_have_attribute("aria-valuetext", "$0.0900 of $0.4775")
        await expect(budgets.get_by_text("There is no limit for a user's day")).to_have_count(0)
        await usable_in_both_looks(page)

        await page.goto(f"{server.address}/runs")
        await expect(page.get_by_role("row", name=re.compile("the lease"))).to_contain_text("$0.0900")
        await page.goto(f"{server.address}/runs/{ended['run']}/d/{ended['run']}.1")
        await page.get_by_role("tab", name="Remit").click()
        money = page.locator("section", has=page.get_by_role("heading", name="Money", exact=True)).last
        await expect(money).to_contain_text("$0.1000")
        await expect(money).to_contain_text("$0.0600")
        assert begun["run"] != ended["run"]
        gate.set()


async def test_a_call_is_explained_beside_what_a_draft_would_change(page: Page, tmp_path: Path) -> None:
    async with shop_in(tmp_path) as shop:
        await signed_in(page, shop.address, "/policy", shop.token)
        await expect(page.get_by_role("row", name="redaction The callee sees tokens")).to_be_visible()
        await page.get_by_label("From").fill("shop")
        await page.get_by_label("To", exact=True).fill("cashier")
        await page.get_by_label("Objective").fill("Pay bob@example.org")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Asks a person")).to_be_visible()
        await expect(page.get_by_text("EMAIL in objective: the callee sees a token")).to_be_visible()

        await page.get_by_role("button", name="Start with the present file").click()
        draft = page.get_by_label("Draft of the team file")
        text = await draft.input_value()
        await draft.fill(text.replace("max_depth = 3", "max_depth = 0").replace('then = "ask"', 'then = "allow"'))
        await page.get_by_role("button", name="Explain").click()
        await expect(page.get_by_text("2 guards decide otherwise.")).to_be_visible()
        await expect(page.get_by_role("row", name="depth changed Allowed Refused")).to_be_visible()
        await expect(page.get_by_role("row", name="team_rules changed Asked Allowed")).to_be_visible()
        await expect(page.get_by_text("limits.max_depth")).to_be_visible()
        await usable_in_both_looks(page)

        await draft.fill(text.replace("max_depth = 3", "max_deep = 3"))
        await page.get_by_role("button", name="Explain").click()
        await expect(page.get_by_role("alert")).to_contain_text("the draft of remit.toml is invalid")
        await expect(page.get_by_text("remit.toml:27 limits.max_deep")).to_be_visible()


READER = Sender(name="ops", permissions=frozenset({Permission.READ}))


def hub_at(path: Path) -> Hub:
    hub = Hub(store=SqliteStore(path, durability="process"))

    @hub.agent("prime", may_call=["tag"])
    async def prime(brief: Brief) -> str:
        return str((await brief.delegate("tag", objective="Name the colours")).result)

    @hub.agent("tag")
    async def tag(_: Brief) -> str:
        return "red"

    assert prime
    assert tag
    return hub


async def test_a_person_looks_through_the_record_and_is_told_that_it_is_intact(page: Page, tmp_path: Path) -> None:
    hub = hub_at(tmp_path / "hub.db")
    async with serving(hub, READER, console=True) as server:
        for _ in range(60):
            await hub.ask("prime", "Sort my receipts", user="anna")
        await hub.ask("tag", "Sort", user="bob")
        await signed_in(page, server.address, "/audit")
        verdict = page.get_by_role("region", name="Verification")
        await expect(verdict.get_by_role("heading", name="The record is intact.")).to_be_visible()
        await expect(verdict).to_contain_text("242 rows follow from one another")
        await expect(verdict).to_contain_text("Last verified")

        rows = page.get_by_role("table", name="Rows of the record, newest first").get_by_role("row")
        await expect(rows.nth(1)).to_contain_text("242")
        assert await rows.count() < 100, "only what is seen is there"

        # Rows are chosen by keyboard, and the row stands in the address.
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        detail = page.get_by_role("region", name="Row 241")
        await expect(detail).to_contain_text("user asks tag: Sort")
        await expect(detail.get_by_role("button", name="Copy the digest")).to_be_visible()
        await expect(page).to_have_url(re.compile("row=241"))
        await usable_in_both_looks(page)
        await page.keyboard.press("Escape")
        await expect(detail).to_have_count(0)

        await page.get_by_label("User").fill("bob")
        await page.keyboard.press("Enter")
        await page.get_by_label("Kind").select_option("Answer")
        await expect(rows).to_have_count(2)
        await expect(page).to_have_url(re.compile("kind=result"))
        async with page.expect_download() as waiting:
            await page.get_by_role("button", name="Export as JSON lines").click()
        exported = Path(await (await waiting.value).path()).read_text("utf-8").splitlines()
        assert [json.loads(line)["seq"] for line in exported] == [242]

        # Rows that came since are shown when a person wants them.
        await hub.ask("tag", "Sort", user="bob")
        await page.get_by_role("button", name="1 new row").click()
        await expect(rows).to_have_count(3)
        await page.get_by_role("button", name="Clear filters").click()
        await page.get_by_role("button", name="Verify again").click()
        await expect(verdict).to_contain_text("244 rows follow from one another")
        await page.get_by_label("Agent").fill("absent")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="No row fits the filters")).to_be_visible()


async def test_a_changed_row_is_named_with_what_to_do(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with hub_at(path) as hub:
        await hub.ask("prime", "Sort my receipts", user="anna")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE record SET body = replace(CAST(body AS TEXT), 'red', 'blue') WHERE seq = 3")
    connection.commit()
    connection.close()
    stranger = Sender(name="stranger")
    async with serving(hub_at(path), READER, stranger, console=True) as server:
        await signed_in(page, server.address, "/audit")
        verdict = page.get_by_role("region", name="Verification")
        await expect(verdict.get_by_role("heading", name="The record was changed in one place.")).to_be_visible()
        await expect(verdict).to_contain_text("The content is not what was recorded.")
        await expect(verdict).to_contain_text("remit audit verify --anchor FILE")
        await usable_in_both_looks(page)
        await verdict.get_by_role("button", name="Row 3").click()
        await expect(page.get_by_role("region", name="Row 3")).to_contain_text("blue")

        # Whoever may not read the record is told what is missing.
        await page.context.clear_cookies()
        await signed_in(page, server.address, "/audit", "stranger")
        await expect(page.get_by_role("heading", name="Reading the record needs the permission")).to_be_visible()


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


async def test_a_hidden_character_is_seen_before_anybody_approves(page: Page, tmp_path: Path) -> None:
    async with shop_in(tmp_path) as shop:
        await shop.ask("5 euros to p\u0430ypal\u202e")
        await signed_in(page, shop.address, "/approvals", shop.token)
        await expect(page.get_by_role("heading", name="May the cashier pay?")).to_be_visible()
        await expect(page.get_by_text("shop asks cashier: Pay for [EMAIL:")).to_be_visible()
        article = page.get_by_role("article")
        await expect(article.get_by_text("⟨\u0430 U+0430⟩ypal⟨U+202E⟩").first).to_be_visible()
        await article.get_by_text("Also sent").click()
        await expect(article.get_by_text('"user": "anna"')).to_be_visible()
        await usable_in_both_looks(page)


async def test_a_person_reveals_what_tokens_stand_for_and_it_is_on_record(page: Page, tmp_path: Path) -> None:
    async with shop_in(tmp_path) as shop:
        run = await shop.ask("5 euros")
        await signed_in(page, shop.address, "/approvals", shop.token)
        article = page.get_by_role("article")
        await expect(article.get_by_text("shop asks cashier: Pay for [EMAIL:")).to_be_visible()
        await article.get_by_role("button", name="Reveal personal values").click()
        await expect(article.get_by_text("shop asks cashier: Pay for bob@example.org")).to_be_visible()
        await expect(article.get_by_text("You see personal values in clear. The audit record says so.")).to_be_visible()
        await expect(article.get_by_role("button", name="Reveal personal values")).to_be_disabled()
        await usable_in_both_looks(page)
        async with shop.client.get(f"/v1/audit?run={run}") as reply:
            (row,) = [each for each in (await reply.json())["records"] if each["kind"] == "notice"]
        assert re.fullmatch(r"local revealed \[EMAIL:\w+\] of anna in question \S+", row["body"]["text"])
        # Whoever opens the page again sees tokens, and the answer is about the same content.
        await page.reload()
        await expect(article.get_by_text("shop asks cashier: Pay for [EMAIL:")).to_be_visible()
        await article.get_by_role("button", name="Approve").click()
        assert (await shop.end(run))["result"] == "paid 5 euros"


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


async def test_a_person_finds_a_conversation_and_reads_what_was_said(page: Page, tmp_path: Path) -> None:
    hub = Hub(store=new_store(tmp_path / "hub.db"), durability="process")

    @hub.agent("prime")
    async def prime(brief: Brief) -> str:
        if brief.objective == "Book the train":
            raise ValueError("sold out")
        brief.note("decision", "Receipts are sorted by month")
        return f"Done: {brief.objective}"

    assert prime
    async with serving(hub, console=True) as server:
        await signed_in(page, server.address, "/sessions")
        await expect(page.get_by_role("heading", name="No conversations yet")).to_be_visible()
        await expect(page.get_by_text("remit run AGENT")).to_be_visible()
        for objective, session in (("Sort my receipts", "receipts"), ("Write to bob@example.org", "mail")):
            await hub.ask("prime", objective, user="anna", session=session)
        for place in range(25):
            await hub.ask("prime", f"Part {place} of the receipts", user="anna", session="receipts")
        await hub.ask("prime", "Book the train", user="carl", session="train")
        await page.reload()

        table = page.get_by_role("table", name="Conversations")
        await expect(table.get_by_role("row")).to_have_count(4)
        await expect(table.get_by_role("row").nth(1)).to_contain_text("Book the train")
        await expect(table.get_by_role("row").filter(has_text="receipts")).to_contain_text("52")
        await expect(page.get_by_text("bob@example.org")).to_have_count(0)
        await usable_in_both_looks(page)

        # What is chosen stands in the address, and holds when the page is loaded anew.
        await page.get_by_label("User").fill("carl")
        await page.keyboard.press("Enter")
        await expect(table.get_by_role("row")).to_have_count(2)
        await expect(page).to_have_url(re.compile("user=carl"))
        await page.reload()
        await expect(table.get_by_role("row")).to_have_count(2)
        await page.get_by_label("Text").fill("nothing like it")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="No conversation fits the filters")).to_be_visible()
        await page.get_by_role("button", name="Clear filters").click()

        await table.get_by_role("link", name="Book the train").click()
        await expect(page.get_by_role("heading", name="Conversation with prime")).to_be_visible()
        said = page.get_by_role("region", name="Messages").get_by_role("listitem")
        await expect(said).to_have_count(2)
        await expect(said.nth(1)).to_contain_text("Failed")
        await expect(said.nth(1)).to_contain_text("DELEGATION_FAILED")
        await expect(page.get_by_text("sold out")).to_have_count(0)

        await page.goto(f"{server.address}/sessions/receipts")
        await expect(said).to_have_count(50)
        await page.get_by_role("button", name="Show earlier messages").click()
        await expect(said).to_have_count(52)
        await expect(said.first).to_contain_text("Sort my receipts")
        await expect(page.get_by_text("The conversation begins here.")).to_be_visible()
        await expect(page.get_by_text("Receipts are sorted by month")).to_be_visible()
        await usable_in_both_looks(page)
        # What is said meanwhile appears by itself.
        await hub.ask("prime", "One more", user="anna", session="receipts")
        await expect(said.last).to_contain_text("Done: One more")
        await expect(said.first.get_by_role("link", name="Open the delegation")).to_have_attribute(
            "href", re.compile("^/runs/.+/d/.+")
        )
        await page.goto(f"{server.address}/sessions/absent")
        await expect(page.get_by_role("alert")).to_contain_text("no conversation `absent`")
