"""The figures of the record, kept up to date while somebody asks for them."""

import asyncio
import time
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from remit.documents.figures import RecordFigures
from remit.protocol.records import Kind, Record
from remit.runtime.ports import Store

T = TypeVar("T")

# A page takes some 30 ms to read and to add; other requests are answered in between.
PAGE = 1_000
# How long one request may read on. A record of a million rows is read after a few of them.
READ_S = 0.5


class CurrentFigures:
    """Reads the record from its beginning, in pages, and goes on from there with each request.

    If rows are removed from the record (because a user is erased, or by the retention rule), it begins anew, so that
    nothing stays here that was removed there.
    """

    def __init__(self, store: Store, *, page: int = PAGE, read_s: float = READ_S) -> None:
        self._store = store
        self._page = page
        self._read_s = read_s
        self._figures: RecordFigures | None = None
        self._removed_until = 0
        """Removals up to this row were complete before the record was read."""
        self._is_stale = False
        self._after = 0
        """The last row that was seen since rows were removed."""
        self.complete = False
        """Whether everything was read when somebody last asked."""

    async def look(self, at: Callable[[RecordFigures], T]) -> T:
        """Read on for a bounded time, and return what *at* makes of the figures; it is called in a thread."""
        async with self._reading:
            until = time.monotonic() + self._read_s
            while not await self._read_page() and time.monotonic() < until:
                pass
            assert self._figures is not None, "the first page makes them"
            return await asyncio.to_thread(at, self._figures)

    async def _read_page(self) -> bool:
        """Read a page, and return whether it was the last one."""
        figures = self._figures
        if figures is None:
            self._removed_until = await self._store.newest()
            figures = self._figures = RecordFigures()
        after = self._after if self._is_stale else figures.after
        records = await self._store.records(after=after, limit=self._page)
        self._add(figures, records)
        at_end = len(records) < self._page
        if at_end and self._is_stale:
            # All removals so far are known now: what is read from here on is what they left.
            self._removed_until, self._is_stale, self._figures = self._after, False, RecordFigures()
            at_end = False
        self.complete = at_end
        return at_end

    def _add(self, figures: RecordFigures, records: list[Record]) -> None:
        for record in records:
            if record.kind is Kind.REMOVED and record.seq > self._removed_until and not self._is_stale:
                self._is_stale, self._figures = True, RecordFigures()
            if self._is_stale:
                self._after = record.seq
            else:
                figures.add(record)

    @cached_property
    def _reading(self) -> asyncio.Lock:
        return asyncio.Lock()
