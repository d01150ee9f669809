"""Deadlines and cancellation: they reach everyone below, and what was waiting is really gone."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from remit import (
    ALLOW,
    Answer,
    Ask,
    Brief,
    Call,
    Code,
    Facts,
    Hub,
    Kind,
    Limits,
    Notice,
    Record,
    RemitError,
    Request,
    Response,
    Status,
    Verdict,
)
from remit.ports import Question
from remit_testing.samples import ManualClock
from samples import code_of
from waiting import PATIENCE_S


@asynccontextmanager
async def no_task_left() -> AsyncGenerator[None]:
    """Everything that was started inside is gone at the end."""
    before = asyncio.all_tasks()
    yield
    assert asyncio.all_tasks() - before == set()


async def notices(hub: Hub, run: str) -> list[Notice]:
    await hub.store.flush()
    return [record.body for record in await hub.store.records(run=run) if isinstance(record.body, Notice)]


async def settle(turns: int = 20) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


async def until(happened: Callable[[], bool]) -> None:
    while not happened():
        await asyncio.sleep(0)


class Tree:
    """A team of the given shape whose leaves hang; it counts who is at work and who has cleaned up."""

    def __init__(self, hub: Hub, depth: int, width: int) -> None:
        self.leaves = width**depth
        self.nodes = sum(width**level for level in range(depth + 1))
        self.hanging = asyncio.Semaphore(0)
        self.cleaned: list[str] = []
        for level in range(depth):
            hub.agent(f"level-{level}", may_call=["*"])(self._branch(f"level-{level + 1}", width))
        hub.agent(f"level-{depth}")(self._leaf)

    async def all_hanging(self) -> None:
        for _ in range(self.leaves):
            await self.hanging.acquire()

    def _branch(self, below: str, width: int) -> Callable[[Brief], object]:
        async def branch(brief: Brief) -> str:
            try:
                await brief.fan_out([Call(target=below, objective=str(number)) for number in range(width)])
            finally:
                self.cleaned.append(brief.request.target)
            return "never"

        return branch

    async def _leaf(self, brief: Brief) -> str:
        self.hanging.release()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.cleaned.append(brief.request.target)
        return "never"


# ── deadlines ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_delegate_whose_time_is_up_is_really_cancelled(hub: Hub) -> None:
    """X6: its clean-up has run before the caller goes on, and the error says after how many ms."""
    steps: list[str] = []

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")
        return "never"

    @hub.agent("prime", may_call=["slow"])
    async def prime(brief: Brief) -> Response:
        reply = await brief.delegate("slow", objective="read", deadline_ms=60)
        steps.append("caller goes on")
        assert reply.fault is not None
        assert (reply.status, reply.fault.code) == (Status.TIMEOUT, Code.TIMEOUT)
        assert reply.fault.message == "Delegation timeout after 60ms"
        assert 60 <= reply.duration_ms < 2_000
        return reply

    async with hub, no_task_left():
        response = await hub.ask("prime", user="u-1")
        assert response.ok, response
    assert steps == ["cancelled", "cleaned up", "caller goes on"]


async def test_below_the_floor_nothing_is_started(make_hub: Callable[..., Hub]) -> None:
    """C7: with less than 20 ms left a delegation ends as TIMEOUT at once."""
    hub = make_hub(clock=(clock := ManualClock()))
    ran: list[str] = []

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        ran.append("b")
        return "x"

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> str:
        clock.advance(0.079)
        reply = await brief.delegate("b")
        assert reply.fault is not None
        assert (reply.status, reply.fault.code) == (Status.TIMEOUT, Code.TIMEOUT)
        return reply.fault.message

    async with hub:
        response = await hub.ask("a", user="u-1", deadline_ms=100)
        refused = await hub.ask("a", user="u-1", deadline_ms=10)
    assert (response.result, ran) == ("only 19 ms are left for b; nothing was started", [])
    assert refused.status is Status.TIMEOUT


async def test_an_answer_in_time_is_not_a_time_out(make_hub: Callable[..., Hub]) -> None:
    """X6: the deadline counts from the request, to the millisecond, and not earlier."""
    hub = make_hub(clock=(clock := ManualClock()))

    @hub.agent("a")
    async def a(brief: Brief) -> str:
        clock.advance(14.999)
        await settle()
        return "in time"

    async with hub:
        assert (await hub.ask("a", user="u-1", deadline_ms=15_000)).unwrap() == "in time"


async def test_a_deadline_that_passes_does_not_put_off_the_next(make_hub: Callable[..., Hub]) -> None:
    """C11, X6: each delegation ends at its own time, also while another is still in its grace time."""
    hub = make_hub(clock=(clock := ManualClock()))
    hanging, tidy = asyncio.Semaphore(0), asyncio.Event()
    ended: list[str] = []

    @hub.agent("hangs")
    async def hangs(brief: Brief) -> str:
        hanging.release()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(brief.objective)
            await tidy.wait()
        return "never"

    @hub.agent("prime", may_call=["hangs"])
    async def prime(brief: Brief) -> str:
        times = (1_000, 1_200, 2_000)
        await brief.fan_out([Call(target="hangs", objective=str(each), deadline_ms=each) for each in times])
        return "done"

    async with hub, no_task_left():
        asking = asyncio.create_task(hub.ask("prime", user="u-1"))
        for _ in range(3):
            await hanging.acquire()
        seen: list[list[str]] = []
        for seconds in (1.05, 0.2, 0.8):
            clock.advance(seconds)
            await settle()
            seen.append(ended.copy())
        tidy.set()
        assert (await asking).ok
    assert seen == [["1000"], ["1000", "1200"], ["1000", "1200", "2000"]]


async def test_waiting_in_the_queue_counts_as_time(hub: Hub) -> None:
    """X6: a request that never got a slot times out like one that did, and leaves the queue in order."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    @hub.agent("busy", concurrency=1)
    async def busy(brief: Brief) -> str:
        begun.set()
        await go_on.wait()
        return brief.objective

    async with hub, no_task_left():
        first = asyncio.create_task(hub.ask("busy", "first", user="u-1"))
        await begun.wait()
        second = await hub.ask("busy", "second", user="u-1", deadline_ms=50)
        third = asyncio.create_task(hub.ask("busy", "third", user="u-1"))
        go_on.set()
        assert [(await first).result, (await third).result] == ["first", "third"]
    assert second.status is Status.TIMEOUT


