"""Encoding and decoding of envelopes: strict to read, canonical to write, with the two versions before."""

import hashlib
import json as _plain_json
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from math import isfinite
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct, inspect

from remit.protocol.envelope import VERSION, Json, Request, Response
from remit.protocol.errors import Code, Fault, Problem, RemitError, fault
from remit.protocol.problems import MAX_PROBLEMS, path_of, problems_in, shown_step
from remit.protocol.remit import MAX_INTEGER
from remit.protocol.submission import Submission
from remit.protocol.typed import UNWRITABLE, unwritable, write, written


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


# An envelope carries a task and its context, not a data set: data sets travel by reference.
MAX_BYTES = 4 * 1024 * 1024
MAX_NESTING = 64
# A table of a thousand rows with fifty columns. Each value is examined by itself, which costs up to 0.2 ms.
MAX_VALUES = 50_000

T = TypeVar("T")
E = TypeVar("E", Request, Response, Submission)

_encoder = msgspec.json.Encoder(order="deterministic", enc_hook=written)
_untyped = msgspec.json.Decoder()


def encode(value: object) -> bytes:
    """Return the canonical JSON of an envelope or any value in it: equal values give equal bytes."""
    return _encoder.encode(value)


def text_of(value: Json) -> str:
    """Return a result or input as readable text: text as it is, structure as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else encode(value).decode()


def digest(request: Request) -> bytes:
    """Return a digest of a request's content: its body without budget, time, trace and id."""
    remit = request.remit
    # The sender did not choose a session named after the run, and the next attempt would have another.
    session = None if request.session == request.run else request.session
    body = (
        request.origin,
        request.target,
        request.objective,
        request.input,
        request.capability,
        session,
        request.parent_session,
        request.handoff,
        request.context,
        request.hints,
        remit.tools,
        remit.targets,
        remit.may_delegate,
    )
    return hashlib.sha256(encode((*body, request.files) if request.files else body)).digest()


# ── versions ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Translate = Callable[[dict[str, Any]], dict[str, Any]]


class VersionStep(Struct, frozen=True, kw_only=True):
    """Converts plain JSON objects of one version to the next, and back for a peer with the older version."""

    version: str
    upgrade: Translate
    downgrade: Translate


class Versions(Struct, frozen=True):
    """The versions of this hub, oldest first: it writes the last and reads the last three.

    A new version is one more step: `VERSIONS.then(Step(version="1.1", upgrade=…, downgrade=…))`.
    """

    first: str
    steps: tuple[VersionStep, ...] = ()

    @property
    def current(self) -> str:
        return self.steps[-1].version if self.steps else self.first

    @property
    def readable(self) -> tuple[str, ...]:
        return (self.first, *(step.version for step in self.steps))[-3:]

    def then(self, step: VersionStep) -> "Versions":
        """Return these versions with one more, which becomes the current one."""
        return Versions(self.first, (*self.steps, step))

    def spoken(self, version: str) -> str:
        """Return *version* if it is supported; else raise a `RemitError` that names the supported ones."""
        if version in self.readable:
            return version
        readable = ", ".join(self.readable)
        raise RemitError(
            fault(Code.VERSION_UNSUPPORTED, f"version {shown_step(version)} is not supported; supported: {readable}")
        )

    def upgrade(self, value: dict[str, Any], version: str) -> dict[str, Any]:
        """Return *value*, written in *version*, in the current version."""
        for step in self._after(version):
            value = step.upgrade(value) | {"version": step.version}
        return value

    def downgrade(self, value: dict[str, Any], version: str) -> dict[str, Any]:
        """Return *value*, in the current version, in *version*."""
        for step in reversed(self._after(version)):
            value = step.downgrade(value)
        return value | {"version": version}

    def _after(self, version: str) -> tuple[VersionStep, ...]:
        names = [self.first, *(step.version for step in self.steps)]
        return self.steps[names.index(version) :]


VERSIONS = Versions(VERSION)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def decode_request(raw: bytes, versions: Versions = VERSIONS) -> Request:
    """Read a request, or raise a `RemitError` that names every invalid field."""
    return decode_envelope(raw, Request, versions)


def decode_submission(raw: bytes, versions: Versions = VERSIONS) -> Submission:
    """Read a submission from elsewhere, or raise a `RemitError` that names every invalid field."""
    return decode_envelope(raw, Submission, versions)


def encode_for(envelope: Request | Response, version: str, versions: Versions = VERSIONS) -> bytes:
    """Write an envelope for a peer with *version*, or raise a `RemitError` if that is not supported."""
    plain: dict[str, Any] = msgspec.to_builtins(envelope, str_keys=True)
    return encode(versions.downgrade(plain, versions.spoken(version)))


