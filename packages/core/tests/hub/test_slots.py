"""Slots count running, not waiting; who waits is served by priority, and nobody for ever."""

import asyncio
import random
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from remit import Brief, Call, Hub, Limits, Priority, Response, Status
from remit_testing.memory import MemoryStore
from waiting import PATIENCE_S


def a_hub() -> Hub:
    return Hub(store=MemoryStore(), limits=Limits(max_fan_out=100, grace_ms=500))


def free_slots(hub: Hub, agent: str) -> int:
    return hub.agent_status()[agent].free


async def until(condition: Callable[[], bool]) -> None:
    """Let the others run until *condition* holds."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise TimeoutError


async def queued(hub: Hub, agent: str, count: int) -> None:
    """Return once so many requests wait for the agent."""
    await until(lambda: hub.agent_status()[agent].queued >= count)


@asynccontextmanager
async def opened(hub: Hub) -> AsyncGenerator[Hub]:
    async with asyncio.timeout(PATIENCE_S), hub:
        yield hub


class Door:
    """An agent that notes who comes in, and lets nobody out until it is opened."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.inside = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, brief: Brief) -> str:
        self.seen.append(brief.text)
        self.inside.set()
        await self.open.wait()
        return brief.text


# ── priority ──────────────────────────────────────────────────────────────────────────────────────────────────────────


# ── the queue ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_time_in_the_queue_is_told_apart_from_the_whole() -> None:
    hub, door = a_hub(), Door()
    hub.agent("clerk", concurrency=1)(door)
    async with opened(hub), asyncio.TaskGroup() as group:
        group.create_task(hub.ask("clerk", "first", user="u"))
        await door.inside.wait()
        second = group.create_task(hub.ask("clerk", "second", user="u"))
        await queued(hub, "clerk", 1)
        asyncio.get_running_loop().call_later(0.05, door.open.set)
    response = second.result()
    assert response.duration_ms >= response.queued_ms >= 40


# ── decision 10: waiting is not working ───────────────────────────────────────────────────────────────────────────────


async def test_two_agents_with_one_slot_each_that_call_each_other_do_not_lock() -> None:
    """Decision 10: A calls B and B calls A, in two runs, with one slot each."""
    hub = a_hub()
    both = asyncio.Barrier(2)

    def caller(other: str) -> Callable[[Brief], Awaitable[object]]:
        async def work(brief: Brief) -> object:
            if brief.remit.depth:
                return "answered"
            await both.wait()
            return (await brief.delegate(other, objective="help", deadline_ms=2_000)).result

        return work

    hub.agent("a", may_call=["b"], concurrency=1)(caller("b"))
    hub.agent("b", may_call=["a"], concurrency=1)(caller("a"))
    async with opened(hub), asyncio.TaskGroup() as group:
        tasks = [group.create_task(hub.ask(name, user="u", deadline_ms=5_000)) for name in ("a", "b")]
    assert [task.result().result for task in tasks] == ["answered", "answered"]


async def test_two_plain_functions_with_one_slot_each_that_call_each_other_do_not_lock() -> None:
    """Decision 10, for agents in threads: who waits in its thread must not keep another call from starting."""
    hub = a_hub()
    both = threading.Barrier(2)

    def caller(other: str) -> Callable[[Brief], object]:
        def work(brief: Brief) -> object:
            if brief.remit.depth:
                return "answered"
            both.wait(PATIENCE_S)
            return brief.wait(brief.delegate(other, objective="help", deadline_ms=1_000)).result

        return work

    hub.agent("a", may_call=["b"], concurrency=1)(caller("b"))
    hub.agent("b", may_call=["a"], concurrency=1)(caller("a"))
    async with opened(hub), asyncio.TaskGroup() as group:
        tasks = [group.create_task(hub.ask(name, user="u", deadline_ms=5_000)) for name in ("a", "b")]
    assert [task.result().result for task in tasks] == ["answered", "answered"]


async def test_the_slot_of_an_agent_that_waits_is_used_by_others_and_it_comes_back_before_new_work() -> None:
    """Decision 10: released while it awaits a child, regained ahead of new work."""
    hub, order = a_hub(), list[str]()
    in_leaf, leave_leaf, leave_second = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @hub.agent("leaf")
    async def leaf(brief: Brief) -> None:
        in_leaf.set()
        await leave_leaf.wait()

    @hub.agent("clerk", concurrency=1, may_call=["leaf"])
    async def clerk(brief: Brief) -> None:
        order.append(f"{brief.text} begins")
        if brief.text == "first":
            await brief.delegate("leaf", objective="x")
            order.append("first goes on")
        elif brief.text == "second":
            leave_leaf.set()
            await leave_second.wait()

    async with opened(hub), asyncio.TaskGroup() as group:
        group.create_task(hub.ask("clerk", "first", user="u"))
        await in_leaf.wait()
        group.create_task(hub.ask("clerk", "second", user="u"))
        group.create_task(hub.ask("clerk", "urgent", user="u", priority=Priority.HIGH))
        await queued(hub, "clerk", 2)  # the urgent one, and the first that wants its slot back
        leave_second.set()
    assert order == ["first begins", "second begins", "first goes on", "urgent begins"]


