"""The OpenAPI document, generated from the types that are sent and read."""

from typing import Any, cast

import msgspec

from remit import __version__
from remit.dialects import NAMES
from remit.documents.schema import as_others_read, published
from remit.policy.context import ROLES
from remit.protocol.codec import VERSIONS
from remit.protocol.envelope import Response
from remit.protocol.errors import INWARD, TABLE
from remit.protocol.records import Kind
from remit.protocol.remit import LONGEST_NAME
from remit.protocol.submission import Submission
from remit.server.access import access_to
from remit.server.bodies import FailureBody
from remit.server.delegation_endpoints import Reason
from remit.server.delegations import Handle
from remit.server.lookup_endpoints import AgentList, AuditPage, PublicCard, PublicRunTree, RunList
from remit.server.user_endpoints import ErasedUser

_TYPES = (
    Submission,
    Response,
    Handle,
    FailureBody,
    Reason,
    AgentList,
    PublicCard,
    RunList,
    PublicRunTree,
    AuditPage,
    ErasedUser,
)
_TEMPLATE = "#/components/schemas/{name}"

# The published names of types that have other names in the code.
_PUBLISHED = {"AgentList": "Agents", "FailureBody": "Failure", "PublicRun": "RunLine", "PublicRunTree": "RunTree"}

Document = dict[str, Any]


def document() -> Document:
    """Return the OpenAPI document of the server."""
    schemas, found = msgspec.json.schema_components(_TYPES, ref_template=_TEMPLATE)
    components = _outward(published(cast("Document", as_others_read(found)), _PUBLISHED))
    # Constraints that are checked after decoding.
    components["Submission"]["properties"]["version"]["enum"] = list(VERSIONS.readable)
    components["ContextFilter"]["properties"]["roles"]["anyOf"][0]["items"] = {"enum": list(ROLES)}
    ref: dict[Any, Any] = {
        kind: published({"": schema}, _PUBLISHED)[""] for kind, schema in zip(_TYPES, schemas, strict=True)
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Remit",
            "version": __version__,
            "description": "Agents that call agents, safely. `remit errors CODE` explains each refusal.",
        },
        "security": [{"bearer": []}],
        "paths": _permitted(_paths(ref)),
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _outward(components: Document) -> Document:
    """Return the schemas without the fields of a fault that only the hub's operator sees: they are never sent."""
    for name in INWARD:
        del components["Fault"]["properties"][name]
    return {name: each for name, each in components.items() if name not in ("Origin", "SourceLine")}


def _permitted(paths: Document) -> Document:
    """Return the operations with the permissions that each requires, from the server's own table."""
    for path, operations in paths.items():
        for method, operation in operations.items():
            access = access_to(method.upper(), path.replace("{rest}", "{rest:path}"))
            if access.anyone:
                operation["security"] = []
            elif access.needs is not None:
                operation["security"] = [{"bearer": [str(access.needs)]}]
            elif access.others is not None:
                operation["x-remit-others"] = str(access.others)
                more = f"Runs of others require the permission `{access.others}`."
                operation["description"] = " ".join(filter(None, (operation.get("description"), more)))
    return paths


def _paths(ref: dict[Any, Any]) -> Document:
    known = {**_delegation_paths(ref), **_lookup_paths(ref), **_user_paths(ref)}
    return {**known, **_dialect_paths(), **_operator_paths(ref)}


def _delegation_paths(ref: dict[Any, Any]) -> Document:
    delegation = [_in_path("id", "The id of the run, or the sender's own request id while the server remembers it.")]
    ended = _reply("The outcome of the delegation.", ref[Response])
    stream: Document = {
        "description": "The events of the delegation.",
        "content": {"text/event-stream": {"schema": _EVENT}},
    }
    waiting = {**_reply("The delegation has not ended.", ref[Handle]), "links": _LINKS}
    answered = {
        "description": "The outcome of the delegation.",
        "content": {**ended["content"], **stream["content"]},
        "links": _LINKS,
    }
    return {
        "/v1/delegations": {
            "post": {
                "operationId": "ask",
                "summary": "Ask an agent.",
                "description": "With `Accept: text/event-stream` the answer is a stream of events. The headers "
                "`X-Agent-Request-ID`, `X-Agent-Origin`, `X-Agent-Depth` and `X-Agent-Parent-Session` may be sent "
                "too; then each must agree with the envelope.",
                "parameters": [
                    _header("Prefer", "`respond-async`: answer with a handle once the request is stored."),
                    _header("traceparent", "The trace of the request, as W3C Trace Context defines it."),
                ],
                "requestBody": _body(ref[Submission]),
                "responses": {"200": answered, "202": waiting, **_refusals(ref[Response], ref[FailureBody])},
            }
        },
        "/v1/delegations/{id}": {
            "get": {
                "operationId": "look",
                "summary": "Get the outcome or the state of a delegation.",
                "parameters": delegation,
                "responses": {"200": ended, "202": waiting, **_failures(ref[FailureBody])},
            }
        },
        "/v1/delegations/{id}/events": {
            "get": {
                "operationId": "read_along",
                "summary": "Follow the events of a delegation, from its start or after an event.",
                "parameters": [
                    *delegation,
                    _header("Last-Event-ID", "The number of the last event received.", pattern="^[0-9]{1,18}$"),
                ],
                "responses": {"200": stream, **_failures(ref[FailureBody])},
            }
        },
        "/v1/delegations/{id}/cancel": {
            "post": {
                "operationId": "cancel",
                "summary": "Cancel a delegation and everything below it.",
                "parameters": delegation,
                "requestBody": {**_body(ref[Reason]), "required": False},
                "responses": {"200": ended, "202": waiting, **_failures(ref[FailureBody])},
            }
        },
    }


