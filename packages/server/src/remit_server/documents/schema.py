"""One JSON Schema for all documents."""

from collections.abc import Iterator
from importlib import import_module
from inspect import cleandoc
from pkgutil import iter_modules
from typing import Any, Union, cast

import msgspec
from msgspec import Struct

from remit_server import documents

# Published type names that differ from the class names in the code.
_PUBLISHED = {"AuditFinding": "Finding"}


def outputs_schema() -> dict[str, Any]:
    """Return one JSON Schema (draft 2020-12) for all documents; the field `schema` tells them apart."""
    schema = msgspec.json.schema(Union[tuple(_documents())])  # noqa: UP007 - made at run time
    schema["$defs"] = published(schema["$defs"], _PUBLISHED)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Output of remit with --json and --jsonl",
        **cast("dict[str, Any]", as_others_read(schema)),
    }


def _documents() -> Iterator[type[Struct]]:
    """Return the document types in the modules of this package."""
    for module in iter_modules(documents.__path__, f"{documents.__name__}."):
        for each in vars(import_module(module.name)).values():
            if isinstance(each, type) and issubclass(each, Struct) and each.__struct_config__.tag_field == "schema":
                yield each


def published(types: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return the schemas with types and references renamed by *names*."""
    return {names.get(name, name): cast("Any", _renamed(each, names)) for name, each in types.items()}


def _renamed(schema: object, names: dict[str, str]) -> object:
    match schema:
        case dict():
            return {key: _renamed(each, names) for key, each in cast("dict[str, object]", schema).items()} | {
                key: f"{way}/{names.get(last, last)}" if way else names.get(last, last)
                for key, (way, _, last) in _names_in(cast("dict[str, object]", schema))
            }
        case list():
            return [_renamed(each, names) for each in cast("list[object]", schema)]
        case _:
            return schema


def _names_in(schema: dict[str, object]) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Return the places where a schema names a type: titles and references."""
    for key in ("title", "$ref"):
        if isinstance(name := schema.get(key), str):
            yield key, name.rpartition("/")


def _as_others_read(name: str, value: object) -> object:
    match name, value:
        case "pattern", str():
            return value.replace(r"\Z", "$")
        case "description", str():
            return cleandoc(value)  # Python 3.13 does so by itself
        case _:
            return as_others_read(value)


def as_others_read(schema: object) -> object:
    r"""Return a schema whose patterns end with `$`, as ECMA-262 requires, and whose descriptions are not indented."""
    match schema:
        case dict():
            members = cast("dict[str, object]", schema)
            return {name: _as_others_read(name, each) for name, each in members.items()}
        case list():
            return [as_others_read(each) for each in cast("list[object]", schema)]
        case _:
            return schema
