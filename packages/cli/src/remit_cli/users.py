"""`remit users`: what is kept about a user."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.runtime.keys import HubKeys
from remit_cli.options import GivenStore, SubcommandGroup, json_option, store_options
from remit_cli.show.screen import many, print_json
from remit_server.documents.store import EraseResult

if TYPE_CHECKING:
    from remit_cli.store_view import Place


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
@store_options
def export(user: str, out: Path | None, given: GivenStore) -> None:
    """Write everything that is kept about USER as JSON lines: records, facts, notes, redacted values and more.

    Redacted values are written as they are: keep the output as secret as the store.

    \b
    Example:
      remit users export ann -o ann.jsonl
    """
    from remit.protocol.codec import encode
    from remit.words.terminal import json_for_terminal
    from remit_cli.drive.export import written_whole
    from remit_cli.places import existing, opened_upkeep, store_file

    path = existing(store_file(given))
    out = None if str(out) == "-" else out
    count = 0
    with written_whole(out) as file, opened_upkeep(path) as upkeep:
        for what, content in upkeep.kept_about(user, _keys(path, given)):
            line = encode({"schema": f"remit.user-{what}/1", **content}).decode()
            file.write(json_for_terminal(line) + "\n")
            count += 1
    click.echo(f"Wrote {many(count, 'line')} about {user}.", err=True)


@users.command()
@click.argument("user")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--vacuum", is_flag=True, help="Write the store anew, without traces in unused parts of it; hubs wait.")
@json_option
@store_options
def erase(user: str, yes: bool, vacuum: bool, as_json: bool, given: GivenStore) -> None:
    """Remove everything that is kept about USER, for ever. The record still verifies, and says that it was done.

    Runs of USER that are not over have to be cancelled first. Hubs may work meanwhile. Archives and backups that were
    made before still hold what they held: see `remit docs operations`.

    \b
    Example:
      remit users erase ann
    """
    from remit.stores.store_upkeep import erase as remove
    from remit_cli.places import existing, opened_upkeep, store_file

    path = existing(store_file(given))
    if not yes:
        click.confirm(f"Erase everything about {user} from {path}? This cannot be undone", abort=True, err=as_json)
    keys = _keys(path, given)
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


def _keys(place: "Place", given: GivenStore) -> HubKeys:
    """Return the keys with which the hub of a store encrypts redacted values."""
    from remit.runtime.signing import read_key
    from remit.stores.checkpoints import key_path
    from remit.stores.user_keys import secret_of
    from remit_cli.teams import vault_key

    path = place if isinstance(place, Path) else place.file
    return HubKeys(vault_key(given.team_file, given.overrides) or secret_of(read_key(key_path(path))))
