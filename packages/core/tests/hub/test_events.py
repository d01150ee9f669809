"""What happens is recorded once, and streams are the record as it grows."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from remit import (
    Brief,
    Code,
    Events,
    Hub,
    Kind,
    Limits,
    Progress,
    Record,
    Refusal,
    Request,
    Response,
    ToolUse,
)
from remit.policy.reception import Sender
from remit.protocol.submission import Submission
from remit.runtime.active_runs import ActiveRun
from remit.runtime.events import BACKLOG
from remit_testing.memory import MemoryStore
from waiting import PATIENCE_S


def a_team(path: Path, **options: Any) -> Hub:
    """A hub with an agent that does a bit of everything."""
    hub = Hub(store=path / "hub.db", durability="process", **options)

    @hub.tool(safe_to_repeat=True)
    def add(a: int, b: int) -> int:
        return a + b

    @hub.tool()
    def pay(amount: int) -> str:
        return f"paid {amount}"

    @hub.agent("helper")
    async def helper(brief: Brief) -> str:
        brief.progress("helping")
        return "helped"

    @hub.agent("boss", may_call=["helper"], tools=["add", "pay"])
    async def boss(brief: Brief) -> str:
        brief.progress("beginning")
        await brief.delegate("helper", objective="help")
        await brief.use("add", a=1, b=2)
        await brief.use("pay", amount=3)
        await brief.delegate("nobody", objective="help")
        return "done"

    return hub


def summary(record: Record) -> str:
    """A record in a few words."""
    match record.body:
        case Request() as request:
            return f"{record.kind} {request.target}"
        case Response() as response:
            return f"{record.kind} {response.target} {response.status}"
        case Refusal(request=request):
            return f"{record.kind} {request.target}"
        case Progress(text=text):
            return f"{record.kind} {text}"
        case ToolUse(tool=tool, begun=begun):
            return f"{record.kind} {tool}{' begun' if begun else ''}"
        case _:
            return record.kind


STORY = [
    "started boss",
    "progress beginning",
    "delegation helper",
    "progress helping",
    "result helper success",
    "tool add",
    "tool pay begun",
    "tool pay",
    "refused nobody",
    "result boss success",
]


async def read(records: AsyncGenerator[Record, None] | Events, count: int = 1_000_000) -> list[Record]:
    collected: list[Record] = []
    async for record in records:
        collected.append(record)
        if len(collected) == count:
            break
    return collected


async def test_a_stream_tells_a_run_in_order_as_it_is_recorded(tmp_path: Path) -> None:
    """X15, O9: started, delegation, progress, tool, result, refused, on one stream."""
    async with a_team(tmp_path) as hub:
        records = await read(hub.stream("boss", "go", user="u"))
        await hub.store.flush()
        assert [summary(record) for record in records] == STORY
        assert records == await hub.store.records(run=records[0].run)


async def test_what_a_stream_tells_is_numbered_and_committed_before_it_is_told(tmp_path: Path) -> None:
    """Decision 5: numbered stream events leave after their commit."""
    committed: list[bool] = []
    async with a_team(tmp_path) as hub:
        async for record in hub.stream("boss", "go", user="u"):
            (stored,) = await hub.store.records(after=record.seq - 1, limit=1)
            committed.append(stored == record)
    assert committed == [True] * len(STORY)


async def test_the_last_record_of_a_stream_holds_the_response(tmp_path: Path) -> None:
    async with a_team(tmp_path) as hub:
        records = await read(hub.stream("boss", "go", user="u", request_id="1"))
        assert records[-1].body == await hub.ask("boss", "go", user="u", request_id="1")


async def test_a_stream_tells_of_no_other_run(tmp_path: Path) -> None:
    async with a_team(tmp_path) as hub, asyncio.TaskGroup() as group:
        tasks = [group.create_task(read(hub.stream("boss", str(each), user="u"))) for each in range(10)]
    stories = [task.result() for task in tasks]
    assert [[summary(record) for record in story] for story in stories] == [STORY] * 10
    assert [len({record.run for record in story}) for story in stories] == [1] * 10


async def test_a_stream_of_a_refused_request_tells_the_refusal_and_ends(tmp_path: Path) -> None:
    async with a_team(tmp_path) as hub:
        records = await read(hub.stream("nobody", user="u"))
    assert [summary(record) for record in records] == ["refused nobody"]
    assert records[0].seq > 0


@pytest.mark.parametrize("when", ["while it runs", "after it ended"])
async def test_a_stream_of_a_request_asked_before_ends_with_its_outcome(tmp_path: Path, when: str) -> None:
    hub, begun, let_go = a_team(tmp_path), asyncio.Event(), asyncio.Event()

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        begun.set()
        await let_go.wait()
        return "done"

    async with hub, asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        first = group.create_task(hub.ask("slow", user="u", request_id="1"))
        await begun.wait()
        if when == "after it ended":
            let_go.set()
            await first
        again = group.create_task(read(hub.stream("slow", user="u", request_id="1")))
        await asyncio.sleep(0)
        let_go.set()
    (record,) = again.result()
    assert (record.kind, record.body) == (Kind.RESULT, first.result())


async def test_a_stream_of_a_duplicate_with_another_content_is_refused_and_ends(tmp_path: Path) -> None:
    async with a_team(tmp_path) as hub:
        await hub.ask("helper", "one", user="u", request_id="1")
        (record,) = await read(hub.stream("helper", "two", user="u", request_id="1"))
    assert isinstance(record.body, Refusal)
    assert record.body.response.fault is not None
    assert record.body.response.fault.code is Code.DUPLICATE_REQUEST


async def test_wrong_arguments_are_told_by_the_first_step_of_a_stream(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"user": ""}
    async with a_team(tmp_path) as hub:
        with pytest.raises(Exception, match="user"):
            await read(hub.stream("boss", **wrong))


async def test_events_tell_of_every_run_in_the_order_of_the_record(tmp_path: Path) -> None:
    """O9: events of sub-agent calls and results on the stream."""
    async with a_team(tmp_path) as hub:
        with hub.events() as events:
            async with asyncio.TaskGroup() as group:
                for each in range(5):
                    group.create_task(hub.ask("boss", str(each), user="u"))
            records = await read(events, 5 * len(STORY))
        assert records == await hub.store.records()
        assert [record.seq for record in records] == list(range(1, 5 * len(STORY) + 1))


async def test_every_listener_hears_everything_from_the_moment_it_listens(tmp_path: Path) -> None:
    async with a_team(tmp_path) as hub:
        with hub.events() as early:
            await hub.ask("helper", user="u")
            with hub.events() as late:
                await hub.ask("helper", user="u")
        first, second = await read(early), await read(late)
    assert [summary(record) for record in second] == ["started helper", "progress helping", "result helper success"]
    assert first[-3:] == second
    assert len(first) == 6


async def test_a_listener_that_was_closed_still_gives_what_it_heard(tmp_path: Path) -> None:
    async with a_team(tmp_path) as hub:
        events = hub.events()
        await hub.ask("helper", user="u")
        events.close()
        await hub.ask("helper", user="u")
        assert len(await read(events)) == 3


async def test_several_readers_of_one_listener_all_end_when_it_is_closed(tmp_path: Path) -> None:
    async with a_team(tmp_path) as hub:
        events = hub.events()
        readers = [asyncio.create_task(read(events)) for _ in range(2)]
        await asyncio.sleep(0)
        events.close()
        done, waiting = await asyncio.wait(readers, timeout=PATIENCE_S)
        for task in waiting:
            task.cancel()
        await asyncio.wait(readers)
    assert (len(done), len(waiting)) == (2, 0)


async def test_whoever_listens_is_told_when_the_hub_closes(tmp_path: Path) -> None:
    async with a_team(tmp_path) as hub:
        listener = asyncio.create_task(read(hub.events()))
        await asyncio.sleep(0)
        await hub.ask("helper", user="u")
    done, _ = await asyncio.wait({listener}, timeout=PATIENCE_S)
    listener.cancel()
    await asyncio.wait({listener})
    assert listener in done


async def test_a_listener_that_never_reads_does_not_hold_up_the_hub() -> None:
    """K12: a slow listener loses the oldest events, and the gap in their numbers shows it."""
    hub = Hub(store=MemoryStore(), limits=Limits(max_progress=BACKLOG))

    @hub.agent("chatty")
    async def chatty(brief: Brief) -> str:
        for number in range(BACKLOG):
            brief.progress(str(number))
            if number % 100 == 0:
                await asyncio.sleep(0)
        return "done"

    async with hub, asyncio.timeout(PATIENCE_S):
        with hub.events() as idle, hub.events() as eager:
            task = asyncio.create_task(read(eager))
            assert (await hub.ask("chatty", user="u")).ok
        received, lost = await task, await read(idle)
    # On a busy machine the watchdog may have something to tell as well.
    assert [record.seq for record in received] == list(range(1, len(received) + 1))
    assert [each.kind for each in received].count(Kind.PROGRESS) == BACKLOG
    assert lost == received[-len(lost) :]
    assert BACKLOG - 1 <= len(lost) <= BACKLOG


class Overheard(MemoryStore):
    """A store that knows how many listen."""

    listening = 0

    def listen(self, listener: Callable[[list[Record]], None], *, patient: bool = False) -> Callable[[], None]:
        self.listening += 1
        stop = super().listen(listener, patient=patient)
        left: list[bool] = []

        def leave() -> None:
            stop()
            self.listening -= not left
            left.append(True)

        return leave


@pytest.mark.parametrize("how", ["events", "stream", "half a stream", "ask"])
async def test_nobody_is_left_listening_so_that_nothing_is_done_for_them(how: str) -> None:
    hub = Hub(store=(store := Overheard()))

    @hub.agent("helper")
    async def helper(brief: Brief) -> None: ...

    async with hub:
        match how:
            case "events":
                with hub.events():
                    assert store.listening == 1
            case "ask":
                await hub.ask("helper", user="u")
            case _:
                stream = hub.stream("helper", user="u")
                await read(stream, 1 if how == "half a stream" else 100)
                await stream.aclose()
        assert store.listening == 0


async def test_whoever_follows_a_run_hears_of_it_alone_and_the_store_has_one_listener_for_all() -> None:
    hub = Hub(store=(store := Overheard()))

    @hub.agent("helper")
    async def helper(brief: Brief) -> None:
        brief.progress(brief.text)
        brief.say(brief.text)

    async with hub, asyncio.timeout(PATIENCE_S):
        sent = [hub.receive(Submission(target="helper", user="u", objective=text), Sender(name="x")) for text in "ab"]
        followed = [hub.follow(request.run) for request in (*sent, sent[0])]
        assert store.listening == 1
        followed.pop().close()
        for request in sent:
            going = await hub.begin(request)
            assert isinstance(going, ActiveRun)
            assert (await going.task).ok
        # The first still hears: that another left who followed the same is nothing to it.
        received = [[record async for record in until_result(events)] for events in followed]
        for events in followed:
            events.close()
            events.close()
        assert store.listening == 0
    for request, records in zip(sent, received, strict=True):
        assert {record.run for record in records} == {request.run}
        assert {record.kind for record in records} == {Kind.STARTED, Kind.PROGRESS, Kind.DELTA, Kind.RESULT}


async def until_result(events: Events) -> AsyncGenerator[Record, None]:
    async for record in events:
        yield record
        if record.kind is Kind.RESULT:
            return


async def test_a_hub_that_is_not_open_has_no_events(tmp_path: Path) -> None:
    hub = a_team(tmp_path)
    with pytest.raises(Exception, match="not open"):
        hub.events()
    with pytest.raises(Exception, match="not open"):
        await read(hub.stream("boss", user="u"))
