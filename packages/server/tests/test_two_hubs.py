"""Two hubs that call each other: neither waits for the other in a circle, and neither can forge its place."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from msgspec.structs import replace

from remit import Ask, Brief, Code, Facts, Hub, Limits, RemitError, Request, Status, Verdict
from remit.policy.reception import Sender
from remit.policy.verdict import ALLOW
from remit.protocol.codec import encode
from remit_server import connect, serve
from remit_server.app import Api
from remit_server.server import Server
from remit_testing import MemoryStore
from samples import a_remit
from serving import client_of, gate_of, got, posted
from waiting import PATIENCE_S

PEERS = [Sender(name=name, is_hub=True) for name in ("one", "two", "three")]


def named(name: str, **options: Any) -> Hub:
    return Hub(name=name, store=MemoryStore(), **options)


@asynccontextmanager
async def served(*hubs: Hub) -> AsyncGenerator[list[Server]]:
    """Open and serve each hub, to all others and to a client."""
    gate = gate_of(*PEERS, Sender(name="web"))
    servers: list[Server] = []
    async with asyncio.timeout(PATIENCE_S):
        for hub in hubs:
            await hub.__aenter__()
            servers.append(await Server(Api(hub, gate), port=0, drain_s=1).__aenter__())
        try:
            yield servers
        finally:
            for hub, server in zip(hubs, servers, strict=True):
                await server.__aexit__()
                await hub.__aexit__(None, None, None)


async def test_two_hubs_with_one_slot_each_that_call_each_other_do_not_lock() -> None:
    """Decision 10: slots count running, not waiting, also where one waits for another hub."""
    hubs = [named("one"), named("two")]
    both = asyncio.Barrier(2)

    def caller(other: str) -> Any:
        async def call(brief: Brief) -> str:
            if brief.remit.depth > 0:
                return f"{other} was asked by {brief.remit.chain[-1]}"
            await both.wait()  # each holds its only slot before either calls
            return (await brief.delegate(other, objective="You", deadline_ms=8_000)).unwrap()

        return call

    hubs[0].add("left", caller("right"), may_call=["*"], concurrency=1)
    hubs[1].add("right", caller("left"), may_call=["*"], concurrency=1)
    async with served(*hubs) as (first, second), asyncio.TaskGroup() as group:
        connect(hubs[0], "right", second.address, token="one", concurrency=1)
        connect(hubs[1], "left", first.address, token="two", concurrency=1)
        asking = [
            group.create_task(hubs[0].ask("left", "Go", user="anna")),
            group.create_task(hubs[1].ask("right", "Go", user="anna")),
        ]
        assert [(await each).unwrap() for each in asking] == [
            "left was asked by left@one",
            "right was asked by right@two",
        ]


@pytest.mark.parametrize("count", [2, 3])
async def test_hubs_in_a_ring_that_ask_each_other_one_at_a_time_find_the_loop_and_do_not_lock(count: int) -> None:
    """Decisions 9 and 10: what is passed on waits for nobody who may be waiting for it."""
    hubs = [named(name) for name in ("one", "two", "three")[:count]]
    all_at_once = asyncio.Barrier(count)

    def passing(other: str) -> Any:
        async def act(brief: Brief) -> str:
            if brief.remit.depth == 0:
                await all_at_once.wait()
            response = await brief.delegate(other, objective="Go on", deadline_ms=3_000)
            return str(response.result) if response.fault is None else response.fault.code

        return act

    def following(place: int) -> int:
        return (place + 1) % count

    for place, hub in enumerate(hubs):
        hub.add(f"a{place}", passing(f"a{following(place)}"), may_call=["*"], concurrency=1)
    async with served(*hubs) as servers, asyncio.TaskGroup() as group:
        for place, hub in enumerate(hubs):
            after, name = following(place), ("one", "two", "three")[place]
            connect(hub, f"a{after}", servers[after].address, token=name, concurrency=1)
        asking = [group.create_task(hub.ask(f"a{place}", "Go", user="anna")) for place, hub in enumerate(hubs)]
        assert [(await each).unwrap() for each in asking] == [Code.LOOP_DETECTED] * count


async def test_a_request_that_comes_back_stands_below_its_run_whatever_chain_it_claims() -> None:
    """Decision 9: with the trace of a run in flight here, it inherits that run's chain and depth."""
    one, two = named("one", limits=Limits(max_depth=3)), named("two")
    seen: list[Request] = []
    answers: list[Any] = []

    async def colleague(brief: Brief) -> str:
        seen.append(brief.request)
        return "hello"

    async def boss(brief: Brief) -> str:
        return (await brief.delegate("helper", objective="Help")).unwrap()

    async def helper(brief: Brief) -> str:
        # What a hub sends that wants to look as if it had just begun.
        remit = a_remit(user="anna", depth=0, max_depth=9, chain=())
        for number, (origin, target) in enumerate(
            (("helper", "colleague"), ("user", "colleague"), ("helper", "boss"), ("user", "boss"))
        ):
            forged = Request(
                version="1.0",
                id=f"back-{number}",
                origin=origin,
                target=target,
                remit=replace(remit, chain=("helper@two",)) if number == 0 else remit,
                traceparent=brief.traceparent,
            )
            headers = {"authorization": "Bearer two", "content-type": "application/json"}
            async with (
                ClientSession(first.address, headers=headers) as session,
                session.post("/v1/delegations", data=encode(forged)) as reply,
            ):
                answers.append(await reply.json())
        return "done"

    one.add("colleague", colleague)
    one.add("boss", boss, may_call=["*"])
    two.add("helper", helper)
    async with served(one, two) as (first, second):
        connect(one, "helper", second.address, token="one")
        assert (await one.ask("boss", "Go", user="anna")).unwrap() == "done"
    assert [(request.remit.chain, request.remit.depth) for request in seen] == [
        (("boss@one", "helper@two"), 2),
        (("boss@one",), 2),
    ]
    assert [answer.get("fault", {}).get("code") for answer in answers[2:4]] == ["LOOP_DETECTED", "LOOP_DETECTED"]


