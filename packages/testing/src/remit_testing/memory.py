"""A store that forgets when the process ends, for tests."""

import os
import shutil
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from remit.policy.budget import estimate
from remit.ports import TokenCounter
from remit.stores.connection import connect_writer
from remit.stores.opening import FileQuery
from remit.stores.schema import migrate
from remit.stores.sqlite import SqliteStore
from remit.stores.writer import Item, StoreWriter

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Where a system has a file system in memory: SQLite's own memory holds one connection, and a store has several.
IN_MEMORY = Path("/dev/shm")


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryStore(SqliteStore):
    """SQLite's store in a temporary folder that nobody else opens, and that is deleted with the object.

    Nothing waits for a disk or a thread: records are committed at once. Closing keeps everything for the next `open`.
    """

    def __init__(
        self,
        *,
        count: TokenCounter = estimate,
        wall_ms: Callable[[], int] = _system_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        folder = _new_folder()
        weakref.finalize(self, _delete, folder, os.getpid())
        path = Path(folder) / "store.db"
        path.write_bytes(_new_file())
        super().__init__(path, durability="process", count=count, wall_ms=wall_ms, monotonic=monotonic)
        self._writer = _WriterAtOnce(path, wall_ms=wall_ms, commit_hook=None, ended=self._ended)
        self.sizes = self._writer.sizes

    async def _look(self, query: FileQuery[T]) -> T:
        return self._opened().read_at_once(query)


def _new_folder() -> str:
    return tempfile.mkdtemp(prefix="remit-memory-", dir=IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None)


@cache
def _new_file() -> bytes:
    """Return the file of an empty store: making its tables costs as much as a whole test of a hub."""
    path = Path(_new_folder()) / "store.db"
    try:
        connection = connect_writer(path, "process", 0)
        migrate(connection, path, 0)
        connection.close()
        return path.read_bytes()
    finally:
        shutil.rmtree(path.parent)


def _delete(folder: str, made_by: int) -> None:
    if os.getpid() == made_by:  # a process that was forked has the object, and not the folder
        shutil.rmtree(folder, ignore_errors=True)


class _WriterAtOnce(StoreWriter):
    """A writer without a thread."""

    def __init__(self, path: Path, **options: object) -> None:
        super().__init__(path, **options)  # pyright: ignore[reportArgumentType]
        self._group = _CommitAtOnce(self._write, self._end)
        self.queue = self._group.queue

    def nudge(self) -> None:
        self._group.wake()


class _CommitAtOnce:
    """Has the interface of `GroupCommit`, and writes whatever is queued at once."""

    is_in_loop = False
    busy = False
    again_s: float | None = None

    def __init__(self, commit: Callable[[list[Item]], bool], close: Callable[[], None]) -> None:
        self._commit = commit
        self._close = close
        self.queue: deque[Item] = deque()
        self.stopping = False

    def start(self) -> None:
        self.stopping = False
        self.wake()

    async def stop(self) -> None:
        self.stopping = True
        self.wake()
        self._close()

    def wake(self) -> None:
        batch = list(self.queue)
        self.queue.clear()
        self._commit(batch)

    def wake_soon(self) -> None:
        self.wake()

    def wake_within(self, seconds: float) -> None:  # noqa: ARG002 - the shape of `GroupCommit`
        self.wake()

    def wake_thread(self) -> None:
        self.wake()

    def tell(self, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        callback(*args)
