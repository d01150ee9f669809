"""The OpenAPI document of the server, generated from its operations and the types that are sent and read."""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from remit import __version__
from remit.policy.context import ROLES
from remit.protocol.codec import VERSIONS
from remit.protocol.envelope import Response
from remit.protocol.errors import INWARD, TABLE
from remit.protocol.records import Kind
from remit.protocol.remit import LONGEST_NAME
from remit_server.all_operations import OPERATIONS
from remit_server.documents.api import (
    ALL_EVENTS,
    ASK,
    CANCEL,
    EVENTS,
    JSON,
    LOOK,
    READ_ALONG,
    RUN_TREE,
    ApiOperation,
    Parameter,
)
from remit_server.documents.api_values import FailureBody, Handle
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
        schemas, raw = msgspec.json.schema_components(new, ref_template=f"#/components/schemas/{prefix}{{name}}")
        self._refs |= {kind: published({"": schema}, names)[""] for kind, schema in zip(new, schemas, strict=True)}
        components = _outward(published(cast("Document", as_others_read(raw)), names))
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
    if operation.needs is not None:
        made["x-remit-permission"] = str(operation.needs)
        made["description"] += f" Requires the permission `{operation.needs}`."
    if operation.others is not None:
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
    structs = {(names or {}).get(kind.__name__, kind.__name__): kind for kind in _structs(kinds)}
    made: Document = {}
    for name, schema in components.items():
        each: Document = dict(schema)
        if "description" in each:
            # msgspec takes a docstring as it is indented, and four spaces are a code block in Markdown.
            each["description"] = inspect.cleandoc(each["description"])
        if name in structs and "properties" in each:
            texts, fields = _fields(structs[name]), cast("dict[str, Document]", each["properties"])
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


def _texts(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as docstring)),
            ):
                yield name, inspect.cleandoc(docstring)
            case _:
                pass


TAGS = {
    "delegations": "Ask agents, follow and cancel what they do.",
    "runs": "Runs of all users: search, trees, one delegation in full, retry and resume.",
    "agents": "The agents, how they are doing, and who calls whom.",
    "approvals": "Questions to people, and their answers.",
    "policy": "Why a call is allowed or refused, and the limits in force.",
    "figures": "Tokens, costs and figures over time.",
    "sessions": "Conversations.",
    "audit": "The record, and whether it is intact.",
    "users": "What is kept about users.",
    "console": "Sessions of browsers.",
    "dialects": "The same in envelopes of other systems.",
    "server": "The state of the server itself.",
}
ADDED = {"plugins": "What installed plugins add."}
PLUGIN_SCHEMAS = "plugins."
"""What the names of the schemas of plugins begin with."""

# The group of an address by its first part after `/v1/`, where that is not the name of the group.
_GROUPS = {
    "events": "runs",
    "graph": "agents",
    "team": "policy",
    "spend": "figures",
    "series": "figures",
    "budgets": "figures",
}

# The published names of types that have other names in the code.
PUBLISHED = {"AgentList": "Agents", "FailureBody": "Failure", "PublicRun": "RunLine", "PublicRunTree": "RunTree"}


def document(added: Sequence[ApiOperation] = ()) -> Document:
    """Return the OpenAPI document of the server, with the operations that plugins added."""
    schemas = Schemas(types_of(OPERATIONS), PUBLISHED)
    # Constraints that are checked after decoding.
    schemas.components["Submission"]["properties"]["version"]["enum"] = list(VERSIONS.readable)
    schemas.components["ContextFilter"]["properties"]["roles"]["anyOf"][0]["items"] = {"enum": list(ROLES)}
    paths: Document = {}
    for each in OPERATIONS:
        event = {READ_ALONG.name: _EVENT, ALL_EVENTS.name: _RECORD}.get(each.name)
        made = described_operation(each, schemas, event=event)
        if (202, Handle) in each.also:
            made["responses"]["202"]["links"] = _LINKS
        _describe(paths, each, made, group_of(each))
    _describe_ask(paths[ASK.path]["post"], schemas)
    more = Schemas(types_of(added), prefix=PLUGIN_SCHEMAS, beside=schemas)
    for each in added:
        _describe(paths, each, described_operation(each, more), *ADDED)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Remit",
            "version": __version__,
            "description": "Agents that call agents, safely. `remit errors CODE` explains each refusal.",
            "contact": {"name": "Remit"},
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The server that this document comes from."}],
        "security": [{"bearer": []}],
        "tags": [{"name": name, "description": meaning} for name, meaning in (TAGS | (ADDED if added else {})).items()],
        "paths": paths,
        "components": {
            "schemas": valid(schemas.components | more.components),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(paths: Document, operation: ApiOperation, made: Document, group: str) -> None:
    paths.setdefault(operation.public_path, {})[operation.method.lower()] = {**made, "tags": [group]}


def group_of(operation: ApiOperation) -> str:
    """Return the group that an operation is listed in."""
    _, first, *rest = operation.path.split("/")
    name = rest[0] if first == "v1" else first
    name = _GROUPS.get(name, name)
    return name if name in TAGS else "server"


def _describe_ask(made: Document, schemas: Schemas) -> None:
    """Add what only a new delegation has: a stream as its answer, every way to fail, and links to what it began."""
    outcome, failure = schemas.of(Response), schemas.of(FailureBody)
    either = {"anyOf": [outcome, failure]}
    ended, waiting = made["responses"]["200"], made["responses"]["202"]
    ended = {**ended, "content": {**ended["content"], EVENTS: {"schema": _EVENT}}, "links": _LINKS}
    statuses = sorted({row.status for row in TABLE.values()} | {431})
    meaning = "The delegation failed or was refused."
    failed = {str(each): {"description": meaning, "content": {JSON: {"schema": either}}} for each in statuses}
    made["responses"] = {"200": ended, "202": waiting, **failed}


# One event of a stream; the data of the last one is the record that holds the response.
_EVENT: Document = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9]+$", "description": "Number of the event, if it is stored."},
        "event": {"enum": [str(kind) for kind in Kind]},
        "data": {"type": "string", "contentMediaType": "application/json", "description": "The record."},
    },
}
# One event of the stream of all runs.
_RECORD: Document = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9]+$", "description": "Number of the record."},
        "event": {"enum": [*(str(kind) for kind in Kind if kind is not Kind.DELTA), "ready", "run", "gap"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}

# A client that knows a run can look it up.
_LINKS: dict[str, Any] = {
    operation.name: {"operationId": operation.name, "parameters": {name: "$response.body#/run"}}
    for operation, name in ((LOOK, "id"), (READ_ALONG, "id"), (CANCEL, "id"), (RUN_TREE, "run"))
}
