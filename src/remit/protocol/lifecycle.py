"""The life of a delegation, as one table: it moves by the table or not at all."""

from enum import StrEnum


class Status(StrEnum):
    """How a delegation ended."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    CANCELLED = "cancelled"


class DelegationState(StrEnum):
    """Where a delegation is that has not ended."""

    REQUESTED = "requested"
    ASKING = "asking"
    QUEUED = "queued"
    RUNNING = "running"


_STOPPED: frozenset[DelegationState | Status] = frozenset({Status.FAILED, Status.TIMEOUT, Status.CANCELLED})

MOVES: dict[DelegationState | Status, frozenset[DelegationState | Status]] = {
    # Guards judge; a person may have to be asked, after which the guards are asked again.
    DelegationState.REQUESTED: _STOPPED | {Status.REFUSED, DelegationState.ASKING, DelegationState.QUEUED},
    DelegationState.ASKING: _STOPPED | {Status.REFUSED, DelegationState.REQUESTED},
    # Admitted and paid for, waiting for one of the callee's slots.
    DelegationState.QUEUED: _STOPPED | {Status.REFUSED, DelegationState.RUNNING},
    DelegationState.RUNNING: _STOPPED | {Status.SUCCESS, Status.PARTIAL, Status.REFUSED},
    **{status: frozenset() for status in Status},
}


class IllegalMoveError(Exception):
    """The hub tried to move a delegation where the table has no move: a bug in the hub."""


def advance(state: DelegationState | Status, to: DelegationState | Status) -> DelegationState | Status:
    """Return *to* if the table lets a delegation move there from *state*."""
    if to in MOVES[state]:
        return to
    raise IllegalMoveError(f"a delegation cannot move from {state} to {to}")
