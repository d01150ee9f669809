"""Waiting for a run: for its outcome, or for a question to a person in it."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from remit.protocol.envelope import Response
from remit.protocol.records import Approval, Record
from remit.runtime.active_runs import ActiveRun
from remit.runtime.engine import Engine
from remit.runtime.ports import StoreError
from remit_server.bodies import Receive

# Most requests are answered before it pays to start a task that watches for a disconnect.
LOOK_AFTER_S = 0.2
# A person does not notice this delay, and a store notices more frequent reads.
LOOK_S = 0.5

First = asyncio.Future[Response | str | None]
"""The outcome of a run; a question to a person in it; or None: nothing more will be known of it here."""


class _Watched:
    """A running run: its open questions to a person, and who waits for it."""

    __slots__ = ("questions", "waiting")

    def __init__(self) -> None:
        self.questions: dict[str, str] = {}
        self.waiting: dict[First, bool] = {}
        """Each waiter, with whether it wants questions, too."""


class Waiter:
    """A waiter for a run: *first* gets its outcome, a question to a person, or None."""

    __slots__ = ("_call_off", "_watched", "first")

    def __init__(self, first: First, watched: _Watched | None, call_off: Callable[[], None] | None) -> None:
        self.first = first
        self._watched = watched
        self._call_off = call_off

    def leave(self) -> None:
        """Stop waiting."""
        self.first.cancel()
        if self._watched is not None:
            self._watched.waiting.pop(self.first, None)
        if self._call_off is not None:
            self._call_off()


class DelayedCalls:
    """Calls functions after a delay, in order: the delay is the same for all, so one timer is enough."""

    def __init__(self) -> None:
        self._calls: deque[tuple[float, list[Callable[[], None]]]] = deque()

    def call(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call *act* after `LOOK_AFTER_S`, unless the returned function is called before: that releases *act*."""
        loop = asyncio.get_running_loop()
        due, acts = loop.time() + LOOK_AFTER_S, [act]
        self._calls.append((due, acts))
        if len(self._calls) == 1:
            loop.call_at(due, self._turn, loop)
        return acts.clear

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        now, due = loop.time(), list[Callable[[], None]]()
        while self._calls and self._calls[0][0] <= now:
            due += self._calls.popleft()[1]
        if self._calls:
            loop.call_at(self._calls[0][0], self._turn, loop)
        for act in due:
            act()


class RunWaiters:
    """The running runs that this server received, and who waits for them."""

    def __init__(self, hub: Engine) -> None:
        self._hub = hub
        self.soon = DelayedCalls()
        self._watched: dict[str, _Watched] = {}
        self._leave = hub.store.listen(self._committed, patient=True)

    def close(self) -> None:
        """Stop listening, and release all waiters: this server shuts down before their runs have ended."""
        self._leave()
        for watched in self._watched.values():
            for first in tuple(watched.waiting):
                if not first.done():
                    first.set_result(None)

    async def watch(self, going: ActiveRun, ended: Callable[[asyncio.Task[Response]], None]) -> None:
        """Follow the questions to a person in a run, and call *ended* once when it is over."""
        if going.run in self._watched:
            return
        watched = self._watched[going.run] = _Watched()

        def over(task: asyncio.Task[Response]) -> None:
            del self._watched[going.run]
            for first in tuple(watched.waiting):
                _settle(first, task)
            ended(task)

        going.when_ended(over)
        if going.on_record:
            # It was started before this server listened, by a server that is gone.
            watched.questions |= {
                each.id: each.text for each in await self._hub.pending() if each.request.run == going.run
            }

    def question(self, run: str) -> str:
        """Return the open question to a person in a run, here or at another hub; empty if there is none."""
        watched = self._watched.get(run)
        return "" if watched is None else next(iter(watched.questions.values()), "")

    def wait(self, going: ActiveRun, *, questions: bool = True) -> Waiter:
        """Wait for what is known of a run next: its outcome, a question if *questions* are wanted, or None."""
        first: First = asyncio.get_running_loop().create_future()
        watched = self._watched.get(going.run)
        call_off = None
        if watched is None:
            _settle(first, going.task)
        elif questions and (question := self.question(going.run)):
            first.set_result(question)
        else:
            watched.waiting[first] = questions
            if questions:
                call_off = self.soon.call(partial(self._look_elsewhere, going, first))
        return Waiter(first, watched, call_off)

    def _look_elsewhere(self, going: ActiveRun, first: First) -> None:
        if going.on_record not in ("", going.run):
            looking = asyncio.create_task(self._asked_elsewhere(going.on_record, first))
            first.add_done_callback(lambda _: looking.cancel())

    async def _asked_elsewhere(self, run: str, first: First) -> None:
        """Look up the question in the run that executes the same request, in this process or another."""
        while not first.done():
            with suppress(StoreError):
                for question in await self._hub.pending():
                    if question.request.run == run and not first.done():
                        first.set_result(question.text)
            await asyncio.sleep(LOOK_S)

    def _committed(self, records: list[Record]) -> None:
        for record in records:
            if isinstance(record.body, Approval) and (watched := self._watched.get(record.run)) is not None:
                self._heard(watched, record.body)

    def _heard(self, watched: _Watched, approval: Approval) -> None:
        if approval.agreed is not None:
            watched.questions.pop(approval.id, None)
            return
        watched.questions[approval.id] = approval.question
        for first, questions in watched.waiting.items():
            if questions and not first.done():
                first.set_result(approval.question)


class DisconnectWatcher:
    """Calls a function when the client disconnects, unless it is cancelled before."""

    def __init__(self, receive: Receive, act: Callable[[], object], soon: DelayedCalls) -> None:
        self._receive = receive
        self._act = act
        self._task: asyncio.Task[None] | None = None
        self._call_off = soon.call(self._look)

    def cancel(self) -> None:
        """Stop watching for a disconnect."""
        self._call_off()
        if self._task is not None:
            self._task.cancel()

    def _look(self) -> None:
        self._task = asyncio.create_task(self._until_gone())

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._act()


def _settle(first: First, task: asyncio.Task[Response]) -> None:
    if first.done():
        return
    if task.cancelled():
        first.cancel()
    elif (error := task.exception()) is not None:
        first.set_exception(error)
    else:
        first.set_result(task.result())
