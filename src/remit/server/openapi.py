"""The OpenAPI document, made from the types that are sent and read."""

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

_TYPES = (Submission, Response, Handle, FailureBody, Reason, AgentList, PublicCard, RunList, PublicRunTree, AuditPage)
_TEMPLATE = "#/components/schemas/{name}"

# The names by which clients know types that are called differently in the code.
_PUBLISHED = {"AgentList": "Agents", "FailureBody": "Failure", "PublicRun": "RunLine", "PublicRunTree": "RunTree"}

Document = dict[str, Any]


def document() -> Document:
    """Return what the server offers, for programs."""
    schemas, found = msgspec.json.schema_components(_TYPES, ref_template=_TEMPLATE)
    components = _outward(published(cast("Document", as_others_read(found)), _PUBLISHED))
    # What is checked later than by its type.
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
    """Return the schemas without what a fault says to the hub's operator alone: it is never sent."""
    for name in INWARD:
        del components["Fault"]["properties"][name]
    return {name: each for name, each in components.items() if name not in ("Origin", "SourceLine")}


def _permitted(paths: Document) -> Document:
    """Return the operations with what each needs, by the table that the server goes by."""
    for path, operations in paths.items():
        for method, operation in operations.items():
            access = access_to(method.upper(), path.replace("{rest}", "{rest:path}"))
            if access.anyone:
                operation["security"] = []
            elif access.needs is not None:
                operation["security"] = [{"bearer": [str(access.needs)]}]
            elif access.others is not None:
                operation["x-remit-others"] = str(access.others)
                more = f"For runs that are not the client's own it needs the permission `{access.others}`."
                operation["description"] = " ".join(filter(None, (operation.get("description"), more)))
    return paths


def _paths(ref: dict[Any, Any]) -> Document:
    return {**_delegation_paths(ref), **_lookup_paths(ref), **_dialect_paths(), **_operator_paths(ref)}


def _delegation_paths(ref: dict[Any, Any]) -> Document:
    delegation = [_in_path("id", "The run, or the sender's own id, as long as that is known.")]
    ended = _reply("How it ended.", ref[Response])
    stream: Document = {"description": "Its events.", "content": {"text/event-stream": {"schema": _EVENT}}}
    waiting = {**_reply("It has not ended.", ref[Handle]), "links": _LINKS}
    answered = {
        "description": "How it ended.",
        "content": {**ended["content"], **stream["content"]},
        "links": _LINKS,
    }
    return {
        "/v1/delegations": {
            "post": {
                "operationId": "ask",
                "summary": "Ask an agent.",
                "description": "With `Accept: text/event-stream` the answer is a stream of events. The headers "
                "`X-Agent-Request-ID`, `X-Agent-Origin`, `X-Agent-Depth` and `X-Agent-Parent-Session` may be sent, "
                "too; then each says the same as the envelope.",
                "parameters": [
                    _header("Prefer", "`respond-async`: answer with a handle as soon as it is safely recorded."),
                    _header("traceparent", "The trace that it belongs to, as W3C writes it."),
                ],
                "requestBody": _body(ref[Submission]),
                "responses": {"200": answered, "202": waiting, **_refusals(ref[Response], ref[FailureBody])},
            }
        },
        "/v1/delegations/{id}": {
            "get": {
                "operationId": "look",
                "summary": "Look how a delegation ended, or how far it is.",
                "parameters": delegation,
                "responses": {"200": ended, "202": waiting, **_failures(ref[FailureBody])},
            }
        },
        "/v1/delegations/{id}/events": {
            "get": {
                "operationId": "read_along",
                "summary": "Read along what happens in a delegation, from its beginning or after an event.",
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
                "summary": "Stop a delegation and everything below it.",
                "parameters": delegation,
                "requestBody": {**_body(ref[Reason]), "required": False},
                "responses": {"200": ended, "202": waiting, **_failures(ref[FailureBody])},
            }
        },
    }


def _lookup_paths(ref: dict[Any, Any]) -> Document:
    return {
        "/v1/agents": {"get": _look("agents", "The agents that can be asked.", _reply("They.", ref[AgentList]), ref)},
        "/v1/agents/{name}": {
            "get": _look(
                "agent", "One agent.", _reply("It.", ref[PublicCard]), ref, [_in_path("name", "The agent's name.")]
            )
        },
        "/v1/runs": {
            "get": _look(
                "runs",
                "The newest runs.",
                _reply("They.", ref[RunList]),
                ref,
                [
                    _parameter("user", "string", "Only this user's."),
                    _parameter("correlation", "string", "Only those of this workflow."),
                    _parameter("limit", "integer", "At most so many."),
                ],
            )
        },
        "/v1/runs/{run}": {
            "get": _look(
                "run",
                "Who asked whom for what in a run.",
                _reply("Its delegations.", ref[PublicRunTree]),
                ref,
                [_in_path("run", "The run.")],
            )
        },
        "/v1/audit": {
            "get": _look(
                "audit",
                "The record.",
                _reply("A part of it.", ref[AuditPage]),
                ref,
                [
                    _parameter("after", "integer", "Only what follows this number."),
                    _parameter("limit", "integer", "At most so many."),
                    _parameter("run", "string", "Only of this run."),
                ],
            )
        },
    }


def _dialect_paths() -> Document:
    return {
        "/dialects/{name}": {"post": _dialect("speak", [_in_path("name", "The dialect.", enum=NAMES)])},
        "/dialects/{name}/{rest}": {
            "post": _dialect(
                "speak_at",
                [
                    _in_path("name", "The dialect.", enum=NAMES),
                    _in_path("rest", "What clients of that dialect put behind the address, or whom they ask."),
                ],
            )
        },
    }


def _operator_paths(ref: dict[Any, Any]) -> Document:
    return {
        "/openapi.json": {"get": _open("openapi", "This document.", {"200": _reply("It.", {"type": "object"})})},
        "/metrics": {"get": _look("metrics", "Figures for Prometheus.", _plain("The figures."), ref)},
        "/healthz": {"get": _open("healthz", "Whether the process is alive.", {"200": _plain("It is.")})},
        "/readyz": {
            "get": _open(
                "readyz",
                "Whether it takes requests.",
                {"200": _plain("It does."), "503": _plain("It does not, or not yet.")},
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
    """Return what is said of another envelope: what is in it, and in its answers, its own document says."""
    return {
        "operationId": name,
        "summary": "Ask in another envelope.",
        "parameters": parameters,
        "requestBody": _body({"type": "object"}),
        "responses": {"default": _reply("As the document of that dialect says.", {})},
    }


# What each event of a stream is; the data of the last is the record that holds the response.
_EVENT: Document = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9]+$", "description": "Its number, if it is kept."},
        "event": {"enum": [str(kind) for kind in Kind]},
        "data": {"type": "string", "contentMediaType": "application/json", "description": "What is on record."},
    },
}

# Whoever got a run can look at it.
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
    return {str(status): _reply("It failed, or was refused.", either) for status in statuses}


def _failures(failure: Document) -> Document:
    meanings = {400: "Something in the request is wrong.", 401: "It proves nobody.", 403: "It is not allowed."}
    meanings |= {404: "It is not there.", 413: "It is too large.", 415: "It is of another type."}
    meanings |= {429: "Too many from that address have proven nobody."}
    meanings |= {431: "Its headers are too large.", 503: "Not now.", 504: "It came too slowly."}
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
