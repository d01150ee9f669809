"""Runs queries on separate connections and threads, so that the writer never waits for them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import apsw
import msgspec

from remit.stores.connection import SqliteConnection, translate
from remit.stores.records import FileQuery, T
from remit.stores.user_keys import connect_plain

# Reads are short; a second thread keeps one long listing from blocking the rest.
CONNECTIONS = 2


class Reader:
    """A few read-only connections and the threads that use them."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._connections: SimpleQueue[SqliteConnection] = SimpleQueue()
        for _ in range(CONNECTIONS):
            self._connections.put(connect_plain(path, busy_seconds))
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix=f"remit-reader {path.name}")

    async def read(self, query: FileQuery[T]) -> T:
        """Return the query's result, or raise `StoreError`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, query)

    def _read(self, query: FileQuery[T]) -> T:
        connection = self._connections.get()
        try:
            return query(connection)
        except (apsw.Error, OSError, msgspec.DecodeError) as error:
            raise translate(error, self._path) from error
        finally:
            self._connections.put(connection)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._threads.shutdown()
        for _ in range(CONNECTIONS):
            self._connections.get().close()