def decode(raw: bytes, kind: type[T], *, max_bytes: int = MAX_BYTES) -> T:
    """Read a value of *kind* strictly, or raise a `RemitError` that names every invalid field."""
    return convert(_parse(raw, max_bytes), kind)


def checked(value: T, *, max_bytes: int = MAX_BYTES) -> T:
    """Return *value* as it would arrive over the wire, or raise a `RemitError` that names what is invalid.

    Structs do not validate their arguments; this does, and the copy shares nothing with the original.
    """
    kind = type(value)
    raw = _encode(value)
    _refuse_size(raw, max_bytes)
    try:
        copy = _decoder(kind).decode(raw)
    except msgspec.ValidationError as error:
        raise RemitError(malformed(problems_in(_untyped.decode(raw), kind))) from error
    differs = copy != value
    if differs or _has_long_number(raw) or _many_brackets(raw):
        _refuse_ambiguity(raw)
    if differs:
        _refuse_unsayable(value)
    return copy


def plain(value: object) -> Json:
    """Return any value as plain JSON, or raise a `RemitError` that names what cannot be converted.

    Models, dataclasses and the like become objects; dates, UUIDs, decimals and enums become text or their value.
    """
    raw = _encode(value)
    copy = _untyped.decode(raw)
    differs = copy != value
    if differs or _has_long_number(raw):
        _refuse_ambiguity(raw)
    if differs:
        _refuse_unsayable(value)
    return copy


def _encode(value: object) -> bytes:
    try:
        return write(value)
    except UNWRITABLE as error:
        problems = tuple(islice(unwritable(value), MAX_PROBLEMS)) or (Problem("$", "cannot be written as JSON"),)
        raise RemitError(malformed(problems)) from error


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _refuse_unsayable(value: object) -> None:
    """Refuse NaN and infinity, which are written as null; other differences (tuples, keys) are only of form."""
    try:
        _plain_json.dumps(msgspec.to_builtins(value, enc_hook=written), allow_nan=False)
    except ValueError as error:
        raise RemitError(malformed(tuple(islice(unwritable(value), MAX_PROBLEMS)))) from error


def decode_envelope(raw: bytes, kind: type[E], versions: Versions) -> E:
    """Read an envelope strictly, also one of an older version."""
    _refuse_size(raw, MAX_BYTES)
    try:
        envelope: E = _decoder(kind).decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode_slowly(raw, kind, versions)
    if envelope.version != versions.current:
        return _decode_slowly(raw, kind, versions)
    _refuse_ambiguity(raw)
    return envelope


def _decode_slowly(raw: bytes, kind: type[E], versions: Versions) -> E:
    """Read an envelope of an older version, or an invalid one: then report every problem."""
    value = _parse(raw, MAX_BYTES)
    if isinstance(value, dict):
        value = cast("dict[str, Json]", value)
        # A version that is not a text is an invalid field like any other.
        if isinstance(version := value.get("version"), str):
            value = versions.upgrade(value, versions.spoken(version))
    return convert(value, kind)


def _parse(raw: bytes, max_bytes: int) -> Json:
    _refuse_size(raw, max_bytes)
    try:
        value = _untyped.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = f"not valid JSON: {error}" if raw.strip() else "the body is empty; send a JSON object"
        raise RemitError(malformed((Problem("$", what),))) from error
    except RecursionError as error:
        raise RemitError(_TOO_DEEP) from error
    _refuse_ambiguity(raw)
    return value


def _refuse_size(raw: bytes, max_bytes: int) -> None:
    if len(raw) > max_bytes:
        raise RemitError(fault(Code.TOO_LARGE, f"there are {len(raw)} bytes; at most {max_bytes} are taken"))
    refuse_many_values(raw)


def refuse_many_values(raw: bytes) -> None:
    """Raise a `RemitError` if JSON has too many values, counted without parsing it."""
    if len(raw) <= 2 * MAX_VALUES:
        return  # the shortest value is a digit followed by a comma
    whole = _without_escapes(raw)
    # Each value may have a name.
    many = whole.count(b'"') > 4 * MAX_VALUES
    if not many:
        outside = _outside_strings(whole)
        many = outside.count(b",") + outside.count(b"[") + outside.count(b"{") > MAX_VALUES
    if many:
        raise RemitError(
            fault(Code.TOO_LARGE, f"there are more than {MAX_VALUES} values, which is the most that is taken")
        )


def _without_escapes(raw: bytes) -> bytes:
    """Return JSON in which every quotation mark begins or ends a string."""
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"")


def _outside_strings(raw: bytes) -> bytes:
    """Return the text outside of strings, in JSON without escapes."""
    return b"".join(raw.split(b'"')[::2])


