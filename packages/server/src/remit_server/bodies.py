"""HTTP bodies: read within limits, and written from values."""

import gzip
import math
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from hashlib import sha256
from typing import Any, TypeVar

from remit.policy.reception import with_session_of_peer
from remit.policy.shares import SharedTotal
from remit.protocol.codec import MAX_BYTES, encode
from remit.protocol.envelope import Response
from remit.protocol.errors import TABLE, Code, Fault, Problem, RemitError, fault
from remit.runtime.aside import SMALL_BODY, aside, current_share
from remit.words.failures import plain_failure, with_plain_summary
from remit_server.documents.api_values import FailureBody
from remit_server.transports.credentials.proof import CONTENT_DIGEST, PROOF, digest_in

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[str, str]

# The limit for all bodies being read at once: maximal bodies on every connection would add up to gigabytes.
MOST_READ = 64 * 1024 * 1024
BUSY_MS = 1_000

_DIGEST = CONTENT_DIGEST.lower()

JSON = b"application/json"
_JSON_HEADER = (b"content-type", JSON)


def failure_body(why: Fault) -> bytes:
    """Return the body that reports a fault."""
    return encode(FailureBody(fault=why, summary=plain_failure(why)))


class ClientGone(Exception):
    """The client disconnected."""


# Headers with a single value. Sent twice, a proxy may have believed one value and this server the other.
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
    """Return the headers with lower-case names; repeated lists are joined, repeated single values are refused."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if name in headers:
            if name in _ONCE:
                problem = Problem(name, "is sent more than once; send it once")
                raise RemitError(fault(Code.MALFORMED_ENVELOPE, f"invalid header {name}", problems=(problem,)))
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return headers


def quality(headers: Headers, media_type: str) -> float:
    """Return the quality of a media type in the `Accept` header, from 0 to 1; 0 if the header does not name it."""
    return _quality_in(headers.get("accept", ""), media_type)


def quality_of_coding(headers: Headers, coding: str) -> float:
    """Return the quality of a content coding in the `Accept-Encoding` header; 0 if the header does not name it."""
    return _quality_in(headers.get("accept-encoding", ""), coding)


def _quality_in(listed: str, wanted: str) -> float:
    for each in listed.split(","):
        name, *parameters = (part.strip().lower() for part in each.split(";"))
        if name == wanted:
            weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
            return float(weight) if _QUALITY.fullmatch(weight) else 0.0
    return 0.0


_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?", re.ASCII)


def prefers(headers: Headers, preference: str) -> bool:
    """Return whether the `Prefer` header names a preference (RFC 7240)."""
    preferences = (each.partition(";")[0].strip().lower() for each in headers.get("prefer", "").split(","))
    return preference in preferences


async def read_json(headers: Headers, receive: Receive, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the body, or raise a `RemitError` if it is too large, compressed, of another type, or changed.

    All bodies are read here, so `Content-Digest`, and with it a hub's proof, is checked for all of them. The connection
    ends bodies that arrive too slowly (`HttpConnection`).
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        why = f"content type {kind[:100]} is not supported" if kind else "the header Content-Type is missing"
        raise RemitError(fault(Code.UNSUPPORTED_MEDIA_TYPE, why))
    return await read_body(headers, receive, max_bytes)


async def read_body(headers: Headers, receive: Receive, max_bytes: int) -> bytes:
    """Return a body of any type, or raise a `RemitError` if it is too large, compressed, or changed."""
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        # A few bytes may decompress to gigabytes; envelopes are small enough to be sent uncompressed.
        raise RemitError(_COMPRESSED)
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise RemitError(_too_large(max_bytes))
    body = await _READING.read(receive, max_bytes)
    refuse_changed(headers, body)
    return body


def refuse_changed(headers: Headers, body: bytes) -> None:
    """Raise a `RemitError` if a body is not the one that its sender stated."""
    header = headers.get(_DIGEST)
    stated = None if header is None else digest_in(header)
    if stated is not None and sha256(body).digest() != stated:
        why = f"the body does not match {CONTENT_DIGEST}: it was changed in transit"
        code = Code.UNAUTHENTICATED if PROOF.lower() in headers else Code.MALFORMED_ENVELOPE
        raise RemitError(fault(code, why, suggestion="Send the request again with the digest of its body."))


async def read_optional_json(headers: Headers, receive: Receive, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the body of a request, or empty bytes if it has none."""
    there = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    return await read_json(headers, receive, max_bytes) if there else b""


