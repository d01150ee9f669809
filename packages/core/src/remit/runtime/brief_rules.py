"""What an agent may still do, record and see in its delegation."""

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from remit.policy.guards import record_limit
from remit.policy.restoring import of_kinds, restore
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import StepPlan
from remit.runtime.context import RuntimeContext
from remit.runtime.frames import Frame

T = TypeVar("T")

MAX_PROGRESS_TEXT = 2_000
MAX_PROGRESS_READ = 3 * MAX_PROGRESS_TEXT


# Larger plans are data, and a page of them helps nobody.
MAX_STEPS = 200
_MAX_STEP_TEXT = 300


def bounded_plan(plan: StepPlan, clean: Callable[[str], str]) -> StepPlan:
    """Return a plan as it is recorded: redacted, and no larger than people read."""
    steps = tuple(
        replace(
            step,
            title=clean(step.title[:MAX_PROGRESS_READ])[:_MAX_STEP_TEXT],
            when=clean(step.when[:MAX_PROGRESS_READ])[:_MAX_STEP_TEXT],
            after=step.after[:MAX_STEPS],
            fallback=step.fallback[:MAX_STEPS],
        )
        for step in plan.steps[:MAX_STEPS]
    )
    skipped = list(plan.skipped.items())[:MAX_STEPS]
    return StepPlan(
        steps=steps, skipped={name: clean(why[:MAX_PROGRESS_READ])[:_MAX_STEP_TEXT] for name, why in skipped}
    )


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
