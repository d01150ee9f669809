"""Requests that stay in the process: slots, priorities, bounded queues."""

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import Code, Priority, Remit, RemitError, Request, Response, Status
from remit.policy.shares import HEAD_START
from remit.ports import Handler, NobodyServesError, Slot
from remit.protocol.envelope import VERSION
from remit.transports.local import COME_BACK_MS, LocalTransport
from waiting import PATIENCE_S

FAR = float("inf")


def a_request(name: str, priority: Priority = Priority.NORMAL) -> Request:
    remit = Remit(user="u", depth=0, max_depth=5, time_ms=1_000, tokens=1_000, priority=priority)
    return Request(version=VERSION, id=name, origin="user", target="clerk", remit=remit, run="r")


def a_response(request: Request) -> Response:
    return Response(version=VERSION, id=request.id, target=request.target, status=Status.SUCCESS, run="r")


class Counter:
    """A handler that serves only when it is told to, and remembers in which order it was handed what."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.here = 0
        self.most = 0
        self.slots: dict[str, Slot] = {}
        self._doors: dict[str, asyncio.Event] = {}

    def door(self, name: str) -> asyncio.Event:
        return self._doors.setdefault(name, asyncio.Event())

    async def handle(self, request: Request, slot: Slot) -> Response:
        self.served.append(request.id)
        self.slots[request.id] = slot
        self.here += 1
        self.most = max(self.most, self.here)
        try:
            await self.door(request.id).wait()
        finally:
            self.here -= 1
        return a_response(request)


async def settle() -> None:
    """Let every task run until it waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


class Crowd:
    """Requests sent at once, all of which are gone at the end."""

    def __init__(self, transport: LocalTransport) -> None:
        self._transport = transport
        self.tasks: dict[str, asyncio.Task[Response]] = {}

    async def send(self, name: str, priority: Priority = Priority.NORMAL) -> asyncio.Task[Response]:
        work = self._transport.request("clerk", a_request(name, priority), FAR)
        task = self.tasks[name] = asyncio.create_task(work)
        await settle()
        return task

    async def __aenter__(self) -> "Crowd":
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.wait(self.tasks.values(), timeout=PATIENCE_S)


def a_clerk(slots: int = 1, queue: int = 1_000) -> tuple[LocalTransport, Counter]:
    transport, counter = LocalTransport(), Counter()
    transport.serve("clerk", slots, queue, counter.handle)
    return transport, counter


async def test_an_agent_that_nobody_serves_is_a_distinct_error() -> None:
    with pytest.raises(NobodyServesError):
        await LocalTransport().request("clerk", a_request("1"), FAR)


async def test_whoever_stops_serving_gets_no_more_requests() -> None:
    transport, counter = LocalTransport(), Counter()
    transport.serve("clerk", 1, 1, counter.handle)()
    with pytest.raises(NobodyServesError):
        await transport.request("clerk", a_request("1"), FAR)


async def test_leaving_twice_does_not_take_the_next_server_away() -> None:
    transport, old, new = LocalTransport(), Counter(), Counter()
    leave = transport.serve("clerk", 1, 1, old.handle)
    leave()
    transport.serve("clerk", 1, 1, new.handle)
    leave()
    new.door("1").set()
    await transport.request("clerk", a_request("1"), FAR)
    assert new.served == ["1"]


async def test_high_is_served_before_normal_before_low_and_equals_in_order_of_arrival() -> None:
    """K3: HIGH priority is served before NORMAL before LOW when agents are busy."""
    transport, counter = a_clerk()
    async with Crowd(transport) as crowd:
        await crowd.send("first")
        arrivals = [("l1", Priority.LOW), ("n1", Priority.NORMAL), ("h1", Priority.HIGH)]
        arrivals += [("l2", Priority.LOW), ("n2", Priority.NORMAL), ("h2", Priority.HIGH)]
        for name, priority in arrivals:
            await crowd.send(name, priority)
        for name in ("first", *(name for name, _ in arrivals)):
            counter.door(name).set()
        await asyncio.wait(crowd.tasks.values())
    assert counter.served == ["first", "h1", "h2", "n1", "n2", "l1", "l2"]


