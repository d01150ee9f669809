"""The JSON of protobuf messages, in all the forms that their readers accept.

A2A is defined by protobuf messages. Their JSON mapping lets a writer choose: a field has its name in camel case or as
in the definition (`taskId`, `task_id`), a number may be a text, an enum value its number, and null is the default.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import cast

import msgspec
from msgspec import inspect

from remit.protocol.envelope import Json
from remit_server.dialects.a2a.types import AGENT, USER, TaskState

Reading = Callable[[Json], Json]

# The numbers of the values, which stand in the definition in this order.
_STATES = tuple(TaskState)
_ROLES = ("ROLE_UNSPECIFIED", USER, AGENT)


def plain(value: Json, type: type[msgspec.Struct]) -> Json:
    """Return the JSON of a message in one form: names in camel case, numbers as numbers, enum values by name.

    What is not understood stays as it is, so that whoever decodes it names the field.
    """
    return _struct(type)(value)


@cache
def _struct(type: type[msgspec.Struct]) -> Reading:
    found = cast("inspect.StructType", inspect.type_info(type))
    fields: dict[str, tuple[str, Reading | None]] = {}
    for field in found.fields:
        reading = _NAMED.get(field.name) or _reading(field.type)
        fields[field.encode_name] = (field.encode_name, reading)
        fields[field.name] = (field.encode_name, reading)

    def read(value: Json) -> Json:
        return _fields(cast("dict[str, Json]", value), fields) if isinstance(value, dict) else value

    return read


def _fields(value: dict[str, Json], fields: Mapping[str, tuple[str, Reading | None]]) -> Json:
    made: dict[str, Json] = {}
    for name, each in value.items():
        known = fields.get(name)
        if known is None:
            made[name] = each
            continue
        camel, reading = known
        # Null stands for the default, also beside the other name of the field. Only `data` can be null itself.
        if each is None and camel != "data":
            continue
        made[camel] = each if reading is None else reading(each)
    return made


def _reading(type: inspect.Type) -> Reading | None:
    """Return how values of a type are read; None: they have one form."""
    match type:
        case inspect.StructType(cls=cls):
            return _struct(cls)
        case inspect.UnionType(types=types):
            return next((found for each in types if (found := _reading(each)) is not None), None)
        case inspect.VarTupleType(item_type=item):
            return None if (of_item := _reading(item)) is None else _each(of_item)
        case inspect.IntType():
            return _whole_number
        case inspect.EnumType():
            return _state
        case _:
            return None


def _each(reading: Reading) -> Reading:
    return lambda value: [reading(each) for each in cast("list[Json]", value)] if isinstance(value, list) else value


def _whole_number(value: Json) -> Json:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    # Ten digits and a sign: no number of A2A has more than 32 bits.
    if isinstance(value, str) and len(value) <= 11 and value.isascii() and value.removeprefix("-").isdecimal():
        return int(value)
    return value


def _state(value: Json) -> Json:
    return _named(value, _STATES)


def _role(value: Json) -> Json:
    return _named(value, _ROLES)


_NAMED = {"state": _state, "role": _role}
"""Fields that hold the name of a value, which a peer's later version may add to."""


def _named(value: Json, names: tuple[str, ...]) -> Json:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(names[value]) if is_number and 0 <= value < len(names) else value
