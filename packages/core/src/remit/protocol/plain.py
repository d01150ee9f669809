"""Python values as JSON: how each is written, and where a value cannot be written."""

import math
import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from remit.protocol.errors import Problem
from remit.protocol.remit import MAX_INTEGER

# The exceptions when a value cannot be written as JSON.
UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)
# Deeper than any envelope may be; a value that contains itself has no end.
_DEEPEST = 64
_LONGEST_WORDS = 200
# Where a path of many steps begins.
_TOP = re.compile(r"\$(?:\.\w+|\[[^]]*\])?")


def written(value: object) -> object:
    """Return the JSON form of a value that msgspec does not know: a pydantic model as the object that it dumps."""
    serializer: Any = getattr(type(value), "__pydantic_serializer__", None)
    if serializer is None:
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return serializer.to_python(value, mode="json", by_alias=True)


_encoder = msgspec.json.Encoder(enc_hook=written)


def write(value: object) -> bytes:
    """Return a value as JSON, or raise one of `UNWRITABLE`; models of all kinds become objects."""
    return _encoder.encode(value)


def unwritable(value: object, path: str = "$") -> Iterator[Problem]:
    """Return each place where *value* cannot be written as JSON, or not unchanged."""
    return _unwritable(value, path, _DEEPEST)


def _unwritable(value: object, path: str, left: int) -> Iterator[Problem]:
    if left == 0:
        yield Problem("".join(_TOP.findall(path)[:1]), f"is nested deeper than {_DEEPEST} levels")
        return
    match value:
        case float() if not math.isfinite(value):
            yield Problem(path, "NaN and infinity cannot be written as JSON")
        case int() if abs(value) > MAX_INTEGER:
            yield Problem(path, "the integer is past ±(2**53 - 1); send it as text")
        case dict():
            for name, each in cast("dict[object, object]", value).items():
                if any(_refused({name: None}, path)):
                    kind = type(name).__name__
                    yield Problem(path, f"has a key of type `{kind}`; JSON has text for keys: use text or numbers")
                yield from _unwritable(each, step(path, name), left - 1)
        case list() | tuple() | set() | frozenset():
            for index, each in enumerate(cast("list[object]", value)):
                yield from _unwritable(each, step(path, index), left - 1)
        case _:
            try:
                members = _members(value)
            except Exception:  # noqa: BLE001 - a model failed to dump itself
                members = None
            if members is None:
                yield from _refused(value, path)
            else:
                yield from _unwritable(members, path, left)


def _members(value: object) -> object:
    """Return the fields of a value by name; None if it has no fields."""
    if hasattr(type(value), "__pydantic_serializer__"):
        return written(value)
    names: Any = (
        getattr(value, "__struct_fields__", None)
        or getattr(value, "__dataclass_fields__", None)
        or [each.name for each in getattr(value, "__attrs_attrs__", ())]
    )
    return {name: getattr(value, name) for name in names} if names else None


def _refused(value: object, path: str) -> Iterator[Problem]:
    try:
        write(value)
    except UNWRITABLE as error:
        # The message may contain the cause: half of a surrogate pair, which no log could store.
        words = str(error).encode(errors="replace").decode()[:_LONGEST_WORDS]
        yield Problem(path, f"cannot be written as JSON: {words}")


def step(path: str, name: object) -> str:
    """Return the path of a part: `$.order.lines[0]`."""
    shown = name[:100] if isinstance(name, str) else name
    return f"{path}.{shown}" if isinstance(shown, str) and shown.isidentifier() else f"{path}[{shown!r}]"
