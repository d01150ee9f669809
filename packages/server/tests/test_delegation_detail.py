"""One delegation over HTTP: its remit, what its callee saw, what was held back, the verdicts and the records."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import apsw
import pytest
from aiohttp import ClientSession

from remit import Brief, Capability, ContextFilter, Hub
from remit.policy.breaker import BreakerSettings
from remit.policy.limits import Limits
from remit.stores.connection import SqliteConnection
from remit.stores.sqlite import SqliteStore
from remit_cli.config.load import load_team
from remit_cli.config.serving import serving as serving_team
from remit_server.server import Server
from serving import ANNA, OPERATOR, WEB, client_of, got, posted, serving

BOUND_S = 60


async def detail_of(session: ClientSession, run: str, path: str = "") -> Any:
    status, found = await got(session, f"/v1/runs/{run}/delegations/{path or run}")
    assert status == 200, found
    return found


def verdict(detail: Any, guard: str) -> tuple[str, str]:
    return next((each["verdict"], each["says"]) for each in detail["verdicts"] if each["guard"] == guard)


@pytest.fixture
async def office(hub: Hub) -> AsyncGenerator[Server]:
    """A boss that asks a clerk, with a part of its conversation and the tools of both."""

    @hub.tool("stamp", description="Stamp a paper.")
    def stamp(paper: str) -> str:
        return f"stamped {paper}"

    @hub.tool("sign", description="Sign a paper.")
    def sign(paper: str) -> str:
        return f"signed {paper}"

    @hub.agent("clerk", tools=["stamp"], capabilities=[Capability(code="FILE", sees=frozenset({"IBAN"}))])
    async def clerk(brief: Brief) -> str:
        brief.progress("sorting")
        await brief.use("stamp", paper="p-1")
        brief.spend(prompt=30, completion=12)
        return "filed"

    @hub.agent("boss", tools=["stamp", "sign"], may_call=["clerk", "archive"])
    async def boss(brief: Brief) -> str:
        wanted = ContextFilter(last_messages=1, roles=frozenset({"user"}), known="none")
        found = await brief.delegate(
            "clerk",
            objective=f"File it and write to bob@example.org: {brief.text}",
            input={"account": "DE89370400440532013000", "copies": 2},
            capability="FILE",
            context=wanted,
            max_tokens=5_000,
            reason="papers pile up",
        )
        brief.spend(prompt=10, completion=5)
        return str(found.result)

    @hub.agent("archive")
    async def archive(_: Brief) -> str:
        return "kept"

    assert all((stamp, sign, clerk, boss, archive))
    async with asyncio.timeout(BOUND_S), serving(hub, WEB, OPERATOR, ANNA) as server:
        yield server


async def filed(web: ClientSession, **more: Any) -> str:
    _, answer = await posted(web, {"target": "boss", "user": "anna", "objective": "the lease", **more})
    assert answer["status"] == "success", answer
    return answer["run"]


async def test_a_delegation_shows_what_was_granted_carved_and_given_back(office: Server) -> None:
    async with client_of(office) as web, client_of(office, "ops") as ops:
        run = await filed(web)
        nested = await detail_of(ops, run, f"{run}.1")
        root = await detail_of(ops, run)
    tokens = nested["remit"]["tokens"]
    assert (tokens["granted"], tokens["used"], tokens["own"], tokens["given_back"]) == (5_000, 42, 42, 4_958)
    assert tokens["caller"] == tokens["left_before"] == root["remit"]["tokens"]["granted"] == 1_000_000
    assert (nested["remit"]["depth"], nested["remit"]["chain"]) == (1, ["boss@local"])
    above = root["remit"]["tokens"]
    assert (above["caller"], above["used"], above["own"], above["below"]) == (None, 57, 15, 42)
    (call,) = root["calls"]
    assert (call["path"], call["target"], call["tokens"], call["used"]) == (f"{run}.1", "clerk", 5_000, 42)
    assert (nested["state"], nested["response"]["result"], nested["parent"]) == ("success", "filed", run)
    assert [each["text"] for each in nested["said"]] == ["sorting"]
    assert [each["tool"] for each in nested["tools"]] == ["stamp"]
    assert {"delegation", "tool", "progress", "result"} == {each["kind"] for each in nested["audit"]["rows"]}


async def test_what_the_callee_saw_stands_beside_what_was_held_back_and_why(office: Server) -> None:
    async with client_of(office) as web, client_of(office, "ops") as ops:
        await filed(web, session="s-1")
        run = await filed(web, session="s-1", objective="the deed")
        nested = await detail_of(ops, run, f"{run}.1")
    shown, kept = nested["shown"], nested["held_back"]
    assert "bob@example.org" not in str(nested)
    assert "DE89370400440532013000" not in str(nested)
    assert shown["objective"].startswith("File it and write to [EMAIL:")
    assert (shown["reason"], shown["tools"], shown["sees"]) == ("papers pile up", ["stamp"], ["IBAN"])
    assert [each["text"] for each in shown["messages"]] == ["the deed"]
    held = [(each["message"]["text"], each["by"]) for each in kept["messages"]]
    assert held == [("the lease", "count"), ("filed", "role")]
    assert {each["what"].partition(":")[0] for each in kept["parts"]} == {"summary", "workspace", "notes"}
    redacted = {(each["place"], each["kind"], each["count"], each["in_clear"]) for each in kept["redacted"]}
    assert redacted == {("objective", "EMAIL", 1, False), ("input.account", "IBAN", 1, True)}
    assert kept["tools"] == [{"what": "sign", "why": "`tools` of clerk does not name it"}]
    assert [each["what"] for each in kept["targets"]] == ["archive"]


async def test_without_a_filter_nothing_of_the_conversation_is_passed_on(hub: Hub) -> None:
    @hub.agent("clerk")
    async def clerk(_: Brief) -> str:
        return "done"

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> str:
        await brief.delegate("clerk", objective="one")
        return str((await brief.delegate("clerk", objective="two")).result)

    assert all((clerk, boss))
    async with asyncio.timeout(BOUND_S), serving(hub) as server, client_of(server, "ops") as ops:
        run = await filed(ops)
        second = await detail_of(ops, run, f"{run}.2")
    assert second["held_back"]["filter"] is None
    assert [(each["message"]["text"], each["by"]) for each in second["held_back"]["messages"]] == [
        ("the lease", "no_filter")
    ]
    assert verdict(second, "cycle") == ("allow", "1 earlier call to clerk, none of them the same")
    assert verdict(second, "delegations")[1].startswith("call 2 of 3,000 of the run, 2 of 1,000 of boss")


async def test_each_guard_gives_its_reason_in_figures(office: Server) -> None:
    async with client_of(office) as web, client_of(office, "ops") as ops:
        run = await filed(web)
        nested = await detail_of(ops, run, f"{run}.1")
        _, guards = await got(ops, "/v1/policy/guards")
    assert [each["guard"] for each in nested["verdicts"]] == [each["name"] for each in guards["guards"]]
    assert verdict(nested, "depth") == ("allow", "depth 1 of 5")
    assert verdict(nested, "chain") == ("allow", "1 agent of 10 above it")
    assert verdict(nested, "fan_out") == ("allow", "1 of 3 at once")
    assert verdict(nested, "breaker") == ("allow", "closed: clerk was called as usual")
    assert verdict(nested, "redaction") == ("rewrite", "replaced with tokens: 1 EMAIL, 1 IBAN")
    assert verdict(nested, "input_schema") == ("allow", "FILE has no input schema")
    assert "about " in verdict(nested, "tokens")[1]


async def test_of_a_refused_call_the_later_guards_were_not_asked(hub: Hub) -> None:
    @hub.agent("clerk")
    async def clerk(_: Brief) -> str:
        return "done"

    @hub.agent("boss")
    async def boss(brief: Brief) -> str:
        return str((await brief.delegate("clerk", objective="one")).fault)

    assert all((clerk, boss))
    async with asyncio.timeout(BOUND_S), serving(hub) as server, client_of(server, "ops") as ops:
        run = await filed(ops)
        refused = await detail_of(ops, run, f"{run}.1")
    assert refused["state"] == "refused"
    assert verdict(refused, "permission") == ("refuse", "boss may not call clerk: its `may_call` does not name it")
    assert verdict(refused, "known_target")[0] == "allow"
    assert {each["verdict"] for each in refused["verdicts"][3:]} == {"not_asked"}
    assert refused["breaker"]["state"] == "not_asked"
    assert refused["advice"] == []  # a hub of a program has no team file


async def test_the_breaker_is_shown_as_it_was_then(make_hub: Any) -> None:
    hub: Hub = make_hub(breaker=BreakerSettings(failures_in_a_row=2, open_s=0.05), limits=Limits(max_fan_out=3))
    broken = True

    @hub.agent("clerk")
    async def clerk(_: Brief) -> str:
        if broken:
            raise RuntimeError("out of ink")
        return "done"

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> str:
        nonlocal broken
        for number in count():
            broken = number < 3
            if (await brief.delegate("clerk", objective=f"try {number}")).ok:
                break
        return "done"

    assert all((clerk, boss))
    async with asyncio.timeout(BOUND_S), serving(hub) as server, client_of(server, "ops") as ops:
        run = await filed(ops)
        _, tree = await got(ops, f"/v1/runs/{run}")
        first, *_, last = [each["id"] for each in tree["delegations"] if each["parent"]]
        usual, refused, probe = [await detail_of(ops, run, path) for path in (first, f"{run}.3", last)]
    assert (usual["breaker"]["state"], usual["breaker"]["before"]) == ("closed", [])
    assert (refused["breaker"]["state"], refused["state"]) == ("open", "refused")
    assert refused["breaker"]["retry_after_ms"] > 0
    assert [each["status"] for each in refused["breaker"]["before"]] == ["failed", "failed"]
    assert probe["breaker"]["state"] == "probing"
    assert verdict(probe, "breaker") == ("allow", "half-open: this call was the probe of clerk")


async def test_the_rows_of_a_delegation_are_held_to_the_hash_chain(hub: Hub) -> None:
    @hub.agent("boss")
    async def boss(_: Brief) -> str:
        return "kept"

    assert boss
    async with asyncio.timeout(BOUND_S), serving(hub) as server, client_of(server, "ops") as ops:
        run = await filed(ops)
        audit = (await detail_of(ops, run))["audit"]
        assert (audit["intact"], {each["intact"] for each in audit["rows"]}) == (True, {True})
        last = audit["rows"][-1]["seq"]
        assert isinstance(hub.store, SqliteStore)
        changed = cast("SqliteConnection", apsw.Connection(str(hub.store.path)))
        changed.execute(f"UPDATE record SET at_ms = at_ms + 1 WHERE seq = {last}")
        changed.close()
        audit = (await detail_of(ops, run))["audit"]
    assert (audit["intact"], audit["rows"][-1]["intact"]) == (False, False)
    assert f"row {last} does not follow" in audit["says"]


async def test_a_client_sees_its_own_delegations_alone_and_a_wrong_path_is_named(office: Server) -> None:
    async with client_of(office) as web, client_of(office, "anna-app") as anna, client_of(office, "ops") as ops:
        run = (await posted(web, {"target": "archive", "user": "bob", "objective": "x"}))[1]["run"]
        assert (await got(anna, f"/v1/runs/{run}/delegations/{run}"))[0] == 404
        status, why = await got(ops, f"/v1/runs/{run}/delegations/{run}.7")
        assert (status, why["fault"]["message"]) == (404, f"run {run} has no delegation `{run}.7`")
        status, why = await got(ops, f"/v1/runs/{run}/delegations/{run}?deep=1")
        assert (status, why["fault"]["problems"][0]["path"]) == (400, "deep")


async def test_a_reader_of_its_own_runs_is_not_told_what_others_said_in_the_conversation(office: Server) -> None:
    async with client_of(office) as web, client_of(office, "anna-app") as anna, client_of(office, "ops") as ops:
        await filed(web, session="s-1", objective="a first secret")
        run = await filed(web, session="s-1", objective="the deed")
        own, all_of_it = await detail_of(anna, run, f"{run}.1"), await detail_of(ops, run, f"{run}.1")
    assert "a first secret" in str(all_of_it["held_back"])
    assert "a first secret" not in str(own["held_back"])
    assert own["held_back"]["earlier"] > 0


# ── with a team file ──────────────────────────────────────────────────────────────────────────────────────────────────

TEAM = """
    [agents.boss]
    run = "office_of_detail:boss"

    [agents.clerk]
    run = "office_of_detail:clerk"

    [limits]
    max_fan_out = 2
