"""The OpenAPI document of the local API, generated from its routes and the types that are sent and read."""

import re
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from remit import __version__
from remit.documents.api_delegations import FailureBody
from remit.documents.schema import as_others_read
from remit.protocol.errors import INWARD
from remit.server.openapi_fields import described
from remit.server.openapi_tags import valid
from remit.server.public_devices import ConnectionView, DeviceView, ProfileView
from remit.server.public_runs import SharedRunView, UnreadView
from remit.server.shared_browser import OPEN
from remit.server.shared_events import StreamReady
from remit.server.shared_routes import QueryParameter, SharedRoute
from remit.server.shared_stream import DraftPart

Document = dict[str, Any]

EVENT_TYPES: dict[str, Any] = {
    "run": SharedRunView,
    "device": DeviceView,
    "profile": ProfileView,
    "connection": ConnectionView,
    "unread": UnreadView,
    "draft": DraftPart,
    "ready": StreamReady,
}
"""The type of the data of each event of the stream."""

_FAILURES = {
    400: "The request is invalid.",
    401: "The token or the session is missing or invalid.",
    403: "Not allowed: another origin, or a profile or device without the permission.",
    404: "Not found.",
    409: "Not possible in the current state.",
    413: "The body is too large.",
    415: "The content type is not supported.",
    429: "Too many messages or wrong tokens in a short time.",
    503: "The server is shutting down, or the device's file cannot be used now.",
}


# The groups of operations.
_GROUPS = {
    "runs": "Runs with shared agents, and the actions on them.",
    "pairings": "Pairing with another device.",
    "policies": "What is granted to other devices.",
    "console": "Sessions of browsers.",
    "device": "The device, its profiles and connections, and everything that changes.",
}


def shared_document(routes: Iterable[SharedRoute], *, beside_hub: bool = False) -> Document:
    """Return the OpenAPI document of these routes; *beside_hub* links to that of the hub in the same process."""
    routes = list(routes)
    named = [each for route in routes for each in (route.takes, route.answer) if each is not None]
    types = list(dict.fromkeys([FailureBody, *EVENT_TYPES.values(), *named]))
    schemas, found = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    components = cast("Document", as_others_read(found))
    for name in INWARD:
        del components["Fault"]["properties"][name]
    components = {name: each for name, each in components.items() if name not in ("Origin", "SourceLine")}
    components = described(components, types)
    ref: dict[Any, Any] = dict(zip(types, schemas, strict=True))
    paths: Document = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, ref)
    groups = sorted({name for path in paths.values() for each in path.values() for name in each["tags"]})
    more: Document = {"externalDocs": {"url": "/docs", "description": "The API of the hub"}} if beside_hub else {}
    return {
        "openapi": "3.1.0",
        **more,
        "info": {
            "title": "Remit on this machine",
            "version": __version__,
            "description": "Runs with shared agents, for programs and browsers of the same user on the same machine.",
            "contact": {"name": "Remit"},
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The process that this document comes from."}],
        "tags": [{"name": name, "description": _GROUPS[name]} for name in groups],
        "security": [{"bearer": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": valid(components),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "remit_PORT",
                    "description": "Set by a one-time link or the token. Requests must send `x-remit-page-key` with "
                    "the key that the sign-in told, and those that change something `Origin`.",
                },
            },
        },
    }


def _operation(route: SharedRoute, ref: dict[Any, Any]) -> Document:
    operation: Document = {
        "operationId": route.name,
        "summary": route.summary,
        "description": route.summary,
        "tags": [_group(route.path)],
        "parameters": [*map(_in_path, re.findall(r"{(\w+)}", route.path)), *map(_query, route.parameters)],
        "responses": {
            str(route.status): _answer(route, ref),
            **{str(status): _reply(meaning, ref[FailureBody]) for status, meaning in _FAILURES.items()},
        },
    }
    if route.stream:
        meaning = "The last number received, to continue after it."
        header = {"name": "Last-Event-ID", "in": "header", "required": False, "description": meaning}
        operation["parameters"].append({**header, "schema": {"type": "string"}})
    if route.takes is not None:
        schema = ref[route.takes]
        operation["requestBody"] = {"required": False, "content": {"application/json": {"schema": schema}}}
    if (route.method, route.path) in OPEN:
        operation["security"] = []
    return operation


def _group(path: str) -> str:
    """Return the group of an address, by its first part after `/v1/shared/`; others are about the device."""
    _, _, first, *rest = path.split("/")
    name = rest[0] if first == "shared" and rest else first
    return name if name in _GROUPS else "device"


def _answer(route: SharedRoute, ref: dict[Any, Any]) -> Document:
    if route.stream:
        return {"description": route.summary, "content": {"text/event-stream": {"schema": _event(ref)}}}
    return {"description": route.summary} if route.answer is None else _reply(route.summary, ref[route.answer])


def _event(ref: dict[Any, Any]) -> Document:
    """Return the schema of an event; `run`, `device` and so on hold a whole view."""
    return {
        "oneOf": [
            {
                "type": "object",
                "required": ["event", "data"],
                "properties": {
                    "id": {"type": "string", "description": "The number of the change; some events have none."},
                    "event": {"const": name},
                    "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": ref[kind]},
                },
            }
            for name, kind in EVENT_TYPES.items()
        ]
    }


def _reply(meaning: str, schema: Document) -> Document:
    return {"description": meaning, "content": {"application/json": {"schema": schema}}}


def _in_path(name: str) -> Document:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query(each: QueryParameter) -> Document:
    schema = {"type": each.kind}
    return {
        "name": each.name,
        "in": "query",
        "required": each.required,
        "description": each.meaning,
        "schema": schema,
    }
