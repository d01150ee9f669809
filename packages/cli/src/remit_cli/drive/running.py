"""How a command runs: stdout is for data, logs are single lines, and stop signals end it."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, redirect_stdout
from types import FrameType
from typing import IO, Any, NoReturn, TypeVar

import click

from remit.protocol.codec import encode
from remit.protocol.envelope import Json
from remit.runtime import NEXT_LINE
from remit.words.terminal import json_for_terminal, one_line, several_lines
from remit_cli.options import wants_colour
from remit_cli.show.screen import styled

T = TypeVar("T")

# Clean-up has already had its grace period from the hub; this is for tasks that are cancelled only now.
LAST_S = 0.5


def run(
    work: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> tuple[T, bool]:
    """Return the result of *work*, and whether a task ignored its cancellation; then call `leave`."""
    runner = asyncio.Runner(loop_factory=loop_factory)
    stuck = True
    try:
        result = runner.run(work)
        stuck = _stop_all(runner)
        return result, stuck
    except BaseException:
        stuck = _stop_all(runner)
        raise
    finally:
        if not stuck:
            runner.close()


def _stop_all(runner: asyncio.Runner) -> bool:
    """Cancel the remaining tasks; return whether any did not end."""
    left = asyncio.all_tasks(runner.get_loop())
    for task in left:
        task.cancel()
    return bool(left) and runner.run(_outlasted(left))


async def _outlasted(left: set[asyncio.Task[Any]]) -> bool:
    _, pending = await asyncio.wait(left, timeout=LAST_S)
    return bool(pending)


def leave(code: int) -> NoReturn:
    """Flush the output and end this process, whatever still runs in it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


INTERRUPTED = 130


@contextmanager
def hearing(hear: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """Call *hear* at each stop signal, within the block.

    Signals that this process ignores, as under `nohup`, stay ignored.
    """
    known = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    wanted = [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, hear) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupts(stop: Callable[[str], None], leave: Callable[[], None]) -> Generator[None]:
    """Call *stop* in the event loop at the first stop signal; at the second, call *leave* and exit at once."""
    loop = asyncio.get_running_loop()
    signals: list[int] = []

    # Not `loop.add_signal_handler`: an agent that blocks the loop must not make the second one wait.
    def hear(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as Python calls it
        signals.append(number)
        if len(signals) > 1:
            leave()
            os._exit(INTERRUPTED)
        loop.call_soon_threadsafe(stop, signal.Signals(number).name)

    with hearing(hear):
        yield


@contextmanager
def until_stopped() -> Generator[asyncio.Future[str]]:
    """Yield a future that is done, with its name, at the first stop signal; at the second, exit at once."""
    stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def stop(name: str) -> None:
        if not stopped.done():
            stopped.set_result(name)

    with interrupts(stop, lambda: click.echo("Stopped at once.", err=True)):
        yield stopped


class _Handler(logging.Handler):
    def __init__(self, say: Callable[[str], None], *, whole: bool) -> None:
        super().__init__(logging.DEBUG if whole else logging.WARNING)
        self._say = say
        self._whole = whole

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
            level = record.levelname.lower()
            self._say(several_lines(f"{level}: {message}") if self._whole else f"{level}: {_gist(message)}")
        except Exception:  # noqa: BLE001 - what cannot be logged must not end a run
            self.handleError(record)


def _gist(message: str) -> str:
    """Return a message in one line; of a traceback, its message and the exception."""
    first, *others = [line for line in message.split(NEXT_LINE) if line.strip()] or [""]
    return one_line(
        f"{first.removesuffix('Traceback (most recent call last):').rstrip()} {others[-1]}" if others else first
    )


@contextmanager
def logging_to(say: Callable[[str], None], *, verbose: bool) -> Generator[None]:
    """Show log messages: warnings as one line each, or everything unchanged."""
    log = logging.getLogger("remit")
    handler, level = _Handler(say, whole=verbose), log.level
    log.addHandler(handler)
    if verbose:
        log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


class Data:
    """Where the data of a command goes."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self.is_terminal = out.isatty()

    def document(self, document: object) -> None:
        """Write a JSON document on a line of its own, at once."""
        text = encode(document).decode()
        self._write(json_for_terminal(text) if self.is_terminal else text)

    def answer(self, result: Json, *, bold: bool = False) -> None:
        """Write an answer: text unchanged, anything else as JSON; *bold*, where colours are wanted."""
        if result is None:
            return
        if isinstance(result, str):
            text = several_lines(result) if self.is_terminal else result
        elif self.is_terminal:
            import msgspec

            text = json_for_terminal(msgspec.json.format(encode(result), indent=2).decode())
        else:
            text = encode(result).decode()
        colours = wants_colour()
        self._write(styled(text.rstrip("\n"), bold=True) if bold and (colours or self.is_terminal) else text)

    def piece(self, text: str) -> None:
        """Write a part of a streamed answer; the caller has removed control codes."""
        self._out.write(text)
        self._out.flush()

    def line(self, text: str) -> None:
        """Write one line of text."""
        self._write(text)

    def _write(self, text: str) -> None:
        self._out.write(text if text.endswith("\n") else text + "\n")
        self._out.flush()


@contextmanager
def data_only() -> Generator[Data]:
    """Yield a writer to stdout; redirect everything else that is printed to stderr."""
    ours = sys.stdout
    try:
        is_real = ours.fileno() == 1
    except (OSError, ValueError):
        is_real = False
    if not is_real:
        with redirect_stdout(sys.stderr):
            yield Data(ours)
        return
    # Child processes inherit the file descriptor, not Python's stream, so redirect the descriptor.
    ours.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with open(kept, "w", encoding=ours.encoding, errors=ours.errors, closefd=False) as out:
            yield Data(out)
    finally:
        ours.flush()
        os.dup2(kept, 1)
        os.close(kept)
