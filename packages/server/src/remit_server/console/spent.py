"""Ids that count once: those of used links and of sessions that were signed out.

Every process that serves the console sees them, and they outlive a restart. An id is forgotten once what it belongs to
has expired anyway.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.ports import Counters

# A person signs in and out some times a day. More than this within a month is a script that went wrong.
MOST = 5_000

_KEY = "remit/console/spent"
_read = msgspec.json.Decoder(dict[str, int]).decode


class SpentIds(Protocol):
    """The ids that were used up."""

    async def spend(self, name: str, until_ms: int) -> bool:
        """Use up an id, which would expire at *until_ms*; return whether it was unused."""
        ...

    async def is_spent(self, name: str) -> bool:
        """Return whether an id was used up."""
        ...


class SpentInStore:
    """Kept in the store of a hub, which all its processes share."""

    def __init__(self, store: Counters, wall_ms: Callable[[], int]) -> None:
        self._store = store
        self._wall_ms = wall_ms
        self._known: tuple[int, dict[str, int]] = (0, {})

    async def spend(self, name: str, until_ms: int) -> bool:
        """Use up an id."""
        while True:
            revision, spent = await self._now()
            if name in spent:
                return False
            added = _with(spent, name, until_ms, self._wall_ms())
            if await self._store.cas(_KEY, revision, msgspec.json.encode(added)) is not None:
                return True

    async def is_spent(self, name: str) -> bool:
        """Return whether an id was used up."""
        return name in (await self._now())[1]

    async def _now(self) -> tuple[int, dict[str, int]]:
        found = await self._store.get(_KEY)
        if found is None:
            return 0, {}
        if found[0] != self._known[0]:
            self._known = (found[0], _read(found[1]))
        return self._known


class SpentInFile:
    """Kept in a private file of a device, which one process runs."""

    def __init__(self, path: Path, wall_ms: Callable[[], int]) -> None:
        self._path = path
        self._wall_ms = wall_ms
        self._known: dict[str, int] | None = None

    async def spend(self, name: str, until_ms: int) -> bool:
        """Use up an id."""
        from remit_server.transports.credentials.keys import write_private

        spent = self._spent()
        if name in spent:
            return False
        added = _with(spent, name, until_ms, self._wall_ms())
        try:
            write_private(self._path, msgspec.json.encode(added), replace=True)
        except OSError as error:
            why = f"{self._path} cannot be written: {error.strerror}"
            raise RemitError(fault(Code.STORE_UNAVAILABLE, why)) from error
        self._known = added
        return True

    async def is_spent(self, name: str) -> bool:
        """Return whether an id was used up."""
        return name in self._spent()

    def _spent(self) -> dict[str, int]:
        if self._known is None:
            try:
                self._known = _read(self._path.read_bytes())
            except FileNotFoundError:
                self._known = {}
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                # Without it, a link or session that was used up would count again.
                why = f"{self._path} cannot be read"
                how = "Remove it, and the token file beside it: every browser has to sign in again."
                raise RemitError(fault(Code.STORE_UNAVAILABLE, why, suggestion=how)) from error
        return self._known


def _with(spent: dict[str, int], name: str, until_ms: int, now_ms: int) -> dict[str, int]:
    kept = {each: until for each, until in spent.items() if until > now_ms}
    if len(kept) >= MOST:
        why = f"{MOST} browsers have signed in or out lately"
        raise RemitError(fault(Code.OVERLOADED, why, suggestion="Use the token, not sessions, for programs."))
    return {**kept, name: until_ms}
