"""A second agent is asked when the first takes long: the first good answer counts, and both share one reservation."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from remit import (
    Ask,
    Brief,
    Call,
    Capability,
    Code,
    Delegation,
    Facts,
    Hub,
    Limits,
    Notice,
    Refuse,
    RemitError,
    Request,
    Response,
    Status,
    Usage,
    Verdict,
    fault,
)
from remit.policy.routing import mean
from remit.policy.verdict import ALLOW
from remit.runtime.delegation.routing import NEWEST, tracks
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock
from samples import arguments_of
from waiting import PATIENCE_S

LOOK = Capability(code="LOOK", read_only=True, hedge_ms=500)


@pytest.fixture(autouse=True)
def no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of whom as much is known are asked in the order in which they were registered."""
    monkeypatch.setattr(random, "betavariate", mean)


class Worker:
    """An agent that answers when it is told to."""

    def __init__(self, scene: "Scene", name: str, **options: Any) -> None:
        self.begun, self.go, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.granted: list[tuple[int, int]] = []
        self.spends = 0
        self.fails = False
        self.result: object = name

        async def work(brief: Brief) -> Any:
            self.granted.append((brief.remit.tokens, brief.remit.time_ms))
            self.begun.set()
            try:
                if self.spends:
                    brief.spend(prompt=self.spends)
                await self.go.wait()
                if self.fails:
                    raise ZeroDivisionError
                return self.result
            finally:
                self.ended.set()

        fields: dict[str, Any] = {"capabilities": [LOOK], **options}
        scene.hub.add(name, work, **fields)


class Scene:
    """A hub whose time stands still, with a caller that keeps what it was answered."""

    def __init__(self, store: Any = None, clock: ManualClock | None = None, **options: Any) -> None:
        self.clock = clock or ManualClock()
        self.store = store or MemoryStore()
        self.hub = Hub(store=self.store, clock=self.clock, **options)
        self.responses: list[Response] = []
        self.call = Call(capability="LOOK", objective="look", max_tokens=1_000, deadline_ms=10_000)

        self.left: Callable[[], int] = lambda: 0
        self.left_at_the_end = 0

        @self.hub.agent("boss", may_call=["*"])
        async def boss(brief: Brief) -> Any:
            self.left = brief.tokens_left
            self.responses += await self.ask(brief)
            await turns()  # whoever was overtaken has cleaned up then
            self.left_at_the_end = brief.tokens_left()
            return [response.result for response in self.responses]

    async def ask(self, brief: Brief) -> list[Response]:
        return [await self.delegate(brief)]

    async def delegate(self, brief: Brief) -> Response:
        return await brief.delegate(**arguments_of(self.call))

    def start(self) -> "asyncio.Task[Response]":
        return asyncio.create_task(self.hub.ask("boss", user="u", request_id="r"))

    async def tree(self) -> list[Delegation]:
        return await self.hub.delegations(self.responses[-1].run)


async def turns() -> None:
    """Let everyone come as far as they can without being let go."""
    for _ in range(50):
        await asyncio.sleep(0)


def outcomes_of(tree: list[Delegation]) -> list[tuple[str, str, Status | None]]:
    return [(each.id.partition(".")[2], each.target, each.status) for each in tree]


@pytest.mark.parametrize("several", [False, True])
async def test_the_first_good_answer_counts_and_the_other_is_cancelled(several: bool) -> None:
    scene = Scene()
    slow, quick = Worker(scene, "slow"), Worker(scene, "quick")

    async def at_once(brief: Brief) -> list[Response]:
        return await brief.fan_out([scene.call])

    if several:
        scene.ask = at_once
    slow.spends = quick.spends = 100
    quick.go.set()
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await slow.begun.wait()
        scene.clock.advance(0.49)
        await turns()
        assert not quick.begun.is_set()
        scene.clock.advance(0.01)
        response = await task
        assert slow.ended.is_set()
        tree = await scene.tree()
        records = await scene.store.records()
    assert (response.result, response.usage) == (["quick"], Usage(prompt=200))
    assert outcomes_of(tree) == [
        ("", "boss", Status.SUCCESS),
        ("1", "slow", Status.CANCELLED),
        ("1+1", "quick", Status.SUCCESS),
    ]
    assert tree[1].fault
    assert (tree[1].fault.code, tree[1].fault.message) == (Code.CANCELLED, "slow was cancelled: quick was faster")
    assert tree[1].usage == Usage(prompt=100)
    assert [each.body.text for each in records if isinstance(each.body, Notice)] == [
        "asked too, because slow had not answered after 500 ms"
    ]


