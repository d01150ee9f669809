"""Descriptions of the fields in an OpenAPI document, taken from the docstrings beside the fields in the code."""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, cast

from msgspec import Struct
from msgspec import inspect as types

from remit.server.openapi_parts import Document


def described(components: Document, kinds: Iterable[Any], names: dict[str, str] | None = None) -> Document:
    """Return the schemas of *kinds* with a description of each field that has one in the code.

    *names* has the published names of types that are named otherwise in the code.
    """
    found = {(names or {}).get(kind.__name__, kind.__name__): kind for kind in _structs(kinds)}
    made: Document = {}
    for name, schema in components.items():
        each: Document = dict(schema)
        if "description" in each:
            # msgspec takes a docstring as it is indented, and four spaces are a code block in Markdown.
            each["description"] = inspect.cleandoc(each["description"])
        if name in found and "properties" in each:
            texts, fields = _fields(found[name]), cast("dict[str, Document]", each["properties"])
            each["properties"] = {
                field: {**value, "description": texts[field]} if field in texts else value
                for field, value in fields.items()
            }
        made[name] = each
    return made


def _structs(kinds: Iterable[Any]) -> Iterator[type[Struct]]:
    """Return the structs among types and everything that they refer to."""
    seen: set[type[Struct]] = set()
    todo: list[Any] = list(types.multi_type_info(kinds))
    while todo:
        match todo.pop():
            case types.StructType() as kind:
                if kind.cls not in seen:
                    seen.add(kind.cls)
                    todo += [field.type for field in kind.fields]
                    yield kind.cls
            case types.UnionType(types=each):
                todo += each
            case (
                types.ListType(item_type=each)
                | types.VarTupleType(item_type=each)
                | types.SetType(item_type=each)
                | types.FrozenSetType(item_type=each)
            ):
                todo.append(each)
            case types.TupleType(item_types=each):
                todo += each
            case types.DictType(key_type=key, value_type=value):
                todo += [key, value]
            case types.Metadata(type=each):
                todo.append(each)
            case _:
                pass


def _fields(kind: type[Struct]) -> dict[str, str]:
    """Return the texts beside the fields of a struct and those that it inherits, by their names in JSON."""
    texts: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        texts |= _classes(each.__module__).get(each.__qualname__, {})
    encoded = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    return {encoded[name]: text for name, text in texts.items() if name in encoded}


@lru_cache(maxsize=256)
def _classes(module: str) -> dict[str, dict[str, str]]:
    """Return the texts beside the fields of each class of a module; none if its source is not installed."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    return {each.name: dict(_texts(each)) for each in tree.body if isinstance(each, ast.ClassDef)}


def _texts(found: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(found.body, found.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as said)),
            ):
                yield name, inspect.cleandoc(said)
            case _:
                pass
