"""The root requests in flight at one hub, each in a task of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar, cast

from remit.ports import RunScope
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Fault, RemitError

T = TypeVar("T")


class ActiveRun:
    """A root request that this hub executes, or whose end it waits for."""

    __slots__ = ("_when_decided", "_when_ended", "decided", "digest", "on_record", "request", "run", "task")

    def __init__(self, digest: bytes, request: Request, task: asyncio.Task[Response]) -> None:
        self.digest = digest
        self.request = request
        self.run = request.run
        self.task = task
        self.on_record = ""
        """The run under which it is durably recorded: its own, or that of an earlier equal request."""
        self.decided = asyncio.Event()
        """Set once it is recorded, or has ended before that."""
        self._when_ended: list[Callable[[asyncio.Task[Response]], None]] = []
        self._when_decided: list[Callable[[], None]] = []

    def when_decided(self, act: Callable[[], None]) -> None:
        """Call *act* once it is recorded, or has ended before that."""
        if self.decided.is_set():
            act()
        else:
            self._when_decided.append(act)

    def decide(self) -> None:
        """Note that it is recorded, or has ended before that."""
        self.decided.set()
        acts, self._when_decided = self._when_decided, []
        for act in acts:
            act()

    def when_ended(self, act: Callable[[asyncio.Task[Response]], None]) -> None:
        """Call *act* with the task when it has ended."""
        # Called by `end`, which saves a turn of the event loop for each; only after the end it takes one.
        if self.task.done():
            self.task.add_done_callback(act)
        else:
            self._when_ended.append(act)

    def end(self) -> None:
        """Report that the task has ended."""
        self.decide()
        for act in self._when_ended:
            act(self.task)


class ActiveRuns:
    """The tasks of root requests: started, found again, interrupted while they wait, and called off."""

    def __init__(self, gone: Callable[[str], None]) -> None:
        self._gone = gone
        """Called with each run whose task has ended."""
        self._by_key: dict[tuple[str, str, str], ActiveRun] = {}
        self._by_run: dict[str, ActiveRun] = {}
        self._tasks: set[asyncio.Task[Response]] = set()
        self._waiting: dict[asyncio.Task[Response], Fault | None] = {}
        """Runs that wait for a person or another hub, and why they need not wait any more."""
        self._called_off: dict[str, Fault] = {}
        """Runs that must not start, or were cancelled, and why."""

    def launch(self, request: Request, content: bytes, work: Coroutine[None, None, Response]) -> ActiveRun:
        """Run a root request in its own task; *content* is the digest of the request."""
        task, key = asyncio.get_running_loop().create_task(work), request.key
        going = self._by_key[key] = self._by_run[request.run] = ActiveRun(content, request, task)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._ended(key, going))
        return going

    def _ended(self, key: tuple[str, str, str], going: ActiveRun) -> None:
        self._tasks.discard(going.task)
        self._called_off.pop(going.run, None)
        self._gone(going.run)
        if self._by_key.get(key) is going:
            del self._by_key[key]
        if self._by_run.get(going.run) is going:
            del self._by_run[going.run]
        going.end()

    def get(self, key: tuple[str, str, str]) -> ActiveRun | None:
        """Return the request in flight with that key (`Request.key`), if there is one."""
        return self._by_key.get(key)

    def has(self, run: str) -> bool:
        """Return whether a run is in progress here."""
        return run in self._by_run

    def is_recorded(self, run: str) -> bool:
        """Return whether a run is in progress here, and durably recorded under its own id."""
        going = self._by_run.get(run)
        return going is not None and going.on_record == run

    def named(self, name: str) -> ActiveRun | None:
        """Return the run with that id; else the only one whose request has it."""
        if name in self._by_run:
            return self._by_run[name]
        # Senders choose request ids, so two users may have chosen the same one: then it names neither.
        matches = [going for (_, _, request_id), going in self._by_key.items() if request_id == name]
        return matches[0] if len(matches) == 1 else None

    def visible(self, name: str, sender: str, scope: RunScope) -> ActiveRun | None:
        """Return the run in *scope* with that id; else the only one whose request *sender* gave that id."""
        if (going := self._by_run.get(name)) is not None:
            matches = [going]
        else:
            named = [going for (_, _, request_id), going in self._by_key.items() if request_id == name]
            matches = [each for each in named if sender and each.request.via == sender]
        matches = [
            each
            for each in matches
            if (scope.users is None or each.request.remit.user in scope.users)
            and (scope.agents is None or each.request.target in scope.agents)
            and scope.via in (None, each.request.via)
        ]
        return matches[0] if len(matches) == 1 else None

    def note_on_record(self, request: Request, run: str) -> None:
        """Note that a request is durably recorded, under *run*."""
        if (going := self._by_run.get(request.run)) is not None:
            going.on_record = run
            going.decide()

    def call_off(self, run: str, why: Fault) -> None:
        """Note that a run must not start, or is cancelled; the first reason counts."""
        self._called_off.setdefault(run, why)

    def why_called_off(self, run: str) -> Fault | None:
        """Return why a run must not start, or was cancelled, if it was called off."""
        return self._called_off.get(run)

    def interrupt(self, task: asyncio.Task[Response], why: Fault) -> bool:
        """Stop a run from waiting for a person or another hub; False if it does not wait."""
        if task not in self._waiting:
            return False
        self._waiting[task] = self._waiting[task] or why
        task.cancel()
        return True

    async def interruptible(self, waiting: Awaitable[T]) -> T:
        """Wait for a person or another hub, in the task of a run; `interrupt` ends the wait with a fault."""
        task = cast("asyncio.Task[Response]", asyncio.current_task())
        self._waiting[task] = None
        try:
            given = await waiting
        except asyncio.CancelledError:
            why = self._waiting[task]
            if why is None:
                raise
            raise RemitError(why) from None
        else:
            # The approver may not have noticed that the answer is not needed any more.
            if (why := self._waiting[task]) is not None:
                raise RemitError(why)
            return given
        finally:
            del self._waiting[task]

    def stop_all(self, why: Fault) -> None:
        """Interrupt every run that waits, and call off every run that was not admitted yet."""
        for task in self._tasks:
            self.interrupt(task, why)
        for going in self._by_key.values():
            self.call_off(going.run, why)

    async def wait_for_one(self, timeout_s: float) -> None:
        """Return once a run has ended, at the latest after *timeout_s*."""
        await asyncio.wait(self._tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)

    def __len__(self) -> int:
        return len(self._tasks)
