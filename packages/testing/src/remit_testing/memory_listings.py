"""The lists of the store in memory."""

from collections.abc import Callable

from remit.protocol.records import Kind, Record
from remit.runtime.listing import is_wanted, list_records
from remit.runtime.ports import ListedRecords, ListedSessions, RecordFilter, SessionFilter, SessionSummary
from remit_testing.memory_records import MemoryRecords
from remit_testing.memory_runs import SubmittedRun


class MemoryListings:
    """Lists records and conversations that are in memory."""

    def __init__(self, records: MemoryRecords, submitted: Callable[[], list[SubmittedRun]]) -> None:
        self._records = records
        self._submitted = submitted

    async def records(self, wanted: RecordFilter, *, before: int | None = None, limit: int = 100) -> ListedRecords:
        first = len(self._records.all) + 1 if before is None else before
        return await list_records(self._find, wanted, before=first, limit=limit)

    async def _find(self, wanted: RecordFilter, above: int, below: int, size: int) -> list[Record]:
        runs = {each.run for each in self._submitted() if each.request.remit.user == wanted.user}
        found = [
            record
            for record in self._records.all
            if above < record.seq < below
            and wanted.run in (None, record.run)
            and wanted.session in (None, record.session)
            and (wanted.kinds is None or record.kind in wanted.kinds)
            and (wanted.user is None or record.run in runs)
            and (wanted.since_ms is None or record.at_ms >= wanted.since_ms)
            and (wanted.until_ms is None or record.at_ms <= wanted.until_ms)
        ]
        return found[::-1][:size]

    async def sessions(self, wanted: SessionFilter, *, before: int | None = None, limit: int = 50) -> ListedSessions:
        newest = {each.request.session or each.run: place for place, each in enumerate(self._submitted(), start=1)}
        found: list[tuple[int, SessionSummary]] = []
        for session, place in newest.items():
            known = self._submitted()[place - 1]
            summary = self._summary(session, known)
            fits = wanted.session in (None, session) and wanted.user in (None, summary.user)
            if (before is None or place < before) and fits and known.is_in(wanted.of) and is_wanted(summary, wanted):
                found.append((place, summary))
        found = sorted(found, reverse=True)[:limit]
        full = len(found) == limit
        return ListedSessions([summary for _, summary in found], found[-1][0] if found and full else None)

    def _summary(self, session: str, newest: SubmittedRun) -> SessionSummary:
        records = [each for each in self._records.all if each.session == session]
        started = {each.run for each in records if each.kind is Kind.STARTED}
        answers = sum(each.kind is Kind.RESULT for each in records)
        return SessionSummary(
            session,
            newest.request.remit.user,
            newest.request.target,
            newest.request.objective,
            min(each.at_ms for each in records if each.kind in (Kind.STARTED, Kind.RESULT)),
            newest.finished_ms or newest.started_ms,
            len(started),
            len(started) + answers,
            newest.run,
            newest.request.via or "",
        )
