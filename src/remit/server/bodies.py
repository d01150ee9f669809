"""Between HTTP and values: bodies in, within bounds, and values out."""

import math
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from hashlib import sha256
from typing import Any, TypeVar

from msgspec import Struct

from remit.protocol.codec import MAX_BYTES, encode
from remit.protocol.envelope import Response
from remit.protocol.errors import TABLE, Code, Fault, Problem, RemitError, fault
from remit.runtime.aside import SMALL_BODY, aside
from remit.transports.credentials.headers import CONTENT_DIGEST, PROOF, digest_in

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[str, str]

# All bodies that are being read at once: as large as is allowed on every connection, they would be gigabytes.
MOST_READ = 64 * 1024 * 1024
BUSY_MS = 1_000

JSON = b"application/json"
_JSON_HEADER = (b"content-type", JSON)


class FailureBody(Struct, frozen=True, kw_only=True):
    """What was wrong with a request that no delegation came of."""

    fault: Fault


class ClientGone(Exception):
    """Whoever asked has hung up."""


# Each of these says one thing. Said twice, whoever stands between may have believed the one, and this server the other.
_ONCE = frozenset(
    (
        "authorization",
        "content-digest",
        "content-encoding",
        "content-length",
        "content-type",
        "last-event-id",
        "remit-credential",
        "remit-proof",
        "traceparent",
        "x-agent-depth",
        "x-agent-origin",
        "x-agent-parent-session",
        "x-agent-request-id",
        "x-remit-user",
    )
)


def headers_of(scope: Scope) -> Headers:
    """Return the headers, in small letters; a list that stands in several is one, and what can be said once only is."""
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if name in found:
            if name in _ONCE:
                problem = Problem(name, "is sent more than once; send it once")
                raise RemitError(fault(Code.MALFORMED_ENVELOPE, f"invalid header {name}", problems=(problem,)))
            value = f"{found[name]}, {value}"
        found[name] = value
    return found


def quality(headers: Headers, media_type: str) -> float:
    """Return how welcome a type is as an answer, from 0 to 1, where the header `Accept` names it; else 0."""
    for each in headers.get("accept", "").split(","):
        name, *parameters = (part.strip().lower() for part in each.split(";"))
        if name == media_type:
            said = next((part[2:] for part in parameters if part.startswith("q=")), "1")
            return float(said) if _QUALITY.fullmatch(said) else 0.0
    return 0.0


_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?", re.ASCII)


def prefers(headers: Headers, wish: str) -> bool:
    """Say whether the header `Prefer` names a wish (RFC 7240)."""
    wishes = (each.partition(";")[0].strip().lower() for each in headers.get("prefer", "").split(","))
    return wish in wishes


async def read_json(headers: Headers, receive: Receive, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the body, or raise a `RemitError` for one that is too large, compressed, of another type, or changed.

    It is the one reader of bodies: what the header `Content-Digest` says of one, and so a hub's proof, holds for all
    of them. One that is too slow is the connection's to end (`HttpConnection`).
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        why = f"content type {kind[:100]} is not supported" if kind else "the header Content-Type is missing"
        raise RemitError(fault(Code.UNSUPPORTED_MEDIA_TYPE, why))
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        # A few bytes may unpack to gigabytes; envelopes are small enough to be sent as they are.
        raise RemitError(_COMPRESSED)
    said = headers.get("content-length", "")
    if said.isdecimal() and int(said) > max_bytes:
        raise RemitError(_too_large(max_bytes))
    body = await _READING.read(receive, max_bytes)
    stated = digest_in(headers.get(CONTENT_DIGEST.lower(), ""))
    if stated is not None and sha256(body).digest() != stated:
        why = f"the body does not match {CONTENT_DIGEST}: it was changed in transit"
        code = Code.UNAUTHENTICATED if PROOF.lower() in headers else Code.MALFORMED_ENVELOPE
        raise RemitError(fault(code, why, suggestion="Send the request again with the digest of its body."))
    return body


async def read_optional_json(headers: Headers, receive: Receive, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the body of a request that need not have one."""
    there = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    return await read_json(headers, receive, max_bytes) if there else b""


async def read_as(decode: Callable[[bytes], T], raw: bytes) -> T:
    """Return what a body says: read outside the event loop if it is large.

    Raises a `RemitError` for one that is wrong, and if too many large ones wait for their turn.
    """
    if len(raw) <= SMALL_BODY:
        return decode(raw)
    aside.refuse_if_full()
    return await aside.run(decode, raw)


class _Reading:
    """The bodies that are being read. All servers of a process share its memory, so there is one of these."""

    def __init__(self) -> None:
        self.bytes = 0

    async def read(self, receive: Receive, max_bytes: int) -> bytes:
        parts: list[bytes] = []
        size, more = 0, True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part: bytes = message.get("body", b"")
                more = message.get("more_body", False)
                size += len(part)
                self.bytes += len(part)
                if size > max_bytes:
                    raise RemitError(_too_large(max_bytes))
                if self.bytes > MOST_READ:
                    why = "this server is receiving too much data at once; nothing was started"
                    raise RemitError(fault(Code.OVERLOADED, why, retry_after_ms=BUSY_MS))
                parts.append(part)
        finally:
            self.bytes -= size
        return parts[0] if len(parts) == 1 else b"".join(parts)


_READING = _Reading()
_COMPRESSED = fault(
    Code.UNSUPPORTED_MEDIA_TYPE,
    "compressed bodies are not supported",
    suggestion="Send the body without a Content-Encoding.",
)


def _too_large(max_bytes: int) -> Fault:
    return fault(Code.TOO_LARGE, f"the body exceeds the limit of {max_bytes} bytes")


def status_of(response: Response) -> int:
    """Return the HTTP status for how a delegation ended."""
    if response.ok or response.fault is None:
        return 200
    return TABLE[response.fault.code].status


async def send_response(send: Send, response: Response) -> None:
    """Send how a delegation ended, as others are told of it."""
    response = response.outward()
    extra = _retry_after(response.fault) if response.fault is not None else ()
    await send_bytes(send, status_of(response), encode(response), (_JSON_HEADER, *extra))


async def send_value(
    send: Send, value: object, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send any value as JSON."""
    await send_bytes(send, status, encode(value), (_JSON_HEADER, *headers))


async def send_fault(send: Send, why: Fault, status: int | None = None) -> None:
    """Send why nothing came of a request, under the status of its code unless another says it better."""
    why = why.outward()
    status = status or TABLE[why.code].status
    extra = _retry_after(why)
    if status == 401:
        extra = (*extra, (b"www-authenticate", b"Bearer"))
    if status in (401, 413, 415, 429, 431, 503):
        # What is left of its body nobody wants to read, and nobody keeps a place who has not said who it is.
        extra = (*extra, (b"connection", b"close"))
    await send_bytes(send, status, encode(FailureBody(fault=why)), (_JSON_HEADER, *extra))


async def send_bytes(send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    """Send a whole reply."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def _retry_after(why: Fault) -> tuple[tuple[bytes, bytes], ...]:
    if why.retry_after_ms is None:
        return ()
    return ((b"retry-after", str(math.ceil(why.retry_after_ms / 1_000)).encode()),)
