"""Makes a store from its address."""

from pathlib import Path
from typing import Literal

from remit.policy.budget import estimate
from remit.protocol.errors import Code, fault
from remit.runtime.ports import Store, StoreError, TokenCounter
from remit.stores import POSTGRES, STORE_PATH

# A store is imported once it is used: a program that only names `Hub` does not wait for it.


def store_at(place: Path | str, *, durability: Literal["power", "process"], count: TokenCounter) -> Store:
    """Return the store at the address of a PostgreSQL database, or in the SQLite file at a path, not open yet."""
    from remit.stores.checkpoints import key_path

    if isinstance(place, str) and place.startswith(POSTGRES):
        return postgres_store(place, key=key_path(Path(STORE_PATH)), count=count)
    from remit.stores.sqlite import SqliteStore

    return SqliteStore(Path(place), durability=durability, count=count)


def secret_files(store: Store) -> list[Path]:
    """Return the files of a store that agents must not read, its key last."""
    from remit.stores.checkpoints import key_path
    from remit.stores.sqlite import SqliteStore

    if isinstance(store, SqliteStore):
        return [store.path, key_path(store.path)]
    # The class is not imported without its driver.
    key: Path | None = getattr(store, "key_file", None)
    return [] if key is None else [key]


def postgres_store(
    url: str,
    *,
    key: Path,
    password: str | None = None,
    pooler: bool = False,
    make_key: bool = True,
    encrypt: bool = False,
    count: TokenCounter = estimate,
) -> Store:
    """Return a store in the PostgreSQL database at *url*, not open yet; raises `StoreError` without the driver."""
    try:
        from remit.stores.postgres.store import PostgresStore  # the driver takes longer to import than SQLite
    except ImportError as error:
        raise missing_driver() from error
    return PostgresStore(
        url, key=key, password=password, pooler=pooler, make_key=make_key, encrypt=encrypt, count=count
    )


def missing_driver() -> StoreError:
    """Return the error for a database whose driver is not installed."""
    return StoreError(
        fault(
            Code.STORE_UNAVAILABLE,
            "a store in PostgreSQL needs the extra `postgres`",
            suggestion="Install it where the hub runs: pip install 'remit[postgres]'",
        )
    )
