"""What commands do with the database of a team."""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from remit.stores.checkpoints import key_path
from remit_cli.config.team import Team
from remit_cli.places import StoreView
from remit_cli.store_backup import BackupDone, Restored
from remit_cluster.postgres.commands.backup import back_up, restore
from remit_cluster.postgres.commands.view import address_of, viewing
from remit_cluster.postgres.connection import TROUBLE, DatabaseAddress
from remit_cluster.postgres.upkeep import PgUpkeep

T = TypeVar("T")


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
