"""The parts from which the OpenAPI document is put together: operations, parameters, bodies and responses."""

from typing import Any

from remit.documents.api_delegations import FailureBody
from remit.protocol.remit import LONGEST_NAME

Document = dict[str, Any]


def look(
    name: str, summary: str, found: Document, ref: dict[Any, Any], parameters: list[Document] | None = None
) -> Document:
    """Return an operation that reads something, with the ways in which it may fail."""
    return {
        "operationId": name,
        "summary": summary,
        "parameters": parameters or [],
        "responses": {"200": found, **failures(ref[FailureBody])},
    }


def open_to_all(name: str, summary: str, replies: Document) -> Document:
    """Return an operation that anyone may use."""
    return {"operationId": name, "summary": summary, "responses": replies}


def reply(meaning: str, schema: Document) -> Document:
    """Return a response with a JSON body."""
    return {"description": meaning, "content": {"application/json": {"schema": schema}}}


def plain_text(meaning: str) -> Document:
    """Return a response with a text."""
    return {"description": meaning, "content": {"text/plain": {"schema": {"type": "string"}}}}


def page(meaning: str) -> Document:
    """Return a response with a page for a browser."""
    return {"description": meaning, "content": {"text/html": {"schema": {"type": "string"}}}}


def body(schema: Document) -> Document:
    """Return a required JSON body."""
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def failures(failure: Document) -> Document:
    """Return the responses that report a failure."""
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
    return {str(status): reply(meaning, failure) for status, meaning in meanings.items()}


def in_path(name: str, meaning: str, **bounds: object) -> Document:
    """Return a part of the path."""
    schema = {"type": "string", **bounds}
    return {"name": name, "in": "path", "required": True, "description": meaning, "schema": schema}


def header(name: str, meaning: str, **bounds: object) -> Document:
    """Return an optional header."""
    schema = {"type": "string", **bounds}
    return {"name": name, "in": "header", "required": False, "description": meaning, "schema": schema}


def query_parameter(name: str, kind: str, meaning: str) -> Document:
    """Return an optional parameter of the query string."""
    bounds = {"minimum": 0, "maximum": 10**15 - 1} if kind == "integer" else {"maxLength": LONGEST_NAME}
    return {"name": name, "in": "query", "required": False, "description": meaning, "schema": {"type": kind, **bounds}}
