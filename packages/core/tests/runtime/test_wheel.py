"""One timer for all deadlines, and the end of tasks that have none."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.runtime import clock as clocks
from remit.runtime.clock import TICK_S, TimerWheel, until_tick
from remit_testing.samples import ManualClock

# Less than a tick, and far more than what floats lose.
NEARLY = 1e-6


def test_an_item_is_called_back_at_most_a_tick_late_and_never_early() -> None:
    clock, due = ManualClock(), list[str]()
    wheel: TimerWheel[str] = TimerWheel(clock, lambda item, _: due.append(item))
    wheel.add("tea", clock.now() + 3)
    clock.advance(3 - NEARLY)
    assert due == []
    clock.advance(TICK_S + 2 * NEARLY)
    assert due == ["tea"]


def test_an_item_that_was_taken_off_is_not_called_back() -> None:
    clock, due = ManualClock(), list[str]()
    wheel: TimerWheel[str] = TimerWheel(clock, lambda item, _: due.append(item))
    wheel.discard("tea", wheel.add("tea", clock.now() + 1))
    wheel.add("coffee", clock.now() + 2)
    clock.advance(3)
    assert due == ["coffee"]


def test_an_item_added_while_another_is_called_back_does_not_hold_up_those_before_it() -> None:
    clock, due = ManualClock(), list[str]()

    def again_much_later(item: str, tick: int) -> None:
        due.append(item)
        wheel.add(f"{item} again", clock.now() + 100)

    wheel = TimerWheel(clock, again_much_later)
    wheel.add("first", clock.now() + 1)
    wheel.add("second", clock.now() + 2)
    clock.advance(3)
    assert due == ["first", "second"]


def test_an_item_put_off_by_another_of_the_same_tick_is_told_apart_by_its_tick() -> None:
    clock, due = ManualClock(), list[str]()
    ticks: dict[str, int] = {}

    def put_the_others_off(item: str, tick: int) -> None:
        if ticks[item] != tick:
            return
        due.append(item)
        for other in ticks.keys() - set(due):
            wheel.discard(other, ticks[other])
            ticks[other] = wheel.add(other, clock.now() + 3)

    wheel = TimerWheel(clock, put_the_others_off)
    when = clock.now() + 1
    ticks |= {item: wheel.add(item, when) for item in ("one", "other")}
    clock.advance(2)
    assert len(due) == 1
    clock.advance(3)
    assert sorted(due) == ["one", "other"]


def test_a_stopped_wheel_calls_nobody_back_and_can_be_used_again() -> None:
    clock, due = ManualClock(), list[str]()
    wheel: TimerWheel[str] = TimerWheel(clock, lambda item, _: due.append(item))
    wheel.add("forgotten", clock.now() + 1)
    wheel.stop()
    wheel.add("new", clock.now() + 2)
    clock.advance(5)
    assert due == ["new"]


@given(
    waits=st.lists(st.floats(0, 1), max_size=30),
    renewals=st.lists(st.floats(0, 1), max_size=30),
    turns=st.lists(st.floats(0, 0.3), max_size=20),
)
def test_whatever_is_added_when_each_is_called_back_once_at_its_time(
    waits: list[float], renewals: list[float], turns: list[float]
) -> None:
    """Each call-back adds another item, as a delegation that is told to stop gets its grace time."""
    clock = ManualClock()
    planned: dict[int, float] = {}
    called_at: dict[int, float] = {}
    left = list(renewals)

    def add(wait: float) -> None:
        item = len(planned)
        planned[item] = clock.now() + wait
        wheel.add(item, planned[item])

    def hear(item: int, tick: int) -> None:
        assert item not in called_at
        called_at[item] = clock.now()
        if left:
            add(left.pop())

    wheel: TimerWheel[int] = TimerWheel(clock, hear)
    for wait in waits:
        add(wait)
    for seconds in (*turns, *[2.0] * (len(renewals) + 1)):
        clock.advance(seconds)
    lateness = {item: called_at[item] - planned[item] for item in planned}
    assert [late for late in lateness.values() if not -NEARLY <= late <= TICK_S + NEARLY] == []


# ── the clock ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("now", "seconds"), [(0.3, 0.1), (0.7, 0.1), (4.35, 0.05), (1_700_000_000.3, 0.1), (6.0, 2.0)])
def test_a_wait_for_the_next_tick_is_long_enough_for_the_clock_to_move(
    now: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: now))
    left = until_tick(seconds)
    assert now + left > now
    assert seconds / 1_000 < left <= seconds
    assert (now + left) / seconds == pytest.approx(round((now + left) / seconds))


async def test_a_task_ends_although_its_cancel_comes_together_with_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.11 loses that cancel in `wait_for`."""
    monkeypatch.setattr(clocks, "CANCELLED_AGAIN_S", 0.01)
    loop = asyncio.get_running_loop()
    answers: list[asyncio.Future[None]] = [loop.create_future(), loop.create_future()]

    async def go_on() -> None:
        for answer in answers:
            await asyncio.wait_for(answer, 60)

    task = asyncio.create_task(go_on())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answers[0].set_result(None)
    await clocks.end_tasks([task])
    assert task.cancelled()
