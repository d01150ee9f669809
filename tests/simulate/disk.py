"""The store as one simulated process sees it: each write can fail, come late, or be lost with the process."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from remit.ports import StoreError
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, fault
from remit.protocol.records import Record
from remit_testing.memory import MemoryStore
from simulate.loop import SimulatedLoop, SimulatedProcess

T = TypeVar("T")

# Written with the next commit, and lost with the process until then.
_LATER = frozenset({"append", "journal", "seal", "remember", "note"})
# Durable when they return.
_WRITES = frozenset(
    {"submit", "begin", "release", "find", "claim", "take", "heartbeat", "end_leases", "finish", "sweep", "transfer"}
    | {"put", "decide", "withdraw", "control", "session", "incr", "cas", "journal_durably", "flush"}
)
# What every hub does again and again is no place of its own for a fault: outages hit it anyway.
_POLLS = frozenset(
    {"heartbeat", "sweep", "claimed", "late_workers", "controls", "decision", "pending", "records"}
    | {"get", "recent", "room", "newest", "named", "end_leases"}
)
_IDLE_S = 0.1
_RETRY_S = 0.25


Fate = Literal["done", "failed", "doubtful", "last"]
"""`doubtful`: done, and reported as failed. `last`: done, and the process is killed before it learns that."""


class AccessFates(Protocol):
    """What the world decides about each access to the store."""

    def access(self, process: SimulatedProcess, what: str, *, writes: bool) -> Fate:
        """Return what becomes of an access; without *what* it is no place of its own for a fault."""
        ...

    def kill(self, process: SimulatedProcess) -> None: ...

    def latency_s(self) -> float: ...

    def wrote(
        self, process: SimulatedProcess, what: str, args: tuple[Any, ...], result: object, rows: list[Record]
    ) -> None:
        """Note what one operation has written."""
        ...


class _Operation(NamedTuple):
    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    future: "asyncio.Future[Any] | None"


def now(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, as those of the store in memory."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def unavailable() -> StoreError:
    return StoreError(fault(Code.STORE_UNAVAILABLE, "the simulated store cannot be used"))


class SimulatedStore:
    """Implements `remit.ports.Store` for one process, on a store in memory that all processes share."""

    full = False

    def __init__(self, loop: SimulatedLoop, process: SimulatedProcess, disk: AccessFates, memory: MemoryStore) -> None:
        self._loop = loop
        self._process = process
        self._disk = disk
        self._memory = memory
        self._queue: list[_Operation] = []
        self._timer: asyncio.TimerHandle | None = None
        self._listeners: dict[object, Callable[[list[Record]], None]] = {}
        self.sizes: dict[str, int] = {}
        self.listings = memory.listings
        self.secret = memory.secret

    def __getattr__(self, name: str) -> Callable[..., Any]:
        getattr(self._memory, name)  # an AttributeError if the port has no such method
        act = self._write_later if name in _LATER else self._write if name in _WRITES else self._call_memory
        made = partial(act, name)
        setattr(self, name, made)
        return made

    async def open(self) -> None:
        if self._disk.access(self._process, "open", writes=True) != "done":
            raise unavailable()

    async def close(self) -> None:
        with suppress(StoreError):
            await self._write("flush")

    def submit_soon(self, *_: object, **__: object) -> None:
        """Gain nothing, as the store in memory."""

    def listen(self, listener: Callable[[list[Record]], None], *, patient: bool = False) -> Callable[[], None]:
        token = object()
        self._listeners[token] = listener
        return lambda: self._listeners.pop(token, None) and None

    async def wait(self, run: str) -> Response:
        outcome = await self._memory.wait(run)
        await self._reach("wait")
        return outcome

    # ── reading and writing ───────────────────────────────────────────────────────────────────────────────────────────

    async def _reach(self, name: str) -> None:
        if name not in _POLLS:
            await asyncio.sleep(self._disk.latency_s())
        if self._disk.access(self._process, "" if name in _POLLS else name, writes=False) != "done":
            raise unavailable()

    async def _call_memory(self, name: str, *args: Any, **options: Any) -> Any:
        await self._reach(name)
        return now(getattr(self._memory, name)(*args, **options))

    def _write_later(self, name: str, *args: Any, **options: Any) -> None:
        self._queue.append(_Operation(name, args, options, None))
        self._commit_within(_IDLE_S)

    async def _write(self, name: str, *args: Any, **options: Any) -> Any:
        future = self._loop.create_future()
        self._queue.append(_Operation(name, args, options, future))
        self._commit_within(self._disk.latency_s())
        return await future

    def _commit_within(self, delay_s: float) -> None:
        when = self._loop.time() + delay_s
        if self._timer is not None and self._timer.when() > when:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            # In the context of the process: it commits nothing while it stands still, or once it is killed.
            self._timer = self._loop.call_at(when, self._commit, context=self._process.context)

    def _commit(self) -> None:
        self._timer = None
        batch, self._queue = self._queue, []
        names = [
            each.name for each in batch if each.name not in _POLLS and not (each.future and each.future.cancelled())
        ]
        fate = self._disk.access(self._process, "+".join(names), writes=True)
        if not self._process.alive:
            return
        results: list[Any] = [None] * len(batch)
        if fate != "failed":
            results = [self._apply(each) for each in batch]
        else:
            self._queue = [each for each in batch if each.future is None]
            if self._queue:
                self._commit_within(_RETRY_S)
        if fate == "last":
            self._disk.kill(self._process)
            return
        for each, result in zip(batch, results, strict=True):
            if each.future is None or each.future.done():
                continue
            if fate == "done" and not isinstance(result, StoreError):
                each.future.set_result(result)
            else:
                each.future.set_exception(result if isinstance(result, StoreError) else unavailable())

    def _apply(self, operation: _Operation) -> Any:
        name, args, options, future = operation
        if future is not None and future.cancelled() and name != "finish":
            return None  # its caller was promised nothing
        before = now(self._memory.newest())
        result = getattr(self._memory, name)(*args, **options)
        try:
            result = result if name in _LATER else now(result)
        except StoreError as error:
            return error
        rows = now(self._memory.records(after=before)) if now(self._memory.newest()) > before else []
        self._disk.wrote(self._process, name, args, result, rows)
        for listener in list(self._listeners.values()) if rows else ():
            listener(rows)
        return result
