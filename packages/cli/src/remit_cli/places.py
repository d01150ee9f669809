"""Finds and opens what a command works on: the team, its store and its other hubs.

Commands that only read the record start quickly: what they do not need is imported where it is used.
"""

import getpass
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import apsw
import click
import msgspec

from remit.installed import brought_under, named
from remit.ports import Decision, Question, RunSummary, Store, StoreError
from remit.protocol.card import AgentCard
from remit.protocol.errors import Code, RemitError, fault, in_sentences
from remit.protocol.problems import did_you_mean
from remit.protocol.records import Record
from remit.runtime.audit import AuditVerdict, ChainRow, RemovedRow
from remit.runtime.signing import Checkpoint
from remit.stores import STORE_PATH, reader, side_tables
from remit.stores.audit import FileChain, Linked, Proof, StoredChain
from remit.stores.connection import SqliteConnection, connect_reader, translate
from remit.stores.database import Query, ask, at_once
from remit.stores.records import FILE_PAGES, RecordPages
from remit.stores.schema import check_version
from remit.stores.user_keys import show_plain
from remit_cli.config.team_search import find_team, recorded_store
from remit_cli.options import GivenStore, named_stores
from remit_server.documents.shared import SharedDraft

if TYPE_CHECKING:  # whoever has a team has loaded it; a reader of the record need not wait for it
    from remit_cli.config.team import Team, TeamHubs
    from remit_cli.store_backup import BackupDone, Restored
    from remit_cli.upkeep.store_upkeep import StoreUpkeep

T = TypeVar("T")

# How many rows of the chain are read at once.
PAGE_ROWS = 1_000


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
        for engine in brought_under("stores", url.partition("://")[0]):
            if engine.commands:
                return named(engine.commands)(self.team)
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


class ViewedStore(Protocol):
    """The part of a view that each engine has in its own way."""

    pages: RecordPages

    def read(self, query: Query[T], /) -> T:
        """Return the result of a query of what is committed."""
        ...

    def read_chain(self, query: "Callable[[StoredChain], Awaitable[T]]", /) -> T:
        """Return the result of a query of the chain, once everything that is committed is in it."""
        ...


class StoreView:
    """What commands read."""

    def __init__(self, store: ViewedStore, path: Path) -> None:
        """The key is beside *path*."""
        self.store, self._path = store, path

    def runs(
        self, *, user: str | None = None, run: str | None = None, correlation: str | None = None, limit: int = 50
    ) -> list[RunSummary]:
        return self.store.read(lambda database: reader.runs(database, user, run, limit, correlation=correlation))

    def shared_runs(self, begins_with: str, limit: int) -> list[str]:
        """Return the runs with other devices whose ids start with a text."""
        return self.store.read(lambda database: reader.shared_runs(database, begins_with, limit))

    def records(self, run: str | None, after: int, limit: int, profile: str | None = None) -> list[Record]:
        self._catch_up()
        pages = self.store.pages
        return self.store.read(lambda database: pages.records(database, run, None, after, limit, profile))

    def recent(self, limit: int) -> list[Record]:
        self._catch_up()
        return self.store.read(lambda database: self.store.pages.recent(database, limit))

    def running(self) -> frozenset[str]:
        return self.store.read(reader.running)

    def pending(self) -> list[Question]:
        now_ms = time.time_ns() // 1_000_000
        return self.store.read(lambda database: side_tables.pending(database, now_ms))

    def before_newest(self, count: int, run: str | None = None, profile: str | None = None) -> int:
        """Return the number before the newest *count* rows."""
        self._catch_up()
        return self.store.read(lambda database: self.store.pages.before_newest(database, count, run, profile))

    def linked_rows(self, *, run: str | None = None, profile: str | None = None, after: int = 0) -> Iterator[Linked]:
        while rows := self.store.read_chain(lambda chain, after=after: chain.linked(after, PAGE_ROWS, run, profile)):
            yield from rows
            after = rows[-1].row.seq

    def chain_rows(self, after: int, last: int) -> Iterator[ChainRow | RemovedRow]:
        """Return the rows after *after*, up to *last*, in order; of removed rows, what the chain needs of them."""
        while after < last:
            first, after = after + 1, min(last, after + PAGE_ROWS)
            yield from self.store.read_chain(lambda chain, first=first, end=after: chain.rows(first, end))

    def checkpoints(self) -> list[Checkpoint | None]:
        return self.store.read_chain(lambda chain: chain.checkpoints())

    def newest_anchor(self) -> tuple[Checkpoint, int]:
        return self.store.read_chain(lambda chain: chain.newest_anchor())

    def verify(
        self, pinned: Sequence[bytes], anchors: Sequence[Checkpoint], *, incremental: bool = False
    ) -> AuditVerdict:
        by = Proof(pinned=pinned, anchors=anchors)
        return self.store.read_chain(lambda chain: chain.verify_beside(self._path, by, incremental=incremental))

    def handed_over(self, run: str, user: str) -> list[tuple[str, str]]:
        """Return the calls of a run that other hubs on this store executed: request id, and run there."""
        return self.store.read(lambda database: reader.handed_over(database, run, user))

    def _catch_up(self) -> None:
        self.store.read_chain(lambda chain: chain.head())


