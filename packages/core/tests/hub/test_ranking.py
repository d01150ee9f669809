"""How agents stand follows from the record: it survives a hub, and other processes can read it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from remit import Ask, Brief, Call, Capability, Code, Facts, Hub, Ranked, RemitError, Request, Verdict, fault
from remit.policy.routing import TrackRecord, mean
from remit.policy.verdict import ALLOW
from remit.ports import StoreError
from remit.protocol.records import Record
from remit.runtime.delegation import routing
from remit.runtime.delegation.routing import NEWEST, tracks
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock
from samples import arguments_of
from waiting import PATIENCE_S

LOOK = Capability(code="LOOK", read_only=True)

Behaviour = Callable[[Brief], Awaitable[Any]]


@pytest.fixture(autouse=True)
def no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of whom as much is known are asked in the order in which they were registered."""
    monkeypatch.setattr(random, "betavariate", mean)


class WatchedStore(MemoryStore):
    """A store that counts how often the past is read, and may refuse."""

    reads = 0
    fails = False
    stuck = False

    async def recent(self, limit: int) -> list[Record]:
        self.reads += 1
        assert limit == NEWEST
        if self.fails:
            raise StoreError(fault(Code.STORE_UNAVAILABLE, "the disk is gone"))
        if self.stuck:
            await asyncio.Event().wait()
        return await super().recent(limit)


class Scene:
    """A hub on a store that outlives it, with two agents that do the same, and one that asks them."""

    def __init__(self, store: Any, clock: ManualClock, **options: Any) -> None:
        self.clock = clock
        self.hub = Hub(store=store, clock=clock, **options)
        self.ran: list[str] = []
        self.calls: list[Call] = [Call(capability="LOOK", objective="look")]

        @self.hub.agent("boss", may_call=["*"])
        async def boss(brief: Brief) -> list[str]:
            return [(await brief.delegate(**arguments_of(call))).target for call in self.calls]

    def add(self, name: str, does: Behaviour | None = None, *, capability: Capability = LOOK, **options: Any) -> None:
        async def work(brief: Brief) -> Any:
            self.ran.append(name)
            return name if does is None else await does(brief)

        self.hub.add(name, work, capabilities=[capability], **options)

    async def run(self, **options: Any) -> Any:
        return (await self.hub.ask("boss", user="u", **options)).result

    @property
    def known(self) -> dict[tuple[str, str], TrackRecord]:
        return self.hub._parts.ledger.tracks  # pyright: ignore[reportPrivateUsage]


async def turns() -> None:
    """Let everyone come as far as they can without being let go."""
    for _ in range(50):
        await asyncio.sleep(0)


async def fail(brief: Brief) -> Any:
    raise ZeroDivisionError


def taking(clock: ManualClock, seconds: float, tokens: int = 0, *, fails: bool = False) -> Behaviour:
    async def work(brief: Brief) -> str:
        clock.advance(seconds)
        brief.spend(prompt=tokens)
        return await fail(brief) if fails else "done"

    return work


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_hub_remembers_how_agents_did_before_it_was_opened(tmp_path: Path, kind: str) -> None:
    """C12: past performance survives a restart."""
    store, clock = MemoryStore(), ManualClock()

    def scene() -> Scene:
        made = Scene(store if kind == "memory" else tmp_path / "hub.db", clock, durability="process")
        made.add("shaky", fail)
        made.add("sound", taking(clock, 0.25, 100))
        return made

    first = scene()
    async with first.hub:
        for _ in range(6):
            await first.run()
        before = await first.hub.ranking("LOOK")
    second = scene()
    async with second.hub:
        assert await second.hub.ranking("LOOK") == before
        assert await second.run() == ["sound"]
    assert second.ran == ["sound"]
    assert [(each.name, each.latency_ms, each.tokens) for each in before] == [("sound", 250, 100), ("shaky", 0, 0)]
    assert [each.ago_ms for each in before] == [0, before[1].ago_ms]
    assert before[1].ago_ms


