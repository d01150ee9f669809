"""How an error reads in a terminal: what is wrong, where, and what to do next."""

import click

from remit.faces.safe_text import several_lines
from remit.protocol.errors import TABLE, Fault, RemitError


def explain(error: Exception, *, as_json: bool = False) -> int:
    """Say on stderr what went wrong and return the exit code for it; what is not ours is raised on.

    Where a document was asked for, stdout gets one too.
    """
    if not isinstance(error, RemitError):
        raise error
    why = error.fault
    click.echo(worded(why), err=True)
    if as_json:
        from remit.faces.cli.show.screen import print_json
        from remit.faces.outputs.common import failure_of

        print_json(failure_of(why))
    return TABLE[why.code].exit_code


def worded(fault: Fault) -> str:
    """Return a fault as a few lines: the sentence, each place that is wrong, and what to do."""
    lines = [f"{fault.code}: {fault.message}"]
    lines += [f"  {problem.path}: {problem.message}" for problem in fault.problems]
    if fault.suggestion:
        lines.append(f"→ {fault.suggestion}")
    return several_lines("\n".join(lines))