async def test_who_answers_in_time_is_not_doubted() -> None:
    scene = Scene()
    first, second = Worker(scene, "first"), Worker(scene, "second")
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await first.begun.wait()
        scene.clock.advance(0.4)
        first.go.set()
        assert (await task).result == ["first"]
        scene.clock.advance(5)
        await turns()
    assert not second.begun.is_set()


async def test_both_together_get_what_one_was_granted() -> None:
    """Decision 12: all attempts at one delegation share one reservation; here each has half of it."""
    scene = Scene()
    first, second = Worker(scene, "first"), Worker(scene, "second")
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await first.begun.wait()
        assert scene.left() == 999_000
        scene.clock.advance(0.5)
        await second.begun.wait()
        assert scene.left() == 999_000
        second.go.set()
        await task
    assert scene.left_at_the_end == 1_000_000
    assert (first.granted, second.granted) == ([(500, 10_000)], [(500, 9_500)])


async def test_whoever_spends_more_than_its_half_is_stopped() -> None:
    scene = Scene()
    first, second = Worker(scene, "first"), Worker(scene, "second")
    first.spends = 600
    second.go.set()
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        await scene.start()
    assert [(each.status, each.fault and each.fault.code) for each in scene.responses] == [
        (Status.FAILED, Code.TOKEN_BUDGET_EXCEEDED)
    ]


async def test_a_failure_before_the_time_falls_back_with_all_that_is_left() -> None:
    scene = Scene()
    first, second = Worker(scene, "first"), Worker(scene, "second")
    first.spends, first.fails = 300, True
    first.go.set()
    second.go.set()
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        assert (await scene.start()).result == ["second"]
    assert second.granted == [(700, 10_000)]


@pytest.mark.parametrize("failing", ["first", "second"])
async def test_if_one_of_them_fails_the_other_is_waited_for(failing: str) -> None:
    scene = Scene()
    workers = {name: Worker(scene, name) for name in ("first", "second")}
    other = "second" if failing == "first" else "first"
    workers[failing].fails = True
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await workers["first"].begun.wait()
        scene.clock.advance(0.5)
        await workers["second"].begun.wait()
        workers[failing].go.set()
        await workers[failing].ended.wait()
        await turns()
        assert not task.done()
        workers[other].go.set()
        assert (await task).result == [other]


async def test_if_both_fail_a_third_gets_what_they_left() -> None:
    scene = Scene()
    first, second, third = (Worker(scene, name) for name in ("first", "second", "third"))
    first.fails = second.fails = True
    first.spends, second.spends = 100, 200
    third.go.set()
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await first.begun.wait()
        scene.clock.advance(0.5)
        await second.begun.wait()
        first.go.set()
        second.go.set()
        assert (await task).result == ["third"]
        tree = await scene.tree()
    assert third.granted == [(700, 9_500)]
    assert outcomes_of(tree)[1:] == [
        ("1", "first", Status.FAILED),
        ("1+1", "second", Status.FAILED),
        ("1+2", "third", Status.SUCCESS),
    ]


async def test_who_is_asked_beside_is_judged_anew() -> None:
    """DESIGN, how data travels: each hedge target is admitted anew."""
    judged: list[str] = []

    def look(request: Request, facts: Facts) -> Verdict:
        if request.parent is not None:
            judged.append(request.target)
        return ALLOW

    scene = Scene(guards=[look])
    first, second = Worker(scene, "first"), Worker(scene, "second")
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await first.begun.wait()
        scene.clock.advance(0.5)
        await second.begun.wait()
        second.go.set()
        await task
    assert judged == ["first", "second"]


