"""Opens the database of a team for a command, if the driver is installed."""

from typing import TYPE_CHECKING

from remit.protocol.errors import Code, fault
from remit.runtime.ports import StoreError

if TYPE_CHECKING:
    from remit_cli.config.team import Team
    from remit_cluster.postgres.commands.postgres_database import PostgresDatabase


def database_of(team: "Team") -> "PostgresDatabase":
    """Return the database of a team, for commands; raise a `StoreError` without the driver."""
    try:
        from remit_cluster.postgres.commands.postgres_database import PostgresDatabase
    except ImportError as error:
        message = "a store in PostgreSQL needs the extra `postgres`"
        advice = "Install it here: pip install 'remit[postgres]'"
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice)) from error
    return PostgresDatabase(team)