async def test_what_is_remembered_is_what_the_hub_knew_itself() -> None:
    """Tracks are a fold over recorded outcomes: a hub that saw them and one that reads of them know the same."""
    store, clock = MemoryStore(), ManualClock(now=5_000.0)
    scene = Scene(store, clock)
    scene.add("quick", taking(clock, 0.5, 40))
    scene.add("slow", taking(clock, 4, 900))
    scene.add("broken", taking(clock, 0.1, fails=True))

    async def refuse(brief: Brief) -> None:
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, "no"))

    scene.add("strict", refuse, capability=Capability(code="PAY"))
    callees = ("quick", "slow", "broken", "broken", "quick", "broken", "broken", "slow", "broken", "quick", "broken")
    scene.calls = [Call(target=name, capability="LOOK", input=place) for place, name in enumerate(callees)]
    scene.calls += [Call(target="strict", capability="PAY"), Call(target="strict", objective="not by capability")]
    async with scene.hub:
        await scene.run()
        # Also where the user names the capability.
        await scene.hub.ask("quick", user="u", capability="LOOK")
        clock.advance(77)
        records = await store.recent(NEWEST)
        now, wall_ms = clock.now(), clock.wall_ms()
    remembered = tracks(records, lambda at_ms: now - (wall_ms - at_ms) / 1_000)
    assert (
        remembered.keys()
        == scene.known.keys()
        == {("LOOK", "quick"), ("LOOK", "slow"), ("LOOK", "broken"), ("PAY", "strict")}
    )
    for at, known in scene.known.items():
        for field in known.__struct_fields__:
            assert getattr(remembered[at], field) == pytest.approx(getattr(known, field), abs=0.001), (at, field)
    assert scene.known["LOOK", "broken"].ejections == 1


async def test_the_past_is_read_once_and_only_where_there_is_a_choice() -> None:
    """Opening a hub reads nothing, and neither does a call that only one agent can take."""
    store, clock = WatchedStore(), ManualClock()
    scene = Scene(store, clock)
    scene.add("only", capability=Capability(code="ONLY", read_only=True))
    scene.add("one")
    scene.calls = [Call(capability="ONLY"), Call(target="one", capability="LOOK")]
    async with scene.hub:
        await scene.run()
        assert store.reads == 0
        scene.add("two")
        scene.calls = [Call(capability="LOOK", input=number) for number in range(3)]
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(scene.run())
        assert store.reads == 1


async def test_what_was_heard_since_counts_more_than_what_is_read() -> None:
    store, clock = MemoryStore(), ManualClock()
    before = Scene(store, clock)
    before.add("one", fail)
    before.calls = [Call(target="one", capability="LOOK", input=number) for number in range(4)]
    async with before.hub:
        await before.run()
    scene = Scene(store, clock)
    scene.add("one")
    scene.add("two")
    async with scene.hub:
        await scene.hub.ask("one", user="u", capability="LOOK")
        ranking = await scene.hub.ranking("LOOK")
    assert [(each.name, round(each.quality, 2)) for each in ranking] == [("one", 0.67), ("two", 0.5)]


@pytest.mark.parametrize("trouble", ["fails", "stuck"])
async def test_a_past_that_cannot_be_read_does_not_count(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "RECALL_S", 0.001)
    store, clock = WatchedStore(), ManualClock()
    setattr(store, trouble, True)
    scene = Scene(store, clock)
    scene.add("one")
    scene.add("two")
    async with scene.hub:
        assert await scene.run() == [scene.ran[0]]
        assert await scene.run() == [scene.ran[1]]
    assert store.reads == 1