# ── cancellation ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def by_its_id(hub: Hub, tree: Tree, clock: ManualClock) -> None:
    asking = asyncio.create_task(hub.ask("level-0", user="u-1"))
    await tree.all_hanging()
    (run,) = await hub.store.runs()
    assert hub.cancel(run.run, "the user changed their mind")
    response = await asking
    assert response.fault is not None
    assert "the user changed their mind" in response.fault.message
    assert not hub.cancel(run.run), "nothing of it is in flight any more"


async def by_its_deadline(hub: Hub, tree: Tree, clock: ManualClock) -> None:
    asking = asyncio.create_task(hub.ask("level-0", user="u-1", deadline_ms=10_000))
    await tree.all_hanging()
    clock.advance(11)
    assert (await asking).status is Status.TIMEOUT


async def by_whoever_awaits_the_answer(hub: Hub, tree: Tree, clock: ManualClock) -> None:
    asking = asyncio.create_task(hub.ask("level-0", user="u-1"))
    await tree.all_hanging()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(tree.cleaned) == tree.nodes, "it ends only when all below it is gone"


async def by_a_time_limit_around_the_question(hub: Hub, tree: Tree, clock: ManualClock) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await hub.ask("level-0", user="u-1")


async def by_closing_the_stream(hub: Hub, tree: Tree, clock: ManualClock) -> None:
    async with aclosing(hub.stream("level-0", user="u-1")) as stream:
        await anext(stream)
        await tree.all_hanging()


