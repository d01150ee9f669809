"""Reads a store for a command, without disturbing hubs, whichever engine it is in."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from remit.plugin import brought, named
from remit.protocol.errors import Code, fault
from remit.protocol.records import Record
from remit.runtime.audit import AuditVerdict, ChainRow, RemovedRow
from remit.runtime.ports import Question, RunSummary, StoreError
from remit.runtime.signing import Checkpoint
from remit.stores import audit, checkpoints, reader, records, side_tables
from remit.stores.audit import Linked
from remit.stores.connection import SqliteConnection
from remit.stores.database import ask

if TYPE_CHECKING:  # whoever has a team has imported it; a reader of the record need not wait for it
    from remit.stores.store_upkeep import StoreUpkeep
    from remit_cli.config.team import Team
    from remit_cli.store_backup import BackupDone, Restored


class DatabasePlace(NamedTuple):
    """The database of a team."""

    team: "Team"

    @property
    def file(self) -> Path:
        """Where the team's SQLite file would be; the key and the device of the team are beside it."""
        return self.team.store_path

    @property
    def database(self) -> "Database":
        """What a plugin does for commands with a database at such an address; a `StoreError` if there is no plugin."""
        url = self.team.store.url or ""
        for bring in brought("databases"):
            if (address := bring().get(url.partition("://")[0])) is not None:
                return named(address)(self.team)
        why = f"no installed plugin has commands for a store at `{url.partition('://')[0]}://`"
        raise StoreError(fault(Code.STORE_UNAVAILABLE, why, suggestion="Install the plugin of this store here."))

    def __str__(self) -> str:
        return str(self.database)


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


class Database(Protocol):
    """The database of a team, for commands; as a text it is its address without a password."""

    def viewing(self) -> AbstractContextManager[StoreView]:
        """Open it for reading."""
        ...

    def upkeep(self) -> "AbstractContextManager[StoreUpkeep]":
        """Open it for removing rows, beside hubs."""
        ...

    def back_up(self, file: Path, *, with_keys: bool, keys_to: Path | None) -> "BackupDone":
        """Write a consistent copy of it to a file."""
        ...

    def restore(self, file: Path, *, force: bool, resume: bool, keys: Path | None) -> "Restored":
        """Put the store of a backup into it."""
        ...


class SqliteView:
    """A view of an SQLite file."""

    def __init__(self, connection: SqliteConnection, path: Path) -> None:
        self.connection = connection
        self._path = path

    def runs(
        self, *, user: str | None = None, run: str | None = None, correlation: str | None = None, limit: int = 50
    ) -> list[RunSummary]:
        return ask(self.connection, lambda database: reader.runs(database, user, run, limit, correlation=correlation))

    def shared_runs(self, begins_with: str, limit: int) -> list[str]:
        return records.shared_runs(begins_with, limit)(self.connection)

    def records(self, run: str | None, after: int, limit: int, profile: str | None = None) -> list[Record]:
        return records.records(run, None, after, limit, profile)(self.connection)

    def recent(self, limit: int) -> list[Record]:
        return records.recent(limit)(self.connection)

    def running(self) -> frozenset[str]:
        return ask(self.connection, reader.running)

    def pending(self) -> list[Question]:
        now_ms = time.time_ns() // 1_000_000
        return ask(self.connection, lambda database: side_tables.pending(database, now_ms))

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
        return ask(self.connection, lambda database: reader.handed_over(database, run, user))
