"""Reading the answers of other servers: bodies and event streams within limits, and connection errors."""

import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Kind
from remit.transports.remote_calls import ASK_FOR_LESS

if TYPE_CHECKING:
    from aiohttp import ClientConnectorError, ClientResponse, ConnectionTimeoutError

# How long to wait for a connection.
CONNECT_S = 5.0


def in_words(error: "ClientConnectorError | ConnectionTimeoutError") -> str:
    """Describe a connection error."""
    from aiohttp import (
        ClientConnectorCertificateError,
        ClientConnectorDNSError,
        ClientConnectorSSLError,
        ConnectionTimeoutError,
    )

    match error:
        case ConnectionTimeoutError():
            return f"no answer within {CONNECT_S:g} s"
        case ClientConnectorDNSError():
            return "unknown host"
        case ClientConnectorCertificateError():
            return f"the certificate is not trusted ({error.certificate_error})"
        case ClientConnectorSSLError():
            return "the server does not support https"
        case _:
            return os.strerror(error.os_error.errno) if error.os_error.errno else type(error).__name__


async def read_body(reply: "ClientResponse", most: int) -> bytes:
    """Return a body within a size limit."""
    found = bytearray()
    async for part in reply.content.iter_any():
        found += part
        if len(found) > most:
            raise RemitError(fault(Code.TOO_LARGE, f"the answer is larger than {most} bytes", suggestion=ASK_FOR_LESS))
    return bytes(found)


class StreamEvent(NamedTuple):
    """One event of a stream: its number, if it is stored, and the record that it holds."""

    number: str | None
    kind: Kind
    data: bytes


async def stream_events(reply: "ClientResponse", max_bytes: int) -> AsyncIterator[StreamEvent]:
    """Yield the events of a stream, each within a size limit."""
    rest = bytearray()
    async for part in reply.content.iter_any():
        # Only the new bytes are searched: a peer that sends byte by byte must not cost more than others.
        start = max(0, len(rest) - 1)
        rest += part
        while (end := rest.find(b"\n\n", start)) >= 0:
            event = _event(bytes(rest[:end]))
            del rest[: end + 2]
            start = 0
            if event is not None:
                yield event
        if len(rest) > max_bytes:
            raise RemitError(
                fault(Code.TOO_LARGE, f"an event is larger than {max_bytes} bytes", suggestion=ASK_FOR_LESS)
            )


def _event(raw: bytes) -> StreamEvent | None:
    fields: dict[bytes, bytes] = {}
    for line in raw.split(b"\n"):
        name, _, value = line.partition(b": ")
        fields[name] = value
    if b"event" not in fields or b"data" not in fields:
        return None
    number = fields.get(b"id")
    try:
        return StreamEvent(number.decode() if number else None, Kind(fields[b"event"].decode()), fields[b"data"])
    except ValueError:
        return None  # a kind that this version does not know
