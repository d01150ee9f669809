"""Finds and opens the store of a command.

Commands that only read the record start quickly: what they do not need is imported where it is used.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import apsw
import click
import msgspec

from remit.plugin import named
from remit.protocol.errors import Code, RemitError, fault, in_sentences
from remit.runtime.ports import Store, StoreError
from remit.stores import STORE_PATH
from remit.stores.connection import connect_reader, translate
from remit.stores.schema import check_version
from remit.stores.user_keys import show_plain
from remit_cli.config.team_search import find_team, recorded_store
from remit_cli.options import GivenStore, named_stores
from remit_cli.store_view import Place, SqliteView, StoreView, place_of

if TYPE_CHECKING:
    from remit.stores.store_upkeep import StoreUpkeep

DEFAULT_STORE = Path(STORE_PATH)
# In WAL mode a reader waits for a lock only while the file recovers from a crash.
BUSY_SECONDS = 5


def store_file(given: GivenStore) -> Place:
    """Return the store of a command: the given one, else the team's, else the one in this folder."""
    if given.store_path is not None:
        return given.store_path
    found = find_team(given.team_file)
    if found is None:
        return DEFAULT_STORE
    if (recorded := recorded_store(found, overrides=given.overrides)) is not None:
        return relative_path(recorded)
    from remit_cli.config.load import load_team, salvaged

    try:
        return relative_path(place_of(load_team(found, overrides=given.overrides, secrets=False, code=False)))
    except RemitError as error:
        part = salvaged(found, overrides=given.overrides)
        if part is not None and (part.store.url is not None or part.store_path.exists()):
            # The record stays readable even if the team file has become invalid.
            path = relative_path(place_of(part))
            click.echo(f"{found.name} is invalid (see `remit validate`); the record is read from {path}.", err=True)
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
            yield SqliteView(connection, path)
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
        from remit_cli.config.stores import store_of

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
    from remit.stores.upkeep import Upkeep

    try:
        upkeep = Upkeep(existing(path))
        try:
            yield upkeep
        finally:
            upkeep.close()
    except apsw.Error as error:
        raise translate(error, path) from error