async def by_leaving_the_stream(hub: Hub, tree: Tree, clock: ManualClock) -> None:
    async for _ in hub.stream("level-0", user="u-1"):
        await tree.all_hanging()
        break
    gc.collect()


WAYS = (
    by_its_id, by_its_deadline, by_whoever_awaits_the_answer, by_a_time_limit_around_the_question,
    by_closing_the_stream, by_leaving_the_stream,
)  # fmt: skip


@pytest.mark.parametrize("end", WAYS)
async def test_however_a_run_is_ended_all_below_it_is_gone_and_the_end_is_recorded(
    make_hub: Callable[..., Hub], end: Callable[[Hub, Tree, ManualClock], Awaitable[None]]
) -> None:
    """X6, X15: depth 4, two at each level."""
    hub = make_hub(clock=(clock := ManualClock()))
    tree = Tree(hub, depth=4, width=2)
    async with hub, no_task_left(), asyncio.timeout(PATIENCE_S):
        await end(hub, tree, clock)
        await until(lambda: len(tree.cleaned) == tree.nodes)
        (run,) = await hub.store.runs()
        response = await hub.store.wait(run.run)
        delegations = await hub.delegations(run.run)
        await settle()
    assert response.status is (Status.TIMEOUT if end is by_its_deadline else Status.CANCELLED)
    assert len(delegations) == tree.nodes == 31
    assert {each.status for each in delegations} <= {response.status, Status.CANCELLED}


async def test_cancelling_one_delegation_leaves_its_siblings_and_its_caller(hub: Hub) -> None:
    """X15: the caller gets a response that says so; what was below the cancelled one is gone."""
    tree = Tree(hub, depth=2, width=2)
    go_on = asyncio.Event()

    @hub.agent("sibling")
    async def sibling(brief: Brief) -> str:
        tree.hanging.release()
        await go_on.wait()
        return "done"

    @hub.agent("top", may_call=["*"])
    async def top(brief: Brief) -> list[str]:
        replies = await brief.fan_out([Call(target="level-0"), Call(target="sibling")])
        return [reply.status for reply in replies]

    async with hub, no_task_left():
        with hub.events() as events:
            asking = asyncio.create_task(hub.ask("top", user="u-1"))
            delegation = await first_request(events, "level-0")
        for _ in range(tree.leaves + 1):
            await tree.hanging.acquire()
        assert hub.cancel(delegation.id)
        await until(lambda: len(tree.cleaned) == tree.nodes)
        go_on.set()
        response = await asking
    assert response.unwrap() == ["cancelled", "success"]


async def first_request(events: AsyncIterator[Record], target: str) -> Request:
    async for record in events:
        if isinstance(record.body, Request) and record.body.target == target:
            return record.body
    raise AssertionError(target)


async def test_closing_the_hub_ends_every_run_in_flight(hub: Hub) -> None:
    """X15: whoever asked is told, and nothing is left behind."""
    tree = Tree(hub, depth=3, width=2)
    async with no_task_left():
        async with hub:
            asking = [asyncio.create_task(hub.ask("level-0", user=f"u-{number}")) for number in range(3)]
            for _ in asking:
                await tree.all_hanging()
        responses = [await each for each in asking]
    assert [response.status for response in responses] == [Status.CANCELLED] * 3
    assert len(tree.cleaned) == 45
    with pytest.raises(RemitError, match="not open"):
        await hub.ask("level-0", user="u-1")


class Person:
    """Somebody who is asked and takes their time."""

    def __init__(self) -> None:
        self.was_asked = asyncio.Event()
        self.makes_up_their_mind = asyncio.Event()

    async def __call__(self, question: Question) -> bool:
        self.was_asked.set()
        await self.makes_up_their_mind.wait()
        return True


