"""The states of a delegation and the allowed moves between them, as one table."""

from enum import StrEnum


class Status(StrEnum):
    """How a delegation ended."""

    SUCCESS = "success"
    """All of it was done."""
    PARTIAL = "partial"
    """Part of it was done; `unfinished` says what was not."""
    FAILED = "failed"
    """It failed."""
    TIMEOUT = "timeout"
    """Its time ran out."""
    REFUSED = "refused"
    """It was not started."""
    CANCELLED = "cancelled"
    """It was cancelled."""

    # Every hop looks its states up in the table, and an enum's own hash is computed in Python.
    __hash__ = str.__hash__


class DelegationState(StrEnum):
    """The state of a delegation that has not ended."""

    REQUESTED = "requested"
    ASKING = "asking"
    QUEUED = "queued"
    RUNNING = "running"

    __hash__ = str.__hash__


_STOPPED: frozenset[DelegationState | Status] = frozenset({Status.FAILED, Status.TIMEOUT, Status.CANCELLED})

MOVES: dict[DelegationState | Status, frozenset[DelegationState | Status]] = {
    # Guards judge; a person may have to be asked, after which the guards are asked again.
    DelegationState.REQUESTED: _STOPPED | {Status.REFUSED, DelegationState.ASKING, DelegationState.QUEUED},
    DelegationState.ASKING: _STOPPED | {Status.REFUSED, DelegationState.REQUESTED},
    # Admitted and reserved, waiting for one of the callee's slots.
    DelegationState.QUEUED: _STOPPED | {Status.REFUSED, DelegationState.RUNNING},
    DelegationState.RUNNING: _STOPPED | {Status.SUCCESS, Status.PARTIAL, Status.REFUSED},
    **{status: frozenset() for status in Status},
}


class IllegalMoveError(Exception):
    """The hub tried a move that the table does not allow: a bug in the hub."""
