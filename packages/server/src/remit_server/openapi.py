"""The OpenAPI document of the server, generated from its operations and the types that are sent and read."""

from collections.abc import Sequence
from typing import Any

from remit import __version__
from remit.policy.context import ROLES
from remit.protocol.codec import VERSIONS
from remit.protocol.envelope import Response
from remit.protocol.errors import TABLE
from remit.protocol.records import Kind
from remit_server.all_operations import OPERATIONS
from remit_server.documents.api import ALL_EVENTS, ASK, CANCEL, EVENTS, JSON, LOOK, READ_ALONG, RUN_TREE, ApiOperation
from remit_server.documents.api_delegations import FailureBody, Handle
from remit_server.openapi_parts import Document, Schemas, described_operation, types_of, valid

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