def ask_first(request: Request, facts: Facts) -> Verdict:
    return ALLOW if "Sure?" in facts.approved else Ask("Sure?")


async def test_closing_the_hub_does_not_wait_for_a_person(make_hub: Callable[..., Hub]) -> None:
    """X15: what was still to be approved does not start, and the hub closes."""
    hub = make_hub(guards=[ask_first], approver=(person := Person()))
    ran: list[str] = []

    @hub.agent("a")
    async def a(brief: Brief) -> str:
        ran.append("a")
        return "never"

    await hub.__aenter__()
    asking = asyncio.create_task(hub.ask("a", user="u-1"))
    await person.was_asked.wait()
    closing = asyncio.create_task(hub.__aexit__(None, None, None))
    done, _ = await asyncio.wait({closing}, timeout=PATIENCE_S)
    person.makes_up_their_mind.set()
    await closing
    assert done, "the hub did not close"
    assert not (await asking).ok
    assert ran == []


async def test_a_request_in_the_queue_can_be_cancelled_and_the_next_gets_the_slot(hub: Hub) -> None:
    """X15: a slot is never lost to someone who is gone."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    @hub.agent("busy", concurrency=1)
    async def busy(brief: Brief) -> str:
        begun.set()
        await go_on.wait()
        return brief.objective

    async with hub, no_task_left():
        first = asyncio.create_task(hub.ask("busy", "first", user="u-1"))
        await begun.wait()
        with hub.events() as events:
            waiting = [asyncio.create_task(hub.ask("busy", str(number), user="u-1")) for number in range(5)]
            for _ in waiting:
                await anext(events)
        await settle()
        # The one that is given the slot is cancelled at the same moment.
        go_on.set()
        await settle(1)
        for each in waiting[:4]:
            each.cancel()
        assert (await first).result == "first"
        assert (await waiting[4]).result == "4"
        await asyncio.wait(waiting)
        assert (await hub.ask("busy", "last", user="u-1")).result == "last"


async def test_an_agent_can_give_up_one_delegation_and_go_on(hub: Hub) -> None:
    """X15: cancelling its own task that awaits a delegation cancels the delegation, and only that."""
    begun, cleaned = asyncio.Event(), asyncio.Event()

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
        return "never"

    @hub.agent("a", may_call=["slow"])
    async def a(brief: Brief) -> str:
        left = brief.tokens_left()
        try:
            async with asyncio.timeout(0.05):
                await brief.delegate("slow", objective="1")
        except TimeoutError:
            pass
        assert cleaned.is_set()
        assert brief.tokens_left() == left
        return "went on"

    async with hub, no_task_left():
        response = await hub.ask("a", user="u-1")
        delegations = await hub.delegations(response.run)
    assert (response.result, [each.status for each in delegations]) == ("went on", [Status.SUCCESS, Status.CANCELLED])


# ── who ignores it ────────────────────────────────────────────────────────────────────────────────────────────────────


class Stubborn:
    """An agent that swallows cancellation and goes on until it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        self.after: list[object] = []
        self.gone = asyncio.Event()

    async def __call__(self, brief: Brief) -> str:
        self.begun.set()
        try:
            while not self.let_go.is_set():
                try:
                    await self.let_go.wait()
                except asyncio.CancelledError:
                    self.after.append("swallowed")
            self.after.append((await brief.delegate("helper", objective="late")).status)
            try:
                await brief.use("write")
            except RemitError as error:
                self.after.append(error.fault.code)
            for act in (lambda: brief.progress("late"), lambda: brief.spend(prompt=1)):
                try:
                    act()
                except RemitError as error:
                    self.after.append(error.fault.code)
            return "too late"
        finally:
            self.gone.set()


