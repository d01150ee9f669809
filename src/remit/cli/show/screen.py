"""How commands print: tables and fields for people, JSON for programs, and errors for both."""

import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

import click
from msgspec.structs import replace

from remit.cli.options import same_team
from remit.protocol.errors import TABLE, Fault, RemitError
from remit.text.terminal import json_for_terminal, one_line, several_lines

# The maximum width of a cell without a terminal.
_CELL = 80


def print_json(value: object) -> None:
    """Print a document."""
    from remit.protocol.codec import encode

    click.echo(json_for_terminal(encode(value).decode()))


def print_text(text: str) -> None:
    """Print a text that may contain output of agents."""
    click.echo(several_lines(text))


def cut(text: str, width: int) -> str:
    """Return a text as one line of at most *width* cells."""
    shown = one_line(text, width + 1)
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns: fitted to a terminal, or else as aligned text."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty() and not without_style():
        _print_fitted(headings, cells)
        return
    # The last column may have any width, because nothing follows it.
    cells = [
        [heading.upper() for heading in headings],
        *([*(cut(cell, _CELL) for cell in row[:-1]), row[-1]] for row in cells),
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_fitted(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        # The identifier of a row is typed into the next command, so it is never wrapped.
        table.add_column(heading, no_wrap=heading == headings[0], overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one per line; empty ones are left out."""
    shown = [(name, clean) for name, value in fields if (clean := several_lines(value).strip("\n"))]
    width = max((len(name) for name, _ in shown), default=0) + 2
    for name, value in shown:
        first, *others = value.splitlines()
        click.echo(f"{styled(name, bold=True)}{' ' * (width - len(name))}{first}")
        for other in others:
            click.echo(" " * width + other)


def styled(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    """Return a text in colour, bold or dim; unchanged if that is not wanted (https://no-color.org) or not possible."""
    return text if without_style() else click.style(text, fg=fg, bold=bold or None, dim=dim or None)


def without_style() -> bool:
    """Return whether texts are printed without styles, even if the terminal supports them."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def now_ms() -> int:
    """Return the current time, in the unit of records."""
    return time.time_ns() // 1_000_000


def clock_time(at_ms: int) -> str:
    """Return a local time, with the date if that is not today."""
    moment = datetime.fromtimestamp(at_ms / 1_000).astimezone()
    form = "%H:%M:%S" if moment.date() == datetime.now().astimezone().date() else "%Y-%m-%d %H:%M:%S"
    return moment.strftime(form)


def spoken(ms: float) -> str:
    """Return a duration in a suitable unit."""
    seconds = ms / 1_000
    if seconds < 1:
        return f"{round(ms)} ms"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {unit}"
    return f"{round(seconds)} s"


def spell_ms(ms: int) -> str:
    """Return a duration in words: the longer, the coarser."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 9_950:
        return f"{ms / 1_000:.1f} s" if ms % 1_000 else f"{ms // 1_000} s"
    seconds = round(ms / 1_000)
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7_200:
        return f"{seconds // 60} min" + (f" {seconds % 60} s" if seconds % 60 else "")
    return f"{seconds // 3_600} h" + (f" {seconds % 3_600 // 60} min" if seconds % 3_600 >= 60 else "")


def many(count: int, what: str) -> str:
    """Return a count with its noun: `1 agent`, `2 agents`, `3 capabilities`."""
    if count == 1:
        return f"1 {what}"
    return f"{count} {what[:-1]}ies" if what.endswith("y") else f"{count} {what}s"


# A command of a team in a suggestion: at the end of a sentence, or between backquotes.
_COMMAND = re.compile(r"(?:(?<=`)|(?<=: ))remit (?:agents|audit|devices|pending|runs) [^`,.;]*(?=`|$)")


def explain(error: Exception, *, as_json: bool = False, named_team: Path | None = None) -> int:
    """Print an error on stderr and return its exit code; foreign exceptions are raised again.

    If a document was requested, stdout gets one, too. Suggested commands include the team that was given.
    """
    if not isinstance(error, RemitError):
        raise error
    why = error.fault
    if why.suggestion and named_team is not None and "--team" not in why.suggestion:
        team = same_team(named_team)
        why = replace(why, suggestion=_COMMAND.sub(lambda command: f"{command[0]}{team}", why.suggestion))
    click.echo(worded(why), err=True)
    if as_json:
        from remit.documents.common import failure_of

        print_json(failure_of(why))
    return TABLE[why.code].exit_code


def worded(fault: Fault) -> str:
    """Return a fault as a few lines: the message, each invalid place, and the suggestion."""
    lines = [f"{fault.code}: {fault.message}"]
    lines += [f"  {fault.detail}"] if fault.detail else []
    lines += [f"  {problem.path}: {problem.message}" for problem in fault.problems]
    if fault.origin is not None:
        lines += [f"  at {frame}" for frame in fault.origin.frames]
    if fault.suggestion:
        lines.append(f"→ {fault.suggestion}")
    return several_lines("\n".join(lines))
