"""Old names of team-file keys: they are still read, and `remit validate` says the new ones."""

from collections.abc import Iterator
from typing import Any, cast

from remit.config.line_numbers import Place, TomlLines
from remit.protocol.problems import WrongPart

# The places of old keys, `*` for the name of a table, and the new name of each.
RENAMED: dict[tuple[str, ...], str] = {
    ("agents", "*", "history"): "history_tokens",
    ("clients", "*", "answers"): "may_approve",
    ("clients", "*", "may"): "permissions",
    ("context", "tokens"): "tokenizer",
    ("profiles", "*", "rules", "off"): "disabled",
    ("relay", "authority"): "certificate_authority",
}


def current(place: Place) -> Place:
    """Return the place of a key under its new name; the same place if it has none."""
    for old, new in RENAMED.items():
        if len(old) <= len(place) and all(a in ("*", b) for a, b in zip(old, place, strict=False)):
            return (*place[: len(old) - 1], new, *place[len(old) :])
    return place


def old_names(place: Place) -> list[str]:
    """Return the old names of keys in the table at *place*."""
    return [
        old[-1]
        for old in RENAMED
        if len(old) == len(place) + 1 and all(a in ("*", b) for a, b in zip(old, place, strict=False))
    ]


def rename(said: dict[str, Any], lines: TomlLines) -> None:
    """Give old keys their new names; a key that stands there under both names stays, as an unknown one."""
    for table, old, new in list(_found(said)):
        within = _table(said, table)
        if new not in within:
            within[new] = within.pop(old)
            for place in [each for each in lines.of if each[: len(table) + 1] == (*table, old)]:
                lines.of[current(place)] = lines.of[place]


def deprecated(said: dict[str, Any]) -> list[WrongPart]:
    """Return a remark about each old key of a file."""
    return [
        WrongPart((*table, old), f"`{old}` is deprecated: use `{new}`")
        for table, old, new in _found(said)
        if new not in _table(said, table)
    ]


def _found(said: dict[str, Any]) -> Iterator[tuple[Place, str, str]]:
    for (*steps, old), new in RENAMED.items():
        for table in _places(said, steps):
            if old in _table(said, table):
                yield table, old, new


def _places(said: dict[str, Any], steps: list[str]) -> list[Place]:
    """Return the places of the tables that *steps* name."""
    places: list[Place] = [()]
    for step in steps:
        places = [
            (*place, name)
            for place in places
            for name, value in _table(said, place).items()
            if step in ("*", name) and isinstance(value, dict)
        ]
    return places


def _table(said: dict[str, Any], place: Place) -> dict[str, Any]:
    for step in place:
        said = cast("dict[Any, Any]", said)[step]
    return said
