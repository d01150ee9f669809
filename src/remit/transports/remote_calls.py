"""What all remote transports share: the outgoing request, retry limits, and outcomes without an answer."""

import asyncio
from collections.abc import Awaitable

from msgspec.structs import replace

from remit.protocol.envelope import VERSION, Request, Response, Usage
from remit.protocol.errors import Code, Fault, fault
from remit.protocol.lifecycle import Status
from remit.runtime.ports import Departure, RemoteHandle

# How often a request is sent again where that is safe, and the first pause; each further pause is twice as long.
ATTEMPTS = 3
PAUSE_S = 0.05
# The answer takes time to travel: the callee gets a twentieth less than the time left, but at most this much less.
WAY_MS = 200
# A cancel waits no longer than the callee's grace time.
CANCEL_S = 4.0
# The advice for an answer that is too large.
ASK_FOR_LESS = "Ask for less, or for a reference to the result."


# A hub keeps outcomes for 24 hours (`runtime/leases.py`), and may execute the same id again after that. An hour less
# allows for clocks that differ.
WINDOW_MS = 23 * 3_600_000


class RetryAllowed(Exception):
    """The request may be sent again: nothing runs twice."""

    def __init__(self, why: Fault, *, sent: bool) -> None:
        super().__init__(why.message)
        self.fault = why
        self.sent = sent
        self.after_s = (why.retry_after_ms or 0) / 1_000


def outgoing(request: Request, line: RemoteHandle) -> Request:
    """Return a request as it leaves the hub: with its remaining time and its place in the trace."""
    left_ms = line.time_left_ms()
    time_ms = max(0, left_ms - min(WAY_MS, left_ms // 20))
    remit = replace(request.remit, time_ms=min(time_ms, request.remit.time_ms))
    # The context filter is already applied to the view.
    return replace(request, remit=remit, traceparent=line.traceparent, context=None)


def is_known_there(line: RemoteHandle, left: Departure) -> bool:
    """Say whether a hub that received a request still knows its id, so that sending it again starts nothing."""
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
    usage = Usage(prompt=request.remit.tokens, estimated=True)
    return replace(refused(request, why), status=Status.FAILED, usage=usage)


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
