"""Finds which fields of different capabilities hold the same thing, as their schemas say with `x-same-as`."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from remit.protocol.card import Capability, Schema
from remit.protocol.envelope import Json
from remit.words.components import Component

C = TypeVar("C", bound=Component)

SameFields = Mapping[str, tuple[tuple[str, str], ...]]
"""By the code of a capability: the paths of such fields in its result, each with the name of the thing."""

_KEYWORD = "x-same-as"
# As deep as results are read for conflicts.
_DEEPEST = 32


def same_fields(capabilities: Iterable[Capability]) -> SameFields:
    """Return the fields that hold the same thing as a field of another capability.

    `x-same-as` names the thing in any words, or is the field of another capability: `TIMETABLE.departure`.
    """
    named: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
    for capability in capabilities:
        named[capability.code] += _fields(capability.result_schema or {}, "", 0)
    things = {thing for found in named.values() for _, thing in found if thing is not None}
    same: dict[str, tuple[tuple[str, str], ...]] = {}
    for code, found in named.items():
        paths = [(path, thing) for path, thing in found if thing is not None]
        paths += [(path, own) for path, _ in found if (own := f"{code}.{path}") in things]
        if paths:
            same[code] = tuple(dict.fromkeys(paths))
    return same


def _fields(schema: Schema, above: str, depth: int) -> Iterator[tuple[str, str | None]]:
    properties: Any = schema.get("properties")
    if not isinstance(properties, dict) or depth >= _DEEPEST:
        return
    for name, each in cast("dict[str, Any]", properties).items():
        path = f"{above}.{name}" if above else name
        if isinstance(each, dict):
            below = cast("Schema", each)
            thing = below.get(_KEYWORD)
            yield path, thing if isinstance(thing, str) and thing else None
            yield from _fields(below, path, depth + 1)


def with_same_fields(components: Sequence[C], codes: Sequence[str | None], same: SameFields) -> list[C]:
    """Return components with the fields that others have as well; each is the result of the capability at its position.

    The results of one capability for several inputs are about several things, so its fields are left out then.
    """
    if not same:
        return list(components)
    asked: dict[str | None, set[str]] = defaultdict(set)
    for component, code in zip(components, codes, strict=True):
        asked[code].add(component.question)
    return [
        replace(component, same_as=same.get(code or "", ())) if len(asked[code]) == 1 else component
        for component, code in zip(components, codes, strict=True)
    ]


def field_at(result: Json, path: str) -> Json:
    """Return the value of a field; None if there is none."""
    for name in path.split("."):
        if not isinstance(result, dict):
            return None
        result = cast("dict[str, Json]", result).get(name)
    return result