async def test_a_hub_that_is_not_open_knows_nothing_and_asks_nobody() -> None:
    store = WatchedStore()
    scene = Scene(store, ManualClock())
    scene.add("one")
    [ranked] = await scene.hub.ranking("LOOK")
    assert ranked == Ranked(
        name="one",
        quality=0.5,
        latency_ms=0,
        tokens=0,
        in_flight=0,
        why="little is known of it, so it is tried now and then",
    )
    assert store.reads == 0


async def test_what_a_person_took_to_decide_is_not_held_against_who_had_to_ask() -> None:
    clock, store = ManualClock(), MemoryStore()

    def ask_first(request: Request, facts: Facts) -> Verdict:
        return Ask("May it?") if request.target == "helper" and "May it?" not in facts.approved else ALLOW

    async def agree(_: object) -> bool:
        clock.advance(120)
        return True

    async def with_help(brief: Brief) -> str:
        clock.advance(1)
        await brief.delegate("helper", objective="help")
        return "done"

    scene = Scene(store, clock, guards=[ask_first], approver=agree)
    scene.add("one", with_help, may_call=["*"])
    scene.add("helper", capability=Capability(code="HELP"))
    async with scene.hub:
        response = await scene.hub.ask("boss", user="u")
        records = await store.recent(NEWEST)
    one = next(
        each.body for each in records if getattr(each.body, "target", "") == "one" and hasattr(each.body, "status")
    )
    assert (one.duration_ms, one.waited_ms) == (121_000, 120_000)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert response.waited_ms == 120_000
    assert (
        scene.known["LOOK", "one"].latency_s == tracks(records, lambda ms: ms / 1_000)["LOOK", "one"].latency_s == 1.0
    )


async def test_answers_that_were_kept_or_waited_for_say_nothing_about_who_gave_them() -> None:
    """Not in the record either: a hit, a failure at an equal request, a time-out of one that only waited."""
    clock, store = ManualClock(), MemoryStore()
    kept = replace(LOOK, cache_ms=60_000)
    begun, go = asyncio.Event(), asyncio.Event()

    async def wait(brief: Brief) -> str:
        begun.set()
        await go.wait()
        return await fail(brief) if brief.input == "fail" else "found"

    scene = Scene(store, clock)
    scene.add("expert", wait, capability=kept)
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        for given in ("find", "fail"):
            begun.clear()
            go.clear()
            scene.calls = [Call(capability="LOOK", input=given)]
            leader = asyncio.create_task(scene.run())
            await begun.wait()
            follower = asyncio.create_task(scene.run())
            await turns()
            scene.calls = [Call(capability="LOOK", input=given, deadline_ms=1_000)]
            impatient = asyncio.create_task(scene.run())
            await turns()
            clock.advance(1.1)
            await impatient
            go.set()
            await asyncio.gather(leader, follower)
        await scene.run()
        records = await store.recent(NEWEST)
        now, wall_ms = clock.now(), clock.wall_ms()
    track = tracks(records, lambda at_ms: now - (wall_ms - at_ms) / 1_000)["LOOK", "expert"]
    known = scene.known["LOOK", "expert"]
    assert (round(track.successes, 3), round(track.failures, 3)) == (
        round(known.successes, 3),
        round(known.failures, 3),
    )
    # One was found, and two failed: the last of all was asked anew.
    assert (round(known.successes, 2), round(known.failures, 2)) == (0.95, 1.98)


async def test_what_has_not_ended_is_in_flight_only_where_someone_is_at_work() -> None:
    store, clock = MemoryStore(), ManualClock()
    begun, over = asyncio.Event(), asyncio.Event()

    async def wait(brief: Brief) -> None:
        begun.set()
        await over.wait()

    scene = Scene(store, clock)
    scene.add("one", wait)
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = asyncio.create_task(scene.run())
        await begun.wait()
        records = await store.recent(NEWEST)
        over.set()
        await task
    run = records[0].run
    assert tracks(records, lambda ms: ms / 1_000) == {}
    assert tracks(records, lambda ms: ms / 1_000, {run}) == {("LOOK", "one"): TrackRecord(in_flight=1)}