async def test_an_honest_request_that_comes_back_stands_no_deeper_than_it_is() -> None:
    one, two = named("one"), named("two")
    seen: list[Request] = []

    async def colleague(brief: Brief) -> str:
        seen.append(brief.request)
        return "hello"

    async def boss(brief: Brief) -> str:
        return (await brief.delegate("helper", objective="Help")).unwrap()

    async def helper(brief: Brief) -> str:
        return (await brief.delegate("colleague", objective="You")).unwrap()

    one.add("colleague", colleague)
    one.add("boss", boss, may_call=["*"])
    two.add("helper", helper, may_call=["*"])
    async with served(one, two) as (first, second):
        connect(one, "helper", second.address, token="one")
        connect(two, "colleague", first.address, token="two")
        assert (await one.ask("boss", "Go", user="anna")).unwrap() == "hello"
    assert (seen[0].remit.chain, seen[0].remit.depth) == (("boss@one", "helper@two"), 2)


async def test_a_person_who_is_asked_two_hubs_away_stops_the_clocks_of_both() -> None:
    """Decision 4: no time passes for whoever waits for a person, however far away that one is asked."""

    def ask_first(request: Request, _: Facts) -> Verdict:
        return Ask("May it?") if request.target == "last" else ALLOW

    one, two, three = named("one"), named("two"), named("three", guards=[ask_first], approver="inbox")

    def passing(other: str) -> Any:
        async def act(brief: Brief) -> str:
            return (await brief.delegate(other, objective="Go on", deadline_ms=3_000)).unwrap()

        return act

    async def last(_: Brief) -> str:
        return "allowed"

    one.add("first", passing("middle"), may_call=["*"])
    two.add("middle", passing("last"), may_call=["*"])
    three.add("last", last)
    async with served(one, two, three) as servers:
        connect(one, "middle", servers[1].address, token="one")
        connect(two, "last", servers[2].address, token="two")
        async with client_of(servers[0]) as web:
            ask = {"target": "first", "user": "anna", "objective": "Go", "id": "mine"}
            status, handle = await posted(web, ask)
            assert (status, handle["state"], handle["question"]) == (202, "waiting", "May it?")
            again, same = await posted(web, ask)
            assert (again, same) == (202, handle), "asked once more, it still waits"
            assert (await got(web, handle["link"]))[1]["question"] == "May it?"
            await asyncio.sleep(3.2)  # longer than each of them may take: that no time passes is what is tested
            (question,) = await three.pending()
            await three.decide(question.id, agreed=True, by="anna")
            async with web.get(handle["events"]) as reply:
                text = await reply.text()
            assert (await got(web, handle["link"]))[1]["result"] == "allowed"
    assert '"agreed":true' in text


