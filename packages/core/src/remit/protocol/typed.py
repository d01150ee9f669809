"""JSON as values of a declared type, and the JSON Schema of that type.

A type is anything that msgspec reads (dataclasses, TypedDicts, Structs, attrs classes, enums, containers of them) or
pydantic does. Pydantic is never imported here: a program with a pydantic type has loaded it. The other way round, each
such value has a form in JSON.
"""

import math
import re
import sys
from collections.abc import Iterator, Mapping
from enum import Enum, EnumType
from functools import lru_cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.remit import MAX_INTEGER

T = TypeVar("T")

JsonSchema = dict[str, Any]

# The message for a missing field.
MISSING = "is required but missing"
# Enough to correct a value in one go.
MAX_PROBLEMS = 20
# The packages whose types and constraints only pydantic understands.
_PYDANTIC = frozenset({"pydantic", "annotated_types"})


class Member(NamedTuple):
    """A field of a class, or a parameter of a function: its type, and its default."""

    kind: Any
    required: bool
    default: Any = None


class TypeMismatch(Exception):
    """A value does not have the declared type: each invalid field, with what was expected there."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def error(self, code: Code, message: str) -> RemitError:
        """Return it as the error of a request or response."""
        return RemitError(fault(code, message, problems=self.problems))


# Most arguments of tools: to look at their types more closely would cost ten times as much as to take them.
_AS_THEY_ARE = frozenset({str, int, float, bool})


def read_as(value: Any, kind: type[T], path: str = "$") -> T:
    """Return plain JSON as a value of *kind*, or raise `TypeMismatch` with every invalid field from *path* on."""
    if kind is object:
        return value
    if type(value) is kind and kind in _AS_THEY_ARE:
        return cast("T", value)
    if _needs_pydantic(kind):
        try:
            return _adapter(kind).validate_json(write(value))
        except ValueError as error:
            raise TypeMismatch(_of_pydantic(error, value, path)) from None
    if alternatives := _alternatives(kind):
        return _read_as_one_of(value, alternatives, path)
    try:
        return msgspec.convert(value, kind, str_keys=True, dec_hook=_read_model)
    except msgspec.ValidationError:
        problems = tuple(each for each, _ in zip(_wrong(value, kind, path), range(MAX_PROBLEMS), strict=False))
        raise TypeMismatch(problems) from None


def name_of(kind: object) -> str:
    """Return the name of a type for a sentence, without its modules."""
    if get_origin(kind) is Annotated:
        return name_of(get_args(kind)[0])
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else _MODULES.sub("", str(kind))


_MODULES = re.compile(r"(?:[\w<>]+\.)+")


def declares_fields(kind: object) -> bool:
    """Return whether a type is, or contains, a class of named fields or an enum: more than JSON's own types."""
    if _needs_pydantic(kind) or any(hasattr(kind, mark) for mark in _MARKS):
        return True
    return any(declares_fields(each) for each in get_args(kind))


_MARKS = (
    "__struct_fields__",
    "__dataclass_fields__",
    "__attrs_attrs__",
    "__total__",  # TypedDict
    "_fields",  # NamedTuple
    "__members__",  # enums
)


# ── schemas ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_type(value: object) -> bool:
    """Return whether a value is a type, as in an annotation: a class, `list[Order]`, `Order | None`."""
    return isinstance(value, type) or get_origin(value) is not None


def schema_of(kind: Any, *, written: bool = False) -> JsonSchema:
    """Return the JSON Schema of a type, or raise a `TypeError`; *written* is its source form, if that differs."""
    registry = _Definitions("serialization" if written else "validation")
    if _needs_pydantic(kind):
        return registry.complete(registry.of_model(kind))
    if alternatives := _alternatives(kind):
        each, definitions = msgspec.json.schema_components(alternatives, schema_hook=registry.of_model)
        return registry.complete({"anyOf": list(each), "$defs": definitions})
    return registry.complete(_root_inlined(msgspec.json.schema(kind, schema_hook=registry.of_model)))


def object_schema(title: str, members: Mapping[str, Member]) -> JsonSchema:
    """Return the JSON Schema of an object with these members and no others, or raise a `TypeError`."""
    registry, models = _Definitions("validation"), dict[Any, Any]()
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for name, (kind, required, default) in members.items():
        if _needs_pydantic(kind):
            # msgspec accepts an unknown class, but nothing else of that sort.
            stand_in = type(name, (), {})
            models[stand_in], kind = kind, stand_in
        shown = default if isinstance(default, _SHOWN) else msgspec.field(default_factory=lambda: None)
        fields.append((name, kind) if required else (name, kind, shown))
    made = msgspec.defstruct(title, fields, kw_only=True, forbid_unknown_fields=True)
    schema = msgspec.json.schema(made, schema_hook=lambda kind: registry.of_model(models.get(kind, kind)))
    return registry.complete(_root_inlined(schema))


