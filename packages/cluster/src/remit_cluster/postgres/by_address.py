"""Makes a store of the address of a PostgreSQL database."""

from pathlib import Path

from remit.installed import install_command
from remit.policy.budget import estimate
from remit.ports import Store, StoreError, TokenCounter
from remit.protocol.errors import Code, fault


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
        from remit_cluster.postgres.store import PostgresStore  # the driver takes longer to import than SQLite
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
            suggestion=f"Install it here: {install_command('postgres')}",
        )
    )
