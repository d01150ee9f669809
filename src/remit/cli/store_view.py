"""Reads a store for a command, without disturbing hubs, whichever engine it is in."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from remit.protocol.records import Record
from remit.runtime.audit import AuditVerdict, ChainRow, RemovedRow
from remit.runtime.ports import Question, RunSummary
from remit.runtime.signing import Checkpoint
from remit.stores import audit, checkpoints, inbox, reader
from remit.stores.audit import Linked
from remit.stores.connection import SqliteConnection

if TYPE_CHECKING:  # whoever has a team has imported it; a reader of the record need not wait for it
    from remit.config.team import Team


class DatabasePlace(NamedTuple):
    """The database of a team."""

    team: "Team"

    @property
    def file(self) -> Path:
        """Where the team's SQLite file would be; the key and the device of the team are beside it."""
        return self.team.store_path

    def __str__(self) -> str:
        from remit.stores.postgres.connection import DatabaseAddress

        return DatabaseAddress(self.team.store.url or "").name


Place = Path | DatabasePlace
"""Where a store is: an SQLite file, or a database."""


def place_of(team: "Team") -> Place:
    """Return where the store of a team is."""
    return team.store_path if team.store.url is None else DatabasePlace(team)


def folder_of(place: Place) -> Path:
    """Return the folder with the files that belong to a store."""
    return (place if isinstance(place, Path) else place.file).parent


class StoreView(Protocol):
    """What commands read."""

    def runs(
        self, *, user: str | None = None, run: str | None = None, correlation: str | None = None, limit: int = 50
    ) -> list[RunSummary]: ...

    def shared_runs(self, begins_with: str, limit: int) -> list[str]:
        """Return the runs with other devices whose ids start with a text."""
        ...

    def records(self, run: str | None, after: int, limit: int, profile: str | None = None) -> list[Record]: ...

    def recent(self, limit: int) -> list[Record]: ...

    def running(self) -> frozenset[str]: ...

    def pending(self) -> list[Question]: ...

    def before_newest(self, count: int, run: str | None = None, profile: str | None = None) -> int:
        """Return the number before the newest *count* rows."""
        ...

    def linked_rows(self, *, run: str | None = None, profile: str | None = None) -> Iterator[Linked]: ...

    def chain_rows(self, after: int, last: int) -> Iterator[ChainRow | RemovedRow]:
        """Return the rows after *after*, up to *last*, in order; of removed rows, what the chain needs of them."""
        ...

    def checkpoints(self) -> list[Checkpoint | None]: ...

    def newest_anchor(self) -> tuple[Checkpoint, int]: ...

    def verify(
        self, pinned: Sequence[bytes], anchors: Sequence[Checkpoint], *, incremental: bool = False
    ) -> AuditVerdict: ...

    def handed_over(self, run: str, user: str) -> list[tuple[str, str]]:
        """Return the calls of a run that other hubs on this store executed: request id, and run there."""
        ...


class SqliteView:
    """A view of an SQLite file."""

    def __init__(self, connection: SqliteConnection, path: Path) -> None:
        self.connection = connection
        self._path = path

    def runs(
        self, *, user: str | None = None, run: str | None = None, correlation: str | None = None, limit: int = 50
    ) -> list[RunSummary]:
        return reader.runs(user, run, limit, _now_ms(), correlation=correlation)(self.connection)

    def shared_runs(self, begins_with: str, limit: int) -> list[str]:
        return reader.shared_runs(begins_with, limit)(self.connection)

    def records(self, run: str | None, after: int, limit: int, profile: str | None = None) -> list[Record]:
        return reader.records(run, None, after, limit, profile)(self.connection)

    def recent(self, limit: int) -> list[Record]:
        return reader.recent(limit)(self.connection)

    def running(self) -> frozenset[str]:
        return reader.running(_now_ms())(self.connection)

    def pending(self) -> list[Question]:
        return inbox.pending(self.connection, _now_ms())

    def before_newest(self, count: int, run: str | None = None, profile: str | None = None) -> int:
        return audit.before_newest(self.connection, count, run, profile)

    def linked_rows(self, *, run: str | None = None, profile: str | None = None) -> Iterator[Linked]:
        return audit.linked_rows(self.connection, run=run, profile=profile)

    def chain_rows(self, after: int, last: int) -> Iterator[ChainRow | RemovedRow]:
        return audit.chain_rows(self.connection, after, last)

    def checkpoints(self) -> list[Checkpoint | None]:
        return checkpoints.read_checkpoints(self._path)

    def newest_anchor(self) -> tuple[Checkpoint, int]:
        return audit.newest_anchor(self.connection, self._path)

    def verify(
        self, pinned: Sequence[bytes], anchors: Sequence[Checkpoint], *, incremental: bool = False
    ) -> AuditVerdict:
        return audit.verify_file(self._path, public_key=pinned, anchors=anchors, incremental=incremental)

    def handed_over(self, run: str, user: str) -> list[tuple[str, str]]:
        return reader.handed_over(run, user)(self.connection)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
