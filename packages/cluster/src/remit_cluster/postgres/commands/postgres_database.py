"""What commands do with the database of a team: they read it, remove rows, back it up and restore it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from remit.runtime.registry import team_invalid
from remit.stores.audit import StoredChain
from remit.stores.checkpoints import key_path
from remit.stores.database import Query
from remit.stores.records import RecordPages
from remit_cli.config.checks import secret_of
from remit_cli.config.team import Team
from remit_cli.places import StoreView
from remit_cli.store_backup import BackupDone, Restored
from remit_cluster.postgres.audit import DatabaseChain
from remit_cluster.postgres.chainer import bring_up_to_date
from remit_cluster.postgres.commands.backup import back_up, restore
from remit_cluster.postgres.commands.upkeep import PgUpkeep
from remit_cluster.postgres.connection import TROUBLE, DatabaseAddress, PgConnection, close_quietly
from remit_cluster.postgres.records import DATABASE_PAGES
from remit_cluster.postgres.schema import check_complete, check_version
from remit_cluster.postgres.user_keys import PgUserKeys

T = TypeVar("T")


class PostgresView:
    """A view of a PostgreSQL database."""

    pages: RecordPages = DATABASE_PAGES

    def __init__(self, address: DatabaseAddress, loop: asyncio.AbstractEventLoop, connection: PgConnection) -> None:
        self._address, self._loop, self._connection = address, loop, connection

    def read(self, query: Query[T]) -> T:
        return self._done(query(self._connection))

    def read_chain(self, query: Callable[[StoredChain], Awaitable[T]]) -> T:
        async def read() -> T:
            await bring_up_to_date(self._connection)
            return await query(DatabaseChain(self._connection, self._address.name))

        return self._done(read())

    def _done(self, work: Awaitable[T]) -> T:
        async def done() -> T:
            return await work

        try:
            return asyncio.run_coroutine_threadsafe(done(), self._loop).result()
        except (*TROUBLE, asyncpg.PostgresError, asyncpg.InterfaceError, msgspec.DecodeError) as error:
            raise self._address.translate(error) from error


def address_of(team: Team) -> DatabaseAddress:
    """Return the address of a team's database."""
    section = team.store
    assert section.url is not None
    try:
        password = None if section.password is None else secret_of(section.password)
    except ValueError as error:
        raise team_invalid(str(error)) from error
    return DatabaseAddress(section.url, password, section.pooler)


@contextmanager
def viewing(team: Team) -> Generator[StoreView]:
    """Open the database of a team for reading."""
    keys = PgUserKeys(key_path(team.store_path))
    address = msgspec.structs.replace(address_of(team), reading=keys.reading)
    loop = asyncio.new_event_loop()
    # In a thread, because some commands run in a loop of their own.
    thread = threading.Thread(target=loop.run_forever, name="remit-postgres-view", daemon=True)
    thread.start()
    try:
        connection = asyncio.run_coroutine_threadsafe(_connected(address), loop).result()
        try:
            yield StoreView(PostgresView(address, loop, connection), team.store_path)
        finally:
            asyncio.run_coroutine_threadsafe(close_quietly(connection), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _connected(address: DatabaseAddress) -> PgConnection:
    async with address.connecting() as connection:
        await check_version(connection, address)
        await check_complete(connection, address)
    return connection


class PostgresDatabase:
    """The database of a team, as the `Database` of commands."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._key = key_path(team.store_path)

    def __str__(self) -> str:
        return DatabaseAddress(self._team.store.url or "").name

    def viewing(self) -> AbstractContextManager[StoreView]:
        return viewing(self._team)

    @contextmanager
    def upkeep(self) -> Generator[PgUpkeep]:
        upkeep = PgUpkeep(address_of(self._team), self._key)
        try:
            yield upkeep
        finally:
            upkeep.close()

    def back_up(self, file: Path, *, with_keys: bool, keys_to: Path | None) -> BackupDone:
        address = address_of(self._team)
        return _done(back_up(address, self._key, file, with_keys=with_keys, keys_to=keys_to), address)

    def restore(self, file: Path, *, force: bool, resume: bool, keys: Path | None) -> Restored:
        address = address_of(self._team)
        return _done(restore(file, address, self._key, force=force, resume=resume, keys=keys), address)


def _done(work: Coroutine[Any, Any, T], address: DatabaseAddress) -> T:
    try:
        return asyncio.run(work)
    except (*TROUBLE, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise address.translate(error) from error