@pytest.mark.parametrize("fails", [False, True])
async def test_if_nobody_else_may_be_asked_the_first_is_waited_for(fails: bool) -> None:
    """What was set aside is not lost: whoever is asked instead, if the first fails, gets it."""
    closed = ["second"]

    def refuse(request: Request, facts: Facts) -> Verdict:
        return Refuse(fault(Code.PERMISSION_DENIED, "not now")) if request.target in closed else ALLOW

    scene = Scene(guards=[refuse])
    first, second = Worker(scene, "first"), Worker(scene, "second")
    first.fails, first.spends = fails, 100
    second.go.set()
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await first.begun.wait()
        scene.clock.advance(0.5)
        await turns()
        assert scene.left() == 999_000
        closed.clear()
        first.go.set()
        assert (await task).result == (["second"] if fails else ["first"])
    assert scene.left_at_the_end == 999_900
    assert second.granted == ([(900, 9_500)] if fails else [])


async def test_nobody_waits_for_a_person_once_there_is_an_answer() -> None:
    asking, withdrawn = asyncio.Event(), asyncio.Event()

    def ask_first(request: Request, facts: Facts) -> Verdict:
        return Ask("May it?") if request.target == "second" else ALLOW

    async def never(_: object) -> bool:
        asking.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        return True

    scene = Scene(guards=[ask_first], approver=never)
    first, second = Worker(scene, "first"), Worker(scene, "second")
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await first.begun.wait()
        scene.clock.advance(0.5)
        await asking.wait()
        first.go.set()
        assert (await task).result == ["first"]
        assert withdrawn.is_set()
    assert not second.begun.is_set()


async def test_the_time_in_which_a_person_is_asked_does_not_make_it_slow() -> None:
    asking, answer = asyncio.Event(), asyncio.Event()

    def ask_first(request: Request, facts: Facts) -> Verdict:
        return Ask("May it?") if request.target == "helper" and not facts.approved else ALLOW

    async def agree(_: object) -> bool:
        asking.set()
        await answer.wait()
        return True

    async def with_help(brief: Brief) -> str:
        await brief.delegate("helper", objective="help")
        await first_go.wait()
        return "helped"

    first_go = asyncio.Event()
    scene = Scene(guards=[ask_first], approver=agree)
    scene.hub.add("first", with_help, capabilities=[LOOK], may_call=["helper"])
    second = Worker(scene, "second")
    helper = Worker(scene, "helper", capabilities=[])
    helper.go.set()
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await asking.wait()
        scene.clock.advance(3)
        await turns()
        answer.set()
        await helper.ended.wait()
        scene.clock.advance(0.4)
        await turns()
        assert not second.begun.is_set()
        scene.clock.advance(0.2)
        await second.begun.wait()
        first_go.set()
        assert (await task).result == ["helped"]


async def test_two_that_are_asked_for_the_same_count_as_one_at_once() -> None:
    """A caller that may have two in flight is not refused a second because the first is asked of two."""
    scene = Scene(limits=Limits(max_fan_out=2))
    first, second, other = Worker(scene, "first"), Worker(scene, "second"), Worker(scene, "other", capabilities=[])
    other.go.set()

    async def ask(brief: Brief) -> list[Response]:
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(scene.delegate(brief))
            await second.begun.wait()
            meanwhile = await brief.delegate("other", objective="meanwhile")
            first.fails = True
            first.go.set()
            await first.ended.wait()
            await turns()
            beside = await brief.fan_out([Call(target="other", objective=str(number)) for number in range(2)])
            second.go.set()
        return [await looking, meanwhile, *beside]

    scene.ask = ask
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await first.begun.wait()
        scene.clock.advance(0.5)
        await task
    assert [each.status for each in scene.responses] == [Status.SUCCESS] * 2 + [Status.REFUSED] * 2