@pytest.mark.parametrize("priority", [Priority.NORMAL, Priority.LOW])
async def test_a_flood_of_high_does_not_starve_the_others(priority: Priority) -> None:
    """K3: nothing starves. Two HIGH requests arrive for each one served, and the other's turn still comes."""
    transport, counter = a_clerk()
    async with Crowd(transport) as crowd:
        await crowd.send("first")
        patient = await crowd.send("patient", priority)
        counter.door("patient").set()
        counter.door("first").set()
        for number in range(2 * HEAD_START[priority]):
            counter.door(f"h{number}").set()
            work = transport.request("clerk", a_request(f"h{number}", Priority.HIGH), FAR)
            crowd.tasks[f"h{number}"] = asyncio.create_task(work)
            if number % 2:
                await asyncio.sleep(0)
        await patient
        before = counter.served.index("patient")
    assert before <= HEAD_START[priority] + 2


async def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    """K3, K12: a flood is refused at the door."""
    transport, counter = a_clerk(queue=2)
    async with Crowd(transport) as crowd:
        for name in ("first", "second", "third"):
            await crowd.send(name)
        fourth = await crowd.send("fourth")
        error = fourth.exception()
        assert isinstance(error, RemitError)
        assert (error.fault.code, error.fault.retry_after_ms) == (Code.OVERLOADED, COME_BACK_MS)
        assert error.fault.recoverable
        counter.door("first").set()
        await settle()
        assert not (await crowd.send("fifth")).done()
        assert counter.served == ["first", "second"]


async def test_without_a_queue_whoever_finds_no_slot_is_refused() -> None:
    transport, _ = a_clerk(queue=0)
    async with Crowd(transport) as crowd:
        await crowd.send("first")
        assert (await crowd.send("second")).exception() is not None


async def test_those_who_left_the_queue_make_room_in_it() -> None:
    transport, _ = a_clerk(queue=2)
    async with Crowd(transport) as crowd:
        for name in ("first", "second", "third"):
            await crowd.send(name)
        crowd.tasks["second"].cancel()
        await settle()
        assert not (await crowd.send("fourth")).done()
        assert (await crowd.send("fifth")).done()


async def test_who_is_cancelled_in_the_moment_of_being_called_passes_the_slot_on() -> None:
    transport, counter = a_clerk()
    async with Crowd(transport) as crowd:
        for name in ("first", "second", "third"):
            await crowd.send(name)
        counter.slots["first"].release()  # calls the second, whose task has not run again yet
        crowd.tasks["second"].cancel()
        await settle()
        assert counter.served == ["first", "third"]


async def test_who_is_cancelled_at_work_frees_the_slot() -> None:
    transport, counter = a_clerk()
    async with Crowd(transport) as crowd:
        await crowd.send("first")
        await crowd.send("second")
        crowd.tasks["first"].cancel()
        await settle()
        assert counter.served == ["first", "second"]


async def test_a_handler_that_fails_frees_the_slot() -> None:
    async def fail(request: Request, slot: Slot) -> Response:
        raise ZeroDivisionError

    transport = LocalTransport()
    transport.serve("clerk", 1, 0, fail)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await transport.request("clerk", a_request("1"), FAR)


async def test_who_regains_its_slot_comes_before_everyone_who_waits() -> None:
    transport, counter = a_clerk()
    async with Crowd(transport) as crowd:
        await crowd.send("first")
        counter.slots["first"].release()
        await crowd.send("second")
        await crowd.send("urgent", Priority.HIGH)
        regained = asyncio.create_task(counter.slots["first"].regain())
        await settle()
        assert not regained.done()
        counter.door("second").set()
        await settle()
        assert regained.done()
        assert counter.served == ["first", "second"]


async def test_a_slot_that_is_asked_back_twice_at_once_is_taken_once() -> None:
    """An agent may wait for several delegations in tasks of its own; both come back for the one slot it has."""
    transport, counter = a_clerk()
    async with Crowd(transport) as crowd:
        await crowd.send("first")
        counter.slots["first"].release()
        await crowd.send("second")
        regained = [asyncio.create_task(counter.slots["first"].regain()) for _ in range(2)]
        await settle()
        counter.door("second").set()
        for each in regained:
            await asyncio.wait_for(each, PATIENCE_S)
        counter.door("first").set()
        await settle()
        await crowd.send("third")
        assert counter.served == ["first", "second", "third"]


