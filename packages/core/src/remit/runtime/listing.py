"""Pages of records and conversations, from what a store finds."""

from collections.abc import Awaitable, Callable

from remit.ports import MOST_LOOKED_AT, MOST_READ, ListedRecords, RecordFilter, SessionFilter, SessionSummary
from remit.protocol.records import Record, agent_of

# As many rows as stores return at once.
_AT_ONCE = 100

Find = Callable[[RecordFilter, int, int, int], Awaitable[list[Record]]]
"""Returns records above a number and below another, newest first, at most so many; it ignores the filter's agent."""


async def list_records(find: Find, wanted: RecordFilter, *, before: int, limit: int) -> ListedRecords:
    """Return the page of records below *before*; the work for it is bounded."""
    has_index = wanted.run is not None or wanted.session is not None
    lowest = 0 if has_index else max(0, before - MOST_LOOKED_AT)
    listed: list[Record] = []
    read = 0
    while len(listed) < limit:
        size = min(_AT_ONCE, limit - len(listed)) if wanted.agent is None else _AT_ONCE
        some = await find(wanted, lowest, before, size)
        read += len(some)
        for record in some:
            if wanted.agent in (None, agent_of(record.body)):
                listed.append(record)
                if len(listed) == limit:
                    return ListedRecords(listed, record.seq)
        if len(some) < size:
            return ListedRecords(listed, lowest + 1 if lowest else None)
        before = some[-1].seq
        if wanted.agent is not None and read >= MOST_READ:
            break
    return ListedRecords(listed, before)


def is_wanted(newest: SessionSummary, wanted: SessionFilter) -> bool:
    """Return whether a conversation, given by its newest run, is one that a filter selects by what the run says."""
    text, scope = wanted.text.casefold(), wanted.of
    return (
        wanted.agent in (None, newest.agent)
        and (scope.agents is None or newest.agent in scope.agents)
        and scope.via in (None, newest.via)
        and (wanted.since_ms is None or newest.last_ms >= wanted.since_ms)
        and (wanted.until_ms is None or newest.last_ms <= wanted.until_ms)
        and (text in newest.objective.casefold() or text in newest.session.casefold())
    )