# Defaults that a schema can express.
_SHOWN = (str, int, float, bool, type(None), Enum)


class _Definitions:
    """The definitions of the pydantic types within one schema, which has them all at its root."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._owners: dict[str, object] = {}
        self._found: JsonSchema = {}

    def of_model(self, kind: Any) -> JsonSchema:
        if kind is object:
            return {"description": "any value"}  # an empty one counts as unknown
        if not _needs_pydantic(kind):
            raise TypeError(f"`{name_of(kind)}` cannot be written as JSON; use text, a model or a dataclass")
        name = getattr(kind, "__name__", "Model")
        # Two models may have the same name.
        prefix = next(each for each in _numbered(name) if self._owners.setdefault(each, kind) is kind)
        try:
            schema: JsonSchema = _adapter(kind).json_schema(mode=self._mode, ref_template=f"#/$defs/{prefix}.{{model}}")
        except Exception as error:
            raise TypeError(f"{name_of(kind)}: {str(error).partition(chr(10))[0]}") from error
        self._found |= {f"{prefix}.{each}": content for each, content in schema.pop("$defs", {}).items()}
        return schema

    def complete(self, schema: JsonSchema) -> JsonSchema:
        definitions = {**schema.get("$defs", {}), **self._found}
        return {**schema, "$defs": definitions} if definitions else schema


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}{number}" for number in range(2, sys.maxsize))


def _root_inlined(schema: JsonSchema) -> JsonSchema:
    """Return a schema whose root is the type itself instead of a reference, with the other definitions beside it."""
    if "$ref" not in schema:
        return schema
    definitions: JsonSchema = dict(schema["$defs"])
    root = definitions.pop(schema["$ref"].rpartition("/")[2])
    if schema["$ref"] in str(schema["$defs"]):
        definitions = schema["$defs"]  # it refers to itself
    return root | ({"$defs": definitions} if definitions else {})


# ── unions of classes ─────────────────────────────────────────────────────────────────────────────────────────────────


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union that msgspec does not read, as of two dataclasses; nothing for any other type."""
    is_union = get_origin(kind) in (Union, UnionType)
    return get_args(kind) if is_union and not _is_decodable(kind) else ()


@lru_cache(maxsize=256)
def _is_decodable(union: Any) -> bool:
    try:
        msgspec.json.Decoder(union)
    except TypeError:
        return False
    return True


def _read_as_one_of(value: Any, kinds: tuple[Any, ...], path: str) -> Any:
    """Return a value as the first type that it fits, starting with those that know most of its fields."""
    given = cast("dict[str, Any]", value).keys() if isinstance(value, dict) else frozenset[str]()
    known = [_members(kind).keys() for kind in kinds]
    fewest = min(len(given - names) for names in known)
    # A type that does not know all fields would drop them; of the others, the most similar first.
    likely = [
        (len(names - given), kind) for names, kind in zip(known, kinds, strict=True) if len(given - names) == fewest
    ]
    nearest: tuple[Problem, ...] = ()
    for _, kind in sorted(likely, key=lambda each: each[0]):
        try:
            return read_as(value, kind, path)
        except TypeMismatch as error:
            named = tuple(Problem(each.path, f"as {name_of(kind)}: {each.message}") for each in error.problems)
            nearest = min(nearest or named, named, key=len)
    raise TypeMismatch(nearest)


# ── pydantic ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _needs_pydantic(kind: object) -> bool:
    if hasattr(kind, "__pydantic_validator__") and isinstance(kind, type):
        return True
    owner = kind if isinstance(kind, type) else type(kind)
    return owner.__module__.partition(".")[0] in _PYDANTIC or any(_needs_pydantic(each) for each in get_args(kind))


@lru_cache(maxsize=256)
def _adapter(kind: Any) -> Any:
    return sys.modules["pydantic"].TypeAdapter(kind)


def _read_model(kind: type[Any], value: Any) -> Any:
    """Read a pydantic type within one of msgspec's, or anything."""
    if kind is object:
        return value
    if not _needs_pydantic(kind):
        raise TypeError(f"a `{name_of(kind)}` cannot be read from JSON")
    return _adapter(kind).validate_json(write(value))


