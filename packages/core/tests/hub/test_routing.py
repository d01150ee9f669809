"""Several agents offer one capability: who is asked, and who is asked instead."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remit import Answer, Brief, Call, Capability, Code, Facts, Hub, Request, Response, Status, Usage, Verdict
from remit.policy.routing import mean
from remit.policy.verdict import ALLOW
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock
from samples import arguments_of
from waiting import PATIENCE_S

LOOK = Capability(code="LOOK", read_only=True)
PAY = Capability(code="PAY")

Behaviour = Callable[[Brief], Awaitable[Any]]


@pytest.fixture(autouse=True)
def no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of whom as much is known are asked in the order in which they were registered."""
    monkeypatch.setattr(random, "betavariate", mean)


async def fail(brief: Brief) -> Any:
    raise ZeroDivisionError


class Scene:
    """A hub with a caller, which asks for what it is told to, and those who can do it."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.hub = Hub(store=MemoryStore(), clock=self.clock, **options)
        self.ran: list[str] = []
        self.calls: list[Call] = [Call(capability="LOOK", objective="look")]

        @self.hub.agent("boss", may_call=["*"])
        async def boss(brief: Brief) -> Answer:
            responses = await self.ask(brief)
            return Answer([[each.target, each.status, each.fault and each.fault.code] for each in responses])

    async def ask(self, brief: Brief) -> list[Response]:
        """Ask one after another."""
        return [await brief.delegate(**arguments_of(call)) for call in self.calls]

    def add(self, name: str, does: Behaviour | None = None, **options: Any) -> None:
        async def work(brief: Brief) -> Any:
            self.ran.append(name)
            return name if does is None else await does(brief)

        fields: dict[str, Any] = {"capabilities": [LOOK, PAY], **options}
        self.hub.add(name, work, **fields)

    async def run(self, user: str = "u", session: str | None = None) -> list[Any]:
        return (await self.hub.ask("boss", user=user, session=session)).unwrap()


OK = "success"


async def test_a_call_by_capability_falls_back_on_another_that_offers_it() -> None:
    """C12: with fallbacks; the run's tree shows both."""
    scene = Scene()
    scene.add("broken", fail)
    scene.add("sound")
    async with scene.hub:
        response = await scene.hub.ask("boss", user="u")
        tree = await scene.hub.delegations(response.run)
    assert response.result == [["sound", OK, None]]
    assert [(each.id.removeprefix(response.run), each.target, each.status) for each in tree] == [
        ("", "boss", OK),
        (".1", "broken", "failed"),
        (".1+1", "sound", OK),
    ]


async def test_what_may_not_be_done_twice_is_not_tried_elsewhere() -> None:
    scene = Scene()
    scene.calls = [Call(capability="PAY")]
    scene.add("broken", fail)
    scene.add("sound")
    async with scene.hub:
        assert await scene.run() == [["broken", "failed", Code.DELEGATION_FAILED]]
    assert scene.ran == ["broken"]


async def test_where_nothing_was_begun_another_is_asked_whatever_it_is() -> None:
    """C12: one whose queue is full took nothing on."""
    scene = Scene()
    scene.calls = [Call(capability="PAY")]
    begun, over = asyncio.Event(), asyncio.Event()

    async def wait(brief: Brief) -> str:
        begun.set()
        await over.wait()
        return "waited"

    scene.add("busy", wait, concurrency=1, queue=0)
    scene.add("free")
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = asyncio.create_task(scene.hub.ask("busy", user="u"))
        await begun.wait()
        assert await scene.run() == [["free", OK, None]]
        over.set()
        assert (await task).ok


async def test_when_everyone_fails_the_last_failure_is_the_answer() -> None:
    scene = Scene()
    for name in ("one", "two", "three"):
        scene.add(name, fail)
    async with scene.hub:
        assert await scene.run() == [["three", "failed", Code.DELEGATION_FAILED]]
    assert scene.ran == ["one", "two", "three"]


async def test_who_failed_is_asked_later_and_the_ranking_says_why() -> None:
    """C12: routing by past performance."""
    scene = Scene()
    scene.add("broken", fail)
    scene.add("sound")
    async with scene.hub:
        for _ in range(3):
            assert await scene.run() == [["sound", OK, None]]
        ranking = await scene.hub.ranking("LOOK")
        assert await scene.hub.ranking("NOTHING") == ()
    assert scene.ran == ["broken", "sound", "sound", "sound"]
    assert [(each.name, each.in_flight) for each in ranking] == [("sound", 0), ("broken", 0)]
    assert [each.why for each in ranking] == ["80% success, 0 ms, 0 in progress", "33% success, 0 ms, 0 in progress"]


