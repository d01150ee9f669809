"""Lays out rows in columns for a width: text wraps at words, and what does not fit moves below its row.

A word that is longer than a line is not broken, because it may be a key or a link to copy: it stands on a line of its
own, which the terminal wraps.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

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


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cells(text))