def _of_pydantic(error: ValueError, value: Any, path: str) -> tuple[Problem, ...]:
    list_errors: Any = getattr(error, "errors", None)
    if list_errors is None:
        return (Problem(path, str(error)),)
    problems: list[Problem] = []
    for each in list_errors(include_url=False, include_context=False, include_input=False)[:MAX_PROBLEMS]:
        is_missing = each["type"] == "missing"
        place, options = _locate(value, each["loc"], path, is_missing=is_missing)
        message = MISSING if is_missing else str(each["msg"]).removeprefix("Value error, ")
        problems.append(Problem(place, "".join(f"as {option}: " for option in options) + message))
    return tuple(problems)


def _locate(value: Any, loc: tuple[str | int, ...], path: str, *, is_missing: bool) -> tuple[str, list[str]]:
    """Return the path of a pydantic error, and the union members it was read as."""
    options: list[str] = []
    for index, name in enumerate(loc):
        members: dict[str | int, Any] = {}
        if isinstance(value, dict):
            members = cast("dict[str | int, Any]", value)
        elif isinstance(value, list):
            members = dict(enumerate(cast("list[Any]", value)))
        if name not in members and isinstance(name, str) and not (is_missing and index == len(loc) - 1):
            options.append(name)
            continue
        path, value = step(path, name), members.get(name)
    return path, options


# ── every wrong field ─────────────────────────────────────────────────────────────────────────────────────────────────


def _wrong(value: Any, kind: Any, path: str) -> Iterator[Problem]:
    """Yield the place of each invalid field; msgspec itself stops at the first."""
    try:
        msgspec.convert(value, kind, str_keys=True, dec_hook=_read_model)
    except msgspec.ValidationError as error:
        parts = list(_wrong_parts(value, kind, path))
        if parts:
            yield from parts
        elif isinstance(cause := error.__cause__, ValueError) and hasattr(cause, "errors"):
            yield from _of_pydantic(cause, value, path)
        else:
            message, _, place = str(error).partition(" - at `")
            if place.startswith("key`"):
                message, place = f"key: {message}", place.removeprefix("key` in `")
            if allowed := _allowed(kind):
                message += f"; expected one of {', '.join(map(repr, allowed))}"
            yield Problem(path + place.rstrip("`").removeprefix("$"), message)


def _allowed(kind: Any) -> list[Any]:
    """Return all values of an enum or a literal type; nothing for any other."""
    if isinstance(kind, EnumType):
        return [each.value for each in cast("list[Enum]", list(kind))]
    return list(get_args(kind)) if get_origin(kind) is Literal else []


def _wrong_parts(value: Any, kind: Any, path: str) -> Iterator[Problem]:
    for option in _options(kind):
        if isinstance(value, dict):
            given = cast("dict[str, Any]", value)
            if get_origin(option) is dict:
                for name, each in given.items():
                    yield from _wrong(each, get_args(option)[1], step(path, name))
                continue
            for name, member in _members(option).items():
                if name in given:
                    yield from _wrong(given[name], member.kind, step(path, name))
                elif member.required:
                    yield Problem(step(path, name), MISSING)
        elif isinstance(value, list) and get_origin(option) in (list, set, frozenset):
            for index, each in enumerate(cast("list[Any]", value)):
                yield from _wrong(each, get_args(option)[0], step(path, index))


def _members(kind: Any) -> dict[str, Member]:
    """Return the fields of a class under their JSON names; nothing if it has none."""
    info: Any = msgspec.inspect.type_info(kind)
    if not hasattr(info, "fields") or isinstance(info, msgspec.inspect.NamedTupleType):
        return {}  # a NamedTuple is a list in JSON
    hints = get_type_hints(info.cls, include_extras=True)
    return {each.encode_name: Member(_bare(hints[each.name]), each.required) for each in info.fields}


def _bare(hint: Any) -> Any:
    """Return the type of a TypedDict field, without the marker whether it is required."""
    return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


def _options(kind: Any) -> list[Any]:
    """Return the types that *kind* allows; several classes are told apart by msgspec alone, so they are not listed."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _options(get_args(kind)[0])
    if origin in (Union, UnionType):
        several = [each for each in get_args(kind) if each is not type(None)]
        return _options(several[0]) if len(several) == 1 else []
    return [kind]


# ── Python values as JSON ─────────────────────────────────────────────────────────────────────────────────────────────

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


_writer = msgspec.json.Encoder(enc_hook=written)


def write(value: object) -> bytes:
    """Return a value as JSON, or raise one of `UNWRITABLE`; models of all kinds become objects."""
    return _writer.encode(value)


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
                members = _fields_of(value)
            except Exception:  # noqa: BLE001 - a model failed to dump itself
                members = None
            if members is None:
                yield from _refused(value, path)
            else:
                yield from _unwritable(members, path, left)


def _fields_of(value: object) -> object:
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
