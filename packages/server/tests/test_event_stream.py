"""One stream for all runs: everything once and in order, however often a reader connects, from every process."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientResponse, ClientSession

from remit import Brief, Hub
from serving import ANNA, OPERATOR, WEB, Event, client_of, got, parsed, posted, serving
from waiting import PATIENCE_S

BOUND_S = PATIENCE_S


def answering(hub: Hub) -> Hub:
    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        brief.progress("at it")
        return f"heard {brief.text}"

    assert echo
    return hub


@asynccontextmanager
async def following(session: ClientSession, query: str = "", **headers: str) -> AsyncGenerator["Stream"]:
    async with session.get(f"/v1/events{query}", headers=headers) as reply:
        assert reply.status == 200, await reply.text()
        yield Stream(reply)


class Stream:
    """A stream, read event by event."""

    def __init__(self, reply: ClientResponse) -> None:
        self._reply = reply
        self.last = ""
        """The number that a browser would send when it connects again."""

    async def next(self) -> Event:
        """Return the next event that a browser would show."""
        while True:
            block = (await self._reply.content.readuntil(b"\n\n")).decode()
            if not block:
                raise EOFError
            for line in block.splitlines():
                if line.startswith("id: "):
                    self.last = line[4:]
            if "data: " in block:
                (event,) = parsed(block)
                return event

    async def until(self, done: Callable[[list[Event]], bool]) -> list[Event]:
        events: list[Event] = []
        while not done(events):
            events.append(await self.next())
        return events


def ended(count: int) -> Callable[[list[Event]], bool]:
    return lambda found: sum(event.kind == "result" for event in found) == count


async def asked(session: ClientSession, objective: str, user: str = "anna") -> str:
    _, answer = await posted(session, {"target": "echo", "user": user, "objective": objective})
    return answer["run"]


async def test_a_stream_tells_every_record_of_all_runs_in_order(hub: Hub) -> None:
    async with asyncio.timeout(BOUND_S), serving(answering(hub)) as server, client_of(server, "ops") as ops:
        before = await asked(ops, "before")
        async with following(ops) as stream:
            first = await stream.next()
            assert first.kind == "ready"
            runs = [await asked(ops, f"{n}") for n in range(3)]
            found = await stream.until(ended(3))
        assert {event.record["run"] for event in found} == set(runs)
        _, audit = await got(ops, f"/v1/audit?after={first.record['seq']}")
        assert [event.record["seq"] for event in found] == [each["seq"] for each in audit["records"]]
        assert [event.kind for event in found] == ["started", "progress", "result"] * 3
        async with following(ops, f"?after=0&run={before}") as stream:
            assert [event.kind for event in await stream.until(ended(1))] == ["ready", "started", "progress", "result"]
        async with following(ops, "?after=0&kinds=result") as stream:
            assert {event.kind for event in await stream.until(ended(4))} == {"ready", "result"}


async def test_a_reader_that_connects_again_and_again_misses_nothing_and_is_told_nothing_twice(
    make_hub: Callable[..., Hub],
) -> None:
    """While two processes on one store are at work, and though the reader changes between them."""
    one, other = answering(make_hub()), answering(make_hub())
    async with (
        asyncio.timeout(BOUND_S),
        serving(one) as here,
        serving(other) as there,
        client_of(here, "ops") as first,
        client_of(there, "ops") as second,
    ):
        done = asyncio.Event()

        async def work() -> None:
            for n in range(40):
                await asked((first, second)[n % 2], f"{n}")
            done.set()

        found: list[Event] = []
        last, turn = "0", 0
        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            while sum(event.kind == "result" for event in found) < 40:
                async with following((first, second)[turn % 2], "?after=0", **{"Last-Event-ID": last}) as stream:
                    for _ in range(1 + turn % 5):
                        event = await stream.next()
                        found += [] if event.kind == "ready" else [event]
                    last = stream.last
                turn += 1
        _, audit = await got(first, "/v1/audit")
        told = [event.record["seq"] for event in found]
        assert told == [each["seq"] for each in audit["records"]][: len(told)]
        assert done.is_set()
        assert turn > 20


async def test_a_light_stream_tells_which_runs_changed(hub: Hub) -> None:
    async with asyncio.timeout(BOUND_S), serving(answering(hub)) as server, client_of(server, "ops") as ops:
        async with following(ops, "?form=runs") as stream:
            await stream.next()
            runs = {await asked(ops, f"{n}") for n in range(5)}
            found = await stream.until(lambda seen: sum(event.record.get("ended", False) for event in seen) == 5)
            last = stream.last
        assert {event.record["run"] for event in found} == runs
        assert sum(event.record["records"] for event in found) == 15
        assert sum(event.record.get("began", False) for event in found) == 5
        assert "heard" not in str(found)
        async with following(ops, "?form=runs", **{"Last-Event-ID": last}) as stream:
            await stream.next()
            run = await asked(ops, "more")
            # A change may be told again to a reader that had not read to the end of its page.
            again = await stream.until(lambda seen: bool(seen) and seen[-1].record["run"] == run)
            assert {event.record["run"] for event in again} <= {run, *runs}


async def test_a_reader_of_changes_that_is_far_behind_is_told_to_read_the_list(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remit_server.event_endpoints.FAR_BEHIND", 5)
    async with asyncio.timeout(BOUND_S), serving(answering(hub)) as server, client_of(server, "ops") as ops:
        for n in range(3):
            await asked(ops, f"{n}")
        async with following(ops, "?form=runs&after=1") as stream:
            await stream.next()
            gap = await stream.next()
            assert (gap.kind, gap.record, stream.last) == ("gap", {"after": 1, "seq": 9}, "9")


async def test_a_sender_is_told_of_its_own_runs_alone(hub: Hub) -> None:
    async with (
        asyncio.timeout(BOUND_S),
        serving(answering(hub), WEB, ANNA, OPERATOR) as server,
        client_of(server) as web,
        client_of(server, "anna-app") as anna,
        following(anna) as stream,
    ):
        await stream.next()
        await asked(web, "of another", user="ben")
        own = await asked(web, "mine")
        found = await stream.until(ended(1))
        assert {event.record["run"] for event in found} == {own}
        await asked(web, "of another", user="ben")
        # Where it goes on is told all the same, so that nothing is read twice.
        newest = await hub.store.newest()
        own = await asked(web, "mine again")
        found = await stream.until(ended(1))
        assert {event.record["run"] for event in found} == {own}
        assert int(stream.last) > newest


@pytest.mark.parametrize("query", ["?form=light", "?kinds=delta", "?runs=1", "?after=x"])
async def test_a_wrong_parameter_of_a_stream_is_refused(hub: Hub, query: str) -> None:
    async with asyncio.timeout(BOUND_S), serving(answering(hub)) as server, client_of(server) as web:
        assert (await got(web, f"/v1/events{query}"))[0] == 400
        assert (await got(web, "/v1/events", **{"Last-Event-ID": "x"}))[0] == 400


async def test_streams_end_with_their_server_and_go_on_at_the_next(make_hub: Callable[..., Hub]) -> None:
    async with asyncio.timeout(BOUND_S):
        async with (
            serving(answering(make_hub())) as server,
            client_of(server, "ops") as ops,
            following(ops) as stream,
        ):
            await stream.next()
            run = await asked(ops, "first")
            await stream.until(ended(1))
            last = stream.last
            await asked(ops, "second")
            await server.api.drain(1)
            with pytest.raises(EOFError):
                await stream.until(ended(2))
        async with (
            serving(answering(make_hub())) as server,
            client_of(server, "ops") as ops,
            following(ops, **{"Last-Event-ID": last}) as stream,
        ):
            found = await stream.until(ended(1))
            assert run not in str(found)
            assert found[1].record["body"]["objective"] == "second"
