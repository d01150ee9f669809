"""Refusals at the door: counted, recorded within limits, and slowed down."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession

from remit import Brief, Hub, RemitError
from remit.policy.reception import Permission, Sender
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, fault
from remit.protocol.records import Notice
from remit.protocol.remit import Grant
from remit.protocol.submission import Submission
from remit.runtime.clock import LoopClock
from remit_server.a2a.routes import Exposure
from remit_server.app import Api
from remit_server.refusals import (
    DOOR,
    FAILURES,
    INTERVAL_S,
    MOST_ADDRESSES,
    MOST_COUNTED,
    PROVEN_S,
    ROWS_ALL,
    ROWS_EACH,
    SUMMARIES,
    WINDOW_S,
    Failures,
    Proxies,
    Refusals,
)
from remit_server.server import Server
from remit_server.transports.credentials.incoming import Authenticator, KnownSender
from remit_testing import ManualClock, MemoryStore
from serving import ANNA, client_of, gate_of, got, posted

BOUND_S = 60
OPS = Sender(name="ops", permissions=frozenset({Permission.METRICS}))
ASK = {"target": "echo", "user": "anna", "objective": "x"}


@pytest.fixture
def hub(hub: Hub) -> Hub:
    for name in ("echo", "hidden"):

        @hub.agent(name)
        async def echo(brief: Brief) -> str:
            return brief.text

        assert echo
    return hub


@asynccontextmanager
async def served(hub: Hub, **options: Any) -> AsyncGenerator[Server]:
    async with asyncio.timeout(BOUND_S), hub:
        targets = frozenset({"echo"})
        anna = Sender(name=ANNA.name, users=ANNA.users, targets=targets)
        api = Api(hub, gate_of(anna, OPS), a2a=Exposure(default="echo"), **options)
        async with Server(api, port=0, drain_s=1) as server:
            yield server


async def rows(hub: Hub) -> list[Notice]:
    """Return what is on record of refusals at the door."""
    await hub.store.flush()
    records = [record.body for record in await hub.store.records(run=DOOR, limit=10_000)]
    return [body for body in records if isinstance(body, Notice)]


async def counted(server: Server) -> dict[str, int]:
    """Return how many were refused, by reason."""
    async with client_of(server, "ops") as ops, ops.get("/metrics") as reply:
        lines = [line for line in (await reply.text()).splitlines() if line.startswith("remit_door_refusals_total{")]
    return {line.split('"')[1]: int(line.rpartition(" ")[2]) for line in lines}


async def refused_by(server: Server, way: str) -> int:
    """Be refused in one of the ways in which one can be, and return the status."""
    token = "mallory" if way in ("token", "a2a token", "dialect token", "mcp token") else "anna-app"
    body = ASK | {"user": "bob"} if way == "user" else ASK | {"target": "hidden"} if way == "agent" else ASK
    async with client_of(server, token) as session:
        match way:
            case "metrics":
                return (await got(session, "/metrics"))[0]
            case "one agent":
                return (await got(session, "/v1/agents/hidden"))[0]
            case "a2a token" | "a2a agent":
                agent = "echo" if way == "a2a token" else "hidden"
                async with session.post(f"/a2a/{agent}", json={}) as reply:
                    return reply.status
            case "dialect token":
                async with session.post("/dialects/subagent", json={}) as reply:
                    return reply.status
            case "mcp token" | "mcp user":
                async with session.post("/mcp", json={}, headers={"X-Remit-User": "bob"}) as reply:
                    return reply.status
            case "no token":
                async with ClientSession(server.address) as nobody:
                    return (await got(nobody, "/v1/runs"))[0]
            case _:
                return (await posted(session, body))[0]


WAYS = {
    "token": Code.UNAUTHENTICATED,
    "no token": Code.UNAUTHENTICATED,
    "user": Code.USER_MISMATCH,
    "agent": Code.AGENT_NOT_FOUND,
    "one agent": Code.AGENT_NOT_FOUND,
    "metrics": Code.PERMISSION_DENIED,
    "a2a token": Code.UNAUTHENTICATED,
    "a2a agent": Code.AGENT_NOT_FOUND,
    "dialect token": Code.UNAUTHENTICATED,
    "mcp token": Code.UNAUTHENTICATED,
    "mcp user": Code.USER_MISMATCH,
}


@pytest.mark.parametrize(("way", "code"), WAYS.items(), ids=WAYS.keys())
async def test_a_refusal_at_the_door_is_counted_recorded_and_logged(
    hub: Hub, way: str, code: Code, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(hub) as server:
        with caplog.at_level(logging.WARNING, "remit"):
            assert await refused_by(server, way) >= 400
        (row,) = await rows(hub)
        assert await counted(server) == {code.value: 1}
        assert await hub.store.runs() == []
    assert row.code is code
    assert "127.0.0.1" in row.text
    assert ("anna-app" in row.text) is (code is not Code.UNAUTHENTICATED)
    # What a stranger claims is not repeated.
    assert not any(claim in row.text for claim in ("bob", "hidden", "mallory"))
    assert [message for message in caplog.messages if "refused" in message] == [f"{code.value}: {row.text}"]


async def test_a_flood_leaves_a_few_rows_and_a_sum(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    async with served(hub) as server, ClientSession(server.address) as session:
        with caplog.at_level(logging.WARNING, "remit"):
            for _ in range(200):
                assert (await got(session, "/v1/runs"))[0] == 401
            before = await rows(hub)
            assert await counted(server) == {"UNAUTHENTICATED": 200}
            server.api.refusals.close()  # as at the end of an interval, and of the server
            after = await rows(hub)
    assert len(before) == ROWS_EACH
    assert [row.text for row in after[ROWS_EACH:]] == [
        f"refused {200 - ROWS_EACH} more such requests from 127.0.0.1 within 60 s"
    ]
    assert len([message for message in caplog.messages if "refused" in message]) == ROWS_EACH + 1


# ── guessing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_who_keeps_guessing_has_to_wait_and_who_was_let_in_before_has_not(hub: Hub) -> None:
    async with served(hub) as server, client_of(server, "anna-app") as anna:
        assert (await posted(anna, ASK))[0] == 200
        for number in range(FAILURES):
            async with client_of(server, f"guess-{number}") as mallory:
                assert (await got(mallory, "/v1/agents"))[0] == 401
        async with client_of(server, "guess") as mallory, mallory.get("/v1/agents") as reply:
            assert (reply.status, (await reply.json())["fault"]["code"]) == (429, "RATE_LIMITED")
            assert 0 < int(reply.headers["retry-after"]) <= WINDOW_S
            assert reply.headers["connection"] == "close"
        assert (await posted(anna, ASK))[0] == 200, "from the same address"
        async with client_of(server, "ops") as ops:
            assert (await got(ops, "/metrics"))[0] == 429, "it could be a guess, though it is none"
        async with ClientSession(server.address) as nobody:
            assert (await got(nobody, "/v1/agents"))[0] == 401, "who brings no token guesses nothing"
            async with nobody.get("/healthz") as reply:
                assert reply.status == 200


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def failed(failures: Failures, address: str, times: int = FAILURES) -> None:
    for number in range(times):
        failures.failed(address, bearer(f"guess-{number}"))


def test_an_address_waits_until_its_window_is_over() -> None:
    clock = ManualClock()
    failures = Failures(clock.now)
    failed(failures, "a", FAILURES - 1)
    assert failures.wait_s("a", bearer("x")) == 0
    failed(failures, "a", 1)
    clock.advance(WINDOW_S / 2)
    assert failures.wait_s("a", bearer("x")) == WINDOW_S / 2
    assert failures.wait_s("b", bearer("x")) == 0
    clock.advance(WINDOW_S / 2)
    assert failures.wait_s("a", bearer("x")) == 0
    failed(failures, "a", FAILURES - 1)
    assert failures.wait_s("a", bearer("x")) == 0, "it begins anew"


def test_what_cannot_be_guessed_never_waits() -> None:
    failures = Failures(ManualClock().now)
    failed(failures, "a")
    assert failures.wait_s("a", bearer("x")) > 0
    assert failures.wait_s("a", {"remit-proof": "x"}) == 0
    assert failures.wait_s("a", bearer("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln")) == 0


def test_a_token_that_was_let_in_from_an_address_is_let_in_from_there_for_an_hour() -> None:
    clock = ManualClock()
    failures = Failures(clock.now)
    failures.proven("a", bearer("good"))
    failed(failures, "a")
    failed(failures, "b")
    assert failures.wait_s("a", bearer("good")) == 0
    assert failures.wait_s("b", bearer("good")) > 0
    clock.advance(PROVEN_S)
    failed(failures, "a")
    assert failures.wait_s("a", bearer("good")) > 0


def test_addresses_without_end_take_bounded_memory() -> None:
    failures = Failures(ManualClock().now)
    for number in range(MOST_ADDRESSES + 100):
        failures.failed(str(number), bearer("x"))
        failures.proven(str(number), bearer("x"))
    assert len(vars(failures)["_failed"]) == len(vars(failures)["_proven"]) == MOST_ADDRESSES


# ── floods from everywhere ────────────────────────────────────────────────────────────────────────────────────────────


WRONG = fault(Code.UNAUTHENTICATED, "unknown sender: unknown token")
SCOPE: dict[str, Any] = {"method": "GET", "raw_path": b"/v1/runs"}


async def test_a_flood_from_many_addresses_leaves_no_more_than_one_from_few() -> None:
    clock = ManualClock()
    async with Hub(store=MemoryStore()) as hub:
        refusals = Refusals(hub, clock=clock)
        for number in range(3 * MOST_COUNTED):
            for _ in range(2):
                refusals.note(SCOPE, f"2001:db8:0:{number:x}::/64", WRONG)
        assert len(await rows(hub)) == ROWS_ALL
        assert len(vars(refusals)["_counted"]) <= MOST_COUNTED + 1
        clock.advance(INTERVAL_S)
        found = await rows(hub)
        assert ROWS_ALL < len(found) <= ROWS_ALL + SUMMARIES + 1
        assert hub.metrics.turned_away == {"UNAUTHENTICATED": 6 * MOST_COUNTED}
        refusals.note(SCOPE, "192.0.2.1", WRONG)
        assert len(await rows(hub)) == len(found) + 1, "a new interval has rows of its own"
        clock.advance(INTERVAL_S)
        assert len(await rows(hub)) == len(found) + 1, "nothing is left to sum up"


# ── addresses ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("client", "forwarded", "proxies", "found"),
    [
        ("192.0.2.7", "", (), "192.0.2.7"),
        ("192.0.2.7", "198.51.100.1", (), "192.0.2.7"),
        ("192.0.2.7", "198.51.100.1", ("10.0.0.0/8",), "192.0.2.7"),
        ("10.0.0.2", "198.51.100.1", ("10.0.0.0/8",), "198.51.100.1"),
        ("10.0.0.2", "1.1.1.1, 198.51.100.1, 10.0.0.9", ("10.0.0.0/8",), "198.51.100.1"),
        ("10.0.0.2", "", ("10.0.0.2",), "10.0.0.2"),
        ("10.0.0.2", "garbage", ("10.0.0.2",), "10.0.0.2"),
        ("::ffff:192.0.2.7", "", (), "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "", (), "2001:db8:1:2::/64"),
        ("::1", "2001:db8:1:2::9", ("::1",), "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "", (), "fe80::/64"),
        (None, "", (), "unknown"),
    ],
)
def test_a_request_is_counted_for_where_it_comes_from(
    client: str | None, forwarded: str, proxies: tuple[str, ...], found: str
) -> None:
    scope: dict[str, Any] = {"client": None if client is None else (client, 1)}
    headers = {"x-forwarded-for": forwarded} if forwarded else {}
    assert Proxies(proxies).address_of(scope, headers) == found


async def test_behind_a_proxy_each_client_is_counted_by_itself(hub: Hub) -> None:
    async with served(hub, proxies=("127.0.0.1",)) as server, client_of(server, "guess") as session:
        for _ in range(FAILURES):
            assert (await got(session, "/v1/agents", **{"X-Forwarded-For": "192.0.2.1"}))[0] == 401
        statuses = [(await got(session, "/v1/agents", **{"X-Forwarded-For": f"192.0.2.{n}"}))[0] for n in (1, 2)]
        texts = json.dumps([row.text for row in await rows(hub)])
    assert statuses == [429, 401]
    assert "192.0.2.1" in texts
    assert "192.0.2.2" in texts


class UsedUp(Authenticator):
    """Lets a hub in whose credential has nothing left."""

    async def grant(self, headers: Mapping[str, str], sender: Sender, sent: Submission) -> Grant | None:
        return Grant(user="anna", depth=0, chain=(), tokens=100, time_ms=1_000, max_depth=3)

    async def received(self, request: Request) -> Request:
        raise RemitError(fault(Code.TOKEN_BUDGET_EXCEEDED, "nothing is left of the credential"))


async def test_what_is_refused_for_its_credential_leaves_nothing_behind() -> None:
    hub = Hub(store=MemoryStore())

    @hub.agent("desk")
    async def desk(_: Brief) -> str:
        return "done"

    door = UsedUp([KnownSender(name="north", is_hub=True, token="north")], wall_ms=LoopClock().wall_ms)
    ask = {"user": "anna", "target": "desk", "objective": "Go", "origin": "boss", "context": {"last_messages": 3}}
    async with hub, Server(Api(hub, door), port=0, drain_s=2) as server, client_of(server, "north") as north:
        for _ in range(3):
            _, told = await posted(north, ask)
            assert told["fault"]["code"] == Code.TOKEN_BUDGET_EXCEEDED
        assert hub._parts.remarks == {}  # pyright: ignore[reportPrivateUsage]