async def test_who_was_overtaken_is_known_to_be_slow_and_the_record_says_so_too() -> None:
    """C12: else the slow one would stay the first choice, and be doubted each time."""
    scene = Scene()
    slow, quick = Worker(scene, "slow"), Worker(scene, "quick")
    quick.go.set()
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await slow.begun.wait()
        scene.clock.advance(0.5)
        await task
        ranking = await scene.hub.ranking("LOOK")
        records = await scene.store.recent(NEWEST)
        now, wall_ms = scene.clock.now(), scene.clock.wall_ms()
        known = scene.hub._parts.ledger.tracks  # pyright: ignore[reportPrivateUsage]
    assert [(each.name, each.latency_ms, each.quality, each.in_flight) for each in ranking] == [
        ("quick", 0, pytest.approx(2 / 3), 0),
        ("slow", 500, 0.5, 0),
    ]
    assert tracks(records, lambda at_ms: now - (wall_ms - at_ms) / 1_000) == known


async def test_a_caller_that_gives_up_ends_both() -> None:
    """Decision 8: cancellation crosses every hop."""
    scene = Scene()
    first, second = Worker(scene, "first"), Worker(scene, "second")

    async def ask(brief: Brief) -> list[Response]:
        work = asyncio.ensure_future(scene.delegate(brief))
        await second.begun.wait()
        work.cancel()
        await asyncio.wait({work})
        assert work.cancelled()
        assert first.ended.is_set()
        assert second.ended.is_set()
        return []

    scene.ask = ask
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await first.begun.wait()
        scene.clock.advance(0.5)
        assert (await task).status is Status.SUCCESS
        assert [each.in_flight for each in await scene.hub.ranking("LOOK")] == [0, 0]


async def test_the_deadline_holds_for_both() -> None:
    scene = Scene()
    first, second = Worker(scene, "first"), Worker(scene, "second")
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await first.begun.wait()
        scene.clock.advance(0.5)
        await second.begun.wait()
        scene.clock.advance(9.6)
        await task
    assert [each.status for each in scene.responses] == [Status.TIMEOUT]
    assert first.ended.is_set()
    assert second.ended.is_set()


async def test_it_takes_another_to_ask_and_a_call_that_names_nobody() -> None:
    scene = Scene()
    only = Worker(scene, "only")
    for named in (False, True):
        if named:
            Worker(scene, "other")
            scene.call = replace(scene.call, target="only", input=1)
        if not named:
            await scene.hub.__aenter__()
        only.begun.clear()
        only.go.clear()
        task = asyncio.create_task(scene.hub.ask("boss", user="u"))
        await only.begun.wait()
        scene.clock.advance(2)
        await turns()
        only.go.set()
        await task
    await scene.hub.__aexit__(None, None, None)
    assert only.granted == [(1_000, 10_000), (1_000, 10_000)]


async def test_one_that_may_not_do_it_twice_is_never_asked_beside() -> None:
    """Each agent says of itself what it does."""
    scene = Scene()
    first = Worker(scene, "first")
    second = Worker(scene, "second", capabilities=[Capability(code="LOOK")])
    async with scene.hub, asyncio.timeout(PATIENCE_S):
        task = scene.start()
        await first.begun.wait()
        scene.clock.advance(5)
        await turns()
        first.go.set()
        await task
    assert not second.begun.is_set()
    assert first.granted == [(1_000, 10_000)]


def test_what_changes_something_cannot_be_hedged() -> None:
    hub = Hub(store=MemoryStore())

    async def pay(brief: Brief) -> str:
        return "paid"

    with pytest.raises(RemitError) as caught:
        hub.add("payer", pay, capabilities=["LOOK", Capability(code="PAY", hedge_ms=500)])
    [problem] = caught.value.fault.problems
    assert caught.value.fault.code is Code.TEAM_INVALID
    assert problem.path == "payer.capabilities[1].hedge_ms"
    assert "say that it is `read_only`, or leave this out" in problem.message


# ── after a restart ───────────────────────────────────────────────────────────────────────────────────────────────────


