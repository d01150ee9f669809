"""`remit errors`: explain error codes."""

import click

from remit_cli.options import json_option


@click.command()
@click.argument("code", required=False)
@json_option
def errors(code: str | None, as_json: bool) -> None:
    """Explain an error CODE, or list them all.

    \b
    Example:
      remit errors LOOP_DETECTED
    """
    from difflib import get_close_matches

    from remit.protocol.errors import TABLE, Code
    from remit_cli.show.screen import print_beside, print_json
    from remit_server.documents.common import ErrorCode, ErrorCodes

    if code is not None and code.upper() not in TABLE:
        near = get_close_matches(code.upper(), TABLE, n=1)
        raise click.UsageError(
            f"no such code: {code}; " + (f"did you mean {near[0]}?" if near else "see `remit errors`")
        )
    chosen = [Code(code.upper())] if code else list(TABLE)
    if as_json:
        print_json(ErrorCodes(errors=tuple(ErrorCode(code=each, **TABLE[each]._asdict()) for each in chosen)))
        return
    for each in chosen:
        row = TABLE[each]
        if code is None:
            print_beside(f"{each:26} ", row.meaning)
        else:
            retry = "yes" if row.recoverable else "no"
            click.echo(each)
            print_beside("  ", row.meaning)
            print_beside("  → ", row.suggestion)
            figures = f"blame {row.blame}, HTTP {row.status}, exit code {row.exit_code}, recoverable: {retry}"
            print_beside("  ", figures)
