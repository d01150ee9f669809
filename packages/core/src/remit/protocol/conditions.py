"""Conditions on the arguments of a tool, or on the input of a call."""

import math
import re
from fnmatch import fnmatchcase
from typing import cast

from msgspec import Struct, convert, field

Scalar = str | int | float | bool


class ValueBounds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a value has to be: all that is set holds."""

    in_: tuple[Scalar, ...] | None = field(default=None, name="in")
    """One of these."""
    not_in: tuple[Scalar, ...] | None = None
    """None of these."""
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

    Of a list, it holds for one of its values, or for *every* one. None: it cannot be told, since the value is missing
    or of another kind.
    """
    value = arguments
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = cast("dict[str, object]", value)[name]
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    verdicts = [_value_fits(condition, each) for each in values]
    decisive = not every
    return decisive if decisive in verdicts else None if None in verdicts or not verdicts else every


def _value_fits(condition: Condition, value: object) -> bool | None:
    match condition:
        case ValueBounds():
            return _within(condition, value)
        case tuple():
            return _is_one_of(condition, value)
        case str():
            # The same text is always a match: brackets, as around a token of redaction, mean a set of characters.
            return (
                value == condition or fnmatchcase(value.casefold(), condition.casefold())
                if isinstance(value, str)
                else None
            )
        case _:
            return _equals(condition, value)


def _is_one_of(several: tuple[Scalar, ...], value: object) -> bool | None:
    """Return whether a value is one of *several*; None: it is of another kind than all of them."""
    verdicts = [_equals(each, value) for each in several]
    return True if True in verdicts else False if False in verdicts else None


def _equals(wanted: Scalar, value: object) -> bool | None:
    if isinstance(wanted, str):
        return wanted.casefold() == value.casefold() if isinstance(value, str) else None
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


def _number(value: object) -> float | None:
    """Return a number, also one that is written as a text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
