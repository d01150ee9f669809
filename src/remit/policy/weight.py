"""How much there is to look through in what is said, counted no further than matters."""

from collections.abc import Collection
from enum import Enum
from typing import cast

from msgspec import Struct

from remit.protocol.envelope import Answer, Call, Json, Request, Response

# As much as is looked through in the event loop, in characters. Hostile text costs the detectors up to 3.5 ms for each
# thousand, and each is looked through up to three times on its way: 40 ms, of the 50 for which a loop may be held.
LIGHT = 4_096
# A short value costs the detectors as much as so many characters of a long one: up to 0.15 ms.
VALUE = 32


def is_light(*values: Json) -> bool:
    """Say whether so little is said in JSON or envelopes that it may be looked through in the event loop."""
    left = LIGHT
    rest: list[Json] = list(values)
    while rest:
        value = rest.pop()
        if value is None:
            continue
        left -= VALUE
        if isinstance(value, str):
            left -= len(value)
        elif isinstance(value, dict):
            # What an agent says is weighed before it is checked: its names need not be texts.
            fields = cast("dict[object, Json]", value)
            left -= VALUE * len(fields)
            if left > 0:  # of a million names it is enough to know that they are too many
                left -= sum([len(name) for name in fields if isinstance(name, str)])
                rest += fields.values()
        elif isinstance(value, list | tuple | frozenset):
            several = cast("Collection[Json]", value)
            if VALUE * len(several) > left:
                return False
            rest += several
        elif isinstance(value, Struct):
            rest += [getattr(value, name) for name in value.__struct_fields__]
        elif not isinstance(value, int | float):
            return False  # a model or the like, which is yet to be written as JSON: nobody knows how much it holds
        if left < 0:
            return False
    return True


def is_light_value(value: object) -> bool:
    """Say whether a value of any type, a model for one, holds so little that it may be converted in the event loop."""
    left = LIGHT
    rest: list[object] = [value]
    while rest:
        each = rest.pop()
        left -= VALUE
        if isinstance(each, str | bytes | bytearray):
            left -= len(each)
        else:
            parts = _parts_of(each)
            if VALUE * len(parts) > left:
                return False
            rest += parts
        if left < 0:
            return False
    return True


def _parts_of(value: object) -> Collection[object]:
    """Return what a container or a model holds; nothing for a number, a date, or the like."""
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        return (*fields, *fields.values())
    if isinstance(value, list | tuple | set | frozenset):
        return cast("Collection[object]", value)
    if isinstance(value, Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, type | Enum):
        return ()
    held: list[object] = list(getattr(value, "__dict__", {}).values())
    for each in type(value).__mro__:
        slots: str | Collection[str] = each.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in _NO_FIELDS and hasattr(value, name):
                held.append(getattr(value, name))
    return held


_NO_FIELDS = frozenset({"__dict__", "__weakref__"})


def said_in(request: Request) -> tuple[Json, ...]:
    """Return what a request says, without its route and its remit."""
    return (
        request.objective,
        request.input,
        request.handoff,
        request.context,
        request.view,
        request.hints,
        request.reason,
    )


def is_light_request(request: Request) -> bool:
    """Say whether a request may be looked through in the event loop."""
    given = request.input
    # Most requests say no more than an objective and a text.
    if (given is None or type(given) is str) and not (
        request.handoff or request.context or request.view or request.hints or request.reason
    ):
        return len(request.objective) + (0 if given is None else len(given)) <= LIGHT
    return is_light(*said_in(request))


def is_light_response(response: Response) -> bool:
    """Say whether a response may be looked through in the event loop."""
    result = response.result
    if (result is None or type(result) is str) and not (
        response.fault
        or response.summary
        or response.artifacts
        or response.new_facts
        or response.metadata
        or response.warnings
        or response.finished
        or response.unfinished
        or response.sources
    ):
        return result is None or len(result) <= LIGHT
    return is_light(response)


def is_light_call(call: Call) -> bool:
    """Say whether a call, which need not be what it says it is, may be checked in the event loop."""
    said, given = call.objective, call.input
    # To look at every field costs as much as ten guards, and most calls say no more than a text or two.
    if type(said) is str and (given is None or type(given) is str) and not (call.handoff or call.context or call.hints):
        return len(said) + (0 if given is None else len(given)) <= LIGHT
    return is_light(call)


def is_light_answer(answer: Answer) -> bool:
    """Say whether an answer, which need not be what it says it is, may be checked in the event loop."""
    result = answer.result
    if (result is None or type(result) is str) and answer == Answer(result):
        return result is None or len(result) <= LIGHT
    return is_light(answer)
