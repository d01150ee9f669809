"""Whoever waits for a run hears how it ended, or that a person is asked in it."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from remit.protocol.envelope import Response
from remit.protocol.records import Approval, Record
from remit.runtime.engine import Engine
from remit.runtime.ports import StoreError
from remit.runtime.root_runs import ActiveRun
from remit.server.bodies import Receive

# Most requests are answered before it is worth a task to look whether somebody still wants to know.
LOOK_AFTER_S = 0.2
# A person does not notice, and a store does.
LOOK_S = 0.5

First = asyncio.Future[Response | str | None]
"""How a run ended; what a person is asked in it; or None: nothing more will be known of it here."""


class _Watched:
    """A run that is under way: what a person is asked in it at this moment, and who waits for it."""

    __slots__ = ("questions", "waiting")

    def __init__(self) -> None:
        self.questions: dict[str, str] = {}
        self.waiting: dict[First, bool] = {}
        """Each with whether it wants to hear of questions, too."""


class Soon:
    """Calls what it is given after a moment, in order: all wait equally long, so one timer does for all of them."""

    def __init__(self) -> None:
        self._calls: deque[tuple[float, list[Callable[[], None]]]] = deque()

    def call(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call *act* after `LOOK_AFTER_S`, unless what is returned is called before: then it is let go of at once."""
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
    """The runs under way that came from elsewhere, and who waits for them."""

    def __init__(self, hub: Engine) -> None:
        self._hub = hub
        self.soon = Soon()
        self._watched: dict[str, _Watched] = {}
        self._leave = hub.store.listen(self._committed, patient=True)

    def close(self) -> None:
        """Hear no more, and let nobody wait any longer: this server goes down before their runs have ended."""
        self._leave()
        for watched in self._watched.values():
            for first in tuple(watched.waiting):
                if not first.done():
                    first.set_result(None)

    async def watch(self, going: ActiveRun, ended: Callable[[asyncio.Task[Response]], None]) -> None:
        """Know from now on what a person is asked in a run, and call *ended*, once for all, when it is over."""
        if going.run in self._watched:
            return
        watched = self._watched[going.run] = _Watched()

        def over(task: asyncio.Task[Response]) -> None:
            del self._watched[going.run]
            for first in tuple(watched.waiting):
                _settle(first, task)
            ended(task)

        going.task.add_done_callback(over)
        if going.on_record:
            # It was begun before somebody listened here, by a server that is gone.
            watched.questions |= {
                each.id: each.text for each in await self._hub.pending() if each.request.run == going.run
            }

    def question(self, run: str) -> str:
        """Return what a person is asked in a run at this moment, here or at another hub; empty if nothing."""
        watched = self._watched.get(run)
        return "" if watched is None else next(iter(watched.questions.values()), "")

    def first(self, going: ActiveRun, *, questions: bool = True) -> First:
        """Return what is known of a run next: its end, what a person is asked if *questions* are wanted, or nothing."""
        first: First = asyncio.get_running_loop().create_future()
        watched = self._watched.get(going.run)
        if watched is None:
            _settle(first, going.task)
        elif questions and (question := self.question(going.run)):
            first.set_result(question)
        else:
            watched.waiting[first] = questions
            first.add_done_callback(watched.waiting.pop)
            if questions:
                call_off = self.soon.call(partial(self._look_elsewhere, going, first))
                first.add_done_callback(lambda _: call_off())
        return first

    def _look_elsewhere(self, going: ActiveRun, first: First) -> None:
        if going.on_record not in ("", going.run):
            looking = asyncio.create_task(self._asked_elsewhere(going.on_record, first))
            first.add_done_callback(lambda _: looking.cancel())

    async def _asked_elsewhere(self, run: str, first: First) -> None:
        """Look what a person is asked in the run that carries the same out: another process, or this one, has it."""
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


class Leaving:
    """Does something when whoever asked has hung up, unless it is cancelled before."""

    def __init__(self, receive: Receive, act: Callable[[], object], soon: Soon) -> None:
        self._receive = receive
        self._act = act
        self._task: asyncio.Task[None] | None = None
        self._call_off = soon.call(self._look)

    def cancel(self) -> None:
        """It does not matter any more."""
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