def stubborn_team(hub: Hub) -> tuple[Stubborn, list[str]]:
    stubborn, did = Stubborn(), list[str]()
    hub.agent("stubborn", may_call=["helper"], tools=["write"], concurrency=1)(stubborn)

    @hub.tool("write")
    async def write() -> str:
        did.append("wrote")
        return "written"

    @hub.agent("helper")
    async def helper(brief: Brief) -> str:
        did.append("helped")
        return "helped"

    return stubborn, did


async def test_a_callee_that_swallows_cancellation_is_abandoned(make_hub: Callable[..., Hub]) -> None:
    """K12: after the grace time its caller gets TIMEOUT, a sibling its result, and the operator a notice."""
    hub = make_hub(limits=Limits(grace_ms=50))
    stubborn, did = stubborn_team(hub)

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> list[object]:
        replies = await brief.fan_out(
            [Call(target="stubborn", objective="x", deadline_ms=40), Call(target="helper", objective="y")]
        )
        return [(reply.status, reply.result) for reply in replies]

    async with hub, no_task_left():
        response = await hub.ask("prime", user="u-1")
        assert response.unwrap() == [["timeout", None], ["success", "helped"]]
        assert [notice.agent for notice in await notices(hub, response.run)] == ["stubborn"]
        stubborn.let_go.set()
        await stubborn.gone.wait()
        await settle()
        recorded = await notices(hub, response.run)
        assert [(notice.agent, "abandoned" in notice.text) for notice in recorded] == [("stubborn", True)] * 2
        assert "dropped" in recorded[1].text
        assert (await hub.ask("helper", user="u-1")).unwrap() == "helped"
    assert stubborn.after == ["swallowed", "refused", Code.CANCELLED, Code.CANCELLED, Code.CANCELLED]
    assert did == ["helped", "helped"], "abandoned code can neither delegate nor use a tool"


async def test_a_callee_that_ignores_cancellation_holds_no_deadline(make_hub: Callable[..., Hub]) -> None:
    """Decision 11: with the usual limits, and it is on record that it was abandoned and what it does later."""
    hub = make_hub(clock=(clock := ManualClock()))
    stubborn, _ = stubborn_team(hub)

    async with hub, no_task_left(), asyncio.timeout(PATIENCE_S):
        asking = asyncio.create_task(hub.ask("stubborn", "x", user="u-1", deadline_ms=200))
        await stubborn.begun.wait()
        clock.advance(0.25)
        await settle()
        clock.advance(0.1)
        response = await asking
        stubborn.let_go.set()
        await stubborn.gone.wait()
        await settle()
        recorded = [notice.text for notice in await notices(hub, response.run)]
    assert (response.status, response.duration_ms) == (Status.TIMEOUT, 320)
    assert recorded == [
        "stubborn did not stop when it was cancelled, and was abandoned",
        "its result arrived after it was abandoned and was dropped",
    ]


@pytest.mark.parametrize("how", ["hub.cancel", "asker", "close"])
async def test_a_stubborn_callee_holds_nobody_up_who_cancels_and_is_named_alone(
    make_hub: Callable[..., Hub], how: str
) -> None:
    """K12: the one who cancels waits for the grace time and no longer; those above it did nothing wrong."""
    hub = make_hub(limits=Limits(grace_ms=50))
    stubborn, _ = stubborn_team(hub)

    @hub.agent("mid", may_call=["*"])
    async def mid(brief: Brief) -> str:
        return (await brief.delegate("stubborn", objective="x")).unwrap()

    async with no_task_left(), asyncio.timeout(PATIENCE_S):
        async with hub:
            asking = asyncio.create_task(hub.ask("mid", "x", user="u-1"))
            await stubborn.begun.wait()
            if how == "hub.cancel":
                (run,) = await hub.store.runs()
                hub.cancel(run.run)
            elif how == "asker":
                asking.cancel()
            if how != "close":
                await asyncio.wait({asking})
                (run,) = await hub.store.runs()
                assert run.response is not None
                assert run.response.status is Status.CANCELLED
                recorded = await notices(hub, run.run)
                assert {each.agent for each in recorded if each.code is not Code.CANCELLED} == {"stubborn"}
        await asyncio.wait({asking})
        stubborn.let_go.set()
        await stubborn.gone.wait()
        await settle()