class SqliteView:
    """A view of an SQLite file."""

    pages: RecordPages = FILE_PAGES

    def __init__(self, connection: SqliteConnection, path: Path) -> None:
        self.connection, self._path = connection, path

    def read(self, query: Query[T]) -> T:
        return ask(self.connection, query)

    def read_chain(self, query: Callable[[StoredChain], Awaitable[T]]) -> T:
        return at_once(query(FileChain(self.connection, self._path)))


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


DEFAULT_STORE = Path(STORE_PATH)
# In WAL mode a reader waits for a lock only while the file recovers from a crash.
BUSY_SECONDS = 5


def store_file(given: GivenStore) -> Place:
    """Return the store of a command: the given one, else the team's, else the one in this folder."""
    if given.store_path is not None:
        return given.store_path
    file = find_team(given.team_file)
    if file is None:
        return DEFAULT_STORE
    if (recorded := recorded_store(file, overrides=given.overrides)) is not None:
        return relative_path(recorded)
    from remit_cli.config.load import load_team, salvaged

    try:
        return relative_path(place_of(load_team(file, overrides=given.overrides, secrets=False, code=False)))
    except RemitError as error:
        part = salvaged(file, overrides=given.overrides)
        if part is not None and (part.store.url is not None or part.store_path.exists()):
            # The record stays readable even if the team file has become invalid.
            path = relative_path(place_of(part))
            click.echo(f"{file.name} is invalid (see `remit validate`); the record is read from {path}.", err=True)
            return path
        why = error.fault
        advice = in_sentences(why.suggestion, "Or give the store with --store.")
        raise RemitError(fault(why.code, why.message, problems=why.problems, suggestion=advice)) from error


def record_file(given: GivenStore) -> Place:
    """Return the store whose runs or questions are meant: as `store_file`, but without any that of a plugin."""
    if given.store_path is None and find_team(given.team_file) is None and not DEFAULT_STORE.exists():
        for name, store in named_stores().items():
            if (path := named(store.address)()).exists():
                click.echo(f"There is no team here: this is the record of the {name} for {store.of}.", err=True)
                return path
    return store_file(given)


P = TypeVar("P", bound=Place)


def relative_path(path: P) -> P:
    """Return a path relative to the working directory, if shorter."""
    if not isinstance(path, Path):
        return path
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def existing(path: P) -> P:
    """Return the place of an existing store, or raise a `StoreError`: reading must not create one."""
    if not isinstance(path, Path) or path.exists():
        return path
    raise StoreError(
        fault(
            Code.STORE_UNAVAILABLE,
            f"{path}: no record yet",
            suggestion="The first run creates it: remit run AGENT TASK. Or give another with --store.",
        )
    )


@contextmanager
def reading(path: Place) -> Generator[StoreView]:
    """Open a store for reading, without disturbing hubs."""
    if not isinstance(path, Path):
        with path.database.viewing() as view:
            yield view
        return
    try:
        connection = connect_reader(existing(path), BUSY_SECONDS)
        try:
            check_version(connection, path)
            show_plain(connection, path)
            yield StoreView(SqliteView(connection, path), path)
        finally:
            connection.close()
    # Not OSError: SQLite has its own errors, and an OSError may come from the caller's own output.
    except (apsw.Error, msgspec.DecodeError) as error:
        raise translate(error, path) from error


