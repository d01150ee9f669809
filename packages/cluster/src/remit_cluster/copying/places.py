"""Copies a store from one place to another, together with its key."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from remit.runtime.signing import CheckpointKey
from remit.stores.checkpoints import key_path
from remit.stores.connection import write_private
from remit_cluster.copying.copy import Copied, copy_store
from remit_cluster.copying.sqlite_reader import key_in, opened_file, translated
from remit_cluster.copying.sqlite_writer import created_file
from remit_cluster.copying.tables import CopyReader, CopyWriter, Progress, StoreFacts, refused
from remit_cluster.postgres.by_address import missing_driver


class DatabaseToCopy(Struct, frozen=True, kw_only=True):
    """A database, and the file with its key."""

    url: str
    key_file: Path
    password: str | None = None
    pooler: bool = False

    def __repr__(self) -> str:
        return "DatabaseToCopy(…)"  # the address may contain a password


CopyPlace = Path | DatabaseToCopy
"""Where a store is: an SQLite file, or a database."""


async def copy_between(source: CopyPlace, target: CopyPlace, progress: Progress = lambda _, __, ___: None) -> Copied:
    """Copy a store, and its key to where hubs look for it; raises `StoreError` if that cannot be done.

    Nobody may have either of the stores open. Whenever this is killed, the next call goes on.
    """
    if source == target:
        raise refused("source and target are the same store", "Give another target.")
    source_key, target_key = _key_file(source), _key_file(target)
    async with _reading(source) as reader:
        key, facts = reader.key, await reader.facts()

        def write_key() -> None:
            if key is not None and not target_key.exists():
                with translated(target_key):
                    target_key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    write_private(target_key, source_key.read_bytes())

        async with _writing(target, key, facts, write_key) as writer:
            _check_key(target_key, key)
            copied = await copy_store(reader, writer, facts, progress)
    if key is None:
        missing = f"the key of the source is missing ({source_key}): what was redacted cannot be read in the copy"
        return replace(copied, notices=(*copied.notices, missing))
    return replace(copied, key=str(target_key))


def _key_file(place: CopyPlace) -> Path:
    return key_path(place) if isinstance(place, Path) else place.key_file


def _check_key(file: Path, key: CheckpointKey | None) -> None:
    known = key_in(file)
    if known is not None and known != key:
        raise refused(f"{file} is the key of another store", "Move it away, or give another place for the copy.")


@asynccontextmanager
async def _reading(place: CopyPlace) -> AsyncGenerator[CopyReader]:
    if isinstance(place, Path):
        with opened_file(place) as reader:
            yield reader
        return
    try:
        from remit_cluster.copying.postgres_reader import opened_database
        from remit_cluster.postgres.connection import DatabaseAddress
    except ImportError as error:
        raise missing_driver() from error
    address = DatabaseAddress(place.url, place.password, place.pooler)
    async with opened_database(address, key_in(place.key_file), str(place.key_file)) as reader:
        yield reader


@asynccontextmanager
async def _writing(
    place: CopyPlace, key: CheckpointKey | None, facts: StoreFacts, write_key: Callable[[], None]
) -> AsyncGenerator[CopyWriter]:
    if isinstance(place, Path):
        with created_file(place, key, facts, write_key) as writer:
            yield writer
        return
    try:
        from remit_cluster.copying.postgres_writer import created_database
        from remit_cluster.postgres.connection import DatabaseAddress
    except ImportError as error:
        raise missing_driver() from error
    address = DatabaseAddress(place.url, place.password, place.pooler)
    async with created_database(address, key, facts, write_key) as writer:
        yield writer