async def test_a_peer_that_says_a_person_is_asked_does_not_stop_the_clock_for_ever() -> None:
    """Decision 9: what a peer says is bounded by what is allowed here."""
    one = named("one", limits=Limits(approval_timeout_ms=300))

    async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if head.startswith(b"POST") and b"/cancel" not in head:
                body = b'{"id":"x","run":"r","state":"waiting","link":"/","events":"/"}'
                kind, status = "application/json", "202 Accepted"
            else:
                body = (
                    b'id: 1\nevent: approval\ndata: {"run":"r","body":{"delegation":"r","agent":"a","id":"q%d",'
                    b'"question":"May it?"}}\n\n' % lie_count()
                )
                kind, status = "text/event-stream", "200 OK"
            head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            writer.write(head + body)

    count = iter(range(10_000))

    def lie_count() -> int:
        return next(count)

    async def boss(brief: Brief) -> str:
        response = await brief.delegate("helper", objective="Help", deadline_ms=400)
        assert response.fault is not None
        return f"{response.status} {response.fault.code}"

    one.add("boss", boss, may_call=["*"])
    peer = await asyncio.start_server(lie, "127.0.0.1", 0)
    host, port = peer.sockets[0].getsockname()
    connect(one, "helper", f"http://{host}:{port}", token="one")
    async with one, asyncio.timeout(PATIENCE_S):
        # It never says that it was stopped.
        assert (await one.ask("boss", "Go", user="anna")).unwrap() == f"{Status.FAILED} {Code.OUTCOME_UNKNOWN}"
    peer.close()


@pytest.mark.parametrize(
    ("who", "told"),
    [
        (
            {"clients": {"web": "t" * 30}, "users": {"wbe": ["ada"]}},
            "`users` speaks of `wbe`, which is neither a client",
        ),
        ({"clients": {"web": "t" * 30}, "permissions": {"wbe": ["read"]}}, "did you mean `web`?"),
        ({"clients": {"a": "t" * 30}, "hubs": {"b": "t" * 30}}, "`a` and `b` have the same token"),
        ({"clients": {"a": "t" * 30}, "hubs": {"a": "u" * 30}}, "`a` is a client and a hub"),
    ],
)
async def test_what_is_said_of_nobody_or_of_two_who_come_is_refused_before_anyone_can(
    who: dict[str, Any], told: str
) -> None:
    """Whoever mistypes for which users a client may ask would let it ask for all."""
    async with named("one") as hub:
        with pytest.raises(RemitError, match=re.escape(told)) as refused:
            async with serve(hub, **who):
                pass
    assert refused.value.fault.code is Code.TEAM_INVALID


async def test_a_run_that_is_handed_back_when_its_hub_closes_goes_on_at_its_peer(tmp_path: Path) -> None:
    began, go_on, times = asyncio.Event(), asyncio.Event(), list[str]()

    async def slow(brief: Brief) -> str:
        times.append(brief.text)
        began.set()
        await go_on.wait()
        return "done"

    async def boss(brief: Brief) -> str:
        return (await brief.delegate("slow", objective=brief.text)).unwrap()

    def near(address: str) -> Hub:
        hub = Hub(name="one", store=tmp_path / "one.db")
        hub.add("boss", boss, may_call=["slow"], resumable=True)
        connect(hub, "slow", address, token="one")
        return hub

    two = named("two")
    two.add("slow", slow)
    async with served(two) as (server,):
        async with near(server.address) as hub:
            asking = asyncio.create_task(hub.ask("boss", "Once", user="anna"))
            await began.wait()
            (run,) = await hub.store.runs(limit=1)
        await asyncio.wait({asking})
        async with near(server.address) as hub:
            go_on.set()
            assert (await hub.store.wait(run.run)).unwrap() == "done"
    assert times == ["Once"]
