"""A process behind pipes is heard to its last word, and ends with what it started."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from local_agents import gone
from programs import is_alive
from remit.agents.piped_process import MAX_LAST_LINE, LineSplitter, PipedProcess, start

pytestmark = pytest.mark.processes

IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
WAITS = "import signal; print('up', flush=True); signal.pause()"
HAS_A_CHILD = (
    "import os, signal, time\n"
    "pid = os.fork()\n"
    "if pid == 0:\n"
    "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "    while True: time.sleep(60)\n"
    "print(pid, flush=True)\n"
    "signal.pause()\n"
)


def running(code: str) -> PipedProcess:
    return PipedProcess(start([sys.executable, "-c", code], environ=os.environ, folder=None), "a test")


@asynccontextmanager
async def connected(code: str) -> AsyncGenerator[PipedProcess]:
    process = running(code)
    await process.connect()
    try:
        yield process
    finally:
        await process.end()


async def test_lines_go_in_and_come_out() -> None:
    async with connected("print(input().upper())") as process:
        await process.write(b"hello")
        assert await process.stdout.readline() == b"HELLO\n"


async def test_one_that_ends_when_its_stdin_is_closed_is_not_signalled() -> None:
    async with connected("print('up', flush=True); import sys; sys.stdin.read(); sys.exit(3)") as process:
        await process.stdout.readline()
    assert await process.exited == 3
    assert process.ended_by_itself is None


async def test_how_it_ended_by_itself_is_known() -> None:
    async with connected("import sys; sys.exit(4)") as process:
        await process.exited
    assert process.ended_by_itself == "exit code 4"


async def test_one_that_will_not_end_is_killed() -> None:
    async with connected(IGNORES_SIGTERM + WAITS) as process:
        await process.stdout.readline()
    assert await process.exited == -9


async def test_what_it_started_ends_with_it() -> None:
    async with connected(HAS_A_CHILD) as process:
        child = int(await process.stdout.readline())
        assert is_alive(child)
    await gone(child)


async def test_who_does_not_wait_for_its_end_has_it_killed() -> None:
    process = running(IGNORES_SIGTERM + WAITS)
    await process.connect()
    await process.stdout.readline()
    ending = asyncio.create_task(process.end())
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert process.exited.done()
    assert not is_alive(process.pid)


async def test_one_that_was_never_connected_is_ended_too() -> None:
    process = running("import time; time.sleep(600)")
    await process.end()
    assert not is_alive(process.pid)


async def test_its_last_line_is_kept_though_it_was_not_finished() -> None:
    async with connected("import sys; sys.stderr.write('one\\ntwo')") as process:
        await process.last_words()
    assert process.last_lines() == ["one", "two"]


async def test_of_a_line_that_is_too_long_its_beginning_is_kept_less_what_may_be_half_a_secret() -> None:
    async with connected(f"import sys; sys.stderr.write('x' * {MAX_LAST_LINE + 1})") as process:
        await process.last_words()
    assert process.last_lines() == ["x" * LineSplitter.HEAD]
    assert process.last_lines(clip=100) == ["x" * (LineSplitter.HEAD - 100)]


async def test_nothing_can_be_written_to_one_that_has_ended() -> None:
    async with connected("pass") as process:
        await process.end()
        with pytest.raises(BrokenPipeError):
            await process.write(b"late")


async def test_tasks_that_use_its_pipes_end_with_it() -> None:
    async with connected(WAITS) as process:
        process.tasks.append(asyncio.create_task(asyncio.sleep(3_600)))
    assert process.tasks[0].cancelled()