def convert(value: Json, kind: type[T], place: tuple[str | int, ...] = ()) -> T:
    """Return plain JSON as a value of *kind*, or raise a `RemitError` that names every invalid field from *place*."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise RemitError(malformed(problems_in(value, kind, place))) from error


def malformed(problems: tuple[Problem, ...]) -> Fault:
    """Return the fault of an envelope with these invalid fields."""
    if [each.path for each in problems] == ["$"]:
        return fault(
            Code.MALFORMED_ENVELOPE,
            f"the envelope is wrong: {problems[0].message}",
            problems=problems,
            suggestion="Correct it and send it again.",
        )
    fields = "field is" if len(problems) == 1 else "fields are"
    least = "at least " if len(problems) == MAX_PROBLEMS else ""
    return fault(
        Code.MALFORMED_ENVELOPE,
        f"{least}{len(problems)} {fields} wrong: " + ", ".join(each.path for each in problems),
        problems=problems,
        suggestion=_SHORTER if any(map(_is_too_long, problems)) else None,
    )


_SHORTER = (
    "Say in the objective what is to be done, and give the material as `input` "
    "(`--input @FILE` on the command line, as JSON)."
)


def _is_too_long(problem: Problem) -> bool:
    """Return whether an objective contains the material, which has a field of its own."""
    return problem.path.endswith(".objective") and "length <=" in problem.message


_TOO_DEEP = fault(Code.TOO_LARGE, f"the envelope is nested deeper than {MAX_NESTING} levels")

_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
# It matches every string whole, so that text inside one is never mistaken for structure. The digits of a fraction or an
# exponent are not an integer, and a match cannot begin in the middle of a number.
_TOKEN = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"(?P<colon>\s*:)?|[\[\]{},]|(?<![\d.eE+-])-?\d{16,}+(?![.eE])',
    re.DOTALL,
)
# Searching for this in bytes where every digit is a zero takes a tenth of the time of a pattern.
_LONG_NUMBER = b"0" * 16
_FIGURES_ALONE = bytes(b"0"[0] if byte in b"0123456789" else 0 for byte in range(256))


def _has_long_number(raw: bytes) -> bool:
    return _LONG_NUMBER in raw.translate(_FIGURES_ALONE)


def _refuse_ambiguity(raw: bytes) -> None:
    """Refuse valid JSON that two parsers would read differently: duplicate keys, integers past 2**53, deep nesting."""
    if _many_brackets(raw):
        _refuse_depth(raw)
    # Nearly every envelope passes here: Python's own parser reports the keys of each object, duplicates included.
    if not _has_long_number(raw) and _names_each_once(raw):
        return
    if problems := tuple(islice(_ambiguities(raw), MAX_PROBLEMS)):
        raise RemitError(malformed(problems))


def _names_each_once(raw: bytes) -> bool:
    # Another hub's envelope is canonical: read and written again, a duplicate key would be gone.
    if _untyped_again.encode(_untyped.decode(raw)) == raw:
        return True
    try:
        _plain_json.loads(raw, object_pairs_hook=_refuse_double)
    except _DoubleKey:
        return False
    return True


class _DoubleKey(Exception):
    """A key occurs twice in one object."""


_untyped_again = msgspec.json.Encoder()


def _refuse_double(pairs: list[tuple[str, Json]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _DoubleKey


def _refuse_depth(raw: bytes) -> None:
    """Refuse nesting past the limit: of the brackets alone, remove the innermost pairs, level by level."""
    brackets = _outside_strings(_without_escapes(raw)).translate(_ONE_KIND, _NO_BRACKETS)
    for _ in range(MAX_NESTING):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise RemitError(_TOO_DEEP)


def _many_brackets(raw: bytes) -> bool:
    return raw.count(b"{") + raw.count(b"[") > MAX_NESTING


def _ambiguities(raw: bytes) -> Iterator[Problem]:
    # For each open object or array: the keys seen in it, and the current key or index.
    seen: list[set[str]] = []
    place: list[str | int] = []
    for token in _TOKEN.finditer(raw):
        match token[0][:1]:
            case b"{" | b"[" as opening:
                seen.append(set())
                place.append("" if opening == b"{" else 0)
            case b"}" | b"]":
                seen.pop()
                place.pop()
            case b",":
                here = place[-1]
                place[-1] = here if isinstance(here, str) else here + 1
            case b'"':
                if token["colon"]:
                    key = str(_untyped.decode(token[0][: -len(token["colon"])]))
                    place[-1] = key
                    if key in seen[-1]:
                        yield Problem(path_of(place), "duplicate key in one object")
                    seen[-1].add(key)
            case _:
                if abs(int(token[0])) > MAX_INTEGER:
                    yield Problem(path_of(place), "the integer is past ±(2**53 - 1); send it as text")
