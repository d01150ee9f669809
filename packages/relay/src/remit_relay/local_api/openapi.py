"""The OpenAPI document of the local API, generated from its routes and the types that are sent and read."""

from collections.abc import Iterable
from typing import Any

from remit import __version__
from remit_relay.local_api.changes import DraftPart, StreamReady
from remit_relay.local_api.views import ConnectionView, DeviceView, ProfileView, SharedRunView, UnreadView
from remit_server.documents.api_values import FailureBody
from remit_server.openapi import Document, Schemas, described_operation, types_of, valid
from remit_server.operations import Operation

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


def shared_document(routes: Iterable[Operation], *, beside_hub: bool = False) -> Document:
    """Return the OpenAPI document of these routes; *beside_hub* links to that of the hub in the same process."""
    routes = list(routes)
    schemas = Schemas([FailureBody, *EVENT_TYPES.values(), *types_of(routes)])
    paths: Document = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
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
            "schemas": valid(schemas.components),
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


def _operation(route: Operation, schemas: Schemas) -> Document:
    operation = described_operation(route, schemas, _FAILURES, _event(schemas))
    operation["tags"] = [_group(route.path)]
    return operation


def _group(path: str) -> str:
    """Return the group of an address, by its first part after `/v1/shared/`; others are about the device."""
    _, _, first, *rest = path.split("/")
    name = rest[0] if first == "shared" and rest else first
    return name if name in _GROUPS else "device"


def _event(schemas: Schemas) -> Document:
    """Return the schema of an event; `run`, `device` and so on hold a whole view."""
    return {
        "oneOf": [
            {
                "type": "object",
                "required": ["event", "data"],
                "properties": {
                    "id": {"type": "string", "description": "The number of the change; some events have none."},
                    "event": {"const": name},
                    "data": {
                        "type": "string",
                        "contentMediaType": "application/json",
                        "contentSchema": schemas.of(kind),
                    },
                },
            }
            for name, kind in EVENT_TYPES.items()
        ]
    }
