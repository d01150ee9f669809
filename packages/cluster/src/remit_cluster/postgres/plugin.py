"""Brings stores in PostgreSQL to the core."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.ports import StoreEngine


def stores() -> "Mapping[str, StoreEngine]":
    """Return what works with a database, by the scheme of its address."""
    from remit.ports import StoreEngine

    engine = StoreEngine(
        store="remit_cluster.postgres.by_address:postgres_store",
        upkeep="remit_cluster.postgres.commands.upkeep:PgUpkeep",
        commands="remit_cluster.postgres.commands.database:database_of",
    )
    return {"postgresql": engine, "postgres": engine}


def extensions() -> Mapping[str, str]:
    """Return what adds `remit store copy`."""
    return {"store": "remit_cluster.copying.commands.copy:with_copy"}
