"""Backs the database of a team up, and restores it, for a command."""

import asyncio
from pathlib import Path

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from remit.cli.postgres_view import address_of
from remit.cli.store_view import DatabasePlace
from remit.stores.backup import BackupDone
from remit.stores.checkpoints import key_path
from remit.stores.postgres.backup import back_up
from remit.stores.postgres.connection import TROUBLE
from remit.stores.postgres.restore import RestoredDatabase, restore


def back_up_database(place: DatabasePlace, file: Path, *, with_keys: bool, keys_to: Path | None) -> BackupDone:
    """Write a consistent copy of a team's database to a file."""
    address = address_of(place.team)
    try:
        return asyncio.run(back_up(address, key_path(place.file), file, with_keys=with_keys, keys_to=keys_to))
    except (*TROUBLE, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise address.translate(error) from error


def restore_database(
    place: DatabasePlace, file: Path, *, force: bool, resume: bool, keys: Path | None
) -> RestoredDatabase:
    """Put the store of a backup into a team's database."""
    address = address_of(place.team)
    try:
        return asyncio.run(restore(file, address, key_path(place.file), force=force, resume=resume, keys=keys))
    except (*TROUBLE, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise address.translate(error) from error