async def test_code_that_outlives_the_hub_does_no_harm(make_hub: Callable[..., Hub]) -> None:
    """K12: an abandoned callee that ends after the hub was closed raises nothing that nobody hears."""
    unheard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    hub = make_hub(limits=Limits(grace_ms=30))
    stubborn, _ = stubborn_team(hub)

    async with no_task_left():
        async with hub:
            response = await hub.ask("stubborn", "x", user="u-1", deadline_ms=40)
            assert response.status is Status.TIMEOUT
        await settle()
        stubborn.let_go.set()
        await stubborn.gone.wait()
        await settle()
        gc.collect()
    assert unheard == []


async def test_a_brief_is_worth_nothing_once_its_delegation_has_ended(hub: Hub) -> None:
    """K12, X11: who keeps a brief can neither delegate nor use a tool with it later."""
    kept: list[Brief] = []
    ran: list[str] = []

    @hub.tool("write")
    async def write() -> None:
        ran.append("wrote")

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        ran.append("b")
        return "x"

    @hub.agent("a", may_call=["b"], tools=["write"])
    async def a(brief: Brief) -> str:
        kept.append(brief)
        return "done"

    async with hub:
        await hub.ask("a", user="u-1")
        (brief,) = kept
        assert (await brief.delegate("b")).status is Status.REFUSED
        assert [reply.status for reply in await brief.fan_out([Call(target="b")])] == [Status.REFUSED]
        with pytest.raises(RemitError, match="CANCELLED"):
            await brief.use("write")
        with pytest.raises(RemitError, match="CANCELLED"):
            brief.spend(prompt=1)
    assert ran == []


async def test_what_a_callee_does_on_being_cancelled_is_waited_for_and_changes_nothing(
    make_hub: Callable[..., Hub],
) -> None:
    """X6: the reason for the end is the deadline, whatever the clean-up answers or stumbles over."""
    hub = make_hub(limits=Limits(grace_ms=5_000))
    steps: list[str] = []

    @hub.agent("tidy")
    async def tidy(brief: Brief) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await settle(100)  # other work goes on in between
            steps.append("tidied")
        return "swallowed it, but ended"

    @hub.agent("clumsy")
    async def clumsy(brief: Brief) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("dropped the tray")

    async with hub, no_task_left():
        for agent in ("tidy", "clumsy"):
            response = await hub.ask(agent, user="u-1", deadline_ms=30)
            assert (response.status, response.result) == (Status.TIMEOUT, None)
            assert await notices(hub, response.run) == []
    assert steps == ["tidied"]


async def test_a_callee_that_cancels_itself_has_failed(hub: Hub) -> None:
    """K12: nobody asked for it, so it is a failure of the callee and not a cancellation."""

    @hub.agent("quits")
    async def quits(brief: Brief) -> str:
        raise asyncio.CancelledError

    @hub.agent("aims-at-itself")
    async def aims_at_itself(brief: Brief) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "never"

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> list[str]:
        replies = await brief.fan_out([Call(target="quits"), Call(target="aims-at-itself")])
        return [reply.fault.code if reply.fault else "" for reply in replies]

    async with hub, no_task_left():
        response = await hub.ask("prime", user="u-1")
    assert response.unwrap() == ["DELEGATION_FAILED"] * 2


