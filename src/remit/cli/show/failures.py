"""How an error reads in a terminal: what is wrong, where, and what to do next."""

import re
from pathlib import Path

import click
from msgspec.structs import replace

from remit.cli.options import same_team
from remit.protocol.errors import TABLE, Fault, RemitError
from remit.text.terminal import several_lines

# A command of a team, as a suggestion has it: the last of a sentence, or between backquotes.
_COMMAND = re.compile(r"(?:(?<=`)|(?<=: ))remit (?:agents|audit|devices|pending|runs) [^`,.;]*(?=`|$)")


def explain(error: Exception, *, as_json: bool = False, named_team: Path | None = None) -> int:
    """Say on stderr what went wrong and return the exit code for it; what is not ours is raised on.

    Where a document was asked for, stdout gets one too. What is to be typed next is for the team that was named.
    """
    if not isinstance(error, RemitError):
        raise error
    why = error.fault
    if why.suggestion and named_team is not None and "--team" not in why.suggestion:
        team = same_team(named_team)
        why = replace(why, suggestion=_COMMAND.sub(lambda command: f"{command[0]}{team}", why.suggestion))
    click.echo(worded(why), err=True)
    if as_json:
        from remit.cli.show.screen import print_json
        from remit.documents.common import failure_of

        print_json(failure_of(why))
    return TABLE[why.code].exit_code


def worded(fault: Fault) -> str:
    """Return a fault as a few lines: the sentence, each place that is wrong, and what to do."""
    lines = [f"{fault.code}: {fault.message}"]
    lines += [f"  {fault.detail}"] if fault.detail else []
    lines += [f"  {problem.path}: {problem.message}" for problem in fault.problems]
    if fault.origin is not None:
        lines += [f"  at {frame}" for frame in fault.origin.frames]
    if fault.suggestion:
        lines.append(f"→ {fault.suggestion}")
    return several_lines("\n".join(lines))
