"""`remit audit`: the audit record."""

import time
from base64 import b64encode
from pathlib import Path
from typing import IO

import click

from remit.protocol.codec import encode
from remit.protocol.problems import did_you_mean
from remit.protocol.records import Record
from remit.runtime.audit import ChainRow
from remit.runtime.signing import Checkpoint, read_anchors, read_public_key
from remit.stores.user_keys import key_id_of
from remit.words.terminal import json_for_terminal
from remit_cli.completion import recorded_profiles, run_ids
from remit_cli.options import GivenStore, SubcommandGroup, json_option, jsonl_option, out_option, store_options
from remit_cli.places import Place, existing, reading, store_file
from remit_cli.show.runs import find_recorded, short, written_whole
from remit_cli.show.screen import clock_time, many, print_beside, print_json, print_text
from remit_server.documents.common import shown_as
from remit_server.documents.runs import AuditCheckpoint, AuditRow, Verification

# Poll interval of --follow.
FOLLOW_S = 0.2
# Longer than a notary service needs to answer.
POST_S = 15.0

profile_option = click.option(
    "--profile",
    metavar="NAME",
    help="Only records of this profile with shared agents; on the sharing device, of the agent shared under this name.",
    shell_complete=recorded_profiles,
)


@click.group(cls=SubcommandGroup)
def audit() -> None:
    """Read, verify and export the audit record.

    \b
    Example:
      remit audit tail --follow
      remit audit verify
    """


@audit.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--public-key",
    "public_keys",
    multiple=True,
    metavar="KEY",
    help="Accept only signatures of this public key: 64 hexadecimal digits, or a file with them or in PEM. Repeatable.",
)
@click.option(
    "--anchor",
    "anchors",
    multiple=True,
    metavar="FILE|LINE",
    help="Anchor that the record must match: a line written by `remit audit anchor`, or a file or log with "
    "such lines. Repeatable.",
)
@click.option(
    "--incremental",
    is_flag=True,
    help="Verify only what was recorded since this was last done. Not with --public-key or --anchor.",
)
@store_options
@json_option
def verify(
    file: Path | None,
    public_keys: tuple[str, ...],
    anchors: tuple[str, ...],
    incremental: bool,
    given: GivenStore,
    as_json: bool,
) -> None:
    """Check that no row of the record in FILE was edited, deleted, inserted, reordered or cut off.

    The default FILE is the team's record, or .remit/hub.db. The exit code is 0 if the record is intact and 1 if it is
    not. Only --anchor detects a rollback of all files together. Only --anchor and --public-key detect a replaced key.

    \b
    Example:
      remit audit verify
      remit audit verify .remit/hub.db --json
      remit audit verify --public-key hub.pub --anchor /var/log/remit-anchors.log
    """

    pinned = [_public_key(given) for given in public_keys]
    kept = [anchor for given in anchors for anchor in _anchors(given)]
    path = existing(file or store_file(given))
    if incremental and (pinned or kept):
        raise click.UsageError("--incremental cannot be used with --public-key or --anchor: it trusts the store's key")
    with reading(path) as view:
        verdict = view.verify(pinned, kept, incremental=incremental)
    if as_json:
        print_json(shown_as(Verification, verdict, file=str(path)))
    else:
        print_text(str(verdict))
    raise SystemExit(0 if verdict.ok else 1)


def _public_key(given: str) -> bytes:
    try:
        return read_public_key(_content(given) or given)
    except ValueError as error:
        message = f"`{given[:100]}` is not a file and not a public key: {error}"
        raise click.BadParameter(message, param_hint="--public-key") from error


def _anchors(given: str) -> list[Checkpoint]:
    try:
        content = given if given.lstrip().startswith("{") else _content(given)
        if content is None:
            raise ValueError("no such file, and not an anchor")
        if anchors := read_anchors(content):
            return anchors
        raise ValueError("contains no anchor; `remit audit anchor` writes one")
    except ValueError as error:
        raise click.BadParameter(f"`{given[:100]}`: {error}", param_hint="--anchor") from error


