"""The command line: stdout is data, stderr is progress, and the exit code says how it went."""

from pathlib import Path

import click

from remit import __version__

# Everything but click is imported by the command that needs it: `remit --help` must not wait for a database.


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="remit")
def main() -> None:
    """Let AI agents call other agents, safely: guarded, budgeted, recorded."""


@main.group()
def audit() -> None:
    """Look at the record of what agents did."""


@audit.command()
@click.argument("file", type=click.Path(path_type=Path), default=Path(".remit/hub.db"))
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def verify(file: Path, as_json: bool) -> None:
    """Check that no row of the record in FILE was edited, deleted, inserted, reordered or cut off.

    Exits with 0 if the record is whole and with 1 if it is not.

    \b
    Example:
      remit audit verify .remit/hub.db
    """
    from remit.protocol.codec import encode
    from remit.protocol.errors import TABLE, RemitError
    from remit.stores.sqlite import verify_file

    try:
        verdict = verify_file(file)
    except RemitError as error:
        click.echo(str(error), err=True)
        raise SystemExit(TABLE[error.fault.code].exit_code) from error
    click.echo(encode(verdict).decode() if as_json else str(verdict))
    raise SystemExit(0 if verdict.ok else 1)


@main.command()
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def errors(code: str | None, as_json: bool) -> None:
    """Explain an error CODE, or list them all.

    \b
    Example:
      remit errors LOOP_DETECTED
    """
    from difflib import get_close_matches

    from remit.protocol.codec import encode
    from remit.protocol.errors import TABLE, Code

    if code is not None and code.upper() not in TABLE:
        near = get_close_matches(code.upper(), TABLE, n=1)
        raise click.UsageError(
            f"there is no code {code}; " + (f"did you mean {near[0]}?" if near else "see `remit errors`")
        )
    chosen = [Code(code.upper())] if code else list(TABLE)
    if as_json:
        click.echo(encode({each: TABLE[each]._asdict() for each in chosen}).decode())
        return
    for each in chosen:
        row = TABLE[each]
        if code is None:
            click.echo(f"{each:26} {row.meaning}")
        else:
            retry = "yes" if row.recoverable else "no"
            click.echo(f"{each}\n  {row.meaning}\n  → {row.suggestion}")
            click.echo(f"  blame {row.blame}, HTTP {row.status}, exit code {row.exit_code}, recoverable: {retry}")