async def test_an_open_breaker_is_passed_over_and_probed_when_its_time_has_come() -> None:
    """C8, C12: breaker-open targets are skipped and probed."""
    scene = Scene()
    works: list[bool] = []

    async def sometimes(brief: Brief) -> str:
        return "fine" if works else await fail(brief)

    scene.add("shaky", sometimes)
    scene.add("sound")
    async with scene.hub:
        for _ in range(5):
            await scene.hub.ask("shaky", user="u")
        scene.ran.clear()
        assert await scene.run() == [["sound", OK, None]]
        assert "not called" in (await scene.hub.ranking("LOOK"))[-1].why
        scene.clock.advance(30)
        assert await scene.run() == [["sound", OK, None]]  # probed in vain: nobody's call failed for it
        works.append(True)
        scene.clock.advance(60)
        assert await scene.run() == [["shaky", OK, None]]
    assert scene.ran == ["sound", "shaky", "sound", "shaky"]


async def test_when_all_are_left_alone_that_is_said() -> None:
    scene = Scene()
    scene.add("one", fail)
    scene.add("two", fail)
    async with scene.hub:
        for _ in range(5):
            await scene.hub.ask("one", user="u")
            await scene.hub.ask("two", user="u")
        assert await scene.run() == [["two", "refused", Code.DELEGATION_UNAVAILABLE]]


async def test_all_attempts_together_get_no_more_tokens_and_time_than_one_was_granted() -> None:
    """Decision 12: all attempts at one delegation share one reservation."""
    scene = Scene()
    granted: list[tuple[int, int]] = []

    async def spend(brief: Brief) -> None:
        granted.append((brief.request.remit.tokens, brief.request.remit.time_ms))
        brief.spend(prompt=300)
        scene.clock.advance(2)
        raise ZeroDivisionError

    for name in ("one", "two", "three"):
        scene.add(name, spend)
    scene.calls = [Call(capability="LOOK", max_tokens=1_000, deadline_ms=10_000)]
    async with scene.hub:
        response = await scene.hub.ask("boss", user="u")
    assert granted == [(1_000, 10_000), (700, 8_000), (400, 6_000)]
    assert response.usage == Usage(prompt=900)


async def test_a_time_out_leaves_no_time_to_ask_another_but_is_remembered() -> None:
    scene = Scene()
    begun = asyncio.Event()

    async def late(brief: Brief) -> None:
        begun.set()
        await asyncio.Event().wait()

    scene.add("late", late)
    scene.add("sound")
    scene.calls = [Call(capability="LOOK", deadline_ms=1_000)]
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = asyncio.create_task(scene.run())
        await begun.wait()
        scene.clock.advance(1.1)
        assert await task == [["late", "timeout", Code.TIMEOUT]]
        assert await scene.run() == [["sound", OK, None]]


async def test_each_that_is_asked_instead_is_judged_anew() -> None:
    """DESIGN, how data travels: each fallback target is admitted anew."""
    judged: list[str] = []

    def look(request: Request, facts: Facts) -> Verdict:
        if request.parent is not None:
            judged.append(request.target)
        return ALLOW

    scene = Scene(guards=[look])
    scene.add("one", fail)
    scene.add("two", fail)
    scene.add("sound")
    async with scene.hub:
        await scene.run()
    assert judged == ["one", "two", "sound"]


async def test_only_who_the_caller_may_call_is_chosen() -> None:
    scene = Scene()
    scene.add("closed")
    scene.add("open")
    called: list[str] = []

    @scene.hub.agent("clerk", may_call=["open"], capabilities=[LOOK])
    async def clerk(brief: Brief) -> None:
        called.append((await brief.delegate(capability="LOOK")).target)

    async with scene.hub:
        (await scene.hub.ask("clerk", user="u")).unwrap()
    assert called == ["open"]


async def test_one_that_may_call_none_of_them_is_told_so() -> None:
    scene = Scene()
    scene.add("one")
    scene.add("two")

    @scene.hub.agent("alone")
    async def alone(brief: Brief) -> str:
        response = await brief.delegate(capability="LOOK")
        return str(response.fault and response.fault.code)

    async with scene.hub:
        assert (await scene.hub.ask("alone", user="u")).result == Code.PERMISSION_DENIED


async def test_what_nobody_offers_is_refused() -> None:
    scene = Scene()
    scene.calls = [Call(capability="DANCE"), Call(objective="no capability either")]
    async with scene.hub:
        assert [code for _, _, code in await scene.run()] == [Code.CAPABILITY_NOT_FOUND] * 2


async def test_the_same_asked_again_is_answered_as_before_whoever_else_could_do_it() -> None:
    scene = Scene()
    scene.calls = [Call(capability="LOOK", input=1), Call(capability="LOOK", input=1), Call(capability="LOOK", input=2)]
    scene.add("one", lambda brief: asyncio.sleep(0, "one"))
    scene.add("two")
    async with scene.hub:
        answers = await scene.run()
    assert [code for _, _, code in answers] == [None, None, None]
    assert answers[1][0] == answers[0][0]
    assert len(scene.ran) == 2


