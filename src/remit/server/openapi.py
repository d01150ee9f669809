"""The OpenAPI document, generated from the types that are sent and read."""

from typing import Any, cast

import msgspec

from remit import __version__
from remit.dialects import NAMES
from remit.documents.api_delegations import AgentList, FailureBody, Handle, PublicCard, Reason
from remit.documents.schema import as_others_read, published
from remit.policy.context import ROLES
from remit.protocol.codec import VERSIONS
from remit.protocol.envelope import Response
from remit.protocol.errors import INWARD, TABLE
from remit.protocol.records import Kind
from remit.protocol.submission import Submission
from remit.server.access import access_to
from remit.server.decision_openapi import DECISION_TYPES, decision_paths
from remit.server.figures_openapi import TYPES as FIGURE_TYPES
from remit.server.figures_openapi import figure_paths
from remit.server.openapi_fields import described
from remit.server.openapi_parts import (
    Document,
    body,
    failures,
    header,
    in_path,
    look,
    open_to_all,
    page,
    plain_text,
    query_parameter,
    reply,
)
from remit.server.openapi_records import RECORD_TYPES, record_paths
from remit.server.openapi_tags import TAGS, tagged, valid
from remit.server.public_console import CONSOLE, ENTER, LINKS, SESSION, ConsoleInfo, OneTimeLink, SignedOut, SignIn
from remit.server.run_openapi import RUN_TYPES, run_paths
from remit.server.user_endpoints import ErasedUser

_TYPES = (
    Submission,
    Response,
    Handle,
    FailureBody,
    Reason,
    AgentList,
    PublicCard,
    ErasedUser,
    ConsoleInfo,
    SignIn,
    SignedOut,
    OneTimeLink,
    *RUN_TYPES,
    *RECORD_TYPES,
    *DECISION_TYPES,
    *FIGURE_TYPES,
)
_TEMPLATE = "#/components/schemas/{name}"

# The published names of types that have other names in the code.
PUBLISHED = {"AgentList": "Agents", "FailureBody": "Failure", "PublicRun": "RunLine", "PublicRunTree": "RunTree"}


def document() -> Document:
    """Return the OpenAPI document of the server."""
    schemas, found = msgspec.json.schema_components(_TYPES, ref_template=_TEMPLATE)
    components = _outward(published(cast("Document", as_others_read(found)), PUBLISHED))
    components = described(components, _TYPES, PUBLISHED)
    # Constraints that are checked after decoding.
    components["Submission"]["properties"]["version"]["enum"] = list(VERSIONS.readable)
    components["ContextFilter"]["properties"]["roles"]["anyOf"][0]["items"] = {"enum": list(ROLES)}
    ref: dict[Any, Any] = {
        kind: published({"": schema}, PUBLISHED)[""] for kind, schema in zip(_TYPES, schemas, strict=True)
    }
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
        "tags": [{"name": name, "description": meaning} for name, meaning in TAGS.items()],
        "paths": tagged(_permitted(_paths(ref))),
        "components": {
            "schemas": valid(components),
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
                operation["x-remit-permission"] = str(access.needs)
                more = f"Requires the permission `{access.needs}`."
                operation["description"] = " ".join(filter(None, (operation.get("description"), more)))
            elif access.others is not None:
                operation["x-remit-others"] = str(access.others)
                more = f"Runs of others require the permission `{access.others}`."
                operation["description"] = " ".join(filter(None, (operation.get("description"), more)))
    return paths


def _paths(ref: dict[Any, Any]) -> Document:
    known = {
        **_delegation_paths(ref),
        **_lookup_paths(ref),
        **run_paths(ref),
        **record_paths(ref),
        **decision_paths(ref),
        **figure_paths(ref),
        **_user_paths(ref),
    }
    return {**known, **_console_paths(ref), **_dialect_paths(), **_operator_paths(ref)}


def _delegation_paths(ref: dict[Any, Any]) -> Document:
    delegation = [in_path("id", "The id of the run, or the sender's own request id while the server remembers it.")]
    ended = reply("The outcome of the delegation.", ref[Response])
    stream: Document = {
        "description": "The events of the delegation.",
        "content": {"text/event-stream": {"schema": _EVENT}},
    }
    waiting = {**reply("The delegation has not ended.", ref[Handle]), "links": _LINKS}
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
                    header("Prefer", "`respond-async`: answer with a handle once the request is stored."),
                    header("traceparent", "The trace of the request, as W3C Trace Context defines it."),
                ],
                "requestBody": body(ref[Submission]),
                "responses": {"200": answered, "202": waiting, **_refusals(ref[Response], ref[FailureBody])},
            }
        },
        "/v1/delegations/{id}": {
            "get": {
                "operationId": "look",
                "summary": "Get the outcome or the state of a delegation.",
                "parameters": delegation,
                "responses": {"200": ended, "202": waiting, **failures(ref[FailureBody])},
            }
        },
        "/v1/delegations/{id}/events": {
            "get": {
                "operationId": "read_along",
                "summary": "Follow the events of a delegation, from its start or after an event.",
                "parameters": [
                    *delegation,
                    header("Last-Event-ID", "The number of the last event received.", pattern="^[0-9]{1,18}$"),
                ],
                "responses": {"200": stream, **failures(ref[FailureBody])},
            }
        },
        "/v1/delegations/{id}/cancel": {
            "post": {
                "operationId": "cancel",
                "summary": "Cancel a delegation and everything below it.",
                "parameters": delegation,
                "requestBody": {**body(ref[Reason]), "required": False},
                "responses": {"200": ended, "202": waiting, **failures(ref[FailureBody])},
            }
        },
    }


