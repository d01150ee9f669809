"""Conditions on the arguments of a tool, or on the input of a call."""

import math
import re
from fnmatch import fnmatchcase
from typing import cast

from msgspec import Struct, convert, field

from remit.protocol.envelope import Json

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
    found = _COMPARISON.match(condition)
    if found is None:
        raise ValueError(f"`{condition}` compares with no number; write it like `> 500`")
    return convert({_BOUND[found[1]]: float(found[2])}, ValueBounds)


def holds(condition: Condition, arguments: Json, path: str) -> bool | None:
    """Return whether a condition holds for the value at a *path* such as `to.iban`; of a list, for one of its values.

    None: it cannot be told, since the value is missing or of another kind.
    """
    value = arguments
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = cast("dict[str, Json]", value)[name]
    values = cast("list[Json]", value) if isinstance(value, list) else [value]
    found = [_fits(condition, each) for each in values]
    return True if True in found else None if None in found or not found else False


def _fits(condition: Condition, value: Json) -> bool | None:
    match condition:
        case ValueBounds():
            return _within(condition, value)
        case tuple():
            return any(_equals(each, value) for each in condition)
        case str():
            return fnmatchcase(value.casefold(), condition.casefold()) if isinstance(value, str) else None
        case _:
            return _equals(condition, value)


def _equals(wanted: Scalar, value: Json) -> bool:
    if isinstance(wanted, str) and isinstance(value, str):
        return wanted.casefold() == value.casefold()
    return isinstance(wanted, bool) == isinstance(value, bool) and wanted == value


def _within(bounds: ValueBounds, value: Json) -> bool | None:
    if bounds.in_ is not None and not any(_equals(each, value) for each in bounds.in_):
        return False
    if bounds.not_in is not None and any(_equals(each, value) for each in bounds.not_in):
        return False
    limits = bounds.above, bounds.at_least, bounds.below, bounds.at_most
    if limits == (None, None, None, None):
        return True
    number = _number(value)
    if number is None:
        return None
    above, at_least, below, at_most = limits
    return (
        (above is None or number > above)
        and (at_least is None or number >= at_least)
        and (below is None or number < below)
        and (at_most is None or number <= at_most)
    )


def _number(value: Json) -> float | None:
    """Return a number, also one that is written as a text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
