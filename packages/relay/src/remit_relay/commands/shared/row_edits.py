"""Edits a draft row by row, for terminals without cursor keys and for people who hear the screen. Pure.

A row is a line of the draft, or a part of a long line: a change of one row keeps all others, also if an agent wrote the
whole draft as one paragraph.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from remit.words.terminal import several_lines

# Short enough to type again, and to be read aloud in one breath.
WIDTH = 60

HELP = (
    "N TEXT replaces row N · N-M TEXT replaces rows N to M · d N deletes it · i N TEXT inserts before it",
    "show shows all rows · send sends the draft · cancel leaves it as it was",
)
_PLACE = re.compile(r"(\d{1,6})(?:\s*-\s*(\d{1,6}))?(?:\s(.*))?", re.DOTALL)


class Row(Struct, frozen=True):
    """A part of a draft."""

    text: str
    end: str
    """What separates it from the next row: a line break, spaces, or nothing."""


class RowEditor(Struct, frozen=True):
    """A draft while it is edited."""

    draft: str
    """The id of the draft."""
    rows: tuple[Row, ...]
    changed: bool = False

    @property
    def text(self) -> str:
        """The whole draft as it would be sent."""
        return "".join(row.text + row.end for row in self.rows)


class Edited(Struct, frozen=True):
    """The draft after an edit, and the lines to show."""

    editor: RowEditor
    lines: tuple[str, ...]


class Finished(Struct, frozen=True):
    """The person wants the draft to be sent, or left as it was."""

    sends: bool


class NotUnderstood(Struct, frozen=True):
    """The line is no edit; nothing was changed."""

    lines: tuple[str, ...]


def opened(draft: str, text: str) -> RowEditor:
    """Return a draft in rows; all of its text is in them."""
    return RowEditor(draft, tuple(_rows(text)))


def shown(editor: RowEditor) -> tuple[str, ...]:
    """Return all rows with their numbers."""
    return tuple(line for number, row in enumerate(editor.rows, 1) for line in _lines(number, row))


def edit(editor: RowEditor, typed: str) -> Edited | Finished | NotUnderstood:
    """Return the effect of a typed line."""
    word, _, rest = typed.strip().partition(" ")
    match word.lower():
        case "send":
            return Finished(sends=True) if not rest else NotUnderstood(HELP)
        case "cancel":
            return Finished(sends=False) if not rest else NotUnderstood(HELP)
        case "show":
            return Edited(editor, shown(editor))
        case "d" | "i" as act:
            return _edit_at(editor, act, rest)
        case _:
            return _edit_at(editor, "", typed.lstrip())


def _edit_at(editor: RowEditor, act: str, typed: str) -> Edited | NotUnderstood:
    match = _PLACE.fullmatch(typed)
    if match is None:
        return NotUnderstood(HELP)
    first, last, text = int(match[1]), int(match[2] or match[1]), match[3] or ""
    count = len(editor.rows)
    most = count + 1 if act == "i" else count
    if not 1 <= first <= last <= most:
        return NotUnderstood((f"There are rows 1 to {count}.",))
    if act == "d":
        return NotUnderstood(HELP) if text.strip() else _changed(editor, _without(editor.rows, first, last))
    if not text.strip():
        return NotUnderstood((f"Row {first} was not changed: type its new text after the number, or d {first}.",))
    if act == "i":
        return _changed(editor, _insert_row(editor.rows, first, text)) if first == last else NotUnderstood(HELP)
    new = Row(text.rstrip(), editor.rows[last - 1].end)
    rows = (*editor.rows[: first - 1], new, *editor.rows[last:])
    after = RowEditor(editor.draft, rows, changed=True)
    return Edited(after, tuple(_lines(first, new)) if first == last else shown(after))


def _changed(editor: RowEditor, rows: tuple[Row, ...]) -> Edited:
    after = RowEditor(editor.draft, rows, changed=True)
    return Edited(after, shown(after))


def _without(rows: tuple[Row, ...], first: int, last: int) -> tuple[Row, ...]:
    before, after = rows[: first - 1], rows[last:]
    if before:
        # The line break at the end of the deleted rows stays, if the rows before are in the same line.
        *rest, row = before
        end = rows[last - 1].end if "\n" not in row.end or not after else row.end
        before = (*rest, Row(row.text, end))
    return before + after


def _insert_row(rows: tuple[Row, ...], place: int, text: str) -> tuple[Row, ...]:
    before, after = rows[: place - 1], rows[place - 1 :]
    if not after:
        *rest, row = before or (Row("", ""),)
        return (*rest, Row(row.text, "\n"), Row(text.rstrip(), row.end)) if before else (Row(text.rstrip(), ""),)
    starts_line = not before or "\n" in before[-1].end
    return (*before, Row(text.rstrip(), "\n" if starts_line else " "), *after)


def _rows(text: str) -> Iterator[Row]:
    for line in re.findall(r"[^\n]*\n+|[^\n]+\Z", text):
        content = line.rstrip("\n")
        row = ""
        for word in re.findall(r"\s*\S+\s*?(?=\s|\Z)|\s+\Z", content):
            if row and len(row) + len(word) > WIDTH:
                spaces = word[: len(word) - len(word.lstrip())]
                yield Row(row, spaces)
                word = word.lstrip()
                row = ""
            row += word
        yield Row(row, line[len(content) :])


def _lines(number: int, row: Row) -> Iterator[str]:
    first, *more = several_lines(row.text).expandtabs(4).splitlines() or [""]
    yield f"{number:3}  {first}"
    yield from (f"     {line}" for line in more)
