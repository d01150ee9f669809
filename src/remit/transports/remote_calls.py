"""What every way to an agent elsewhere has in common: what goes out, and how it ends if nothing comes back."""

import asyncio
from collections.abc import Awaitable

from msgspec.structs import replace

from remit.protocol.envelope import VERSION, Request, Response, Usage
from remit.protocol.errors import Code, Fault, fault
from remit.protocol.lifecycle import Status
from remit.runtime.ports import Departure, RemoteHandle

# How often the same is sent again, where that is safe, and the first pause; each further one is twice as long.
ATTEMPTS = 3
PAUSE_S = 0.05
# The way back takes time too: what the callee gets is a twentieth less than there is, but not by more than this.
WAY_MS = 200
# Whoever cancels waits no longer than the grace time that the callee has.
CANCEL_S = 4.0
# What is advised where an answer is larger than is taken.
ASK_FOR_LESS = "Ask for less, or for a reference to the result."


# A hub keeps outcomes for 24 hours (`runtime/leases.py`), and may carry out the same id anew after that. An hour less
# is for clocks that differ.
WINDOW_MS = 23 * 3_600_000


class RetryAllowed(Exception):
    """It may be asked again: nothing runs twice."""

    def __init__(self, why: Fault, *, sent: bool) -> None:
        super().__init__(why.message)
        self.fault = why
        self.sent = sent
        self.after_s = (why.retry_after_ms or 0) / 1_000


def outgoing(request: Request, line: RemoteHandle) -> Request:
    """Return a request as it leaves the hub: with the time that is left for it, and its place in the trace."""
    left_ms = line.time_left_ms()
    time_ms = max(0, left_ms - min(WAY_MS, left_ms // 20))
    remit = replace(request.remit, time_ms=min(time_ms, request.remit.time_ms))
    # What the filter asked for is in the view.
    return replace(request, remit=remit, traceparent=line.traceparent, context=None)


def is_known_there(line: RemoteHandle, left: Departure) -> bool:
    """Say whether a hub that got a request still knows it by its id, so that sending it again begins nothing."""
    return 0 <= line.age_ms(left) < WINDOW_MS


def refused(request: Request, why: Fault) -> Response:
    """Return the end of what nothing came of there."""
    status = Status.TIMEOUT if why.code is Code.TIMEOUT else Status.REFUSED
    return Response(version=VERSION, id=request.id, target=request.target, status=status, run=request.run, fault=why)


def lost(request: Request, why: Fault, *, sent: bool) -> Response:
    """Return the end of what nothing more can be learned of: once sent, what it was granted counts as spent."""
    if not sent:
        return refused(request, why)
    if why.code is not Code.OUTCOME_UNKNOWN:
        why = fault(Code.OUTCOME_UNKNOWN, why.message, detail=why.detail)
    usage = Usage(prompt=request.remit.tokens, estimated=True)
    return replace(refused(request, why), status=Status.FAILED, usage=usage)


async def shielded(work: Awaitable[None], most_s: float) -> None:
    """Do something although whoever does it is told to stop, in bounded time; if it fails, so be it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=most_s)
    finally:
        if task.done():
            task.exception() if not task.cancelled() else None
        else:
            task.cancel()
