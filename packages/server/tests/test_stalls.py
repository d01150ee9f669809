"""No client keeps a server from answering the others, whatever it sends and whether it reads or not."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

import pytest
from aiohttp import ClientSession

from remit import Brief, Finding, Hub, Kind, Limits, Progress, Record
from remit.protocol.codec import MAX_VALUES
from remit.runtime.aside import aside
from remit.runtime.events import SHORT_BACKLOG, Events
from remit_redaction import detector_pipeline
from remit_server import streams
from remit_server.streams import Following, follow
from serving import client_of, got, posted, serving

BOUND_S = 50
STREAM = {"accept": "text/event-stream"}
MAIL = "ada@example.org"
MANY = [f"u{number}@b.example" for number in range(100_000)]


class Counted:
    """A detector that counts what it looks at, and waits at one text if it is told to."""

    def __init__(self, wait_at: str = "") -> None:
        self._find = detector_pipeline()
        self._wait_at = wait_at
        self.looked = 0
        self.at_it = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, text: str) -> Iterable[Finding]:
        self.looked += 1
        if self._wait_at and text == self._wait_at:
            self.at_it.set()
            assert self.go_on.wait(BOUND_S)
        return self._find(text)


async def posted_large(session: ClientSession, body: Any) -> tuple[int, Any]:
    """Ask for a delegation with a body that a client should not hand over in one piece."""
    data, headers = BytesIO(json.dumps(body).encode()), {"content-type": "application/json"}
    async with session.post("/v1/delegations", data=data, headers=headers) as reply:
        return reply.status, await reply.json()


def echoing(hub: Hub) -> None:
    @hub.agent("echo")
    async def echo(brief: Brief) -> Any:
        return brief.text or brief.input

    assert echo


async def test_a_hundred_thousand_addresses_are_refused_before_any_is_looked_at(make_hub: Callable[..., Hub]) -> None:
    detect = Counted()
    hub = make_hub(redaction=detect, limits=Limits(root_tokens=50_000))
    echoing(hub)
    async with serving(hub) as server, client_of(server) as web, asyncio.timeout(BOUND_S):
        status, body = await posted_large(web, {"target": "echo", "user": "anna", "input": MANY})
        assert (status, body["fault"]["code"]) == (413, "TOO_LARGE")
        assert str(MAX_VALUES) in body["fault"]["message"]
        status, body = await posted_large(web, {"target": "echo", "user": "anna", "input": MANY[:40_000]})
        assert (status, body["fault"]["code"]) == (422, "TOKEN_BUDGET_EXCEEDED")
    assert detect.looked < 50, "and only at the words of the refusal"


async def test_a_server_says_that_it_is_alive_while_a_large_body_is_looked_through(
    make_hub: Callable[..., Hub],
) -> None:
    texts = [f"{number} {MAIL}" for number in range(2_000)]
    detect = Counted(wait_at=texts[1_000])
    hub = make_hub(redaction=detect)
    echoing(hub)
    async with (
        serving(hub) as server,
        client_of(server) as web,
        client_of(server) as other,
        asyncio.timeout(BOUND_S),
        asyncio.TaskGroup() as group,
    ):
        asking = group.create_task(posted(web, {"target": "echo", "user": "anna", "input": texts}))
        assert await asyncio.to_thread(detect.at_it.wait, BOUND_S)
        async with other.get("/healthz") as reply:
            assert reply.status == 200
        status, body = await posted(other, {"target": "echo", "user": "anna", "objective": f"write to {MAIL}"})
        assert (status, body["result"]) == (200, f"write to {MAIL}")
        assert not asking.done()
        detect.go_on.set()
        assert json.loads((await asking)[1]["result"]) == texts


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/delegations", {}),
        ("/v1/delegations/x/cancel", {}),
        ("/dialects/employee", {}),
        ("/mcp", {"accept": "application/json, text/event-stream"}),
    ],
)
async def test_large_bodies_are_read_beside_the_loop_and_only_so_many_wait_for_it(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, path: str, headers: dict[str, str]
) -> None:
    monkeypatch.setattr(aside.load, "most", 1)
    echoing(hub)
    gate = threading.Event()
    large = {"target": "echo", "user": "anna", "objective": "x" * 90_000}
    async with (
        serving(hub) as server,
        client_of(server, "anna-app") as web,
        asyncio.timeout(BOUND_S),
        asyncio.TaskGroup() as group,
    ):
        held = group.create_task(aside.run(gate.wait, BOUND_S))
        while not aside.waiting:
            await asyncio.sleep(0)
        async with web.post(path, json=large, headers=headers) as reply:
            assert reply.status == 503
        assert (await posted(web, large | {"objective": "x"}))[0] == 200, "whoever sends little is served"
        gate.set()
        assert await held


async def test_a_thread_beside_the_loop_does_not_begin_what_nobody_waits_for_any_more() -> None:
    gate, begun = threading.Event(), threading.Event()
    first = asyncio.create_task(aside.run(gate.wait, BOUND_S))
    second = asyncio.create_task(aside.run(begun.set))
    while aside.waiting < 2:
        await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second})
    gate.set()
    assert await first
    await aside.run(lambda: None)
    assert (begun.is_set(), aside.waiting) == (False, 0)


async def test_a_stream_that_was_asked_for_without_an_id_is_cancelled_when_its_client_hangs_up(hub: Hub) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    @hub.agent("sleeper")
    async def sleeper(brief: Brief) -> None:
        brief.progress("asleep")
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    assert sleeper
    async with serving(hub) as server, asyncio.timeout(BOUND_S):
        async with client_of(server) as web:
            body = {"target": "sleeper", "user": "anna", "objective": "sleep"}
            async with web.post("/v1/delegations", json=body, headers=STREAM) as reply:
                await reply.content.readany()
                await began.wait()
                run = reply.headers["location"]
        await cancelled.wait()
        async with client_of(server) as web:
            while (ended := await got(web, run))[0] == 202:
                await asyncio.sleep(0.01)
        assert ended[1]["status"] == "cancelled"


async def test_a_stream_that_was_asked_for_with_an_id_goes_on_when_its_client_hangs_up(hub: Hub) -> None:
    began, finish = asyncio.Event(), asyncio.Event()

    @hub.agent("worker")
    async def worker(_: Brief) -> str:
        began.set()
        await finish.wait()
        return "done"

    assert worker
    body = {"target": "worker", "user": "anna", "objective": "work", "id": "w-1"}
    async with serving(hub) as server, asyncio.timeout(BOUND_S):
        async with client_of(server) as web, web.post("/v1/delegations", json=body, headers=STREAM) as reply:
            await reply.content.readany()
            await began.wait()
        while server.api.delegations.streams:
            await asyncio.sleep(0.01)
        finish.set()
        async with client_of(server) as web:
            assert (await posted(web, body))[1]["result"] == "done"


def progress(seq: int, text: str) -> Record:
    body = Progress(delegation="r", agent="a", text=text)
    return Record(seq=seq, kind=Kind.PROGRESS, at_ms=0, run="r", session="r", body=body)


async def test_of_a_listener_that_reads_nothing_little_is_kept_and_it_is_told_that_it_lost_some() -> None:
    tell: list[Callable[[list[Record]], None]] = []

    def listen(listener: Callable[[list[Record]], None]) -> Callable[[], None]:
        tell.append(listener)
        return lambda: None

    with Events(listen, backlog=SHORT_BACKLOG) as events:
        tell[0]([progress(number, "x") for number in range(1_000)])
        kept = events.ready(10_000)
        assert [record.seq for record in kept] == list(range(1_000 - SHORT_BACKLOG, 1_000))
        assert events.lost
        tell[0]([progress(number, "x" * 100_000) for number in range(10)])
        assert [record.seq for record in events.ready(10_000)] == [8, 9], "of those that are large, two"
        tell[0]([progress(1, "x")])
        events.close()
        assert [record.seq async for record in events] == [1]


async def test_no_more_is_written_ahead_of_a_reader_than_a_piece_or_one_event(hub: Hub) -> None:
    @hub.agent("talker")
    async def talker(brief: Brief) -> str:
        for number in range(300):
            brief.progress(f"{number} " + "word " * 200)
        return "done"

    assert talker
    async with hub, asyncio.timeout(BOUND_S):
        response = await hub.ask("talker", "talk", user="u")
        with hub.follow(response.run, backlog=SHORT_BACKLOG) as events:
            pieces = [piece async for piece in follow(hub, Following(run=response.run), events)]
    assert b"".join(pieces).count(b"event: progress") == 300
    assert all(len(piece) <= streams.PIECE for piece in pieces)
    assert len(pieces) > 1