def _content(given: str) -> str | None:
    """Return the content of a file; None if it does not exist."""
    try:
        return Path(given).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # a folder, no permission, or an invalid file name
        raise ValueError(f"cannot read it ({error})") from error


# ── anchoring ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@audit.command()
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append the anchor to a file, best on another disk or machine.  [default: stdout]",
)
@click.option("--post", "url", metavar="URL", help="POST the anchor as JSON to this URL.")
@click.option("--private", is_flag=True, help="Allow --post to a private address.")
@store_options
def anchor(out: Path | None, url: str | None, private: bool, given: GivenStore) -> None:
    """Write the newest checkpoint of the record as one line, to store where nobody can change it.

    The line is signed JSON without personal data. Store it elsewhere: in the log of another machine, on write-once
    storage, or at a service. `remit audit verify --anchor` can then detect a rollback of the record together with its
    checkpoints, which nothing else can. An anchor does not cover rows after the newest checkpoint.

    \b
    Example:
      remit audit anchor | logger -t remit
      remit audit anchor -o /mnt/worm/remit-anchors.jsonl
      remit audit anchor --post https://notary.example.com/anchors
    """
    import asyncio

    from msgspec.structs import asdict

    path = existing(store_file(given))
    with reading(path) as view:
        newest, after = view.newest_anchor()
    document = AuditCheckpoint(**asdict(newest))
    line = encode(document).decode()
    if url is not None:
        asyncio.run(_post(url, line, private=private))
    if out is not None:
        with out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    if url is None and out is None:
        click.echo(line)
    where = " and ".join(each for each in (str(out) if out else "", url or "") if each)
    written = f"Wrote checkpoint {newest.number} of row {newest.seq} to {where}; " if where else ""
    click.echo(f"{written}{many(after, 'row')} after it {'is' if after == 1 else 'are'} not covered.", err=True)


async def _post(url: str, line: str, *, private: bool) -> None:
    from aiohttp import ClientError, ClientTimeout

    from remit.protocol.errors import Code, RemitError, fault
    from remit_server.transports.addresses import OutboundClient, OutboundHosts

    outbound = OutboundClient(OutboundHosts(private=private), ClientTimeout(total=POST_S))
    try:
        async with outbound.request(
            "POST", url, headers={"content-type": "application/json"}, data=line.encode()
        ) as reply:
            why = "" if 200 <= reply.status < 300 else f"the server answered with status {reply.status}"
    except (ClientError, OSError, TimeoutError) as error:
        why = f"cannot connect ({error or type(error).__name__})"
    except RemitError as error:
        advice = "Use a public address, or allow this one with --private."
        raise RemitError(fault(error.fault.code, error.fault.message, suggestion=advice)) from error
    finally:
        await outbound.close()
    if why:
        message = f"sending the anchor to {url} failed: {why}"
        raise RemitError(
            fault(Code.DELEGATION_UNAVAILABLE, message, suggestion="Try again, or write the anchor to a file with -o.")
        )


# ── reading along ─────────────────────────────────────────────────────────────────────────────────────────────────────


@audit.command()
@click.option("--follow", "-f", is_flag=True, help="Show new records as they are written, until Ctrl-C.")
@click.option(
    "-n", "count", type=click.IntRange(min=0), default=20, show_default=True, help="Number of records to start with."
)
@click.option("--run", help="Only records of this run: its id, or the start of it.", shell_complete=run_ids)
@profile_option
@store_options
@jsonl_option
def tail(follow: bool, count: int, run: str | None, profile: str | None, given: GivenStore, as_jsonl: bool) -> None:
    """Show the newest records of all processes, one per line.

    \b
    Example:
      remit audit tail -n 5
      remit audit tail --profile reviewer
      remit audit tail --follow --jsonl | jq .kind
    """
    from remit.stores.records import PAGE

    with reading(store_file(given)) as view:
        run = run and find_recorded(view, run)
        begun = shown = view.before_newest(count, run, profile)
        while True:
            page = view.records(run, shown, PAGE, profile)
            for record in page:
                _print(record, as_jsonl=as_jsonl)
                shown = record.seq
            if len(page) == PAGE:
                continue
            if not follow:
                break
            time.sleep(FOLLOW_S)
    if profile is not None and count and shown == begun:
        near = did_you_mean(profile, _profiles(given))
        click.echo(f"There are no records of a profile `{profile[:100]}`{near or '.'}", err=True)