async def read_as(decode: Callable[[bytes], T], raw: bytes) -> T:
    """Return a decoded body. Large bodies are decoded outside the event loop.

    Raises a `RemitError` for an invalid body, and if too many large bodies are waiting.
    """
    if len(raw) <= SMALL_BODY:
        return decode(raw)
    aside.refuse_if_full()
    return await aside.run(decode, raw)


class _Reading:
    """The bodies that are being read. All servers of a process share its memory, so there is one instance."""

    def __init__(self) -> None:
        self.held = SharedTotal(MOST_READ)

    async def read(self, receive: Receive, max_bytes: int) -> bytes:
        parts: list[bytes] = []
        size, more, share = 0, True, current_share.get()
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part: bytes = message.get("body", b"")
                more = message.get("more_body", False)
                size += len(part)
                self.held.take(share, len(part))
                if size > max_bytes:
                    raise RemitError(_too_large(max_bytes))
                if not self.held.has_room(share):
                    why = "this server is receiving too much data at once; nothing was started"
                    raise RemitError(fault(Code.OVERLOADED, why, retry_after_ms=BUSY_MS))
                parts.append(part)
        finally:
            self.held.give_back(share, size)
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
    """Return the HTTP status for the outcome of a delegation."""
    if response.ok or response.fault is None:
        return 200
    return TABLE[response.fault.code].status


def outward_response(response: Response, peer: str | None) -> Response:
    """Return the outcome of a delegation for whoever asked, without what is for the operator alone.

    A client gets a summary that its user can read. A peer gets its own session name, and words failures itself.
    """
    response = response.outward()
    if peer is not None:
        return with_session_of_peer(response, peer)
    return response if response.ok else with_plain_summary(response)


async def send_response(send: Send, response: Response) -> None:
    """Send the outcome of a delegation."""
    extra = _retry_after(response.fault) if response.fault is not None else ()
    await send_bytes(send, status_of(response), encode(response), (_JSON_HEADER, *extra))


async def send_value(
    send: Send, value: object, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send a value as JSON."""
    await send_bytes(send, status, encode(value), (_JSON_HEADER, *headers))


async def send_fault(send: Send, why: Fault, status: int | None = None, *, closes: bool = False) -> None:
    """Send a fault, with the HTTP status of its code unless *status* is given; *closes*: the body was not read."""
    why = why.outward()
    status = status or TABLE[why.code].status
    extra = _retry_after(why)
    if status == 401:
        extra = (*extra, (b"www-authenticate", b"Bearer"))
    if closes or status in (401, 413, 415, 429, 431, 503):
        # The rest of the body will not be read, and an unauthenticated client must not hold a connection.
        extra = (*extra, (b"connection", b"close"))
    await send_bytes(send, status, failure_body(why), (_JSON_HEADER, *extra))


async def send_bytes(send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    """Send a whole response."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def _retry_after(why: Fault) -> tuple[tuple[bytes, bytes], ...]:
    if why.retry_after_ms is None:
        return ()
    return ((b"retry-after", str(math.ceil(why.retry_after_ms / 1_000)).encode()),)


# ── large values ──────────────────────────────────────────────────────────────────────────────────────────────────────

# A smaller body is not worth the time.
WORTH_IT = 2_048
# Beyond this level a table of delegations gets 3 % smaller, and takes twice the time.
LEVEL = 4


async def send_large(send: Send, headers: Headers, value: object) -> None:
    """Send a value as JSON, compressed with gzip if the client accepts that."""
    compress = quality_of_coding(headers, "gzip") > 0
    body, compressed = await aside.run(_encoded, value, compress)
    coding = ((b"content-encoding", b"gzip"),) if compressed else ()
    await send_bytes(send, 200, body, ((b"content-type", JSON), (b"vary", b"accept-encoding"), *coding))


def _encoded(value: object, compress: bool) -> tuple[bytes, bool]:
    body = encode(value)
    if not compress or len(body) < WORTH_IT:
        return body, False
    # The time would make equal bodies differ.
    return gzip.compress(body, LEVEL, mtime=0), True