async def test_a_slot_held_again_after_its_request_has_ended_is_not_lost() -> None:
    """An agent may answer while a task of its own still waits for another agent, and comes back for its slot late."""
    transport, counter = a_clerk()
    async with Crowd(transport) as crowd:
        first = await crowd.send("first")
        counter.slots["first"].release()
        counter.door("first").set()
        await settle()
        assert first.done()
        with suppress(RemitError, RuntimeError):
            await asyncio.wait_for(counter.slots["first"].regain(), PATIENCE_S)
        await crowd.send("second")
        assert counter.served == ["first", "second"]


Move = tuple[str, int]
MOVES = st.lists(
    st.tuples(st.sampled_from(["send", "send", "end", "cancel", "wait", "turn", "turn"]), st.integers(0, 9)),
    max_size=60,
)


@given(slots=st.integers(1, 3), queue=st.integers(0, 5), moves=MOVES)
def test_whoever_comes_waits_and_leaves_when_slots_are_neither_lost_nor_made(
    slots: int, queue: int, moves: list[Move]
) -> None:
    """K3: never more than the slots at once, and all of them there again at the end."""
    asyncio.run(play(slots, queue, moves))


async def play(slots: int, queue: int, moves: list[Move]) -> None:
    running, most, doors = set[str](), 0, dict[str, asyncio.Event]()

    def run(name: str) -> None:
        nonlocal most
        running.add(name)
        most = max(most, len(running))

    async def handle(request: Request, slot: Slot) -> Response:
        run(request.id)
        try:
            while not doors[request.id].is_set():
                await asyncio.sleep(0)
                if f"{request.id} waits" in doors:  # for another agent: its place is free meanwhile
                    running.discard(request.id)
                    slot.release()
                    await doors.pop(f"{request.id} waits").wait()
                    await slot.regain()
                    run(request.id)
        finally:
            running.discard(request.id)
        return a_response(request)

    transport = LocalTransport()
    transport.serve("clerk", slots, queue, handle)
    tasks: list[asyncio.Task[Response]] = []
    waits: list[asyncio.Event] = []
    for move, number in moves:
        match move:
            case "send":
                name = str(len(tasks))
                doors[name] = asyncio.Event()
                priority = list(Priority)[number % 3]
                tasks.append(asyncio.create_task(transport.request("clerk", a_request(name, priority), FAR)))
            case "turn":
                await asyncio.sleep(0)
            case "end" if tasks:
                doors[str(number % len(tasks))].set()
            case "cancel" if tasks:
                tasks[number % len(tasks)].cancel()
            case "wait" if str(number) in running:
                waits.append(doors.setdefault(f"{number} waits", asyncio.Event()))
                await asyncio.sleep(0)
            case _:
                for event in waits:
                    event.set()
    for event in (*waits, *doors.values()):
        event.set()
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=PATIENCE_S)
        assert not late
    for task in tasks:  # look at each outcome, so that none is reported as never retrieved
        assert task.cancelled() or task.exception() is None or isinstance(task.exception(), RemitError)
    assert most <= slots
    await all_slots_are_there(transport, slots, running)


async def all_slots_are_there(transport: LocalTransport, slots: int, running: set[str]) -> None:
    """Fill every slot with a request that stays, and see that each began at once."""
    doors = {str(number): asyncio.Event() for number in range(slots)}

    async def stay(request: Request, slot: Slot) -> Response:
        running.add(request.id)
        await doors[request.id].wait()
        return a_response(request)

    change_handler(transport, stay)
    running.clear()
    tasks = [asyncio.create_task(transport.request("clerk", a_request(name), FAR)) for name in doors]
    for _ in range(5):
        await asyncio.sleep(0)
    free = len(running)
    for event in doors.values():
        event.set()
    await asyncio.wait(tasks, timeout=PATIENCE_S)
    assert free == slots


def change_handler(transport: LocalTransport, handler: Handler) -> None:
    transport._stalls["clerk"].handler = handler  # pyright: ignore[reportPrivateUsage]
