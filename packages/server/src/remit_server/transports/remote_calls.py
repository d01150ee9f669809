"""What all remote transports share: requests, retry limits, reading within limits, and outcomes without an answer."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from remit.ports import Departure, RemoteHandle, unknown_outcome
from remit.protocol.envelope import VERSION, Request, Response, Usage
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind

if TYPE_CHECKING:
    from aiohttp import ClientConnectorError, ClientResponse, ConnectionTimeoutError

    from remit_server.transports.credentials.outgoing import ReplyCheck


# How often a request is sent again where that is safe, and the first pause; each further pause is twice as long.
ATTEMPTS = 3
PAUSE_S = 0.05
# How long to wait for a peer to which nothing was sent: most restarts are over by then.
AWAY_MS = 30_000
# The answer takes time to travel: the callee gets a twentieth less than the time left, but at most this much less.
WAY_MS = 200
# A cancel waits no longer than the callee's grace time.
CANCEL_S = 4.0
# The advice for an answer that is too large.
ASK_FOR_LESS = "Ask for less, or for a reference to the result."


# A hub keeps outcomes for 24 hours (`runtime/leases.py`), and may execute the same id again after that. An hour less
# allows for clocks that differ.
WINDOW_MS = 23 * 3_600_000


def is_away(error: BaseException) -> bool:
    """Return whether a connection error may pass: nobody listens there now, or the name is not known yet."""
    from aiohttp import ClientConnectorCertificateError, ClientConnectorError, ClientConnectorSSLError

    lasting = (ClientConnectorCertificateError, ClientConnectorSSLError)
    return isinstance(error, (ClientConnectorError, TimeoutError)) and not isinstance(error, lasting)


class RetryAllowed(Exception):
    """The request may be sent again: nothing runs twice."""

    def __init__(self, why: Fault, *, sent: bool, away: bool = False) -> None:
        super().__init__(why.message)
        self.fault = why
        self.sent = sent
        self.away = away
        """Whether there was no connection: then the peer may be restarting."""
        self.after_s = (why.retry_after_ms or 0) / 1_000


def outgoing(request: Request, line: RemoteHandle) -> Request:
    """Return a request as it leaves the hub: with its remaining time and its place in the trace."""
    remit = replace(request.remit, time_ms=min(time_there_ms(line.time_left_ms()), request.remit.time_ms))
    # The context filter is already applied to the view, and other teams ask their own people.
    return replace(request, remit=remit, traceparent=line.traceparent, context=None, approved=())


def time_there_ms(left_ms: int) -> int:
    """Return how long a callee may take whose caller waits for *left_ms*."""
    return max(0, left_ms - min(WAY_MS, left_ms // 20))


def is_known_there(line: RemoteHandle, left: Departure) -> bool:
    """Return whether a hub that received a request still knows its id, so that sending it again starts nothing."""
    return 0 <= line.age_ms(left) < WINDOW_MS


def refused(request: Request, why: Fault) -> Response:
    """Return the response of a request that did not start."""
    status = Status.TIMEOUT if why.code is Code.TIMEOUT else Status.REFUSED
    return Response(version=VERSION, id=request.id, target=request.target, status=status, run=request.run, fault=why)


def lost(request: Request, why: Fault, *, sent: bool) -> Response:
    """Return the response of a request whose outcome is unknown: once sent, its whole grant counts as spent."""
    if not sent:
        return refused(request, why)
    if why.code is not Code.OUTCOME_UNKNOWN:
        why = fault(Code.OUTCOME_UNKNOWN, why.message, detail=why.detail)
    return replace(unknown_outcome(request, why), usage=Usage(prompt=request.remit.tokens, estimated=True))


Attempt = Callable[[bool], Awaitable[Response]]
"""Sends a request, given whether it was sent before."""


async def with_retries(
    request: Request, line: RemoteHandle, attempt: Attempt, *, sent: bool, most_pause_s: float
) -> Response:
    """Return the outcome of a request; one that was *sent* may have started, and is asked for until its deadline.

    A peer that is away is waited for, unless another agent can be asked instead.
    """
    attempts, step_s = 0, PAUSE_S
    least_left_ms = line.time_left_ms() - AWAY_MS
    while True:
        try:
            return await attempt(sent)
        except RetryAllowed as again:
            sent, attempts = sent or again.sent, attempts + 1
            if not sent:
                line.doubt("")
            pause_s = max(again.after_s, step_s * random.uniform(0.5, 1.5))
            waits = again.away and not line.has_alternative and line.time_left_ms() > least_left_ms
            if waits and attempts == ATTEMPTS:
                line.progress("cannot be reached; trying again", None)
            if (attempts >= ATTEMPTS and not sent and not waits) or pause_s * 1_000 >= line.time_left_ms() / 2:
                return lost(request, again.fault, sent=sent)
        await asyncio.sleep(pause_s)
        step_s = min(2 * step_s, most_pause_s)


async def shielded(work: Awaitable[None], most_s: float) -> None:
    """Finish *work* even if the caller is cancelled, within *most_s*; errors are ignored."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=most_s)
    finally:
        if task.done():
            task.exception() if not task.cancelled() else None
        else:
            task.cancel()


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
    body = bytearray()
    async for part in reply.content.iter_any():
        body += part
        if len(body) > most:
            raise RemitError(fault(Code.TOO_LARGE, f"the answer is larger than {most} bytes", suggestion=ASK_FOR_LESS))
    return bytes(body)


class StreamEvent(NamedTuple):
    """One event of a stream: its number, if it is stored, and the record that it holds."""

    number: str | None
    kind: Kind
    data: bytes


async def stream_events(
    reply: "ClientResponse", max_bytes: int, check: "ReplyCheck | None" = None
) -> AsyncIterator[StreamEvent]:
    """Yield the events of a stream, each within a size limit; with a *check*, those that are proven."""
    rest, held = bytearray(), list[StreamEvent]()
    async for part in reply.content.iter_any():
        # Only the new bytes are searched: a peer that sends byte by byte must not cost more than others.
        start = max(0, len(rest) - 1)
        rest += part
        while (end := rest.find(b"\n\n", start)) >= 0:
            block = bytes(rest[:end])
            del rest[: end + 2]
            start = 0
            proven = check is None or check.is_proven_block(block)
            if (event := _event(block)) is not None:
                held.append(event)
            if proven:
                for event in held:
                    yield event
                held.clear()
        if len(rest) + sum(len(each.data) for each in held) > max_bytes:
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
