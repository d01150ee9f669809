"""Operations as an OpenAPI document describes them, with schemas that are easy to read for people and tools."""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from remit.protocol.errors import INWARD
from remit.protocol.remit import LONGEST_NAME
from remit_server.documents.api import EVENTS, JSON, ApiOperation, Parameter
from remit_server.documents.schema import as_others_read, published

Document = dict[str, Any]

FAILURES = {
    400: "The request is invalid.",
    401: "The sender is not authenticated.",
    403: "The sender lacks the permission.",
    404: "Not found.",
    413: "The body is too large.",
    415: "The content type is not supported.",
    429: "Too many unauthenticated requests from this address.",
    431: "The headers are too large.",
    503: "The server is overloaded or shutting down.",
    504: "The request arrived too slowly.",
}
_ALSO = {202: "It is under way.", 409: "Not possible in the current state.", 503: "Not available now."}


class Schemas:
    """The schemas of types: their components, and the reference to each type."""

    def __init__(
        self,
        kinds: Iterable[Any],
        names: dict[str, str] | None = None,
        *,
        prefix: str = "",
        beside: "Schemas | None" = None,
    ) -> None:
        """Make the schemas of types that are not *beside*.

        *names* has published names of types, *prefix* begins the name of each component.
        """
        self._refs: dict[Any, Document] = {} if beside is None else dict(beside._refs)
        new = [kind for kind in dict.fromkeys(kinds) if kind not in self._refs]
        names = names or {}
        schemas, found = msgspec.json.schema_components(new, ref_template=f"#/components/schemas/{prefix}{{name}}")
        self._refs |= {kind: published({"": schema}, names)[""] for kind, schema in zip(new, schemas, strict=True)}
        components = _outward(published(cast("Document", as_others_read(found)), names))
        self.components = {f"{prefix}{name}": each for name, each in described(components, new, names).items()}

    def of(self, kind: Any) -> Document:
        """Return the schema of a type."""
        return self._refs[kind]


def types_of(operations: Iterable[ApiOperation]) -> list[Any]:
    """Return the types that operations take and answer."""
    named = (
        kind
        for each in operations
        for kind in (each.takes, each.answer, each.failure, *(kind for _, kind in each.also))
        if kind is not None
    )
    return list(named)


def described_operation(
    operation: ApiOperation, schemas: Schemas, failures: dict[int, str] = FAILURES, event: Document | None = None
) -> Document:
    """Return an operation for the document; *event* is the schema of an event of a stream."""
    named = {each.name: each for each in operation.parameters}
    in_path = (part[1:-1] for part in operation.public_path.split("/") if part.startswith("{"))
    places = [named.pop(name, Parameter(name=name, place="path", meaning="")) for name in in_path]
    description = operation.description or operation.summary
    made: Document = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": description,
        "parameters": [*map(_parameter, places), *map(_parameter, named.values())],
        "responses": dict(_responses(operation, schemas, failures, event)),
    }
    if operation.takes is not None:
        schema = schemas.of(operation.takes)
        made["requestBody"] = {"required": not operation.takes_nothing, "content": {JSON: {"schema": schema}}}
    if operation.anyone:
        made["security"] = []
    elif operation.needs is not None:
        made["x-remit-permission"] = str(operation.needs)
        made["description"] += f" Requires the permission `{operation.needs}`."
    elif operation.others is not None:
        made["x-remit-others"] = str(operation.others)
        made["description"] += f" Runs of others require the permission `{operation.others}`."
    return made


def _responses(
    operation: ApiOperation, schemas: Schemas, failures: dict[int, str], event: Document | None
) -> Iterator[tuple[str, Document]]:
    if operation.media == EVENTS:
        content = {EVENTS: {"schema": event or {"type": "string"}}}
    elif operation.answer is not None:
        content = {operation.media: {"schema": schemas.of(operation.answer)}}
    else:
        content = {operation.media: {"schema": {"type": "string"}}} if operation.media not in ("", JSON) else {}
    yield str(operation.status), _response(_meaning(operation.answer, operation.summary), content)
    for status, kind in operation.also:
        more = {"text/plain": {"schema": {"type": "string"}}} if kind is None else {JSON: {"schema": schemas.of(kind)}}
        is_other = kind not in (None, operation.answer, operation.failure)
        yield str(status), _response(_meaning(kind, _ALSO[status]) if is_other else _ALSO[status], more)
    if operation.failure is Any:
        yield "default", _response("What went wrong.", {JSON: {"schema": {}}})
    elif operation.failure is not None:
        for status, meaning in failures.items():
            if status not in dict(operation.also):
                yield str(status), _response(meaning, {JSON: {"schema": schemas.of(operation.failure)}})


def _response(meaning: str, content: Document) -> Document:
    return {"description": meaning, **({"content": content} if content else {})}


def _meaning(kind: Any, summary: str) -> str:
    """Return what a response is: what its type says, or else the summary of the operation."""
    text = kind.__doc__ if isinstance(kind, type) and issubclass(kind, Struct) else None
    return inspect.cleandoc(text).partition("\n\n")[0].replace("\n", " ") if text else summary


def _parameter(each: Parameter) -> Document:
    made: Document = {"name": each.name, "in": each.place, "required": each.required or each.place == "path"}
    more = " Several are separated by commas." if each.some_of else ""
    if each.meaning:
        made["description"] = f"{each.meaning}{more}"
    made["schema"] = {"type": each.kind, **_bounds(each)}
    return made


def _bounds(each: Parameter) -> Document:
    if each.one_of:
        return {"enum": list(each.one_of)}
    if each.some_of:
        word = f"({'|'.join(each.some_of)})"
        return {"pattern": f"^({word}(,{word})*)?$"}
    if each.pattern:
        return {"pattern": each.pattern}
    if each.place != "query":
        return {}
    return {"minimum": 0, "maximum": 10**15 - 1} if each.kind == "integer" else {"maxLength": LONGEST_NAME}


# ── schemas ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _outward(components: Document) -> Document:
    """Return the schemas without the fields of a fault that only the hub's operator sees: they are never sent."""
    if "Fault" in components:
        for name in INWARD:
            del components["Fault"]["properties"][name]
    return {name: each for name, each in components.items() if name not in ("Origin", "SourceLine")}


def valid(value: Any) -> Any:
    """Return schemas without defaults that they forbid, and with `items` at every array, which many tools want."""
    if isinstance(value, list):
        return [valid(each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    made: Document = {name: valid(each) for name, each in cast("Document", value).items()}
    if made.get("default") == "" and made.get("minLength", 0) > 0:
        del made["default"]
    if made.get("type") == "array" and not made.get("items"):
        made["items"] = {}  # where it was false, the number of items bounds it
    return made


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