async def test_a_conversation_goes_on_with_whom_it_began() -> None:
    scene = Scene()

    async def one(brief: Brief) -> str:
        return await fail(brief) if brief.text == "fail" else "one"

    scene.add("one", one)
    scene.add("two")
    scene.calls = [Call(capability="LOOK", input=1, session="s")]
    async with scene.hub:
        assert await scene.run(session="day") == [["one", OK, None]]
        (await scene.hub.ask("two", user="u")).unwrap()
        for _ in range(4):
            assert not (await scene.hub.ask("one", "fail", user="u", capability="LOOK")).ok
        assert await scene.run(session="day") == [["one", OK, None]]


async def test_of_several_at_once_each_falls_back_by_itself_and_at_once() -> None:
    """C11: parallel delegations; one that goes elsewhere waits for none of the others."""
    scene = Scene()
    elsewhere = asyncio.Event()

    async def wait(brief: Brief) -> str:
        await elsewhere.wait()
        return "waited"

    async def help_out(brief: Brief) -> str:
        elsewhere.set()
        return "helped"

    async def at_once(brief: Brief) -> list[Response]:
        return await brief.fan_out(
            [Call(target="slow", objective="x"), *(Call(capability="LOOK", input=number) for number in (1, 2))]
        )

    scene.ask = at_once
    scene.add("slow", wait, capabilities=[])
    scene.add("broken", fail)
    scene.add("sound", help_out)
    async with scene.hub:
        assert await scene.run() == [["slow", OK, None], ["sound", OK, None], ["sound", OK, None]]
    assert sorted(scene.ran) == ["broken", "broken", "slow", "sound", "sound"]


@pytest.mark.parametrize("several", [False, True])
async def test_a_caller_that_gives_up_ends_whoever_was_asked_instead(several: bool) -> None:
    """Decision 8: cancellation crosses every hop."""
    scene = Scene()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(brief: Brief) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def ask(brief: Brief) -> list[Response]:
        call = Call(capability="LOOK")
        work = asyncio.ensure_future(brief.fan_out([call]) if several else brief.delegate(capability="LOOK"))
        await begun.wait()
        work.cancel()
        await asyncio.wait({work})
        assert work.cancelled()
        assert ended.is_set()
        return []

    scene.ask = ask
    scene.add("broken", fail)
    scene.add("stuck", wait)
    async with scene.hub:
        assert await scene.run() == []
        assert [each.in_flight for each in await scene.hub.ranking("LOOK")] == [0, 0]


class RunLog(NamedTuple):
    """What an agent that is run again was told, each time."""

    ran: list[str]
    chosen_targets: list[list[str]]


def resumable(path: Path, log: RunLog, over: asyncio.Event, reached: asyncio.Event, names: list[str]) -> Hub:
    hub = Hub(store=path, durability="process")

    def add(name: str) -> None:
        @hub.agent(name, capabilities=[LOOK])
        async def work(brief: Brief) -> str:
            log.ran.append(f"{name} {brief.input}")
            if name == "broken":
                raise ZeroDivisionError
            return name

    for name in names:
        add(name)

    @hub.agent("root", resumable=True, may_call=["*"])
    async def root(brief: Brief) -> list[str]:
        chosen_targets = [(await brief.delegate(capability="LOOK", input=number)).target for number in (1, 2)]
        log.chosen_targets.append(chosen_targets)
        reached.set()
        await over.wait()
        return [*chosen_targets, (await brief.delegate(capability="LOOK", input=3)).target]

    return hub


async def test_a_run_that_is_taken_up_again_goes_the_way_that_it_went(tmp_path: Path) -> None:
    """Decision 4: whom it went to is found by the journal's digest, whoever would be chosen now."""
    log, over, reached = RunLog([], []), asyncio.Event(), asyncio.Event()
    async with resumable(tmp_path / "hub.db", log, over, reached, ["broken", "first", "second"]) as hub:
        task = asyncio.create_task(hub.ask("root", user="u", request_id="1"))
        await reached.wait()
    await asyncio.wait({task})
    assert log.ran == ["broken 1", "first 1", "first 2"]
    over.set()
    async with resumable(tmp_path / "hub.db", log, over, reached, ["second", "first", "broken"]) as hub:
        hub._parts.ledger.recall({})  # pyright: ignore[reportPrivateUsage] - it does not remember who did well
        response = await hub.ask("root", user="u", request_id="1")
    assert log.chosen_targets == [["first", "first"], ["first", "first"]]
    assert (response.status, response.result) == (Status.SUCCESS, ["first", "first", "second"])
    assert log.ran == ["broken 1", "first 1", "first 2", "second 3"]


async def test_one_that_is_gone_cannot_be_spoken_for_by_another(tmp_path: Path) -> None:
    log, over, reached = RunLog([], []), asyncio.Event(), asyncio.Event()
    async with resumable(tmp_path / "hub.db", log, over, reached, ["first"]) as hub:
        task = asyncio.create_task(hub.ask("root", user="u", request_id="1"))
        await reached.wait()
    await asyncio.wait({task})
    over.set()
    async with resumable(tmp_path / "hub.db", log, over, reached, ["second"]) as hub:
        await hub.ask("root", user="u", request_id="1")
    assert log.ran == ["first 1", "first 2", "second 3"]
