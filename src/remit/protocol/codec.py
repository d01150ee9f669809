"""Between bytes and envelopes: strict to read, canonical to write, and able to read the two versions before."""

import hashlib
import json as _plain_json
import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Struct

from remit.protocol.envelope import VERSION, Json, Request, Response
from remit.protocol.errors import Code, Fault, Problem, RemitError, fault
from remit.protocol.remit import MAX_INTEGER

# An envelope carries a task and its context, not a data set: those travel by reference.
MAX_BYTES = 4 * 1024 * 1024
MAX_NESTING = 64

T = TypeVar("T")
E = TypeVar("E", Request, Response)

_encoder = msgspec.json.Encoder(order="deterministic")
_untyped = msgspec.json.Decoder()


def encode(value: object) -> bytes:
    """Return the canonical JSON of an envelope or any value in it: equal values give equal bytes."""
    return _encoder.encode(value)


def text_of(value: Json) -> str:
    """Return a result or input as a person would read it: text as it is, structure as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else encode(value).decode()


def digest(request: Request) -> bytes:
    """Return what identifies the content of a request: its body without budget, time, trace and id."""
    remit = request.remit
    # A session named after the run was not chosen by the sender, and the next attempt would have another.
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
    return hashlib.sha256(encode(body)).digest()


# ── versions ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Translate = Callable[[dict[str, Any]], dict[str, Any]]


class Step(Struct, frozen=True, kw_only=True):
    """How plain JSON objects of one version become those of the next, and back for a peer that speaks the older."""

    version: str
    upgrade: Translate
    downgrade: Translate


class Versions(Struct, frozen=True):
    """The versions this hub speaks, oldest first: it writes the last and reads the last three.

    A new version is one more step: `VERSIONS.then(Step(version="1.1", upgrade=…, downgrade=…))`.
    """

    first: str
    steps: tuple[Step, ...] = ()

    @property
    def current(self) -> str:
        return self.steps[-1].version if self.steps else self.first

    @property
    def readable(self) -> tuple[str, ...]:
        return (self.first, *(step.version for step in self.steps))[-3:]

    def then(self, step: Step) -> "Versions":
        """Return these versions with one more, which becomes the current one."""
        return Versions(self.first, (*self.steps, step))

    def upgrade(self, value: dict[str, Any], version: str) -> dict[str, Any]:
        """Return *value*, written in *version*, as the current version writes it."""
        for step in self._after(version):
            value = step.upgrade(value) | {"version": step.version}
        return value

    def downgrade(self, value: dict[str, Any], version: str) -> dict[str, Any]:
        """Return *value*, in the current version, as *version* writes it."""
        for step in reversed(self._after(version)):
            value = step.downgrade(value)
        return value | {"version": version}

    def _after(self, version: str) -> tuple[Step, ...]:
        names = [self.first, *(step.version for step in self.steps)]
        return self.steps[names.index(version) :]


VERSIONS = Versions(VERSION)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def decode_request(raw: bytes, versions: Versions = VERSIONS) -> Request:
    """Read a request, or raise a `RemitError` that names every wrong field."""
    return _decode_envelope(raw, Request, versions)


def decode_response(raw: bytes, versions: Versions = VERSIONS) -> Response:
    """Read a response, or raise a `RemitError` that names every wrong field."""
    return _decode_envelope(raw, Response, versions)


def encode_for(envelope: Request | Response, version: str, versions: Versions = VERSIONS) -> bytes:
    """Write an envelope for a peer that speaks *version*."""
    plain: dict[str, Any] = msgspec.to_builtins(envelope, str_keys=True)
    return encode(versions.downgrade(plain, version))


def decode(raw: bytes, kind: type[T], *, max_bytes: int = MAX_BYTES) -> T:
    """Read a value of *kind* strictly, or raise a `RemitError` that names every wrong field."""
    return _convert(_parse(raw, max_bytes), kind)


def checked(value: T, *, max_bytes: int = MAX_BYTES) -> T:
    """Return *value* as it would be after a journey over the wire, or raise a `RemitError` that names what is wrong.

    Structs do not check what they are made with; this does, and the copy shares nothing with the original.
    """
    kind = type(value)
    try:
        raw = msgspec.json.encode(value)
    except _UNWRITABLE as error:
        raise RemitError(_malformed(tuple(_unwritable_fields(value)))) from error
    _refuse_size(raw, max_bytes)
    try:
        copy = _decoder(kind).decode(raw)
    except msgspec.ValidationError as error:
        raise RemitError(_malformed(tuple(_wrong_fields(_untyped.decode(raw), kind, "$")))) from error
    differs = copy != value
    if differs or _LONG_NUMBER.search(raw) or raw.count(b"{") + raw.count(b"[") > MAX_NESTING:
        _refuse_ambiguity(raw)
    if differs:
        _refuse_unsayable(value)
    if isinstance(value, Request | Response) and (problems := tuple(_unprintable_names(value))):
        raise RemitError(_malformed(problems))
    return copy


_UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)


def _unwritable_fields(value: object, path: str = "$") -> Iterator[Problem]:
    """Say of each field that cannot be written as JSON where it is."""
    if isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from _unwritable_fields(getattr(value, name), f"{path}.{name}")
        return
    try:
        msgspec.json.encode(value)
    except _UNWRITABLE as error:
        # The text may hold what made the trouble: half a character, which no log could take.
        yield Problem(path, f"cannot be written as JSON: {str(error).encode(errors='replace').decode()[:200]}")


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _refuse_unsayable(value: object) -> None:
    """Refuse NaN and infinity, which are written as null; what else differs (tuples, keys) is a matter of form."""
    try:
        _plain_json.dumps(msgspec.to_builtins(value), allow_nan=False)
    except ValueError as error:
        raise RemitError(_malformed((Problem("$", "NaN and infinity cannot be written as JSON"),))) from error


def _decode_envelope(raw: bytes, kind: type[E], versions: Versions) -> E:
    value = _parse(raw, MAX_BYTES)
    if isinstance(value, dict) and "version" in value:
        value = cast("dict[str, Json]", value)
        version = value["version"]
        if version not in versions.readable:
            readable = ", ".join(versions.readable)
            raise RemitError(
                fault(Code.VERSION_UNSUPPORTED, f"version {version!r} is not spoken here; send one of: {readable}")
            )
        value = versions.upgrade(value, version)
    envelope = _convert(value, kind)
    if problems := tuple(_unprintable_names(envelope)):
        raise RemitError(_malformed(problems))
    return envelope


def _parse(raw: bytes, max_bytes: int) -> Json:
    _refuse_size(raw, max_bytes)
    try:
        value = _untyped.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemitError(_malformed((Problem("$", f"not valid JSON: {error}"),))) from error
    except RecursionError as error:
        raise RemitError(_TOO_DEEP) from error
    _refuse_ambiguity(raw)
    return value


def _refuse_size(raw: bytes, max_bytes: int) -> None:
    if len(raw) > max_bytes:
        raise RemitError(fault(Code.TOO_LARGE, f"there are {len(raw)} bytes; at most {max_bytes} are taken"))


def _convert(value: Json, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise RemitError(_malformed(tuple(_wrong_fields(value, kind, "$")))) from error


def _malformed(problems: tuple[Problem, ...]) -> Fault:
    fields = "field is" if len(problems) == 1 else "fields are"
    return fault(
        Code.MALFORMED_ENVELOPE,
        f"{len(problems)} {fields} wrong: " + ", ".join(each.path for each in problems),
        problems=problems,
    )


_TOO_DEEP = fault(Code.TOO_LARGE, f"the envelope is nested deeper than {MAX_NESTING} levels")

# Both patterns take every string whole, so that what stands inside one is never mistaken for structure.
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*+)"(\s*:)?', re.DOTALL)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"(?P<colon>\s*:)?|[\[\]{}]|-?\d{16,}+(?![.eE])', re.DOTALL)
_LONG_NUMBER = re.compile(rb"\d{16}")


def _refuse_ambiguity(raw: bytes) -> None:
    """Refuse valid JSON that two readers would read differently: duplicate keys, integers past 2**53, deep nesting."""
    # Nearly every envelope passes here: few brackets, no long number, and no key twice anywhere in it.
    if raw.count(b"{") + raw.count(b"[") <= MAX_NESTING and not _LONG_NUMBER.search(raw):
        keys = [text for text, colon in _STRING.findall(raw) if colon]
        if len(set(keys)) == len(keys) and not any(b"\\" in key for key in keys):
            return
    objects: list[set[str]] = []
    for token in _TOKEN.finditer(raw):
        match token[0][:1]:
            case b"{" | b"[":
                objects.append(set())
                if len(objects) > MAX_NESTING:
                    raise RemitError(_TOO_DEEP)
            case b"}" | b"]":
                objects.pop()
            case b'"':
                if token["colon"]:
                    _note_key(token[0][: -len(token["colon"])], objects[-1])
            case _:
                if abs(int(token[0])) > MAX_INTEGER:
                    raise RemitError(
                        _malformed((Problem("$", f"the integer {token[0].decode()} is past ±(2**53 - 1)"),))
                    )


def _note_key(quoted: bytes, seen: set[str]) -> None:
    key = str(_untyped.decode(quoted))
    if key in seen:
        raise RemitError(_malformed((Problem(key, "the key stands twice in one object"),)))
    seen.add(key)


def _wrong_fields(value: Json, kind: Any, path: str) -> Iterator[Problem]:
    """Say of each wrong field where it is; msgspec itself stops at the first."""
    inner = _struct_in(kind)
    if isinstance(inner, type) and isinstance(value, dict):
        yield from _wrong_members(cast("dict[str, Json]", value), inner, path)
    elif inner is not None and isinstance(value, list):
        (element,) = get_args(inner)[:1]
        for index, each in enumerate(cast("list[Json]", value)):
            yield from _check(each, element, f"{path}[{index}]")
    else:
        yield from _check(value, kind, path)


def _wrong_members(value: dict[str, Json], kind: type[Struct], path: str) -> Iterator[Problem]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name in value.keys() - fields.keys():
        near = get_close_matches(name, fields, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"known fields: {', '.join(sorted(fields))}"
        yield Problem(f"{path}.{name}", f"unknown field; {hint}")
    for name, field in fields.items():
        if name in value:
            yield from _check(value[name], field.type, f"{path}.{name}")
        elif field.required:
            yield Problem(f"{path}.{name}", "required field is missing")


def _check(value: Json, kind: Any, path: str) -> Iterator[Problem]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        if _struct_in(kind) is not None and isinstance(value, dict | list):
            yield from _wrong_fields(value, kind, path)
        else:
            message, _, place = str(error).partition(" - at `$")
            yield Problem(path + place.rstrip("`"), message)


def _struct_in(kind: Any) -> Any:
    """Return the Struct, or the tuple of Structs, that *kind* holds or allows."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return next((found for each in get_args(kind) if (found := _struct_in(each)) is not None), None)
    if origin is tuple:
        return kind if _struct_in(get_args(kind)[0]) is not None else None
    return kind if isinstance(kind, type) and issubclass(kind, Struct) else None


_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


def _unprintable_names(envelope: Request | Response) -> Iterator[Problem]:
    """Names end up in logs and terminals: one that could break a line there is refused."""
    names: dict[str, str | None] = {
        "id": envelope.id,
        "target": envelope.target,
        "run": envelope.run,
        "session": envelope.session,
    }
    if isinstance(envelope, Request):
        names |= {"origin": envelope.origin, "capability": envelope.capability, "parent": envelope.parent}
        names |= {"parent_session": envelope.parent_session, "remit.user": envelope.remit.user}
        names |= {f"remit.chain[{index}]": each for index, each in enumerate(envelope.remit.chain)}
    if _CONTROL.search("".join(name or "" for name in names.values())):
        yield from (
            Problem(f"$.{path}", "control characters are not allowed in a name")
            for path, name in names.items()
            if name and _CONTROL.search(name)
        )