def _lookup_paths(ref: dict[Any, Any]) -> Document:
    return {
        "/v1/agents": {
            "get": _look("agents", "The agents that the client may ask.", _reply("The agents.", ref[AgentList]), ref)
        },
        "/v1/agents/{name}": {
            "get": _look(
                "agent",
                "One agent.",
                _reply("The agent.", ref[PublicCard]),
                ref,
                [_in_path("name", "The agent's name.")],
            )
        },
        "/v1/runs": {
            "get": _look(
                "runs",
                "The newest runs.",
                _reply("The runs.", ref[RunList]),
                ref,
                [
                    _parameter("user", "string", "Only runs of this user."),
                    _parameter("correlation", "string", "Only runs with this correlation id."),
                    _parameter("limit", "integer", "Maximum number of results."),
                ],
            )
        },
        "/v1/runs/{run}": {
            "get": _look(
                "run",
                "The delegations of a run.",
                _reply("The delegations.", ref[PublicRunTree]),
                ref,
                [_in_path("run", "The run.")],
            )
        },
        "/v1/audit": {
            "get": _look(
                "audit",
                "The audit log.",
                _reply("A page of records.", ref[AuditPage]),
                ref,
                [
                    _parameter("after", "integer", "Only records after this number."),
                    _parameter("limit", "integer", "Maximum number of results."),
                    _parameter("run", "string", "Only records of this run."),
                ],
            )
        },
    }


def _user_paths(ref: dict[Any, Any]) -> Document:
    erased = _reply("What was erased.", ref[ErasedUser])
    summary = "Erase a user with everything that is kept about them."
    return {
        "/v1/users/{user}": {"delete": _look("erase", summary, erased, ref, [_in_path("user", "The user.")])},
    }


def _dialect_paths() -> Document:
    return {
        "/dialects/{name}": {"post": _dialect("speak", [_in_path("name", "The dialect.", enum=NAMES)])},
        "/dialects/{name}/{rest}": {
            "post": _dialect(
                "speak_at",
                [
                    _in_path("name", "The dialect.", enum=NAMES),
                    _in_path("rest", "The path that clients of the dialect append, or the agent to ask."),
                ],
            )
        },
    }


def _operator_paths(ref: dict[Any, Any]) -> Document:
    return {
        "/openapi.json": {
            "get": _open("openapi", "This document.", {"200": _reply("The document.", {"type": "object"})})
        },
        "/metrics": {"get": _look("metrics", "Metrics for Prometheus.", _plain("The metrics."), ref)},
        "/healthz": {"get": _open("healthz", "Whether the process is alive.", {"200": _plain("Alive.")})},
        "/readyz": {
            "get": _open(
                "readyz",
                "Whether the server accepts requests.",
                {"200": _plain("Ready."), "503": _plain("Not ready.")},
            )
        },
    }


def _look(
    name: str, summary: str, found: Document, ref: dict[Any, Any], parameters: list[Document] | None = None
) -> Document:
    return {
        "operationId": name,
        "summary": summary,
        "parameters": parameters or [],
        "responses": {"200": found, **_failures(ref[FailureBody])},
    }


def _dialect(name: str, parameters: list[Document]) -> Document:
    """Return the operation of a dialect; its own documentation defines requests and responses."""
    return {
        "operationId": name,
        "summary": "Ask in the envelope of another system.",
        "parameters": parameters,
        "requestBody": _body({"type": "object"}),
        "responses": {"default": _reply("As the dialect defines it.", {})},
    }


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

# A client that knows a run can look it up.
_LINKS = {
    operation: {"operationId": operation, "parameters": {name: "$response.body#/run"}}
    for operation, name in (("look", "id"), ("read_along", "id"), ("cancel", "id"), ("run", "run"))
}


def _open(name: str, summary: str, replies: Document) -> Document:
    return {"operationId": name, "summary": summary, "responses": replies}


def _reply(meaning: str, schema: Document) -> Document:
    return {"description": meaning, "content": {"application/json": {"schema": schema}}}


def _plain(meaning: str) -> Document:
    return {"description": meaning, "content": {"text/plain": {"schema": {"type": "string"}}}}


def _body(schema: Document) -> Document:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _refusals(response: Document, failure: Document) -> Document:
    """Return every status that a delegation may end with besides success."""
    either = {"anyOf": [response, failure]}
    statuses = sorted({row.status for row in TABLE.values()} | {431})
    return {str(status): _reply("The delegation failed or was refused.", either) for status in statuses}


def _failures(failure: Document) -> Document:
    meanings = {
        400: "The request is invalid.",
        401: "The sender is not authenticated.",
        403: "The sender lacks the permission.",
    }
    meanings |= {404: "Not found.", 413: "The body is too large.", 415: "The content type is not supported."}
    meanings |= {429: "Too many unauthenticated requests from this address."}
    meanings |= {
        431: "The headers are too large.",
        503: "The server is overloaded or shutting down.",
        504: "The request arrived too slowly.",
    }
    return {str(status): _reply(meaning, failure) for status, meaning in meanings.items()}


def _in_path(name: str, meaning: str, **bounds: object) -> Document:
    schema = {"type": "string", **bounds}
    return {"name": name, "in": "path", "required": True, "description": meaning, "schema": schema}


def _header(name: str, meaning: str, **bounds: object) -> Document:
    schema = {"type": "string", **bounds}
    return {"name": name, "in": "header", "required": False, "description": meaning, "schema": schema}


def _parameter(name: str, kind: str, meaning: str) -> Document:
    bounds = {"minimum": 0, "maximum": 10**15 - 1} if kind == "integer" else {"maxLength": LONGEST_NAME}
    return {"name": name, "in": "query", "required": False, "description": meaning, "schema": {"type": kind, **bounds}}
