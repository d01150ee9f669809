"""How commands print: tables and fields for people, JSON for programs, and errors for both."""

import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

import click
from msgspec.structs import replace

from remit.protocol.errors import TABLE, Fault, RemitError
from remit.words.terminal import json_for_terminal, one_line, several_lines
from remit_cli.options import same_team, wants_colour
from remit_cli.show.tables import beside, laid_out

# The maximum width of a cell without a terminal.
_CELL = 80
# No sentence of ours is longer, and agents' texts in it are bounded.
_LONGEST = 2_000
# A window can be dragged to any width.
NARROWEST = 20


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


def output_width() -> int | None:
    """Return the width to lay out for: that of the terminal, or `COLUMNS`; None for a file or a pipe."""
    is_given = os.environ.get("COLUMNS", "").isdecimal()
    return max(NARROWEST, shutil.get_terminal_size().columns) if is_given or sys.stdout.isatty() else None


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, folds: Sequence[str] = ()) -> None:
    """Print rows in columns, without empty columns.

    Where there is no room for all, *folds* names those to print below each row, in that order.
    """
    width = output_width()
    # In a line of any length, only the last cell may have any width, because nothing follows it.
    lines = [[*(one_line(cell) if width else cut(cell, _CELL) for cell in row[:-1]), one_line(row[-1])] for row in rows]
    kept = [place for place in range(len(headings)) if place == 0 or any(line[place] for line in lines)]
    shown = [[line[place] for place in kept] for line in lines]
    for line, part in laid_out([headings[place] for place in kept], shown, width, folds):
        click.echo(styled(line.upper(), bold=True) if part == "head" else styled(line, dim=part == "below"))


def print_beside(lead: str, text: str, *, fg: str | None = None) -> None:
    """Print a text beside its lead, whose first word may be in colour; wrapped, or below it, where room is little."""
    clean = " ".join(several_lines(text[:_LONGEST]).splitlines())
    first, *others = beside(lead, clean, output_width())
    word = lead.split(maxsplit=1)[0] if fg else ""
    click.echo(styled(word, fg=fg, bold=True) + first.removeprefix(word))
    for line in others:
        click.echo(line)


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one per line; empty ones are left out."""
    shown = [(name, clean) for name, value in fields if (clean := several_lines(value).strip("\n"))]
    lead, width = max((len(name) for name, _ in shown), default=0) + 2, output_width()
    for name, value in shown:
        first, *others = [
            line for part in value.splitlines() for line in beside(" " * lead + indent_of(part), part.strip(), width)
        ]
        named = first[len(name) :] if first.startswith(" " * lead) else f"\n{first}"
        click.echo(styled(name, bold=True) + named)
        for other in others:
            click.echo(other)


def indent_of(line: str) -> str:
    """Return the white space at the beginning of a line."""
    return line[: len(line) - len(line.lstrip())]


def styled(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    """Return a text in colour, bold or dim; unchanged if that is not wanted (https://no-color.org) or not possible."""
    if not text or without_style() or not (fg or bold or dim):
        return text
    return click.style(text, fg=fg, bold=bold or None, dim=dim or None)


def without_style() -> bool:
    """Return whether texts are printed without styles, even if the terminal supports them."""
    return wants_colour() is False


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
        from remit_server.documents.common import failure_of

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
