"""How commands print: tables and fields for people, JSON for programs, errors for both.

A word that is longer than a line is not broken, because it may be a key or a link to copy: it stands on a line of its
own, which the terminal wraps.
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

import click
from msgspec.structs import replace

from remit.protocol.errors import TABLE, Fault, RemitError
from remit.words.terminal import json_for_terminal, one_line, several_lines
from remit_cli.options import same_team, wants_colour

GAP = 2
# Text in a narrower column is hard to read.
NARROWEST_TEXT = 24
# The columns that do not fit are below their row, indented this far.
INDENT = 4


class LaidOutLine(NamedTuple):
    """A line of a table, and which part of it."""

    text: str
    part: Literal["head", "row", "below"]


def laid_out(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, folds: Sequence[str] = ()
) -> Iterator[LaidOutLine]:
    """Yield the lines of a table, none wider than *width* but a longer word; without one, each row is one line.

    *folds* names the columns that move below their row where there is no room, the least important first; the others
    follow, from the last one. The first column identifies the row, and stays.
    """
    order = [headings.index(name) for name in folds if name in headings]
    order += [place for place in range(len(headings) - 1, 0, -1) if place not in order]
    columns = [[heading, *(row[place] for row in rows)] for place, heading in enumerate(headings)]
    kept, below = list(range(len(headings))), list[int]()
    while (widths := _widths([columns[place] for place in kept], width)) is None:
        place = order.pop(0)
        kept.remove(place)
        below.append(place)
    below.sort()
    for line in _side_by_side([headings[place] for place in kept], widths):
        yield LaidOutLine(line, "head")
    for row in rows:
        for line in _side_by_side([row[place] for place in kept], widths):
            yield LaidOutLine(line, "row")
        pairs = [f"{headings[place]}: {row[place]}" for place in below if row[place]]
        for line in _paragraph(pairs, (width or 0) - INDENT):
            yield LaidOutLine(_indented(line, width), "below")


def _widths(columns: Sequence[Sequence[str]], width: int | None) -> list[int] | None:
    """Return the width of each column, or None if they do not fit beside each other."""
    whole = [max(map(cells, column)) for column in columns]
    room = None if width is None else width - GAP * (len(columns) - 1)
    if room is None or sum(whole) <= room:
        return whole
    if len(columns) == 1:
        return [room]
    least = [whole[0], *(_least(column, most) for column, most in zip(columns[1:], whole[1:], strict=True))]
    if sum(least) > room:
        return None
    for _ in range(room - sum(least)):  # each cell goes where most is missing
        place = max(range(len(least)), key=lambda each: whole[each] - least[each])
        least[place] += 1
    return least


def _least(column: Sequence[str], whole: int) -> int:
    """Return the least width of a column: no word is broken, and text stays readable."""
    words = max((cells(word) for cell in column for word in cell.split()), default=0)
    return max(words, min(whole, NARROWEST_TEXT))


def _side_by_side(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    parts = [wrapped(cell, width) if width else [cell] for cell, width in zip(row, widths, strict=True)]
    for line in range(max(map(len, parts))):
        shown = (part[line] if line < len(part) else "" for part in parts)
        yield (" " * GAP).join(_padded(text, width) for text, width in zip(shown, widths, strict=True)).rstrip()


def _paragraph(pairs: Iterable[str], width: int) -> Iterator[str]:
    """Yield names and values, as many on a line as fit."""
    line = ""
    for pair in pairs:
        if line and cells(line) + GAP + cells(pair) <= width:
            line += " " * GAP + pair
            continue
        if line:
            yield line
        *others, line = wrapped(pair, width)
        yield from others
    if line:
        yield line


def wrapped(text: str, width: int) -> list[str]:
    """Return a text as lines of at most *width* cells, broken between words; a longer word is a line of its own."""
    lines, line = list[str](), ""
    for word in text.split(" "):
        if line and cells(line) + 1 + cells(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def _indented(line: str, width: int | None) -> str:
    """Return a line below its row, indented; not indented if it is one word that the terminal has to wrap."""
    return " " * INDENT + line if width is None or cells(line) <= width - INDENT else line


def beside(lead: str, text: str, width: int | None) -> list[str]:
    """Return a text beside its lead, wrapped; below it, indented, if there is little room beside it."""
    if width is None or cells(lead) + cells(text) <= width:
        return [lead + text]
    room = width - cells(lead)
    if room >= NARROWEST_TEXT and max(map(cells, text.split())) <= room:
        first, *others = wrapped(text, room)
        return [lead + first, *(" " * cells(lead) + other for other in others)]
    below = [_indented(line, width) for line in wrapped(text, width - INDENT)]
    return [*wrapped(lead.rstrip(), width), *below] if lead.strip() else below


def cells(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cell_sized(text: str, width: int) -> str:
    """Return a text cut or padded to so many columns of a terminal."""
    if text.isascii():
        return text[:width].ljust(width)
    from rich.cells import set_cell_size

    return set_cell_size(text, width)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


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
