"""Conditions on the arguments of a tool, or on the input of a call."""

import math
import posixpath
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import cast

from msgspec import Struct, convert, field

Scalar = str | int | float | bool


class ValueBounds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a value has to be: all that is set holds."""

    in_: tuple[Scalar, ...] | None = field(default=None, name="in")
    """One of these; `*` in a text matches anything."""
    not_in: tuple[Scalar, ...] | None = None
    """None of these; `*` in a text matches anything."""
    under: tuple[str, ...] | None = None
    """A path inside one of these folders, wherever `..` in it leads."""
    above: float | None = None
    """More than this."""
    at_least: float | None = None
    """This or more."""
    below: float | None = None
    """Less than this."""
    at_most: float | None = None
    """This or less."""


Condition = str | int | float | bool | tuple[Scalar, ...] | ValueBounds
"""A value; a text, in which `*` matches anything, or a comparison such as `> 500`; a list, of which one; or bounds."""

_LISTED_CHARACTERS = re.compile(r"[\[?]")

_COMPARISON = re.compile(r"\s*(<=|>=|<|>)\s*(-?\d+(?:\.\d+)?)\s*\Z")
_BOUND = {"<": "below", "<=": "at_most", ">": "above", ">=": "at_least"}


def checked_condition(condition: Condition) -> Condition:
    """Return a condition with its comparison as bounds; raise `ValueError` for a comparison without a number."""
    if not isinstance(condition, str) or not condition.lstrip().startswith(("<", ">")):
        return condition
    match = _COMPARISON.match(condition)
    if match is None:
        raise ValueError(f"`{condition}` compares with no number; write it like `> 500`")
    return convert({_BOUND[match[1]]: float(match[2])}, ValueBounds)


def holds(condition: Condition, arguments: object, path: str, *, every: bool = False) -> bool | None:
    """Return whether a condition holds for the value at a *path* such as `to.iban`.

    Of a list, also on the way, it holds for one of its values, or for *every* one. None: it cannot be told, since the
    value is missing or of another kind.
    """
    values = _values_at(arguments, path.split("."))
    verdicts = [None if each is None else _value_fits(condition, each) for each in values]
    decisive = not every
    return decisive if decisive in verdicts else None if None in verdicts or not verdicts else every


def _values_at(value: object, names: Sequence[str]) -> Iterator[object]:
    """Yield the values at a path, of each item of a list; None where there is none."""
    if isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _values_at(each, names)
    elif not names:
        yield value
    elif isinstance(value, dict) and names[0] in value:
        yield from _values_at(cast("dict[str, object]", value)[names[0]], names[1:])
    else:
        yield None


def _value_fits(condition: Condition, value: object) -> bool | None:
    match condition:
        case ValueBounds():
            return _within(condition, value)
        case tuple():
            return _is_one_of(condition, value)
        case _:
            return _equals(condition, value)


def _is_one_of(several: tuple[Scalar, ...], value: object) -> bool | None:
    """Return whether a value is one of *several*; None: it is of another kind than all of them."""
    verdicts = [_equals(each, value) for each in several]
    return True if True in verdicts else False if False in verdicts else None


def _equals(wanted: Scalar, value: object) -> bool | None:
    if isinstance(wanted, str):
        # `*` alone has a meaning: brackets stand around a token of redaction.
        pattern = _LISTED_CHARACTERS.sub(r"[\g<0>]", wanted.casefold())
        return fnmatchcase(value.casefold(), pattern) if isinstance(value, str) else None
    if isinstance(wanted, bool):
        return wanted == value if isinstance(value, bool) else None
    number = _number(value)
    return None if number is None else wanted == number


def _within(bounds: ValueBounds, value: object) -> bool | None:
    verdicts: list[bool | None] = []
    if bounds.in_ is not None:
        verdicts.append(_is_one_of(bounds.in_, value))
    if bounds.not_in is not None:
        listed = _is_one_of(bounds.not_in, value)
        verdicts.append(None if listed is None else not listed)
    if bounds.under is not None:
        inside = [_is_under(folder, value) for folder in bounds.under]
        verdicts.append(True if True in inside else None if None in inside else False)
    above, at_least, below, at_most = limits = bounds.above, bounds.at_least, bounds.below, bounds.at_most
    if limits != (None, None, None, None):
        number = _number(value)
        verdicts.append(
            None
            if number is None
            else (above is None or number > above)
            and (at_least is None or number >= at_least)
            and (below is None or number < below)
            and (at_most is None or number <= at_most)
        )
    return False if False in verdicts else None if None in verdicts else True


def _is_under(folder: str, value: object) -> bool | None:
    """Return whether a path is inside a folder; None: it cannot be told, as of a relative path."""
    if not isinstance(value, str) or value.startswith("~"):
        return None
    inner, outer = _steps(value), _steps(folder)
    if (inner[:1] == ["/"]) != (outer[:1] == ["/"]):
        return None
    if inner.count("..") > outer.count(".."):
        return False
    if inner[: len(outer)] == outer:
        return True
    # Some file systems do not tell upper case from lower case.
    folded = [each.casefold() for each in inner[: len(outer)]]
    return None if folded == [each.casefold() for each in outer] else False


def _steps(path: str) -> list[str]:
    """Return the names on a path, the first of which is `/` if it is absolute; `..` is left only at the beginning."""
    path = posixpath.normpath(re.sub(r"[/\\]+", "/", path))
    return ["/"] * path.startswith("/") + [each for each in path.split("/") if each not in ("", ".")]


def _number(value: object) -> float | None:
    """Return a number, also one that is written as a text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