# ── slots are neither lost nor made ───────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_that_answers_without_waiting_for_its_own_task_keeps_no_slot() -> None:
    hub = a_hub()
    left: list[asyncio.Task[Response]] = []
    begun = asyncio.Event()

    @hub.agent("leaf")
    async def leaf(brief: Brief) -> None:
        begun.set()
        await asyncio.Event().wait()

    @hub.agent("hasty", concurrency=1, may_call=["leaf"])
    async def hasty(brief: Brief) -> str:
        left.append(asyncio.create_task(brief.delegate("leaf", objective="x")))
        await begun.wait()
        return "done"

    async with opened(hub):
        for _ in range(2):
            assert (await hub.ask("hasty", user="u", deadline_ms=2_000)).result == "done"
            await asyncio.wait(left, timeout=PATIENCE_S)
        assert free_slots(hub, "hasty") == 1


async def test_a_plain_function_that_is_cancelled_while_it_delegates_keeps_no_slot() -> None:
    hub = a_hub()
    begun = asyncio.Event()

    @hub.agent("leaf")
    async def leaf(brief: Brief) -> None:
        begun.set()
        await asyncio.Event().wait()

    @hub.agent("plain", concurrency=1, may_call=["leaf"])
    def plain(brief: Brief) -> str:
        if brief.text == "quick":
            return "done"
        return str(brief.wait(brief.delegate("leaf", objective="x")).status)

    async with opened(hub):
        slow = asyncio.create_task(hub.ask("plain", "slow", user="u"))
        await begun.wait()
        slow.cancel()
        await asyncio.wait({slow})
        assert (await hub.ask("plain", "quick", user="u", deadline_ms=2_000)).result == "done"
        assert free_slots(hub, "plain") == 1


async def test_an_agent_that_gives_up_waiting_for_another_works_on_in_a_slot() -> None:
    """An agent may bound a delegation itself; what it does after that counts as running like anything else."""
    hub = a_hub()
    running, most = 0, 0
    given_up, go_on = asyncio.Event(), asyncio.Event()

    @hub.agent("leaf")
    async def leaf(brief: Brief) -> None:
        await asyncio.Event().wait()

    @hub.agent("boss", concurrency=1, may_call=["leaf"])
    async def boss(brief: Brief) -> None:
        nonlocal running, most
        if brief.text == "first":
            try:
                async with asyncio.timeout(0.05):
                    await brief.delegate("leaf", objective="x")
            except TimeoutError:
                given_up.set()
        running += 1
        most = max(most, running)
        if brief.text == "first":
            await go_on.wait()
        running -= 1

    async with opened(hub), asyncio.TaskGroup() as group:
        group.create_task(hub.ask("boss", "first", user="u"))
        await given_up.wait()
        second = group.create_task(hub.ask("boss", "second", user="u"))
        await asyncio.wait({second}, timeout=0.2)
        go_on.set()
    assert most == 1


@pytest.mark.parametrize("seed", range(6))
async def test_however_requests_come_go_wait_and_give_up_slots_are_never_exceeded_and_never_lost(seed: int) -> None:
    """K3, K12: a stress of two agents that call each other, with random cancels and deadlines."""
    chance = random.Random(seed)
    hub = a_hub()
    slots = {"a": 2, "b": 1}
    running, most = dict.fromkeys(slots, 0), dict.fromkeys(slots, 0)

    def enter(name: str) -> None:
        running[name] += 1
        most[name] = max(most[name], running[name])

    def worker(name: str, other: str) -> Callable[[Brief], Awaitable[object]]:
        async def work(brief: Brief) -> object:
            enter(name)
            inside = True
            try:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                for number in range(chance.randrange(3) if brief.remit.depth < 1 else 0):
                    inside = False
                    running[name] -= 1
                    calls = [
                        Call(target=other, objective=f"{number}.{each}", deadline_ms=chance.randrange(20, 200))
                        for each in range(chance.randrange(1, 3))
                    ]
                    await brief.fan_out(calls)
                    enter(name)
                    inside = True
                    await asyncio.sleep(0)
                if chance.random() < 0.1:
                    raise ZeroDivisionError
                return "done"
            finally:
                running[name] -= inside

        return work

    for name, other in (("a", "b"), ("b", "a")):
        hub.agent(name, concurrency=slots[name], queue=40, may_call=[other])(worker(name, other))
    async with opened(hub):
        tasks = [
            asyncio.create_task(
                hub.ask(
                    chance.choice("ab"),
                    str(number),
                    user="u",
                    deadline_ms=chance.choice([25, 60, 3_000]),
                    priority=chance.choice(list(Priority)),
                )
            )
            for number in range(120)
        ]
        frames = hub._parts.ledger.frames  # pyright: ignore[reportPrivateUsage]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            if chance.random() < 0.05:
                chance.choice(tasks).cancel()
            if frames and chance.random() < 0.05:
                hub.cancel(chance.choice(list(frames)))
        assert all(running[name] == 0 and most[name] <= slots[name] for name in slots)
        assert {name: free_slots(hub, name) for name in slots} == slots
        assert Status.SUCCESS in {task.result().status for task in tasks if not task.cancelled()}