def _profiles(given: GivenStore) -> list[str]:
    from remit_cli.config.load import load_team
    from remit_cli.config.team import tables
    from remit_cli.config.team_search import find_team

    file = find_team(given.team_file)
    if file is None:
        return []
    team = load_team(file, overrides=given.overrides, secrets=False, code=False)
    return [*tables(team, "profiles"), *tables(team, "shared")]


def _print(record: Record, *, as_jsonl: bool) -> None:
    from remit_server.documents.runs import record_line

    if as_jsonl:
        print_json(record_line(record))
        return
    from remit.protocol.envelope import Response
    from remit.runtime.run_tree import Node
    from remit_cli.show.tree_lines import sentence

    agent = record.body.target if isinstance(record.body, Response) else ""
    text = sentence(record, Node(record.run, None, agent, record.at_ms))
    print_beside(f"{clock_time(record.at_ms)}  {short(record.run)}  {record.kind:10}  ", text)


# ── for others to check ───────────────────────────────────────────────────────────────────────────────────────────────


@audit.command()
@out_option
@click.option("--run", help="Only rows of this run: its id, or the start of it.", shell_complete=run_ids)
@profile_option
@store_options
def export(out: Path | None, run: str | None, profile: str | None, given: GivenStore) -> None:
    """Write the record as JSON lines that anyone can verify without this program.

    Each row has seq, kind, at_ms, run, session, body, previous and digest. The digest is the SHA-256 of: the previous
    digest (`previous`, 32 bytes), seq as 8 bytes, and the SHA-256 of the content, which is the MessagePack of the array
    [kind, at_ms, run, session] and the body text in UTF-8. `previous` of row 1 is 32 zero bytes. A checkpoint follows
    the row that it signs (Ed25519); see `remit docs verification`. With --run or --profile no checkpoints are written,
    and each row can be verified by itself.

    \b
    Example:
      remit audit export -o audit.jsonl
      remit audit export --run 019a2b3c4d5e6f70 | jq -r .body | jq .objective
    """

    path = store_file(given)
    out = None if str(out) == "-" else out
    with written_whole(out) as file:
        rows, checkpoints = _export(path, run, profile, file)
    if out is not None:
        click.echo(f"Wrote {many(rows, 'row')} and {many(checkpoints, 'checkpoint')} to {out}.", err=True)


def _export(path: Place, run: str | None, profile: str | None, file: IO[str]) -> tuple[int, int]:
    """Write all rows and checkpoints, and return how many there were."""
    from msgspec.structs import asdict

    rows = written = 0
    with reading(path) as view:
        # Read before the rows, so that the signed rows of each checkpoint exist.
        seals = [AuditCheckpoint(**asdict(seal)) for seal in view.checkpoints() if seal and run is profile is None]
        for previous, row in view.linked_rows(run=run and find_recorded(view, run), profile=profile):
            rows += 1
            _write(file, _exported(previous, row))
            while written < len(seals) and seals[written].seq <= row.seq:
                _write(file, seals[written])
                written += 1
    for seal in seals[written:]:  # checkpoints of missing rows
        _write(file, seal)
    return rows, len(seals)


def _exported(previous: bytes, row: ChainRow) -> AuditRow:
    is_encrypted = key_id_of(row.body) is not None
    body = b64encode(row.body).decode() if is_encrypted else row.body.decode(errors="replace")
    digests = {"previous": previous.hex(), "digest": row.digest.hex()}
    return shown_as(AuditRow, row, body=body, base64=is_encrypted, **digests)


def _write(file: IO[str], document: AuditRow | AuditCheckpoint) -> None:
    file.write(json_for_terminal(encode(document).decode()) + "\n")
