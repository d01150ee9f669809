"""`remit store` and `remit users`: the upkeep of the store, and what it keeps about a user."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.ports.keys import HubKeys
from remit_cli.options import GivenStore, SubcommandGroup, json_option, out_option, store_options
from remit_cli.places import Place, existing, opened_upkeep, reading, store_file, vault_key
from remit_cli.show.runs import written_whole
from remit_cli.show.screen import many, print_json, print_text
from remit_server.documents.common import shown_as
from remit_server.documents.store import (
    ArchiveCheck,
    ArchiveResult,
    BackupResult,
    EraseResult,
    PruneResult,
    RestoreResult,
)

if TYPE_CHECKING:
    from remit.ports.upkeep import Retention
    from remit_cli.upkeep.removal import SealedSegment
    from remit_cli.upkeep.store_upkeep import StoreUpkeep


@click.group(cls=SubcommandGroup)
def store() -> None:
    """Prune, archive, back up, restore and copy the store.

    All commands may be used while hubs work, unless they say otherwise.

    \b
    Example:
      remit store prune --dry-run
      remit store backup /mnt/backup/hub.backup
      remit store copy .remit/hub.db postgresql://remit@db.example.com/remit
    """


@store.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be removed, and how much space that is.")
@click.option("--keep", metavar="DURATION", help="Keep everything for this time: 90d.  [default: the team's rule]")
@click.option(
    "--vacuum",
    is_flag=True,
    help="Write the whole store anew, so that it shrinks; hubs wait. A file of this version shrinks without it.",
)
@click.option(
    "--archive",
    "archive_folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write each segment into this archive before rows of it are removed.",
)
@json_option
@store_options
def prune(
    dry_run: bool, keep: str | None, archive_folder: Path | None, vacuum: bool, as_json: bool, given: GivenStore
) -> None:
    """Remove what the team file's `[store] keep` no longer keeps, and give the space back.

    Runs that are not over, and everything they need to continue, stay. The record still verifies: each removal is
    stated in it and signed. A hub does the same by itself once a day. Interrupting it is safe.

    \b
    Example:
      remit store prune --dry-run
      remit store prune --keep 90d
    """
    rule = _retention(keep, given)
    with opened_upkeep(store_file(given)) as upkeep:
        if rule.is_forever and not vacuum:
            raise click.UsageError(
                "everything is kept for ever: set `keep` in [store] of the team file, or give --keep"
            )
        done = upkeep.prune(rule, dry=dry_run, archived=lambda each: _archive(upkeep, each, archive_folder))
        returned = done.returned + (upkeep.rebuild() if vacuum and not dry_run else 0)
        keeps_pages = not upkeep.gives_back
    if as_json:
        print_json(shown_as(PruneResult, done, dry_run=dry_run, records=done.rows, returned=returned))
    did, space = ("Would remove", f"about {_size(done.bytes)}") if dry_run else ("Removed", _size(returned))
    click.echo(
        f"{did} {many(done.rows, 'record')}, the texts of {many(done.texts, 'record')}, "
        f"{many(done.values, 'redacted value')}, {many(done.facts, 'fact')} and notes: "
        f"{space} {'of space' if dry_run else 'given back'}.",
        err=as_json,
    )
    for each in done.refused:
        click.echo(f"Left as it is, because it does not verify: {each}. See `remit audit verify`.", err=True)
    if keeps_pages and not dry_run and not vacuum:
        click.echo("The store keeps its free space for new records; --vacuum makes it shrink.", err=True)
    raise SystemExit(1 if done.refused else 0)


def _archive(upkeep: "StoreUpkeep", segment: "SealedSegment", folder: Path | None) -> None:
    if folder is not None:
        from remit_cli.store_archive import archive_segment

        archive_segment(upkeep, segment, folder)


@store.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@json_option
@store_options
def archive(folder: Path, as_json: bool, given: GivenStore) -> None:
    """Write the sealed days of the record into DIR, as compressed JSON lines with their proof.

    What is in DIR already is left as it is. Today is not written: its segment still grows.

    \b
    Example:
      remit store archive /mnt/archive/hub
    """
    from remit_cli.store_archive import archive_segment
    from remit_cli.upkeep.removal import day_of

    written = sealed = 0
    with opened_upkeep(store_file(given)) as upkeep:
        today = day_of(upkeep.now_ms())
        for segment in upkeep.segments():
            if segment.day < today:
                sealed += 1
                written += archive_segment(upkeep, segment, folder)
    if as_json:
        print_json(ArchiveResult(folder=str(folder), written=written, known=sealed - written))
    known = many(sealed - written, "segment")
    click.echo(f"Wrote {many(written, 'segment')} to {folder}; {known} there already.", err=as_json)


@store.command("verify-archive")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--public-key", "public_keys", multiple=True, metavar="KEY", help="Accept only this signer. Repeatable.")
@click.option("--alone", is_flag=True, help="Do not compare the archive with the store.")
@json_option
@store_options
def verify_archive(folder: Path, public_keys: tuple[str, ...], alone: bool, as_json: bool, given: GivenStore) -> None:
    """Check that the archive in DIR was not changed, and that it matches the store, also after pruning.

    The exit code is 0 if it is intact and 1 if it is not.

    \b
    Example:
      remit store verify-archive /mnt/archive/hub
      remit store verify-archive /mnt/archive/hub --alone --public-key 3f09…
    """
    from remit_cli.store_archive import verify_archive as check

    path = store_file(given)
    if alone:
        verdict = check(folder, keys=public_keys)
    else:
        with reading(path) as view:
            verdict = check(folder, keys=public_keys, stored=view.chain_rows)
    if as_json:
        print_json(shown_as(ArchiveCheck, verdict, compared=not alone))
        raise SystemExit(0 if verdict.ok else 1)
    state = (
        "the archive is intact" if verdict.ok else f"the archive is damaged ({many(len(verdict.findings), 'finding')})"
    )
    rows = f"rows {verdict.first} to {verdict.last}, {verdict.removed} of them removed before"
    click.echo(f"{state}: {many(verdict.segments, 'segment')}, {rows}")
    if not alone and verdict.ok:
        click.echo(f"  matches {path}")
    for each in verdict.findings:
        click.echo(f"  {each}")
    for key in verdict.keys:
        click.echo(f"  signed by {key}")
    raise SystemExit(0 if verdict.ok else 1)


@store.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--without-keys", is_flag=True, help="Leave the keys out; keep them elsewhere, or texts and values are lost."
)
@click.option(
    "--keys",
    "keys_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the keys to this file instead. Without it, what the backup holds encrypted cannot be read.",
)
@json_option
@store_options
def backup(file: Path, without_keys: bool, keys_file: Path | None, as_json: bool, given: GivenStore) -> None:
    """Copy the store to FILE while hubs work: record, checkpoints and keys, at one moment.

    An existing FILE is replaced once the new one is complete. Keep it as secret as the store.

    \b
    Example:
      remit store backup /mnt/backup/hub.backup
      remit store backup /mnt/backup/hub.backup --keys /mnt/safe/hub.keys
    """
    import apsw

    from remit.stores.connection import translate
    from remit_cli.store_backup import back_up

    path = existing(store_file(given))
    if isinstance(path, Path):
        try:
            done = back_up(path, file, with_keys=not without_keys, keys_to=keys_file)
        except apsw.Error as error:
            raise translate(error, path) from error
    else:
        done = path.database.back_up(file, with_keys=not without_keys, keys_to=keys_file)
    if as_json:
        print_json(shown_as(BackupResult, done, file=str(file)))
    click.echo(f"Wrote {many(done.rows, 'row')} to {file}, {_size(done.bytes)}.", err=as_json)
    held = f"Keys in it: {', '.join(done.keys)}." if done.keys else "No keys are in it."
    if keys_file is not None:
        held += f" The store's key is in {keys_file}: keep it elsewhere."
    click.echo(held, err=True)
    if done.missing:
        click.echo(f"Not in it, though beside the store: {', '.join(done.missing)}.", err=True)


@store.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--force", is_flag=True, help="Replace a store that is newer, or another one; it is kept beside.")
@click.option(
    "--resume", is_flag=True, help="Continue runs that were open. Only if nothing was done since the backup was made."
)
@click.option(
    "--keys",
    "keys_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="File with the keys, if they are not in the backup.",
)
@json_option
@store_options
def restore(file: Path, force: bool, resume: bool, keys_file: Path | None, as_json: bool, given: GivenStore) -> None:
    """Put the store of the backup FILE in place, and verify it. Stop the hubs first.

    What was recorded after the backup is lost, and what was handed out since then is fenced: see
    `remit docs backup`.

    \b
    Example:
      remit store restore /mnt/backup/hub.backup
    """
    import apsw

    from remit.stores.connection import translate
    from remit_cli.store_backup import restore as put_back

    path = store_file(given)
    if isinstance(path, Path):
        try:
            done = put_back(file, path, force=force, resume=resume, keys=keys_file)
        except (apsw.Error, OSError) as error:
            raise translate(error, path) from error
    else:
        done = path.database.restore(file, force=force, resume=resume, keys=keys_file)
    with reading(path) as view:
        verdict = view.verify((), ())
    if as_json:
        aside = None if done.aside is None else str(done.aside)
        print_json(shown_as(RestoreResult, done, store=str(path), aside=aside, ok=verdict.ok))
        raise SystemExit(0 if verdict.ok else 1)
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(done.made_ms / 1_000))
    click.echo(f"Restored {path} as it was at {made}: it ended with row {done.rows}.")
    if done.aside is not None:
        kept = done.aside if isinstance(done.aside, Path) else f"the schema {done.aside}"
        click.echo(f"The store that was there is kept as {kept}.")
    if done.ended:
        click.echo(f"{many(done.ended, 'open run')} ended with OUTCOME_UNKNOWN: see `remit runs list`.")
    for each in done.lost:
        click.echo(f"There is no key: {each}.", err=True)
    print_text(str(verdict))
    raise SystemExit(0 if verdict.ok else 1)


def _retention(keep: str | None, given: GivenStore) -> "Retention":
    from remit.ports.upkeep import Retention
    from remit_cli.config.load import load_team
    from remit_cli.config.team_search import find_team
    from remit_cli.config.values import duration_ms

    if keep is not None:
        try:
            return Retention(*[duration_ms(keep)] * len(Retention._fields))
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--keep") from error
    file = find_team(given.team_file)
    if file is None:
        return Retention()
    return load_team(file, overrides=given.overrides, secrets=False, code=False).store.retention()


def _size(size: int) -> str:
    count = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1_024:
            return f"{size} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1_024
    return f"{count:.1f} GiB"


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
@out_option
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
    path = existing(store_file(given))
    if not yes:
        click.confirm(f"Erase everything about {user} from {path}? This cannot be undone", abort=True, err=as_json)
    keys = _keys(path, given)
    with opened_upkeep(path) as upkeep:
        done = upkeep.erase(user, keys)
        if vacuum:
            upkeep.rebuild()
    if as_json:
        print_json(shown_as(EraseResult, done, user=user, records=done.rows))
    click.echo(
        f"Erased {many(done.rows, 'record')}, {many(done.facts, 'fact')} and {many(done.values, 'redacted value')} "
        f"of {user}, recorded as {done.subject}.",
        err=as_json,
    )
    for each in done.refused:
        click.echo(f"NOT erased, because it does not verify: {each}. See `remit audit verify`.", err=True)
    raise SystemExit(1 if done.refused else 0)


def _keys(place: Place, given: GivenStore) -> HubKeys:
    """Return the keys with which the hub of a store encrypts redacted values."""
    from remit.runtime.signing import read_key
    from remit.stores.checkpoints import key_path
    from remit.stores.user_keys import secret_of

    path = place if isinstance(place, Path) else place.file
    return HubKeys(vault_key(given.team_file, given.overrides) or secret_of(read_key(key_path(path))))
