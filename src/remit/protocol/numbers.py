"""Lenient reading of peers' numbers: where an integer is expected, a fraction is cut off.

Languages with one number type send 12.5 ms and mean 12. Writing stays strict.
"""

from functools import cache
from math import isfinite
from typing import Any, cast

from msgspec import inspect

from remit.protocol.envelope import Json


def whole(value: Json, kind: type[Any]) -> Json:
    """Return plain JSON with whole numbers where *kind* expects integers; everything else is unchanged."""
    return _whole(value, _info(kind))


@cache
def _info(kind: type[Any]) -> inspect.Type:
    return inspect.type_info(kind)


def _whole(value: Json, kind: inspect.Type) -> Json:
    match value, kind:
        case float(), inspect.IntType():
            return int(value) if isfinite(value) else value
        case dict(), inspect.StructType():
            kinds = {field.encode_name: field.type for field in kind.fields}
            fields = cast("dict[str, Json]", value)
            return {name: _whole(each, kinds[name]) if name in kinds else each for name, each in fields.items()}
        case dict(), inspect.DictType():
            return {name: _whole(each, kind.value_type) for name, each in cast("dict[str, Json]", value).items()}
        case list(), inspect.VarTupleType() | inspect.ListType():
            return [_whole(each, kind.item_type) for each in cast("list[Json]", value)]
        case _, inspect.UnionType():
            return _whole_in_union(value, kind)
        case _:
            return value


def _whole_in_union(value: Json, kind: inspect.UnionType) -> Json:
    if any(isinstance(each, inspect.FloatType | inspect.AnyType) for each in kind.types):
        return value
    # None is the only other member in peers' types: at most one member changes anything.
    for each in kind.types:
        value = _whole(value, each)
    return value
