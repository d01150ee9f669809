"""`remit users`: what is kept about a user."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.command_groups import SubcommandGroup
from remit.cli.options import json_option, store_option, team_options
from remit.cli.show.screen import many, print_json
from remit.documents.store import EraseResult
from remit.runtime.keys import HubKeys

if TYPE_CHECKING:
    from remit.cli.store_view import Place


@click.group(cls=SubcommandGroup)
def users() -> None:
    """Export or erase what is kept about a user.

    \b
    Example:
      remit users export ann -o ann.jsonl
      remit users erase ann
    """


@users.command()
@click.argument("user")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Output file.  [default: stdout]",
)
@store_option
@team_options
def export(
    user: str, out: Path | None, store_path: Path | None, team_file: Path | None, overrides: tuple[str, ...]
) -> None:
    """Write everything that is kept about USER as JSON lines: records, facts, notes, redacted values and more.

    Redacted values are written as they are: keep the output as secret as the store.

    \b
    Example:
      remit users export ann -o ann.jsonl
    """
    from remit.cli.drive.export import written_whole
    from remit.cli.places import existing, opened_upkeep, store_file
    from remit.protocol.codec import encode
    from remit.words.terminal import json_for_terminal

    path = existing(store_file(store_path, team_file, overrides))
    out = None if str(out) == "-" else out
    count = 0
    with written_whole(out) as file, opened_upkeep(path) as upkeep:
        for what, content in upkeep.kept_about(user, _keys(path, team_file, overrides)):
            line = encode({"schema": f"remit.user-{what}/1", **content}).decode()
            file.write(json_for_terminal(line) + "\n")
            count += 1
    click.echo(f"Wrote {many(count, 'line')} about {user}.", err=True)


@users.command()
@click.argument("user")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--vacuum", is_flag=True, help="Write the store anew, without traces in unused parts of it; hubs wait.")
@json_option
@store_option
@team_options
def erase(
    user: str,
    yes: bool,
    vacuum: bool,
    as_json: bool,
    store_path: Path | None,
    team_file: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Remove everything that is kept about USER, for ever. The record still verifies, and says that it was done.

    Runs of USER that are not over have to be cancelled first. Hubs may work meanwhile. Archives and backups that were
    made before still hold what they held: see `remit docs operations`.

    \b
    Example:
      remit users erase ann
    """
    from remit.cli.places import existing, opened_upkeep, store_file
    from remit.stores.erase import erase as remove

    path = existing(store_file(store_path, team_file, overrides))
    if not yes:
        click.confirm(f"Erase everything about {user} from {path}? This cannot be undone", abort=True, err=as_json)
    keys = _keys(path, team_file, overrides)
    with opened_upkeep(path) as upkeep:
        done = remove(upkeep, user, keys)
        if vacuum:
            upkeep.rebuild()
    if as_json:
        print_json(
            EraseResult(
                user=user,
                subject=done.subject,
                records=done.rows,
                facts=done.facts,
                values=done.values,
                refused=done.refused,
            )
        )
    click.echo(
        f"Erased {many(done.rows, 'record')}, {many(done.facts, 'fact')} and {many(done.values, 'redacted value')} "
        f"of {user}, recorded as {done.subject}.",
        err=as_json,
    )
    for each in done.refused:
        click.echo(f"NOT erased, because it does not verify: {each}. See `remit audit verify`.", err=True)
    raise SystemExit(1 if done.refused else 0)


def _keys(place: "Place", team_file: Path | None, overrides: Sequence[str]) -> HubKeys:
    """Return the keys with which the hub of a store encrypts redacted values."""
    from remit.cli.teams import vault_key
    from remit.runtime.signing import read_key
    from remit.stores.checkpoints import key_path
    from remit.stores.vault import secret

    path = place if isinstance(place, Path) else place.file
    return HubKeys(vault_key(team_file, overrides) or secret(read_key(key_path(path))))
