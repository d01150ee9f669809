"""How much text a value holds, counted only as far as it matters."""

from collections.abc import Collection
from enum import Enum
from typing import cast

from msgspec import Struct
from msgspec.structs import astuple

from remit.protocol.envelope import Answer, Call, Json, Request, Response
from remit.protocol.remit import MAX_INTEGER

# How many characters are examined in the event loop. Hostile text costs the detectors up to 3.5 ms for each thousand,
# and each is examined up to three times on its way: 40 ms of the 50 for which a loop may be blocked.
LIGHT = 4_096
# A short value costs the detectors as much as this many characters of a long one: up to 0.15 ms.
VALUE = 32
# How many are encoded, hashed or copied in the event loop, which costs up to 0.1 ms for each thousand. To wait for the
# thread beside it may cost as much as the examination of another user's request.
LIGHT_TO_ENCODE = 65_536
# The longest name of an agent; a longer one is validated.
_SHORT_NAME = 128
# The default of most fields of an envelope. CPython makes it once, so that it can be skipped without a look inside.
_NOTHING: tuple[Json, ...] = ()
# Made once: a union such as `int | float` is made anew each time, and a step of a workflow has 300 values.
_TEXTS = (str, bytes)
_NUMBERS = (int, float)
_SEVERAL = (list, tuple, frozenset)
_FEW = 16
_FLAT = frozenset({int, float, bool})


def is_light(*values: Json, most: int = LIGHT) -> bool:
    """Return whether JSON or envelopes hold little enough text to examine in the event loop."""
    if len(values) == 1 and type(given := values[0]) is dict:
        weight = _weight_of_few(given)  # pyright: ignore[reportUnknownArgumentType]
        if weight is not None:
            return weight <= most
    left = most
    rest: list[Json] = list(values)
    while rest:
        value = rest.pop()
        if value is None:
            continue
        left -= VALUE
        if isinstance(value, _TEXTS):
            left -= len(value)
        elif isinstance(value, Struct):
            rest += [each for each in astuple(value) if each is not None and each is not _NOTHING]
        elif isinstance(value, dict):
            # An agent's value is weighed before it is validated: its keys need not be texts.
            fields = cast("dict[object, Json]", value)
            left -= VALUE * len(fields)
            if left > 0:  # of a million names it is enough to know that they are too many
                left -= sum([len(name) for name in fields if isinstance(name, str)])
                rest += fields.values()
        elif isinstance(value, _NUMBERS):
            pass
        elif isinstance(value, _SEVERAL):
            several = cast("Collection[Json]", value)
            if VALUE * len(several) > left:
                return False
            rest += several
        else:
            return False  # a model or the like, not converted to JSON yet: its size is unknown
        if left < 0:
            return False
    return True


def _weight_of_few(fields: dict[str, Json]) -> int | None:
    """Return the weight of a few texts and numbers, as most tools are given: several times as fast as with a stack."""
    if len(fields) > _FEW:
        return None
    weight = VALUE + 2 * VALUE * len(fields)
    for name, value in fields.items():
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is str:
            weight += len(value)
        elif kind not in _FLAT:
            return None
        weight += len(name) if type(name) is str else len(str(name))
    return weight


def is_light_value(value: object) -> bool:
    """Return whether a value of any type, such as a model, is small enough to convert in the event loop."""
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
    """Return the contents of a container or a model; nothing for a number, a date, or the like."""
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


def texts_of_request(request: Request) -> tuple[Json, ...]:
    """Return the texts of a request, without its route and the numbers of its remit."""
    return (
        request.objective,
        request.input,
        request.handoff,
        request.context,
        request.view,
        request.hints,
        request.reason,
        request.files or None,
        request.remit.tools if isinstance(request.remit.tools, dict) else None,
    )


def is_light_request(request: Request, most: int = LIGHT) -> bool:
    """Return whether a request may be examined in the event loop, or encoded there (`LIGHT_TO_ENCODE`)."""
    given, limits = request.input, isinstance(request.remit.tools, dict)
    # Most requests have only an objective and a text.
    if not (
        limits or request.handoff or request.context or request.view or request.hints or request.reason or request.files
    ):
        if given is None or type(given) is str:
            return len(request.objective) + (0 if given is None else len(given)) <= most
        return is_light(given, most=most - len(request.objective))
    return is_light(*texts_of_request(request), most=most)


def is_light_response(response: Response) -> bool:
    """Return whether a response may be examined in the event loop."""
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
        or response.files
        or response.findings
    ):
        return result is None or len(result) <= LIGHT
    return is_light(response)


def is_light_call(call: Call) -> bool:
    """Return whether a call, which may be invalid, may be validated in the event loop."""
    objective, given = call.objective, call.input
    # Examining every field costs as much as ten guards, and most calls have only a text or two.
    if (
        type(objective) is str
        and (given is None or type(given) is str)
        and not (call.handoff or call.context or call.hints or call.files)
    ):
        return len(objective) + (0 if given is None else len(given)) <= LIGHT
    return is_light(call)


def is_short_text(call: Call) -> bool:
    """Return whether a call is a short text for a named agent and sets nothing else besides its tokens.

    Most calls are, and they are recognised faster than they could be validated: such a call is valid and light.
    """
    target, objective, tokens = call.target, call.objective, call.max_tokens
    return (
        type(target) is str
        and type(objective) is str
        and (tokens is None or (type(tokens) is int and 0 <= tokens <= MAX_INTEGER))
        and 0 < len(target) <= _SHORT_NAME
        and len(objective) <= LIGHT
        and target.isprintable()
        and (target + objective).isascii()
        and call == Call(target=target, objective=objective, max_tokens=tokens)
    )


def is_short_text_answer(answer: Answer, max_bytes: int) -> bool:
    """Return whether an answer is only a short text: most are, and such an answer is valid and light."""
    result = answer.result
    return (
        type(result) is str
        and len(result) <= LIGHT
        and len(result) < max_bytes
        and result.isascii()
        and answer == Answer(result)
    )


def is_light_answer(answer: Answer) -> bool:
    """Return whether an answer, which may be invalid, may be validated in the event loop."""
    result = answer.result
    if (result is None or type(result) is str) and answer == Answer(result):
        return result is None or len(result) <= LIGHT
    return is_light(answer)