# ── work that is left behind ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_delegation_that_nobody_waits_for_ends_with_the_one_who_asked(hub: Hub) -> None:
    """K12: an agent that answers while its background tasks delegate takes them with it."""
    background: set[asyncio.Task[Response]] = set()
    begun, cleaned = asyncio.Event(), asyncio.Event()

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
        return "never"

    @hub.agent("hasty", may_call=["slow"])
    async def hasty(brief: Brief) -> str:
        background.add(asyncio.create_task(brief.delegate("slow", objective="x")))
        await begun.wait()
        return "done already"

    async with hub, no_task_left():
        response = await hub.ask("hasty", user="u-1")
        assert cleaned.is_set()
        (left_behind,) = background
        reply = await left_behind
        delegations = await hub.delegations(response.run)
    assert (response.result, reply.status) == ("done already", Status.CANCELLED)
    assert [each.status for each in delegations] == [Status.SUCCESS, Status.CANCELLED]


@pytest.mark.parametrize("cancelled", ["the task", "the run"])
async def test_a_task_left_behind_that_takes_its_time_to_clean_up_holds_nobody_up(
    make_hub: Callable[..., Hub], cancelled: str
) -> None:
    """K12: the agent has answered; whatever becomes of its task, the run ends, and nobody is named for it."""
    hub = make_hub(limits=Limits(grace_ms=1_500))
    background: list[asyncio.Task[Response]] = []
    begun, cleaning, cleaned = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await cleaned.wait()
        return "never"

    @hub.agent("hasty", may_call=["slow"])
    async def hasty(brief: Brief) -> str:
        background.append(asyncio.create_task(brief.delegate("slow", objective="x")))
        await begun.wait()
        return "done already"

    async with hub, no_task_left(), asyncio.timeout(PATIENCE_S):
        asking = asyncio.create_task(hub.ask("hasty", user="u-1"))
        await cleaning.wait()
        if cancelled == "the run":
            (run,) = await hub.store.runs()
            hub.cancel(run.run)
        else:
            background[0].cancel()
        await settle()
        cleaned.set()
        response = await asking
        await asyncio.wait(background)
        codes = [notice.code for notice in await notices(hub, response.run)]
    if cancelled == "the run":
        assert codes == [Code.CANCELLED]
        assert response.status in (Status.CANCELLED, Status.SUCCESS)
    else:
        assert (response.status, response.result) == (Status.SUCCESS, "done already")


async def test_progress_made_before_a_cancellation_is_kept(hub: Hub) -> None:
    """K10: a cancelled delegation brings what was finished, like one that timed out."""

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        brief.progress("half", partial=Answer("half", finished=("1",), unfinished=("2",)))
        hub.cancel(brief.request.id)
        await asyncio.Event().wait()
        return "never"

    async with hub:
        response = await hub.ask("b", user="u-1")
        records = await hub.store.records(run=response.run)
    assert (response.status, response.result, response.unfinished) == (Status.CANCELLED, "half", ("2",))
    assert [record.kind for record in records] == [Kind.STARTED, Kind.PROGRESS, Kind.NOTICE, Kind.RESULT]


async def test_a_request_that_has_an_outcome_keeps_it_though_it_is_cancelled_where_it_is_sent_again(
    tmp_path: Path,
) -> None:
    """Decision 6: its outcome is known to the store, and not yet to the hub that it is sent to again."""
    done: list[str] = []

    def cancelled_meanwhile(request: Request, facts: Facts) -> Verdict:
        assert hubs[1].cancel("1", "asked for")
        return ALLOW

    hubs = [
        Hub(store=tmp_path / "hub.db", durability="process", guards=guards) for guards in ([], [cancelled_meanwhile])
    ]
    for hub in hubs:

        @hub.agent("till")
        async def till(brief: Brief) -> str:
            done.append(brief.text)
            return "paid"

    async with hubs[0] as first, hubs[1] as second:
        paid = await first.ask("till", "pay", user="u-1", request_id="1")
        again = await second.ask("till", "pay", user="u-1", request_id="1")
        other = await second.ask("till", "pay", user="u-2", request_id="1")
    assert (paid.result, again.result) == ("paid", "paid")
    assert (code_of(other), done) == (Code.CANCELLED, ["pay"])
