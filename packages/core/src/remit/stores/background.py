"""Removes from the store of a hub at work: what is too old, once a day, or everything of a user."""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from remit.runtime.keys import HubKeys
from remit.runtime.ports import StoreError
from remit.stores.connection import Durability, SqliteConnection
from remit.stores.retention import DAY_MS, Erased, Retention

if TYPE_CHECKING:
    from remit.stores.upkeep_port import StoreUpkeep

# How often a hub looks whether another has pruned.
LOOK_MS = 3_600_000

_log = logging.getLogger("remit.store")

OpenUpkeep = Callable[[], "StoreUpkeep"]
"""Opens the upkeep of a store; called in a thread."""


def file_upkeep(path: Path, durability: Durability, wall_ms: Callable[[], int]) -> OpenUpkeep:
    """Return what opens the upkeep of an SQLite file."""

    def opened() -> "StoreUpkeep":
        from remit.stores.upkeep import Upkeep  # most processes that open a store never need it

        return Upkeep(path, durability=durability, wall_ms=wall_ms)

    return opened


def erase_user(opened: OpenUpkeep, user: str, keys: HubKeys) -> Erased:
    """Erase a user from a store, whose upkeep *opened* opens, in a thread."""
    from remit.stores.erase import erase

    upkeep = opened()
    try:
        return erase(upkeep, user, keys)
    finally:
        upkeep.close()


class DailyPruning:
    """The task that prunes, and whose turn it is."""

    def __init__(self, name: str, opened: OpenUpkeep, wall_ms: Callable[[], int]) -> None:
        self._name = name
        self._opened = opened
        """Opens the store's upkeep; called in the thread."""
        self._wall_ms = wall_ms
        self._looked_ms = 0
        self._task: asyncio.Task[None] | None = None
        self._stopping = threading.Event()

    def may_be_due(self, keep: Retention) -> bool:
        """Return whether it is time to look whose turn it is."""
        now_ms = self._wall_ms()
        if keep.is_forever or now_ms - self._looked_ms < LOOK_MS or (self._task and not self._task.done()):
            return False
        self._looked_ms = now_ms
        return True

    def claim(self, connection: SqliteConnection) -> bool:
        """Return whether nobody has pruned for a day; then it is this process's turn, and nobody else's."""
        now_ms = self._wall_ms()
        connection.execute("UPDATE upkeep SET pruned_ms = ? WHERE pruned_ms <= ?", (now_ms, now_ms - DAY_MS))
        return bool(connection.changes())

    def start(self, keep: Retention) -> None:
        self._stopping.clear()
        self._task = asyncio.get_running_loop().create_task(asyncio.to_thread(self._prune, keep))

    async def stop(self) -> None:
        """Wait until the segment that is being pruned is done."""
        self._stopping.set()
        if (task := self._task) is not None:
            self._task = None
            await task

    def _prune(self, keep: Retention) -> None:
        # Most processes that open a store never prune it.
        from remit.stores.prune import prune

        try:
            upkeep = self._opened()
            try:
                found = prune(upkeep, keep, stopped=self._stopping.is_set)
            finally:
                upkeep.close()
        except (apsw.Error, OSError, StoreError) as error:  # the next day tries again
            _log.warning("%s was not pruned: %s", self._name, error)
            return
        for each in found.refused:
            _log.error("%s: not pruned, see `remit audit verify`: %s", self._name, each)
        if not found.is_empty:
            _log.info("%s: pruned %d records, and the texts of %d", self._name, found.rows, found.texts)
