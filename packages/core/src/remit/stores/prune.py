"""Applies the retention rule to a store."""

import time
from collections.abc import Callable
from typing import NamedTuple

from remit.stores.removal_plan import ExpiredRows
from remit.stores.retention import Retention
from remit.stores.segments import SealedSegment
from remit.stores.upkeep_port import StoreUpkeep
from remit.stores.user_data import Ageing

# Between two segments, hubs get the store for half as long as they waited, and at least for this long.
REST_SHARE = 0.5
REST_SECONDS = 0.01


class Pruned(NamedTuple):
    """What was removed, or would be."""

    rows: int = 0
    """Records."""
    texts: int = 0
    """Records of which only the texts were removed."""
    values: int = 0
    """Values behind placeholders."""
    facts: int = 0
    """Facts about users, and notes of conversations."""
    bytes: int = 0
    """About how many bytes all of it takes."""
    returned: int = 0
    """By how many bytes the store has shrunk."""
    refused: tuple[str, ...] = ()
    """Segments that were left as they are, and why."""

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.texts or self.values or self.facts)


def prune(
    upkeep: StoreUpkeep,
    keep: Retention,
    *,
    dry: bool = False,
    archived: Callable[[SealedSegment], object] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Pruned:
    """Remove what *keep* no longer keeps; each step is a transaction of its own, so that it can be killed anywhere.

    *archived* is called with each segment before rows of it are removed. It ends early once *stopped* returns true.
    """
    now_ms = upkeep.now_ms()
    rows = texts = size = 0
    refused: list[str] = []
    for segment in upkeep.segments():
        if stopped() or not _is_due(segment, keep, now_ms):
            break
        whole = keep.records is not None and segment.sealed_ms <= now_ms - keep.records
        expired = ExpiredRows(keep.rule(), whole)
        if not upkeep.has(segment, expired):
            continue
        if not dry:
            archived(segment)
        began = time.monotonic()
        part = upkeep.remove(segment, expired, dry=dry)
        rows, texts, size = rows + part.rows, texts + part.texts, size + part.bytes
        refused += [part.refused] if part.refused else []
        if not dry:
            time.sleep(max(REST_SECONDS, REST_SHARE * (time.monotonic() - began)))

    def forget(what: Ageing, age_ms: int | None) -> int:
        return 0 if age_ms is None else upkeep.forget(what, now_ms - age_ms, dry=dry)

    values = forget("values", keep.vault)
    facts = forget("facts", keep.facts) + forget("notes", keep.messages)
    # Whose they are is known only to whoever holds the key; so they go when no fact can need them any more.
    forget("fact_values", keep.facts)
    returned = 0
    if not dry:
        if rows or texts:
            upkeep.seal()
        returned = upkeep.give_back()
    return Pruned(rows, texts, values, facts, size, returned, tuple(refused))


def _is_due(segment: SealedSegment, keep: Retention, now_ms: int) -> bool:
    ages = [age for age in (keep.records, keep.messages) if age is not None]
    return bool(ages) and segment.sealed_ms <= now_ms - min(ages)
