"""Bounded threads for functions that are not async."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from remit.agents.threads import Threads
from waiting import PATIENCE_S


@pytest.fixture
def finished() -> Iterator[threading.Event]:
    """Set at the end of the test, so that no thread outlives it."""
    event = threading.Event()
    yield event
    event.set()


def named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"remit-{name}-")]


def gone(name: str) -> bool:
    """Wait until no thread of that name is left, and say whether that came true."""
    end = time.monotonic() + PATIENCE_S
    while named(name) and time.monotonic() < end:
        named(name)[0].join(0.05)
    return not named(name)


def idle_in(threads: Threads) -> int:
    return threads._idle  # pyright: ignore[reportPrivateUsage]


def double(number: int) -> int:
    return 2 * number


async def test_a_function_runs_in_another_thread_and_its_result_comes_back() -> None:
    threads = Threads("double", 2)
    assert await threads.run(double, 21) == 42
    assert await threads.run(lambda _: threading.current_thread(), None) is not threading.current_thread()
    await threads.close()
    assert gone("double")


async def test_what_a_function_raises_is_raised_to_whoever_waits() -> None:
    threads = Threads("raise", 1)

    def fail(_: None) -> None:
        raise ZeroDivisionError("as written")

    with pytest.raises(ZeroDivisionError, match="as written"):
        await threads.run(fail, None)
    await threads.close()


async def test_a_stop_iteration_does_not_hang_whoever_waits() -> None:
    threads = Threads("stop", 1)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(threads.run(lambda _: next(iter(())), None), PATIENCE_S)
    await threads.close()


async def test_even_an_exit_is_raised_to_whoever_waits_and_not_in_the_thread() -> None:
    threads = Threads("exit", 1)

    def leave(_: None) -> None:
        raise SystemExit(3)

    async def run() -> str:
        try:
            await threads.run(leave, None)
        except SystemExit as error:
            return f"left with {error.code}"
        return "stayed"

    assert await asyncio.wait_for(run(), PATIENCE_S) == "left with 3"
    await threads.close()


async def test_no_more_threads_than_the_limit_are_made() -> None:
    threads, here, most = Threads("limit", 3), 0, 0
    lock, full = threading.Lock(), threading.Barrier(3)

    def count(number: int) -> int:
        nonlocal here, most
        with lock:
            here += 1
            most = max(most, here)
        full.wait(PATIENCE_S)
        with lock:
            here -= 1
        return number

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(threads.run(count, number)) for number in range(12)]
    assert ([task.result() for task in tasks], most, len(named("limit"))) == (list(range(12)), 3, 3)
    await threads.close()
    assert gone("limit")


async def test_work_that_comes_at_once_does_not_queue_behind_one_idle_thread() -> None:
    """K12: a call that hangs holds up no other while there is room for more threads."""
    threads = Threads("both", 2)
    await threads.run(double, 1)
    for _ in range(100_000):
        if idle_in(threads):
            break
        await asyncio.sleep(0)
    both = threading.Barrier(2)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(threads.run(lambda _: both.wait(PATIENCE_S), None))
    await threads.close()


async def test_one_that_hangs_holds_up_no_other(finished: threading.Event) -> None:
    threads = Threads("hang", 2)
    hanging = asyncio.create_task(threads.run(lambda _: finished.wait(PATIENCE_S), None))
    assert [await threads.run(double, number) for number in range(5)] == [0, 2, 4, 6, 8]
    finished.set()
    await hanging
    await threads.close()


async def test_work_that_was_cancelled_before_it_began_is_dropped(finished: threading.Event) -> None:
    threads, ran, begun = Threads("drop", 1), list[str](), threading.Event()

    def hang(_: None) -> None:
        begun.set()
        finished.wait(PATIENCE_S)

    first = asyncio.create_task(threads.run(hang, None))
    second = asyncio.create_task(threads.run(ran.append, "second"))
    third = asyncio.create_task(threads.run(ran.append, "third"))
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    second.cancel()
    await asyncio.wait({second})
    finished.set()
    await asyncio.wait({first, third})
    assert ran == ["third"]
    await threads.close()


async def test_work_that_has_begun_runs_on_after_its_waiter_was_cancelled_and_its_thread_serves_again(
    finished: threading.Event,
) -> None:
    threads, begun, ended = Threads("begun", 1), threading.Event(), threading.Event()

    def work(_: None) -> None:
        begun.set()
        finished.wait(PATIENCE_S)
        ended.set()

    task = asyncio.create_task(threads.run(work, None))
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    task.cancel()
    await asyncio.wait({task})
    assert not ended.is_set()
    finished.set()
    assert await threads.run(double, 2) == 4
    assert ended.is_set()
    await threads.close()


def test_a_result_that_comes_after_the_loop_has_closed_is_dropped_in_silence(finished: threading.Event) -> None:
    threads, begun = Threads("late", 1), threading.Event()

    def work(_: None) -> None:
        begun.set()
        finished.wait(PATIENCE_S)

    async def start_and_leave() -> None:
        task = asyncio.create_task(threads.run(work, None))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        task.cancel()
        await asyncio.wait({task})
        await threads.close()

    asyncio.run(start_and_leave())
    finished.set()
    assert gone("late")


async def test_closing_does_not_wait_for_one_that_hangs(finished: threading.Event) -> None:
    threads, begun = Threads("closing", 2), threading.Event()

    def hang(_: None) -> None:
        begun.set()
        finished.wait(PATIENCE_S)

    task = asyncio.create_task(threads.run(hang, None))
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S / 2):  # it hangs for longer
        await threads.close()
    finished.set()
    await asyncio.wait({task})
    assert gone("closing")


async def test_threads_that_were_closed_serve_again_also_after_one_that_hung(finished: threading.Event) -> None:
    """A hub may be opened again after it was closed."""
    threads, begun = Threads("again", 1), threading.Event()

    def hang(_: None) -> None:
        begun.set()
        finished.wait(PATIENCE_S)

    task = asyncio.create_task(threads.run(hang, None))
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    await threads.close()
    after = asyncio.create_task(threads.run(double, 4))
    await asyncio.sleep(0)
    finished.set()
    assert await asyncio.wait_for(after, PATIENCE_S) == 8
    await asyncio.wait({task})
    await threads.close()


async def test_a_thread_that_goes_on_with_cancelled_work_is_reported(
    finished: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """K12: it cannot be stopped, so the operator is told which agent it is."""
    threads, begun, loop = Threads("deaf", 1), asyncio.Event(), asyncio.get_running_loop()

    def hang(_: None) -> None:
        loop.call_soon_threadsafe(begun.set)
        finished.wait(PATIENCE_S)

    task = asyncio.create_task(threads.run(hang, None))
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    task.cancel()
    await asyncio.wait({task})
    assert "a thread of deaf is still busy" in caplog.text
    finished.set()
    await threads.close()
