"""What an agent may still do, record and see in its delegation."""

from typing import TypeVar

from remit.policy.budget import record_limit
from remit.policy.restoring import of_kinds, restore
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.runtime.context import RuntimeContext
from remit.runtime.frames import Frame

T = TypeVar("T")

MAX_PROGRESS_TEXT = 2_000
MAX_PROGRESS_READ = 3 * MAX_PROGRESS_TEXT


def refuse_if_stopped(frame: Frame) -> None:
    """Raise a `RemitError` if the delegation has ended or was told to stop."""
    if frame.stopping is not None or isinstance(frame.state, Status):
        raise RemitError(
            fault(Code.CANCELLED, f"{frame.card.name} was told to stop and can do nothing more in this delegation")
        )


def room_left(parts: RuntimeContext, frame: Frame) -> Fault | None:
    """Return why nothing more of this run is recorded; None while there is room."""
    taken, limit = parts.store.sizes.get(frame.run.id, 0), parts.limits.max_record_bytes
    return None if taken < limit else fault(Code.RECORD_LIMIT_EXCEEDED, record_limit(taken, limit))


def refuse_if_full(parts: RuntimeContext, frame: Frame) -> None:
    """Raise a `RemitError` if nothing more of this run is recorded."""
    if (why := room_left(parts, frame)) is not None:
        raise RemitError(why)


def revealed(frame: Frame, kept: T) -> T:
    """Return an agent's state or a tool's result with the raw values that the agent's team lets it see."""
    capability = frame.card.capability(frame.request.capability) if frame.request.capability else None
    kinds = frame.card.sees if capability is None else frame.card.sees | capability.sees
    return restore(kept, of_kinds(frame.run.known, kinds)) if kinds else kept
