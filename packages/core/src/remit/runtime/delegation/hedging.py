"""Hedging: a second agent is asked when the first takes long; the first good answer counts, the other is stopped."""

import asyncio
from functools import partial

from remit.protocol.envelope import Response
from remit.protocol.errors import Code, fault
from remit.runtime.context import Delegator
from remit.runtime.frames import Frame


async def race(dispatch: Delegator, parent: Frame, first: Frame, hedge_ms: int) -> Frame:
    """Return the one of the two delegations whose outcome counts; it has ended.

    Both together get no more than the first was granted: the tokens of the second were set aside from the beginning.
    """
    if not await _takes_long(dispatch, first, hedge_ms):
        return first
    second = await _asked_beside(dispatch, parent, first)
    if second is None:
        await asyncio.wait({first.outcome})
        return first
    dispatch.recording.notice(second, f"asked too, because {first.card.name} had not answered after {hedge_ms} ms")
    try:
        return await _decided(dispatch, first, second)
    except asyncio.CancelledError:
        await dispatch.tasks.end((second,), "its caller was cancelled")
        raise


async def _takes_long(dispatch: Delegator, frame: Frame, hedge_ms: int) -> bool:
    """Return once a delegation has ended or a hedge is due; return whether a hedge is due.

    Time in which a person is asked does not count.
    """
    clock, hedge_s = dispatch.parts.clock, hedge_ms / 1_000
    while not frame.outcome.done():
        now = clock.now()
        due = now + hedge_s if frame.pauses else frame.started + frame.waited_s + hedge_s
        if now >= due:
            return True
        rung: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        take_back = clock.call_at(due, partial(_ring, rung))
        try:
            await asyncio.wait({frame.outcome, rung}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            take_back()
    return False


def _ring(rung: "asyncio.Future[None]") -> None:
    if not rung.done():
        rung.set_result(None)


async def _asked_beside(dispatch: Delegator, parent: Frame, first: Frame) -> Frame | None:
    """Return the hedge; None if no other agent may be asked, or the first ended meanwhile."""
    route = dispatch.routing.beside(first)
    if route is None:
        return None
    # Admission may take long if a person has to agree: nobody waits for that once there is an answer.
    # Both count as one of the caller's delegations in flight.
    begin = dispatch.begin(parent, route.call, at_once=max(1, parent.in_flight()), route=route)
    admission = asyncio.get_running_loop().create_task(begin)
    try:
        await asyncio.wait({admission, first.outcome}, return_when=asyncio.FIRST_COMPLETED)
        if first.outcome.done() and not first.outcome.result().ok:
            await asyncio.wait({admission})  # it takes the place of the first
        begun = await _begun(admission)
    except asyncio.CancelledError:
        if (begun := await _begun(admission)) is not None:
            await dispatch.tasks.end((begun,), "its caller was cancelled")
        raise
    if begun is None:
        dispatch.parts.ledger.take_back(first, route.call.max_tokens or 0)
    return begun


async def _begun(admission: "asyncio.Task[Frame | Response]") -> Frame | None:
    """Return what was admitted so far; the rest is not needed any more."""
    admission.cancel()
    await asyncio.wait({admission})
    begun = None if admission.cancelled() else admission.result()
    return begun if isinstance(begun, Frame) else None


async def _decided(dispatch: Delegator, first: Frame, second: Frame) -> Frame:
    both = (first, second)
    while True:
        for frame, other in (both, both[::-1]):
            if frame.outcome.done() and frame.outcome.result().ok:
                if not other.outcome.done():
                    other.overtaken = True
                    why = f"{other.request.target} was cancelled: {frame.request.target} was faster"
                    dispatch.tasks.stop(other, fault(Code.CANCELLED, why))
                return frame
        going = [frame.outcome for frame in both if not frame.outcome.done()]
        if not going:
            # The next agent gets what both have left.
            second.aside = max(0, first.granted - first.used)
            return second
        await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
