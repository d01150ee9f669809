"""Runs a conversation: reads input in the main thread, for readline and signals, and runs the hub in a second one."""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

import click

from remit.cli.drive import running
from remit.cli.drive.order import Order
from remit.cli.drive.running import INTERRUPTED, data_only, hearing
from remit.cli.talk.conversation import ChatSession, hint
from remit.cli.talk.reading import Keyboard, LineReader, Piped
from remit.config.load import load_team
from remit.config.team import Team
from remit.protocol.errors import Code, RemitError, fault


class LeaveError(Exception):
    """A stop signal arrived while waiting for input."""


def hold(order: Order, *, as_jsonl: bool, verbose: bool, named_team: Path | None) -> int:
    """Run a conversation to its end, and return the exit code of its last run."""
    with data_only() as data:
        team = load_team(Path(order.team_file), overrides=order.overrides, serving=False)
        _refuse_profile(team, order.agent)
        terminal = sys.stdin.fileno() if sys.stdin.isatty() and sys.stderr.isatty() else None
        chat = ChatSession(order, team, data, as_jsonl=as_jsonl, verbose=verbose, terminal=terminal)
        beside = _Beside(chat)
        try:
            with beside:
                _converse(chat, beside, at_terminal=terminal is not None)
        finally:
            if beside.stuck:
                running.leave(chat.code)
        click.echo(hint(order, named_team), err=True)
        return chat.code


def _refuse_profile(team: Team, name: str) -> None:
    """Raise a `RemitError` for who named a profile, and not with whom its agent shall work."""
    if name in team.everyone or name not in team.profiles:
        return
    raise RemitError(
        fault(
            Code.AGENT_NOT_FOUND,
            f"`{name}` is a profile, not an agent; it works with an agent that another device shares",
            suggestion=f"Give the device and the objective: remit chat {name} DEVICE --objective TEXT",
        )
    )


def _converse(chat: ChatSession, beside: "_Beside", *, at_terminal: bool) -> None:
    lines: LineReader = Piped()
    if at_terminal:
        lines = Keyboard([each.text for each in chat.before if each.role == "user"], unicode=chat.transcript.unicode)
    while not chat.over:
        if chat.waiting:
            text = chat.waiting.popleft()
        else:
            try:
                with beside.reading():
                    text = lines.read(chat.left())
            except KeyboardInterrupt:
                if not at_terminal:
                    chat.code = INTERRUPTED
                    return
                click.echo("\n(Ctrl-D or /quit to exit.)", err=True)
                continue
            except LeaveError:
                chat.code = INTERRUPTED
                return
            if text is None:
                if at_terminal:
                    click.echo(err=True)
                return
        beside.wait(chat.take(text))


class _Beside:
    """The event loop of a conversation in a thread of its own, and the signals that reach this one.

    readline waits for keys in C, and only in the main thread does Ctrl-C end that.
    """

    def __init__(self, chat: ChatSession) -> None:
        self._chat = chat
        self._opened: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = Thread(target=self._serve, name="remit-chat", daemon=True)
        self._reading = self._working = False
        self._heard = 0
        self._heeding = ExitStack()
        self._error: BaseException | None = None
        self.stuck = False
        """Whether something in it does not end."""

    def __enter__(self) -> None:
        self._heeding.enter_context(hearing(self._hear))
        self._thread.start()
        try:
            self._loop = self._opened.result()
        except BaseException:
            self._heeding.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._heard = 0
        self._loop.call_soon_threadsafe(self._chat.close)
        self._thread.join()
        self._heeding.close()
        if self._error is not None and kind is None:
            raise self._error

    def wait(self, work: Coroutine[Any, Any, None]) -> None:
        """Return once *work* is done in the other thread."""
        self._heard, self._working = 0, True
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop).result()
        finally:
            self._working = False

    @contextmanager
    def reading(self) -> Generator[None]:
        """Have a signal raise an error meanwhile, which is what ends the reading."""
        self._reading = True
        try:
            if self._chat.over:  # it was told so just before
                raise LeaveError
            yield
        finally:
            self._reading = False

    def _hear(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as Python calls it
        if self._reading:
            raise KeyboardInterrupt if number == signal.SIGINT else LeaveError
        self._heard += 1
        if self._heard > 1:
            self._chat.transcript.abandon()
            os._exit(INTERRUPTED)
        if not self._working or number != signal.SIGINT:
            self._chat.over, self._chat.code = True, INTERRUPTED
        if self._working:
            self._loop.call_soon_threadsafe(self._chat.stop, signal.Signals(number).name)

    def _serve(self) -> None:
        try:
            _, self.stuck = running.run(self._chat.serve(self._opened))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for it
            if self._opened.done():
                self._error = error
            else:
                self._opened.set_exception(error)
