"""Opens the database of a team for a command, if the driver is installed."""

from typing import TYPE_CHECKING

from remit_cluster.postgres.by_address import missing_driver

if TYPE_CHECKING:
    from remit_cli.config.team import Team
    from remit_cluster.postgres.commands.postgres_database import PostgresDatabase


def database_of(team: "Team") -> "PostgresDatabase":
    """Return the database of a team, for commands; raise a `StoreError` without the driver."""
    try:
        from remit_cluster.postgres.commands.postgres_database import PostgresDatabase
    except ImportError as error:
        raise missing_driver() from error
    return PostgresDatabase(team)
