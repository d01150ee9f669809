"""Recognises requests that may have been accepted between a backup of a store and its restore."""

from remit.protocol.envelope import Request
from remit.protocol.errors import Code, fault
from remit.runtime.ports import StoreError

# A request that is older than this was sent before, or waited somewhere.
OLD_MS = 1_000


def is_old(request: Request, now_ms: int) -> bool:
    """Return whether a request can have been accepted between a backup and its restore; nearly all are new."""
    return request.created_ms is not None and request.created_ms < now_ms - OLD_MS


def maybe_executed() -> StoreError:
    """Return the error for a request that may have been executed before the store was restored."""
    message = "the store was restored from a backup that is older than this request: it may have been executed"
    advice = "Find out whether it was; if not, send it again under a new id."
    return StoreError(fault(Code.OUTCOME_UNKNOWN, message, suggestion=advice))
