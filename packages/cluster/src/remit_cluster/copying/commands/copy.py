"""`remit store copy`: from SQLite to PostgreSQL, or back."""

from pathlib import Path

import click

from remit_cli.options import json_option, team_options
from remit_cli.show.screen import print_json


def with_copy(store: click.Group) -> click.Group:
    """Add `copy` to `remit store`."""
    store.add_command(copy)
    return store


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--key",
    "key_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Key of a store in PostgreSQL.  [default: beside the team's store, or .remit/hub.db.key]",
)
@click.option("--from-password", metavar="NAME", help="Environment variable with the password for FROM.")
@click.option("--to-password", metavar="NAME", help="Environment variable with the password for TO.")
@team_options
@json_option
def copy(
    source: str,
    target: str,
    key_file: Path | None,
    from_password: str | None,
    to_password: str | None,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Copy a store to another place, from SQLite to PostgreSQL or back, and verify the copy.

    FROM and TO are the path of an SQLite file, the address of a PostgreSQL database, or the word `team`: the store of
    the team file. Stop the hubs first. TO must be empty. If the command is interrupted, run it again: it continues
    where it was. Hubs do not open an unfinished copy. The exit code is 0 if the record of the copy is intact.

    \b
    Example:
      remit store copy .remit/hub.db team
      remit store copy .remit/hub.db postgresql://remit@db.example.com/remit --to-password DB_PASSWORD
      remit store copy team /mnt/disk/hub.db
    """
    import asyncio

    from remit_cluster.copying.commands.copying import CopyProgress, document, place, report
    from remit_cluster.copying.copy import copy_between

    copied_from = place(source, from_password, key_file, team_file, overrides)
    copied_to = place(target, to_password, key_file, team_file, overrides)
    with CopyProgress() as progress:
        copied = asyncio.run(copy_between(copied_from, copied_to, progress))
    if as_json:
        print_json(document(copied))
    else:
        report(copied)
    raise SystemExit(0 if copied.verdict.ok else 1)