def resumable(path: Path, clock: ManualClock, over: asyncio.Event, reached: asyncio.Event) -> Scene:
    scene = Scene(path, clock, durability="process")

    @scene.hub.agent("root", resumable=True, may_call=["*"])
    async def root(brief: Brief) -> Any:
        answer = (await scene.delegate(brief)).result
        reached.set()
        await over.wait()
        return answer

    return scene


@pytest.mark.parametrize("winner", ["first", "second"])
async def test_a_run_that_is_taken_up_again_is_given_the_answer_that_counted(tmp_path: Path, winner: str) -> None:
    """Decision 4: whichever of the two it was, and whatever became of the other."""
    clock, over, reached = ManualClock(), asyncio.Event(), asyncio.Event()
    scene = resumable(tmp_path / "hub.db", clock, over, reached)
    workers = {name: Worker(scene, name) for name in ("first", "second")}
    async with scene.hub:
        task = asyncio.create_task(scene.hub.ask("root", user="u", request_id="1"))
        await workers["first"].begun.wait()
        clock.advance(0.5)
        await workers["second"].begun.wait()
        workers[winner].go.set()
        await reached.wait()
    await asyncio.wait({task})
    over.set()
    scene = resumable(tmp_path / "hub.db", clock, over, reached)
    again = {name: Worker(scene, name) for name in ("second", "first")}
    async with scene.hub:
        response = await scene.hub.ask("root", user="u", request_id="1")
    assert response.result == winner
    assert not any(worker.begun.is_set() for worker in again.values())


async def test_a_run_that_stopped_while_both_were_at_work_asks_both_again(tmp_path: Path) -> None:
    """Decision 4: what changes nothing may be done again, by whom it was done before."""
    clock, over, reached = ManualClock(), asyncio.Event(), asyncio.Event()
    over.set()
    scene = resumable(tmp_path / "hub.db", clock, over, reached)
    workers = {name: Worker(scene, name) for name in ("first", "second", "third")}
    async with scene.hub:
        task = asyncio.create_task(scene.hub.ask("root", user="u", request_id="1"))
        await workers["first"].begun.wait()
        clock.advance(0.5)
        await workers["second"].begun.wait()
    await asyncio.wait({task})
    scene = resumable(tmp_path / "hub.db", clock, over, reached)
    again = {name: Worker(scene, name) for name in ("third", "second", "first")}
    async with scene.hub:
        task = asyncio.create_task(scene.hub.ask("root", user="u", request_id="1"))
        await again["first"].begun.wait()
        clock.advance(0.5)
        await again["second"].begun.wait()
        again["second"].go.set()
        response = await task
    assert response.result == "second"
    assert not again["third"].begun.is_set()


async def test_an_answer_counts_though_the_other_had_not_ended_when_the_hub_stopped(tmp_path: Path) -> None:
    """Decision 4: a completed step is never repeated; the one that was overtaken is still cleaning up."""
    clock, over, reached = ManualClock(), asyncio.Event(), asyncio.Event()
    begun = asyncio.Event()
    scene = resumable(tmp_path / "hub.db", clock, over, reached)

    @scene.hub.agent("first", capabilities=[LOOK])
    async def first(brief: Brief) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            run = scene.hub._engine.frames()[0].run  # pyright: ignore[reportPrivateUsage]
            while not run.handed_back:
                await asyncio.sleep(0)

    second = Worker(scene, "second")
    second.go.set()
    async with scene.hub:
        task = asyncio.create_task(scene.hub.ask("root", user="u", request_id="1"))
        await begun.wait()
        clock.advance(0.5)
        await reached.wait()
    await asyncio.wait({task})
    over.set()
    scene = resumable(tmp_path / "hub.db", clock, over, reached)
    again = {name: Worker(scene, name) for name in ("first", "second")}
    async with scene.hub:
        response = await scene.hub.ask("root", user="u", request_id="1")
    assert response.result == "second"
    assert not any(worker.begun.is_set() for worker in again.values())
