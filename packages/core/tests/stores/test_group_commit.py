"""What is queued while a batch is written shares the next one, whoever writes it, and nothing is left behind."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import chain

import pytest

from remit.stores.group_commit import MAX_BATCH, GroupCommit
from waiting import PATIENCE_S, eventually

LONG_S = 3_600.0


class Desk:
    """Batches as they were written, by whom, and how many failures are still to come."""

    def __init__(self, *, enough: int = 1, linger_s: float = LONG_S, in_loop: int = 0) -> None:
        self.batches: list[list[int]] = []
        self.in_loop: list[bool] = []
        self.failures = 0
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Event()
        self.closed = False
        self.group = GroupCommit[int](
            "desk", self._commit, close=self._close, enough=enough, linger_s=linger_s, in_loop=in_loop
        )

    def _commit(self, batch: list[int]) -> bool:
        self.begun.set()
        assert self.go.wait(PATIENCE_S)
        if self.failures:
            self.failures -= 1
            self.group.queue.extendleft(reversed(batch))
            return False
        if batch:
            self.batches.append(batch)
            self.in_loop.append(threading.current_thread() is threading.main_thread())
            self.group.tell(lambda: None)
        return True

    def _close(self) -> None:
        self.closed = True

    def put(self, *items: int, wake: Callable[[], None] | None = None) -> None:
        self.group.queue.extend(items)
        (wake or self.group.wake_soon)()

    async def hold(self) -> None:
        """Keep the thread busy with item 0 until `go` is set."""
        self.go.clear()
        self.put(0)
        assert await asyncio.to_thread(self.begun.wait, PATIENCE_S)


@asynccontextmanager
async def started(desk: Desk) -> AsyncGenerator[Desk]:
    desk.group.start()
    try:
        yield desk
    finally:
        desk.go.set()
        await desk.group.stop()
        assert desk.closed


async def test_what_is_queued_during_a_batch_shares_the_next() -> None:
    async with started(Desk()) as desk:
        await desk.hold()
        desk.put(1)
        desk.put(2, 3)
        desk.go.set()
        await eventually(lambda: len(desk.batches) == 2)
    assert desk.batches == [[0], [1, 2, 3]]


async def test_a_long_queue_is_written_in_several_batches_in_order() -> None:
    async with started(Desk()) as desk:
        desk.put(*range(2 * MAX_BATCH + 1))
    assert [len(batch) for batch in desk.batches] == [MAX_BATCH, MAX_BATCH, 1]
    assert list(chain(*desk.batches)) == list(range(2 * MAX_BATCH + 1))


async def test_few_that_came_during_a_batch_wait_for_others_but_not_for_ever() -> None:
    async with started(Desk(enough=10, linger_s=0.01)) as desk:
        await desk.hold()
        desk.group.queue.append(1)
        desk.go.set()
        await eventually(lambda: desk.batches == [[0], [1]])


async def test_what_waits_for_others_is_written_with_what_is_urgent() -> None:
    async with started(Desk(enough=10)) as desk:
        await desk.hold()
        desk.group.queue.append(1)
        desk.go.set()
        await eventually(lambda: not desk.group.busy)
        assert desk.batches == [[0]]
        desk.put(2)
        await eventually(lambda: desk.batches == [[0], [1, 2]])


async def test_the_loop_writes_a_few_items_itself_once_a_batch_was_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.stores.group_commit.QUICK_S", LONG_S)
    monkeypatch.setattr("remit.stores.group_commit.STEADY", 1)
    async with started(Desk(in_loop=2)) as desk:
        for items in ((0,), (1, 2), (3, 4, 5)):
            desk.put(*items)
            await eventually(lambda: not desk.group.queue and not desk.group.busy)
    assert desk.batches == [[0], [1, 2], [3, 4, 5]]
    assert desk.in_loop == [False, True, False]


async def test_what_the_loop_fails_to_write_is_written_by_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.stores.group_commit.QUICK_S", LONG_S)
    monkeypatch.setattr("remit.stores.group_commit.STEADY", 1)
    async with started(Desk(in_loop=2)) as desk:
        desk.put(0)
        await eventually(lambda: desk.batches == [[0]] and not desk.group.busy)
        desk.failures = 1
        desk.put(1)
        await eventually(lambda: desk.batches == [[0], [1]])
    assert desk.in_loop == [False, False]


async def test_after_a_slow_batch_the_thread_writes_until_several_were_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.stores.group_commit.STEADY", 2)
    async with started(Desk(in_loop=2)) as desk:
        for number, quick_s in enumerate((LONG_S, LONG_S, 0.0, LONG_S, LONG_S, LONG_S)):
            monkeypatch.setattr("remit.stores.group_commit.QUICK_S", quick_s)
            monkeypatch.setattr("remit.stores.group_commit.ITEM_S", 0.0)
            desk.put(number)
            await eventually(lambda: not desk.group.queue and not desk.group.busy)
    assert desk.in_loop == [False, False, True, False, False, True]


async def test_what_cannot_be_written_at_the_end_is_written_by_the_next_thread() -> None:
    desk = Desk()
    async with started(desk):
        desk.failures = 1
        desk.put(1)
        await eventually(lambda: not desk.failures and not desk.group.busy)
        desk.failures = 1
    assert list(desk.group.queue) == [1]
    async with started(desk):
        await eventually(lambda: desk.batches == [[1]])


async def test_what_is_queued_when_it_is_stopped_is_written_before_it_is_closed() -> None:
    async with started(Desk(enough=10)) as desk:
        await desk.hold()
        desk.group.queue.append(1)
    assert desk.batches == [[0], [1]]


async def test_what_can_wait_is_written_after_its_time_or_with_what_cannot() -> None:
    async with started(Desk()) as desk:
        desk.put(1, wake=lambda: desk.group.wake_within(0.01))
        await eventually(lambda: desk.batches == [[1]])
        desk.put(2, wake=lambda: desk.group.wake_within(LONG_S))
        desk.put(3)
        await eventually(lambda: desk.batches == [[1], [2, 3]])


async def test_what_is_told_is_heard_in_the_loop_in_order() -> None:
    received: list[tuple[int, bool]] = []
    main = threading.current_thread()
    async with started(Desk()) as desk:
        for number in range(3):
            await asyncio.to_thread(
                desk.group.tell, lambda n: received.append((n, threading.current_thread() is main)), number
            )
        await eventually(lambda: len(received) == 3)
    assert received == [(0, True), (1, True), (2, True)]


async def test_the_earlier_of_two_timers_counts() -> None:
    async with started(Desk()) as desk:
        for seconds in (LONG_S, 0.01, LONG_S):
            desk.put(1, wake=lambda seconds=seconds: desk.group.wake_within(seconds))
        await eventually(lambda: desk.batches == [[1, 1, 1]])
