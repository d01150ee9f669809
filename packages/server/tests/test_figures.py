"""The endpoints for figures: spend, series, budgets, the pages of agents, and metrics of several workers."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from new_stores import new_store
from remit import Brief, Capability, Code, Hub, Limits, RemitError
from remit.policy.reception import Permission, Sender
from remit.protocol.card import Rate
from remit.protocol.envelope import MODEL, Answer
from remit.protocol.errors import fault
from remit_server.app import Api
from remit_server.documents.figures import RecordFigures
from remit_server.documents.spend import Pricing
from remit_server.figures_endpoints import CurrentFigures, combined
from remit_server.model_prices import Price, PriceBook
from remit_server.server import Server
from serving import ANNA, NORTH, OPERATOR, WEB, client_of, gate_of, got, posted

BOUND_S = 60
CLERKS = Sender(
    name="clerks-ops", users=frozenset(), targets=frozenset({"clerk"}), permissions=frozenset({Permission.READ})
)
OLD_MODEL = {MODEL: {"name": "acme:old", "cached": 500}}
PRICES = Pricing(
    price=PriceBook(
        {"acme:new": Price(input=1.0, output=10.0), "acme:old": Price(input=2.0, output=2.0, cached=0)}
    ).price,
    models={"clerk": "acme:new", "scribe": "nobody-knows"},
    currency="USD",
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    limits = Limits(user_tokens_per_day=100_000)
    hub = Hub(name="office", store=new_store(tmp_path / "hub.db"), durability="process", limits=limits)

    @hub.agent("boss", may_call=["clerk", "scribe"])
    async def boss(brief: Brief) -> object:
        if brief.text == "scribble":
            return (await brief.delegate("scribe", objective="scribble")).result
        reply = await brief.delegate("clerk", objective=brief.text, capability="FILE")
        brief.spend(prompt=5)
        return reply.result

    @hub.agent(
        "clerk",
        capabilities=[Capability(code="FILE", description="Files.")],
        rate=Rate(100, 60),
        description="Files papers.",
    )
    async def clerk(brief: Brief) -> object:
        if brief.text == "fail":
            raise RemitError(fault(Code.DELEGATION_FAILED, "the cabinet is locked"))
        brief.spend(prompt=1_000, completion=100)
        return Answer("filed", metadata=OLD_MODEL) if brief.text == "old" else "filed"

    @hub.agent("deputy", capabilities=[Capability(code="FILE")])
    async def deputy(_: Brief) -> str:
        return "filed"

    @hub.agent("scribe")
    async def scribe(brief: Brief) -> str:
        brief.spend(prompt=40)
        return "written"

    assert all((boss, clerk, deputy, scribe))
    async with asyncio.timeout(BOUND_S), hub:
        api = Api(hub, gate_of(WEB, NORTH, OPERATOR, ANNA, CLERKS), pricing=PRICES)
        async with Server(api, port=0, drain_s=1) as server:
            yield server


async def ask(web: ClientSession, target: str, text: str, user: str = "anna") -> Any:
    return (await posted(web, {"target": target, "user": user, "objective": text}))[1]


async def test_spend_is_told_by_agent_user_capability_day_and_model_with_an_estimate(server: Server) -> None:
    async with client_of(server) as web, client_of(server, "ops") as ops:
        await ask(web, "boss", "new")
        await ask(web, "boss", "old", user="ben")
        await ask(web, "boss", "scribble", user="ben")
        _, agents = await got(ops, "/v1/spend?by=agent")
        rows = {row["key"]: row for row in agents["rows"]}
        assert (agents["currency"], agents["complete"], agents["from_ms"], agents["next"]) == ("USD", True, 0, None)
        # 1,000 read and 100 written by the new model, and by the old one, which had read half of it before.
        new, old = 0.001 + 0.001, 0.0005 * 2 + 0.0001 * 2
        assert rows["clerk"] | {"p50_ms": 0, "p95_ms": 0} == {
            "key": "clerk",
            "runs": 0,
            "delegations": 2,
            "succeeded": 2,
            "failed": 0,
            "cancelled": 0,
            "refused": 0,
            "prompt": 2_000,
            "completion": 200,
            "cached": 500,
            "tokens": 2_200,
            "total_tokens": 2_200,
            "overrun": 0,
            "cost": pytest.approx(new + old),
            "unpriced_tokens": 0,
            "p50_ms": 0,
            "p95_ms": 0,
            "codes": {},
        }
        assert (rows["scribe"]["cost"], rows["scribe"]["unpriced_tokens"]) == (None, 40), "unknown, and not zero"
        assert (rows["boss"]["tokens"], rows["boss"]["total_tokens"], rows["boss"]["runs"]) == (10, 2_250, 3)
        assert agents["totals"]["tokens"] == 2_250
        assert agents["totals"]["cost"] == pytest.approx(new + old)
        assert agents["totals"]["unpriced_tokens"] == 50
        _, users = await got(ops, "/v1/spend?by=user")
        assert {row["key"]: row["tokens"] for row in users["rows"]} == {"anna": 1_105, "ben": 1_145}
        _, models = await got(ops, "/v1/spend?by=model&agent=clerk")
        assert {row["key"] for row in models["rows"]} == {"acme:new", "acme:old"}
        _, capabilities = await got(ops, "/v1/spend?by=capability&user=anna")
        assert {row["key"]: row["delegations"] for row in capabilities["rows"]} == {"FILE": 1, "": 1}
        _, days = await got(ops, "/v1/spend?by=day&model=acme:new")
        assert [row["tokens"] for row in days["rows"]] == [1_100]
        _, page = await got(ops, "/v1/spend?limit=1&after=1")
        assert ([row["key"] for row in page["rows"]], page["next"]) == (["scribe"], 2)
        _, long_ago = await got(ops, "/v1/spend?since_ms=0&until_ms=3600000")
        assert (long_ago["rows"], long_ago["totals"]["cost"]) == ([], None)


async def test_series_have_a_value_for_every_step(server: Server) -> None:
    async with client_of(server) as web, client_of(server, "ops") as ops:
        await ask(web, "boss", "new")
        await ask(web, "boss", "fail")

        async def last(what: str) -> dict[str, Any]:
            _, found = await got(ops, f"/v1/series?what={what}&agent=clerk&step=day")
            assert len(found["at_ms"]) == 31
            return {line["name"]: line["values"][-1] for line in found["lines"]}

        assert await last("success") == {"share": 0.5, "succeeded": 1, "failed": 1}
        assert await last("tokens") == {"prompt": 1_000, "completion": 100}
        assert await last("cost") == {"cost": pytest.approx(0.002)}
        assert await last("runs") == {"runs": 0, "delegations": 2}
        assert await last("refusals") == {"refused": 0}
        assert (await last("latency")).keys() == {"p50_ms", "p95_ms"}
        _, hours = await got(ops, "/v1/series?what=success")
        assert (hours["step"], 24 <= len(hours["at_ms"]) <= 25) == ("hour", True)
        assert hours["lines"][0]["values"][0] is None, "nothing happened then"
        for query, most in (("", 193), ("&step=day", 401), ("&until_ms=999999999999999&step=day", 401)):
            _, found = await got(ops, f"/v1/series?since_ms=0{query}")
            assert (most - 1 <= len(found["at_ms"]) <= most, sum(found["lines"][0]["values"])) == (True, 2)
        assert (await got(ops, "/v1/series?since_ms=5&until_ms=5"))[1]["at_ms"] == []


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/v1/spend?by=moon", "by"),
        ("/v1/spend?sinc_ms=1", "sinc_ms"),
        ("/v1/series?what=love", "what"),
        ("/v1/spend?since_ms=-5", "since_ms"),
        ("/v1/budgets?user=anna", "user"),
        ("/v1/agents/clerk/status?x=1", "x"),
    ],
)
async def test_a_wrong_parameter_is_named(server: Server, path: str, names: str) -> None:
    async with client_of(server, "ops") as ops:
        status, said = await got(ops, path)
    assert status == 400
    assert said["fault"]["problems"][0]["path"] == names


async def test_without_the_permission_figures_are_those_of_ones_own_users(server: Server) -> None:
    async with client_of(server) as web, client_of(server, "anna-app") as anna, client_of(server, "north") as north:
        await ask(web, "boss", "new")
        await ask(web, "boss", "new", user="ben")
        _, spent = await got(anna, "/v1/spend?by=user")
        assert [row["key"] for row in spent["rows"]] == ["anna"]
        assert (await got(anna, "/v1/spend?user=ben"))[1]["rows"] == []
        _, series = await got(anna, "/v1/series?what=runs")
        assert sum(series["lines"][0]["values"]) == 1
        _, budgets = await got(anna, "/v1/budgets")
        assert [row["user"] for row in budgets["users"]] == ["anna"]
        assert (await got(north, "/v1/spend"))[1]["rows"] == [], "it has sent none of these runs"
        for path in ("/v1/graph", "/v1/agents/boss/status"):
            assert (await got(anna, path))[0] == 403


async def test_budgets_show_the_limits_in_force_and_what_is_used_of_them(server: Server) -> None:
    gate = asyncio.Event()
    hub = server.api.delegations.hub

    @hub.agent("waiter")  # pyright: ignore[reportAttributeAccessIssue, reportUntypedFunctionDecorator, reportUnknownMemberType]
    async def waiter(brief: Brief) -> str:
        brief.spend(prompt=70)
        await gate.wait()
        return "done"

    assert waiter
    async with client_of(server) as web, client_of(server, "ops") as ops:
        await ask(web, "boss", "new")
        body = {"target": "waiter", "user": "ben", "objective": "wait", "max_tokens": 300}
        _, begun = await posted(web, body, Prefer="respond-async")
        _, state = await got(ops, "/v1/budgets")
        limits = {line["name"]: (line["value"], line["unit"]) for line in state["limits"]}
        assert limits["budgets.per_user_per_day"] == (100_000, "tokens")
        assert limits["budgets.run_time"] == (300_000, "ms")
        users = {row["user"]: (row["spent"], row["reserved"], row["limit"]) for row in state["users"]}
        assert users == {"anna": (1_105, 0, 100_000), "ben": (0, 300, 100_000)}
        (run,) = state["runs"]
        assert (run["run"], run["granted"], run["used"], run["left"]) == (begun["run"], 300, 70, 230)
        (rate,) = state["rates"]
        assert (rate["agent"], rate["rate"]["limit"]["calls"], rate["rate"]["calls"]) == ("clerk", 100, 1)
        gate.set()


async def test_an_agents_page_has_its_load_its_ranking_and_its_last_errors(server: Server) -> None:
    async with client_of(server) as web, client_of(server, "ops") as ops:
        await ask(web, "boss", "new")
        failed = await ask(web, "boss", "fail", user="ben")
        _, page = await got(ops, "/v1/agents/clerk/status")
        load = page["load"]
        assert (load["running"], load["queued"], load["breaker"], load["probe_ms"]) == (0, 0, "closed", 0)
        assert (load["slots"], load["free"], load["success"], load["delegations"]) == (256, 256, 0.5, 2)
        assert load["hours"][-1] in ([1, 1], [0, 0])
        assert (load["model"], load["tokens"], load["cost"]) == ("acme:new", 1_100, pytest.approx(0.002))
        assert page["called_by"] == ["boss"]
        (ranking,) = page["rankings"]
        assert {each["agent"] for each in ranking["ranking"]} == {"clerk", "deputy"}
        assert [each["place"] for each in ranking["ranking"]] == [1, 2]
        assert all(each["why"] for each in ranking["ranking"])
        (error,) = page["faults"]
        assert (error["run"], error["code"], error["message"]) == (
            failed["run"],
            "DELEGATION_FAILED",
            "the cabinet is locked",
        )
        status, said = await got(ops, "/v1/agents/clerc/status")
        assert (status, "did you mean `clerk`?" in said["fault"]["message"]) == (404, True)


async def test_an_open_breaker_says_when_the_next_probe_is(server: Server) -> None:
    async with client_of(server) as web, client_of(server, "ops") as ops:
        for _ in range(5):
            await ask(web, "clerk", "fail")
        _, page = await got(ops, "/v1/agents/clerk/status")
        assert (page["load"]["breaker"], page["load"]["openings"]) == ("open", 1)
        assert 0 < page["load"]["probe_ms"] <= 30_000
        assert "not called for" in next(e["why"] for e in page["rankings"][0]["ranking"] if e["agent"] == "clerk")


async def test_the_graph_has_who_may_call_whom_and_who_did(server: Server) -> None:
    async with client_of(server) as web, client_of(server, "ops") as ops:
        await ask(web, "boss", "new")
        await ask(web, "boss", "fail")
        _, graph = await got(ops, "/v1/graph")
        assert [each["name"] for each in graph["agents"]] == ["boss", "clerk", "deputy", "scribe"]
        edges = {
            (each["origin"], each["target"]): (each["may"], each["calls"], each["failed"]) for each in graph["edges"]
        }
        assert edges["user", "boss"] == (True, 2, 0)
        assert edges["boss", "clerk"] == (True, 2, 1)
        assert edges["boss", "scribe"] == (True, 0, 0)
        assert ("boss", "deputy") not in edges


async def test_an_operator_of_some_agents_sees_the_figures_of_their_runs_alone(server: Server) -> None:
    async with client_of(server) as web, client_of(server, "clerks-ops") as ops:
        await ask(web, "boss", "fail")
        await ask(web, "clerk", "new")
        _, graph = await got(ops, "/v1/graph")
        assert [(each["name"], each["delegations"]) for each in graph["agents"]] == [("clerk", 1)]
        assert [(each["origin"], each["calls"]) for each in graph["edges"]] == [("user", 1)]
        _, page = await got(ops, "/v1/agents/clerk/status")
        assert (page["faults"], page["load"]["success"]) == ([], 1)
        assert [each["agent"] for each in page["rankings"][0]["ranking"]] == ["clerk"]
        assert (await got(ops, "/v1/agents/boss/status"))[0] == 404
        assert (await got(ops, "/v1/spend"))[1]["totals"]["delegations"] == 1


async def test_the_delegations_of_a_run_have_their_cost(server: Server) -> None:
    async with client_of(server) as web, client_of(server, "ops") as ops:
        done = await ask(web, "boss", "new")
        _, tree = await got(ops, f"/v1/runs/{done['run']}/tree")
        assert tree["delegations"]["own_cost"] == [None, pytest.approx(0.002)]
        assert tree["delegations"]["cost"] == pytest.approx([0.002, 0.002])


async def test_an_erased_user_is_not_in_the_figures_any_more(server: Server) -> None:
    async with client_of(server) as web, client_of(server, "ops") as ops:
        await ask(web, "boss", "new")
        await ask(web, "boss", "new", user="ben")
        _, before = await got(ops, "/v1/spend?by=user")
        assert {row["key"] for row in before["rows"]} == {"anna", "ben"}
        async with ops.delete("/v1/users/anna") as reply:
            assert reply.status == 200
        _, after = await got(ops, "/v1/spend?by=user")
        assert (after["complete"], [row["key"] for row in after["rows"]]) == (True, ["ben"])


async def test_the_record_is_read_in_bounded_pieces_and_says_how_far(server: Server) -> None:
    async with client_of(server) as web:
        for _ in range(4):
            await ask(web, "boss", "new")
    figures = CurrentFigures(server.api.delegations.hub.store, page=3, read_s=0)

    def runs(found: RecordFigures) -> int:
        return sum(sums.runs for each in found.between(0, 10**15) for sums in each.sums.values())

    seen: list[tuple[int, bool]] = []
    while not figures.complete:
        seen.append((await figures.look(runs), figures.complete))
    assert len(seen) > 3
    assert seen == sorted(seen)
    assert seen[-1] == (4, True)


async def test_nobody_but_the_operator_is_told_the_model_of_an_agent(server: Server) -> None:
    async with client_of(server) as web:
        answer = await ask(web, "clerk", "old")
        assert (answer["result"], "acme" in str(answer)) == ("filed", False)
        async with web.get(f"/v1/delegations/{answer['run']}/events") as reply:
            assert "acme" not in await reply.text()


FIRST = b"""\
# HELP remit_ready Whether.
# TYPE remit_ready gauge
remit_ready 1
# HELP remit_delegations_total Ended.
# TYPE remit_delegations_total counter
remit_delegations_total{agent="a b",status="success"} 3
# HELP remit_breaker Breaker.
# TYPE remit_breaker gauge
remit_breaker{agent="a b"} 0
"""
SECOND = b"""\
# HELP remit_ready Whether.
# TYPE remit_ready gauge
remit_ready 0
# HELP remit_delegations_total Ended.
# TYPE remit_delegations_total counter
remit_delegations_total{agent="a b",status="success"} 4
remit_delegations_total{agent="c",status="failed"} 0.5
# HELP remit_breaker Breaker.
# TYPE remit_breaker gauge
remit_breaker{agent="a b"} 2
"""


def test_counters_are_added_and_the_worst_of_the_others_counts() -> None:
    assert combined([FIRST, SECOND]).decode().splitlines() == [
        "# HELP remit_ready Whether.",
        "# TYPE remit_ready gauge",
        "remit_ready 0",
        "# HELP remit_delegations_total Ended.",
        "# TYPE remit_delegations_total counter",
        'remit_delegations_total{agent="a b",status="success"} 7',
        'remit_delegations_total{agent="c",status="failed"} 0.5',
        "# HELP remit_breaker Breaker.",
        "# TYPE remit_breaker gauge",
        'remit_breaker{agent="a b"} 2',
    ]


def test_one_page_stays_as_it_is() -> None:
    assert combined([FIRST]) == FIRST
