"""Reads a peer's answer as far as it can be read, and warns of the rest, so that no finished work is lost."""

import json
from collections.abc import Mapping
from enum import EnumType
from math import isfinite
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.codec import MAX_BYTES, VERSIONS, Versions, decode, decode_envelope, encode, malformed
from remit.protocol.envelope import Json, Response, Usage
from remit.protocol.errors import Code, RemitError
from remit.protocol.problems import metas, options, path_of, problems_in
from remit.protocol.remit import MAX_INTEGER
from remit.protocol.typed import UNWRITABLE

T = TypeVar("T")
Place = tuple[str | int, ...]

# An answer with more than this is in another protocol: a longer list helps nobody.
MAX_WARNINGS = 20
_MAX_WARNING = 300


def decode_response(raw: bytes, versions: Versions = VERSIONS) -> Response:
    """Read a response, with a warning for each part that cannot be read; a `RemitError` if no outcome is left."""
    try:
        return decode_envelope(raw, Response, versions)
    except RemitError as error:
        if error.fault.code is not Code.MALFORMED_ENVELOPE:
            raise
    value, warnings = parse(raw)
    if isinstance(value, dict) and isinstance(version := cast("dict[str, Json]", value).get("version"), str):
        value = versions.upgrade(cast("dict[str, Json]", value), versions.spoken(version))
    response, more = read_generously(value, Response)
    if any(each.startswith("$.usage") for each in more):
        response = replace(response, usage=Usage(estimated=True))
    return with_warnings(response, (*warnings, *more))


def with_warnings(response: Response, warnings: tuple[str, ...]) -> Response:
    """Return a response with further warnings."""
    return replace(response, warnings=(*response.warnings, *warnings)) if warnings else response


def parse(raw: bytes, *, max_bytes: int = MAX_BYTES) -> tuple[Json, tuple[str, ...]]:
    """Return a peer's JSON, and warnings; a `RemitError` if it is too large or none.

    As JavaScript does, the last of equal keys counts; a number that is too long becomes text, and NaN null. What
    follows the value is ignored.
    """
    try:
        return decode(raw, object, max_bytes=max_bytes), ()
    except RemitError as error:
        if error.fault.code is Code.TOO_LARGE:
            raise
        try:
            value, _ = _lenient.raw_decode(raw.decode("utf-8-sig").strip())
            plain = decode(encode(value), object, max_bytes=max_bytes)
        except (ValueError, RecursionError, *UNWRITABLE):
            raise error from None
        return plain, tuple(f"{each.path}: {each.message}" for each in error.fault.problems if each.path != "$")


def _number(text: str) -> int | str:
    # No shorter number is past the limit; to make longer ones from text takes quadratic time.
    return int(text) if len(text) <= 17 and abs(int(text)) <= MAX_INTEGER else text


def _fraction(text: str) -> float | None:
    number = float(text)
    return number if isfinite(number) else None


_lenient = json.JSONDecoder(parse_int=_number, parse_float=_fraction, parse_constant=lambda _: None)


def read_generously(
    value: Json, kind: type[T], *, blanks: Mapping[str, Json] | None = None, place: Place = ()
) -> tuple[T, tuple[str, ...]]:
    """Return plain JSON as a value of *kind*, and warnings about what is left out.

    *blanks* are used for required fields that are missing. A `RemitError` names the invalid fields if nothing is left.
    """
    try:
        return msgspec.convert(value, kind), ()
    except msgspec.ValidationError:
        pass
    reading = _Reading(place, dict(blanks or {}))
    made = reading.read(value, kind, place)
    if made is _UNREADABLE:
        raise RemitError(malformed(problems_in(value, kind, place)))
    return msgspec.convert(made, kind), tuple(reading.warnings[:MAX_WARNINGS])


# No JSON, so that it is none of a peer's values.
_UNREADABLE: Json = object()


class _Reading:
    """One value as it is read, with the warnings about it."""

    def __init__(self, root: Place, blanks: dict[str, Json]) -> None:
        self._root = root
        self._blanks = blanks
        self.warnings: list[str] = []

    def read(self, value: Json, kind: Any, place: Place) -> Json:
        """Return what can be read of a value, as JSON that is valid."""
        if _fits(value, kind):
            return value
        before = len(self.warnings)
        for option in options(kind):
            made = self._as(value, option, place)
            if made is not _UNREADABLE and _fits(made, kind):
                return made
            del self.warnings[before:]
        problem = problems_in(value, kind, place)[0]
        stand_in = next(
            (meta.extra["else"] for meta in metas(kind) if meta.extra and "else" in meta.extra), _UNREADABLE
        )
        how = "left out" if stand_in is _UNREADABLE else f"read as {stand_in}"
        self._warn(f"{problem.path} was {how}: {problem.message}")
        return stand_in

    def _warn(self, text: str) -> None:
        self.warnings.append(text[:_MAX_WARNING])

    def _as(self, value: Json, option: Any, place: Place) -> Json:
        origin = get_origin(option)
        if isinstance(value, dict):
            fields = cast("dict[str, Json]", value)
            if isinstance(option, type) and issubclass(option, Struct):
                return self._members(fields, option, place)
            if origin is dict:
                kind = get_args(option)[1]
                read = {name: self.read(each, kind, (*place, name)) for name, each in fields.items()}
                return {name: each for name, each in read.items() if each is not _UNREADABLE}
        if origin in (tuple, frozenset):
            items = cast("list[Json]", value if isinstance(value, list) else [value])
            listed = [self.read(each, get_args(option)[0], (*place, index)) for index, each in enumerate(items)]
            kept = [each for each in listed if each is not _UNREADABLE]
            return kept if kept or isinstance(value, list) else _UNREADABLE
        return _converted(value, option)

    def _members(self, value: dict[str, Json], kind: type[Struct], place: Place) -> Json:
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        spelled = {_letters(name): name for name in fields}
        made: dict[str, Json] = {}
        for name, each in value.items():
            known = name if name in fields else spelled.get(_letters(name))
            if known is None:
                if kind.__struct_config__.forbid_unknown_fields:
                    self._warn(f"{path_of((*place, name))} was left out: unknown field")
                continue
            # Null stands for a field that is absent. What is spelled as it should be counts more.
            if (known != name and known in value) or (each is None and not _fits(None, fields[known].type)):
                continue
            read = self.read(each, fields[known].type, (*place, name))
            if read is not _UNREADABLE:
                made[known] = read
        if place == self._root:
            for name in self._blanks.keys() - made.keys():
                self._warn(f"{path_of((*place, name))} is missing")
            made = self._blanks | made
        return made if all(name in made for name, field in fields.items() if field.required) else _UNREADABLE


def _letters(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _fits(value: Json, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _converted(value: Json, option: Any) -> Json:
    """Return a value in the form that *option* has in JSON, if it says the same in another one."""
    if option is str and not isinstance(value, str | None):
        return encode(value).decode()
    if isinstance(value, float) and option is int and isfinite(value):
        return int(value)
    if isinstance(value, str):
        choices = get_args(option) if get_origin(option) is Literal else option if isinstance(option, EnumType) else ()
        for choice in choices:
            if _letters(str(choice)) == _letters(value):
                return str(choice)
        if option in (int, float, bool):
            try:
                return msgspec.convert(value, option, strict=False)
            except msgspec.ValidationError:
                pass
    return _UNREADABLE
