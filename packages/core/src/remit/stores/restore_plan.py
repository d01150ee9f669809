"""What a restore decides and says, whichever engine the store is in."""

import time

from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, fault
from remit.protocol.records import Notice
from remit.runtime.ports import StoreError, unknown_outcome
from remit.stores.opening import STORE

# More numbers, and more claims of one run, than are handed out between two backups.
GAP = 1_000_000


def restore_notice(made_ms: int, head: int) -> Notice:
    """Return what the record says about a restore."""
    text = f"restored from a backup of {_utc(made_ms)}, which ends with row {head}; what was recorded after it is lost"
    return Notice(delegation=STORE, agent="remit", text=text)


def lost_outcome(request: Request, made_ms: int) -> Response:
    """Return the outcome of a run that was open when the store was backed up."""
    message = f"{request.target} was at work when the store was backed up ({_utc(made_ms)}); what came of it is lost"
    return unknown_outcome(request, fault(Code.OUTCOME_UNKNOWN, message))


def _utc(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1_000))


def refused_restore(name: str, rows_since: int | None) -> StoreError:
    """Return the error for a store that a backup must not replace.

    *rows_since* says how many rows it has more than the backup; None: it is another one.
    """
    if rows_since is None:
        what = "is another one than that of the backup, or was continued after an earlier restore"
    else:
        what = f"is newer than the backup: it has {rows_since} more rows" if rows_since else "is as new as the backup"
    advice = (
        "Use --force to replace it all the same; it is kept beside. What was recorded since the backup is lost then."
    )
    return StoreError(fault(Code.STORE_UNAVAILABLE, f"the store at {name} {what}", suggestion=advice))


def in_use(name: str) -> StoreError:
    """Return the error for a store that others have open."""
    advice = "Stop the hubs that have it open, then try again."
    return StoreError(fault(Code.STORE_UNAVAILABLE, f"{name} is in use", suggestion=advice))


def lost_things(values: int, users: int, answers: int, then: str) -> tuple[str, ...]:
    """Return what can no longer be read without the store's key, from what there is, and what happens *then*."""
    return (
        f"{values} redacted values cannot be read, unless the team file names a key of its own for them",
        f"{answers} answers to questions, and the reasons of commands, cannot be read",
        *([f"the texts of {users} users cannot be read"] if users else []),
        then,
    )
