"""Opens the database of a store: schema, key, and the check that rows and checkpoints agree."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
from msgspec import Struct

from remit.protocol.errors import Code, fault
from remit.protocol.records import ChainBreak
from remit.runtime.ports import StoreError
from remit.runtime.signing import CheckpointKey, open_key, read_key
from remit_cluster.postgres.chainer import read_head
from remit_cluster.postgres.checkpoints import check_signer, examine, read_mark
from remit_cluster.postgres.connection import TROUBLE, DatabaseAddress, PgConnection
from remit_cluster.postgres.schema import CHAINING, check_complete, migrate

if TYPE_CHECKING:
    from remit.stores.store_upkeep import StoreUpkeep


class OpenedDatabase(NamedTuple):
    """The write connection of an open store, its key, and what did not agree."""

    connection: PgConnection
    key: CheckpointKey
    breaks: list[ChainBreak]


class DatabaseOpening(Struct, frozen=True, kw_only=True):
    """The settings with which a database is opened."""

    address: DatabaseAddress
    key_file: Path
    make_key: bool

    async def open(self) -> OpenedDatabase:
        """Connect; the tables and the key are created if this is the first hub."""
        connection = await self.address.connect()
        try:
            await migrate(connection, self.address)
            await check_complete(connection, self.address)
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", CHAINING)
                key = await self._open_key(connection)
                await check_signer(connection, key.fingerprint, str(self.key_file))
                breaks = await examine(connection, (await read_head(connection)).seq)
        except (*TROUBLE, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            connection.terminate()
            raise self.address.translate(error) from error
        except BaseException:
            connection.terminate()
            raise
        return OpenedDatabase(connection, key, breaks)

    async def _open_key(self, connection: PgConnection) -> CheckpointKey:
        mark = await read_mark(connection)
        known = mark is not None and bool(mark.signer)
        path = self.key_file
        if not known and self.make_key:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return await asyncio.to_thread(open_key, path)
        try:
            return await asyncio.to_thread(read_key, path)
        except FileNotFoundError:
            raise StoreError(
                fault(
                    Code.STORE_UNAVAILABLE,
                    f"the key of {self.address.name} is missing: there is no {path}",
                    suggestion="Copy it from a hub that uses this store, or from a backup: "
                    "without it, nothing that was redacted can be read.",
                )
            ) from None


def database_upkeep(
    address: DatabaseAddress, key_file: Path, wall_ms: Callable[[], int]
) -> "Callable[[], StoreUpkeep]":
    """Return what opens the upkeep of a PostgreSQL database."""

    def opened() -> "StoreUpkeep":
        from remit_cluster.postgres.upkeep import PgUpkeep  # most processes never need it

        return PgUpkeep(address, key_file, wall_ms=wall_ms)

    return opened