"""
CODE = """
    async def boss(brief):
        return str((await brief.delegate("clerk", objective="one")).fault)

    async def clerk(brief):
        return "done"
"""


@asynccontextmanager
async def team_server(folder: Path, team: str, code: str = CODE) -> AsyncGenerator[ClientSession]:
    (folder / "remit.toml").write_text(dedent(team), encoding="utf-8")
    (folder / "office_of_detail.py").write_text(dedent(code), encoding="utf-8")
    loaded = load_team(folder / "remit.toml")
    async with asyncio.timeout(BOUND_S), serving_team(loaded, port=0) as made, made.server as server:
        assert made.token is not None
        headers = {"authorization": f"Bearer {made.token.read_text().strip()}"}
        async with ClientSession(server.address, headers=headers) as session:
            yield session


async def test_a_refusal_names_the_line_of_the_team_file_that_decides(tmp_path: Path) -> None:
    async with team_server(tmp_path, TEAM) as ops:
        run = await filed(ops)
        refused = await detail_of(ops, run, f"{run}.1")
    (advice,) = refused["advice"]
    assert (advice["key"], advice["file"], advice["line"]) == ("agents.boss.may_call", "remit.toml", 2)
    assert (advice["says"], advice["is_set"]) == ('Add "clerk" to it.', False)


async def test_a_request_that_was_refused_before_it_began_is_explained_like_any_other(hub: Hub) -> None:
    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        return brief.text

    assert clerk
    async with serving(hub, WEB) as server, client_of(server) as web:
        ask = {"target": "clerk", "user": "anna", "objective": "file it", "capability": "SING"}
        status, refused = await posted(web, ask)
        assert (status, refused["fault"]["code"]) == (404, "CAPABILITY_NOT_FOUND")
        run = refused["run"]
        detail = await detail_of(web, run)
        assert (detail["state"], detail["capability"]) == ("refused", "SING")
        assert await got(web, f"/v1/runs/{run}/workflow") == (200, {"run": run, "workflows": []})
