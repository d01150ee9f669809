"""One JSON Schema for all that is printed."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Union, cast

import msgspec
from msgspec import Struct

from remit import documents


def outputs_schema() -> dict[str, Any]:
    """Return one JSON Schema (draft 2020-12) for every document; which it is, its `schema` says."""
    schema = msgspec.json.schema(Union[tuple(_documents())])  # noqa: UP007 - made at run time
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What remit prints with --json and --jsonl",
        **cast("dict[str, Any]", as_others_read(schema)),
    }


def _documents() -> Iterator[type[Struct]]:
    """Return whatever says of itself what it is, in the modules of this package."""
    for module in iter_modules(documents.__path__, f"{documents.__name__}."):
        for each in vars(import_module(module.name)).values():
            if isinstance(each, type) and issubclass(each, Struct) and each.__struct_config__.tag_field == "schema":
                yield each


def as_others_read(schema: object) -> object:
    r"""Return a schema whose patterns end as ECMA-262 has it: what is `\Z` to Python is `$` there."""
    match schema:
        case dict():
            members = cast("dict[str, object]", schema)
            return {
                name: each.replace(r"\Z", "$") if name == "pattern" and isinstance(each, str) else as_others_read(each)
                for name, each in members.items()
            }
        case list():
            return [as_others_read(each) for each in cast("list[object]", schema)]
        case _:
            return schema
