"""Describes what is wrong with an invalid value, field by field."""

from collections.abc import Iterable, Iterator
from enum import EnumType
from itertools import islice
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from remit.protocol.envelope import Json
from remit.protocol.errors import Problem
from remit.protocol.remit import NAME_RULE

# Enough to correct an envelope in one go; a hostile one may have a million wrong fields, with names of a megabyte.
MAX_PROBLEMS = 100


SHOWN = 100


MAX_LIKENESSES = 10


def path_of(steps: Iterable[str | int]) -> str:
    """Return the place of a value in readable form: `$.handoff.references[0]`."""
    return "$" + "".join(
        f".{step}" if isinstance(step, str) and step.isidentifier() and len(step) <= SHOWN else f"[{shown_step(step)}]"
        for step in steps
    )


def shown_step(step: str | int) -> str:
    """Return a peer's field name, shortened and escaped: messages about it go to logs and terminals."""
    return repr(step[:SHOWN] if isinstance(step, str) else step)


class WrongPart(NamedTuple):
    """An invalid part of a value: the steps that lead there, and what was expected."""

    place: tuple[str | int, ...]
    message: str


def wrong_fields(value: Json, kind: Any, place: tuple[str | int, ...] = ()) -> Iterator[WrongPart]:
    """Yield the place of each invalid field; msgspec itself stops at the first.

    A pattern is hard to read: `Meta(extra={"rule": …})` beside it says what it requires.
    """
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        within = _wrong_parts(value, kind, place)
        first = next(within, None)
        if first is None:
            message, _, _ = str(error).partition(" - at `")
            yield WrongPart(place, _plainer(message, value, kind))
        else:
            yield first
            yield from within


def problems_in(value: Json, kind: Any, place: tuple[str | int, ...] = ()) -> tuple[Problem, ...]:
    wrong = islice(wrong_fields(value, kind, place), MAX_PROBLEMS)
    return tuple(Problem(path_of(where), message) for where, message in wrong)


def _wrong_parts(value: Json, kind: Any, place: tuple[str | int, ...]) -> Iterator[WrongPart]:
    for option in options(kind):
        if isinstance(value, dict) and isinstance(option, type) and issubclass(option, Struct):
            yield from _wrong_members(cast("dict[str, Json]", value), option, place)
        elif isinstance(value, dict) and get_origin(option) is dict:
            for name, each in cast("dict[str, Json]", value).items():
                for kind_of_part, part in zip(get_args(option), (name, each), strict=True):
                    yield from wrong_fields(part, kind_of_part, (*place, name))
        elif isinstance(value, list) and get_origin(option) in (tuple, frozenset):
            for index, each in enumerate(cast("list[Json]", value)):
                yield from wrong_fields(each, get_args(option)[0], (*place, index))


def _wrong_members(value: dict[str, Json], kind: type[Struct], place: tuple[str | int, ...]) -> Iterator[WrongPart]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    unknown = (name for name in value if name not in fields) if kind.__struct_config__.forbid_unknown_fields else ()
    for number, name in enumerate(unknown):
        # Similarity is costly to compute, and for a few misspelled fields this is enough.
        near = did_you_mean(name, fields) if number < MAX_LIKENESSES else ""
        hint = near or f"; known fields: {', '.join(sorted(fields))}"
        yield WrongPart((*place, name), f"unknown field{hint}")
    for name, field in fields.items():
        if name in value:
            yield from wrong_fields(value[name], field.type, (*place, name))
        elif field.required:
            yield WrongPart((*place, name), "required field is missing")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests similar names; empty if there are none."""
    from difflib import get_close_matches  # only for a mistake, and large

    near = get_close_matches(name[:SHOWN], list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _plainer(message: str, value: Json, kind: Any) -> str:
    """Return msgspec's message about a value, in words that help to correct it."""
    if "matching regex" in message or message.startswith(("Expected `str", "Expected `bytes", "Invalid base64")):
        rules = (meta.extra["rule"] for meta in metas(kind) if meta.extra and "rule" in meta.extra)
        return next(rules, NAME_RULE if "matching regex" in message else message)
    if isinstance(value, str) and "enum value" in message:
        known = [str(choice) for option in options(kind) for choice in _choices(option)]
        return f"{shown_step(value)} is not one of {', '.join(known)}{did_you_mean(value, known)}"
    return message


def _choices(option: Any) -> Iterable[Any]:
    if get_origin(option) is Literal:
        return get_args(option)
    return option if isinstance(option, EnumType) else ()


def options(kind: Any) -> Iterator[Any]:
    """Return the types that *kind* allows, without their annotations."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        for each in get_args(kind):
            yield from options(each)
    elif origin is Annotated:
        yield from options(get_args(kind)[0])
    else:
        yield kind


def metas(kind: Any) -> Iterator[Meta]:
    """Return the annotations of *kind* and of the types that it allows."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from (each for each in kind.__metadata__ if isinstance(each, Meta))
    if origin in (Annotated, Union, UnionType):
        for each in get_args(kind):
            yield from metas(each)
