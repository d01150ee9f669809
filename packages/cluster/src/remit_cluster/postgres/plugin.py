"""Brings stores in PostgreSQL to the core."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.ports import Store


def stores() -> "Mapping[str, Callable[..., Store]]":
    """Return what makes a store of an address, by its scheme."""
    from remit_cluster.postgres.by_address import postgres_store

    return {"postgresql": postgres_store, "postgres": postgres_store}


def databases() -> Mapping[str, str]:
    """Return what opens the database of a team for commands."""
    return dict.fromkeys(("postgresql", "postgres"), "remit_cluster.postgres.commands.database:database_of")


def upkeep() -> Mapping[str, str]:
    """Return what removes rows from a store in PostgreSQL."""
    return {"postgresql": "remit_cluster.postgres.commands.upkeep:PgUpkeep"}


def extensions() -> Mapping[str, str]:
    """Return what adds `remit store copy`."""
    return {"store": "remit_cluster.copying.commands.copy:with_copy"}