def _lookup_paths(ref: dict[Any, Any]) -> Document:
    return {
        "/v1/agents": {
            "get": look("agents", "The agents that the client may ask.", reply("The agents.", ref[AgentList]), ref)
        },
        "/v1/agents/{name}": {
            "get": look(
                "agent",
                "One agent.",
                reply("The agent.", ref[PublicCard]),
                ref,
                [in_path("name", "The agent's name.")],
            )
        },
    }


def _user_paths(ref: dict[Any, Any]) -> Document:
    erased = reply("What was erased.", ref[ErasedUser])
    summary = "Erase a user with everything that is kept about them."
    return {
        "/v1/users/{user}": {"delete": look("erase", summary, erased, ref, [in_path("user", "The user.")])},
    }


def _console_paths(ref: dict[Any, Any]) -> Document:
    """Return the operations of a browser's session, which are there if the server serves the console."""
    shown = reply("What is served here, and who is signed in.", ref[ConsoleInfo])
    made = look("make_link", "Make a link that signs in one browser, once.", {}, ref)
    entered = look("enter", "Sign in a browser by a one-time link: sets a cookie and redirects.", {}, ref)
    signed_in = look("sign_in", "Sign in a browser by the token of a client: sets a cookie.", {}, ref)
    for operation, status, found in (
        (made, "201", reply("The link.", ref[OneTimeLink])),
        (entered, "303", {"description": "The browser is signed in."}),
        (signed_in, "201", shown),
    ):
        del operation["responses"]["200"]
        operation["responses"][status] = found
    entered["parameters"] = [{**query_parameter("code", "string", "The code in the link."), "required": True}]
    ended = reply("Whether there was a session.", ref[SignedOut])
    return {
        CONSOLE: {"get": look("console", "What is served here, and who is signed in.", shown, ref)},
        SESSION: {
            "post": {**signed_in, "requestBody": body(ref[SignIn])},
            "delete": look("sign_out", "End the session of the browser.", ended, ref),
        },
        ENTER: {"get": entered},
        LINKS: {"post": made},
    }


def _dialect_paths() -> Document:
    return {
        "/dialects/{name}": {"post": _dialect("speak", [in_path("name", "The dialect.", enum=NAMES)])},
        "/dialects/{name}/{rest}": {
            "post": _dialect(
                "speak_at",
                [
                    in_path("name", "The dialect.", enum=NAMES),
                    in_path("rest", "The path that clients of the dialect append, or the agent to ask."),
                ],
            )
        },
    }


def _operator_paths(ref: dict[Any, Any]) -> Document:
    return {
        "/openapi.json": {
            "get": open_to_all("openapi", "This document.", {"200": reply("The document.", {"type": "object"})})
        },
        "/docs": {
            "get": open_to_all(
                "docs",
                "This document as a page for people.",
                {"200": page("The page."), "503": plain_text("This installation has no page.")},
            )
        },
        "/metrics": {"get": look("metrics", "Metrics for Prometheus.", plain_text("The metrics."), ref)},
        "/healthz": {"get": open_to_all("healthz", "Whether the process is alive.", {"200": plain_text("Alive.")})},
        "/readyz": {
            "get": open_to_all(
                "readyz",
                "Whether the server accepts requests.",
                {"200": plain_text("Ready."), "503": plain_text("Not ready.")},
            )
        },
    }


def _dialect(name: str, parameters: list[Document]) -> Document:
    """Return the operation of a dialect; its own documentation defines requests and responses."""
    return {
        "operationId": name,
        "summary": "Ask in the envelope of another system.",
        "parameters": parameters,
        "requestBody": body({"type": "object"}),
        "responses": {
            "200": reply("As the dialect defines it.", {}),
            "default": reply("What went wrong, as the dialect defines it.", {}),
        },
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


def _refusals(response: Document, failure: Document) -> Document:
    """Return every status that a delegation may end with besides success."""
    either = {"anyOf": [response, failure]}
    statuses = sorted({row.status for row in TABLE.values()} | {431})
    return {str(status): reply("The delegation failed or was refused.", either) for status in statuses}