@asynccontextmanager
async def writing(path: Place) -> AsyncGenerator[Store]:
    """Open an existing store for writing, beside other processes."""
    if isinstance(path, Path):
        from remit.stores.sqlite import SqliteStore

        store: Store = SqliteStore(existing(path), make_key=False)
    else:
        from remit_cli.config.resources import store_of

        store = store_of(path.team, make_key=False)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def opened_upkeep(path: Place) -> Generator["StoreUpkeep"]:
    """Open an existing store for removing rows, beside hubs."""
    if not isinstance(path, Path):
        with path.database.upkeep() as upkeep:
            yield upkeep
        return
    from remit_cli.upkeep.sqlite import SqliteUpkeep

    try:
        upkeep = SqliteUpkeep(existing(path))
        try:
            yield upkeep
        finally:
            upkeep.close()
    except apsw.Error as error:
        raise translate(error, path) from error


def team_path(team_file: Path | None) -> Path:
    """Return the team file: the given one, else the nearest, or raise a `RemitError` if there is none."""
    file = find_team(team_file)
    if file is None:
        raise RemitError(
            fault(
                Code.TEAM_INVALID,
                "no team file remit.toml here or in a parent folder",
                suggestion="Create one with `remit init`, or give one with --team.",
            )
        )
    return file


@contextmanager
def importing() -> Generator[None]:
    """Import the code of agents; its output goes to stderr, because stdout is data."""
    with redirect_stdout(sys.stderr):
        yield


def team_of(team_file: Path | None, overrides: Sequence[str]) -> "Team":
    """Return the team of a command, with its code found; secrets that only a run needs may be missing."""
    with importing():
        from remit_cli.config.load import load_team

        return load_team(team_path(team_file), overrides=overrides, secrets=False)


def vault_key(team_file: Path | None, overrides: Sequence[str]) -> bytes | None:
    """Return the key with which the team, if there is one, encrypts redacted values."""
    from remit_cli.config.composition import vault_key_of
    from remit_cli.config.load import load_team, salvaged

    file = find_team(team_file)
    if file is None:
        return None
    try:
        return vault_key_of(load_team(file, overrides=overrides, secrets=False, code=False))
    except RemitError:
        part = salvaged(file, overrides=overrides)
        if part is None:
            raise
        return vault_key_of(part)


def cards_of(team: "Team") -> dict[str, AgentCard]:
    """Return the cards of a team's agents as a hub would have them; no hub is opened, so no secret is needed."""
    from remit_cli.config.composition import hub_of

    with importing():
        return hub_of(team, environ=placeholder_secrets(team)).cards


def placeholder_secrets(team: "Team") -> dict[str, str]:
    """Return values in place of the secrets of a team whose hub is not opened."""
    from remit_cli.config.checks import secrets_of

    return {reference.removeprefix("$"): "0" * 64 for _, reference in secrets_of(team)}


def known_agent(name: str, known: Iterable[str]) -> str:
    """Return the name of an existing agent, or raise a `RemitError` that lists those that exist."""
    if name in known:
        return name
    near = did_you_mean(name, known) or f"; known agents: {', '.join(known) or 'none'}"
    how = "List them with `remit agents list`."
    raise RemitError(fault(Code.AGENT_NOT_FOUND, f"no such agent `{name}`{near}", suggestion=how))


def current_user() -> str:
    """Return the current user's name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user, and no variable with the name
        return "someone"


def team_hubs(team: "Team") -> "TeamHubs | None":
    """Return the other hubs of a team; None if it has no way to them."""
    from remit_cli.config.team import sections

    return next(filter(None, (each.other_hubs(team) for each in sections())), None)


class DraftBox(Protocol):
    """The drafts in the folder of a store."""

    def waiting(self) -> Sequence[SharedDraft]:
        """Return the unanswered drafts; raise a `RemitError` if they cannot be read."""
        ...

    def readable(self) -> list[tuple[str, str]]:
        """Return the ids and texts of the unanswered drafts that can be read at once, for a shell that completes."""
        ...

    def answer(self, draft: SharedDraft, decision: Decision) -> bool:
        """Send a draft or reject it, and return whether that is done already; raise a `RemitError` if it is late."""
        ...


def drafts_in(folder: Path, team_file: Path | None, overrides: Sequence[str]) -> DraftBox | None:
    """Return the drafts in the folder of a store; None if there can be none."""
    boxes = (named(address)(folder, team_file, overrides) for address in brought_under("extensions", "pending"))
    return next((each for each in boxes if each is not None), None)
