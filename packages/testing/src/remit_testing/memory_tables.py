"""What the store in memory keeps: runs, records, questions, facts, counters."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.context import messages_from_records
from remit.protocol.codec import encode
from remit.protocol.envelope import Message, Note, Request, Response
from remit.protocol.errors import Code
from remit.protocol.records import Body, Kind, Notice, Record, outline
from remit.runtime.clock import LEAST_JUMP_MS
from remit.runtime.listing import is_wanted, list_records
from remit.runtime.ports import (
    FACTS,
    MOST_FACTS,
    MOST_NOTES,
    ControlAction,
    ControlCommand,
    Decision,
    ListedRecords,
    ListedSessions,
    NumberedRecord,
    Question,
    RecordFilter,
    RunScope,
    RunState,
    RunSummary,
    SealedValue,
    SessionFilter,
    SessionOwner,
    SessionSummary,
    TokenCounter,
)


def system_ms() -> int:
    """Return the time of the system's clock."""
    return time.time_ns() // 1_000_000


class SubmittedRun(Struct, kw_only=True):
    """A request and its progress."""

    request: Request
    """In the form in which it began; its key and run never change."""
    key: tuple[str, str, str]
    run: str
    digest: bytes
    started_ms: int
    epoch: int
    attempts: int = 1
    waiting: bool
    worker: str
    lease_until_ms: int
    response: Response | None = None
    finished_ms: int = 0
    kept_since_ms: int = 0
    """`finished_ms`, shifted with a clock that jumped."""
    forgotten: bool = False

    def status(self, now_ms: int) -> Literal["waiting", "running", "silent", "finished"]:
        if self.response is not None:
            return "finished"
        if self.waiting:
            return "waiting"
        return "silent" if self.lease_until_ms <= now_ms else "running"

    def is_in(self, scope: RunScope) -> bool:
        """Return whether a reader with that scope may see it."""
        request = self.request
        return (
            (scope.users is None or request.remit.user in scope.users)
            and (scope.agents is None or request.target in scope.agents)
            and scope.via in (None, request.via)
            and (scope.since_ms is None or self.started_ms >= scope.since_ms)
            and (scope.until_ms is None or self.started_ms < scope.until_ms)
        )

    def fits(self, user: str | None, run: str, correlation: str | None) -> bool:
        """Return whether it is of that user, has an id that begins with *run*, and that correlation id."""
        return (
            user in (None, self.request.remit.user)
            and self.run.startswith(run)
            and correlation in (None, self.request.correlation or self.run)
        )

    def is_part_of(self, run: str, user: str) -> bool:
        """Return whether another hub on the same store handed it over, as a call of *run*."""
        sender, of_user, id = self.key
        named = id == run or id.startswith(f"{run}.")
        return named and self.run != run and of_user == user and sender.count("@") > 1 and not self.forgotten

    def follow_clock(self, jump_ms: int, now_ms: int) -> None:
        """Shift its times with a clock that jumped."""
        if jump_ms > 0 and self.kept_since_ms <= now_ms - jump_ms + LEAST_JUMP_MS:
            self.kept_since_ms += jump_ms
        if jump_ms > 0 and 0 < self.lease_until_ms <= now_ms - jump_ms + LEAST_JUMP_MS:
            self.lease_until_ms += jump_ms
        if jump_ms < 0:
            self.kept_since_ms = min(self.kept_since_ms, now_ms)
        if jump_ms < 0 and self.lease_until_ms >= now_ms - jump_ms - LEAST_JUMP_MS:
            self.lease_until_ms += jump_ms

    def summary(self, now_ms: int) -> RunSummary:
        """Return it as `runs` lists it."""
        request = self.request
        return RunSummary(
            self.run,
            request.remit.user,
            request.target,
            request.objective,
            self.started_ms,
            self.response,
            self.status(now_ms),
            request.via or "",
            request.session or self.run,
            self.finished_ms or self.started_ms,
            request.correlation or self.run,
        )

    def state(self, records: Sequence[Record]) -> RunState:
        """Return it as `states` lists it; *records* are all that the store has."""
        request, response = self.request, self.response
        records = [record for record in records if record.run == self.run]
        kind = Kind.STARTED if response is None else Kind.RESULT
        last = [record for record in records if record.kind is kind and _of_root(record)][-1]
        asks_back = response is not None and response.requires_followup
        called_off = [
            record.at_ms
            for record in records
            if asks_back
            and record.seq > last.seq
            and isinstance(record.body, Notice)
            and record.body.code is Code.CANCELLED
        ]
        return RunState(
            self.run,
            request.id,
            request.remit.user,
            request.via or "",
            request.session or self.run,
            request.correlation or "",
            max(called_off, default=last.at_ms),
            last.seq,
            None if response is None else response.status,
            asks_back,
            bool(called_off),
        )


def before(run: str | None, known: Sequence[SubmittedRun]) -> Sequence[SubmittedRun]:
    """Return the runs that were submitted before *run*; all without one."""
    places = [place for place, each in enumerate(known) if run in (None, each.run)]
    return known if run is None else known[: places[-1] if places else 0]


def newly_submitted(
    request: Request, digest: bytes, worker: str, now_ms: int, lease_ms: int, *, waiting: bool
) -> SubmittedRun:
    """Return a request as it was submitted, claimed by *worker*."""
    return SubmittedRun(
        request=request,
        key=key_of(request),
        run=request.run,
        digest=digest,
        started_ms=request.created_ms or now_ms,
        epoch=1,
        waiting=waiting,
        worker=worker,
        lease_until_ms=now_ms + lease_ms,
    )


def key_of(request: Request) -> tuple[str, str, str]:
    """Return what identifies a request: its sender, user and id."""
    return (request.sender, request.remit.user, request.id)


def _of_root(record: Record) -> bool:
    return not isinstance(record.body, Response) or not record.body.id.startswith(f"{record.run}.")


def claimed_by(worker: str, runs: Iterable[SubmittedRun]) -> list[SubmittedRun]:
    """Return the unfinished runs that a worker has claimed."""
    return [each for each in runs if each.worker == worker and each.response is None]


def late_workers(runs: Iterable[SubmittedRun], now_ms: int, within_ms: int) -> list[str]:
    """Return the workers whose last lease ends *within_ms*."""
    leases: dict[str, int] = {}
    for known in runs:
        if known.worker and known.response is None:
            leases[known.worker] = max(leases.get(known.worker, 0), known.lease_until_ms)
    return [worker for worker, until_ms in leases.items() if now_ms < until_ms <= now_ms + within_ms]


Listener = Callable[[list[Record]], None]


class MemoryRecords:
    """All records in order, and the listeners that are told of each."""

    def __init__(self) -> None:
        self.all: list[Record] = []
        self.sizes: dict[str, int] = {}
        self._listeners: dict[object, Listener] = {}
        self._transferred: dict[str, int] = {}

    def append(self, kind: Kind, at_ms: int, run: str, session: str, body: Body) -> None:
        record = Record(seq=len(self.all) + 1, kind=kind, at_ms=at_ms, run=run, session=session, body=body)
        self.all.append(record)
        if run in self.sizes:
            self.sizes[run] += len(encode(body))
        if self._listeners:
            asyncio.get_running_loop().call_soon(self._tell, record)

    def transfer(self, source: str, entries: Sequence[NumberedRecord]) -> int:
        for entry in entries:
            if entry.number > self._transferred.get(source, 0):
                self._transferred[source] = entry.number
                self.append(*entry[1:])
        return self._transferred.get(source, 0)

    def listen(self, listener: Listener) -> Callable[[], None]:
        token = object()
        self._listeners[token] = listener

        def stop() -> None:
            self._listeners.pop(token, None)

        return stop

    def _tell(self, record: Record) -> None:
        for listener in list(self._listeners.values()):
            listener([record])

    def find(self, run: str | None, session: str | None, after: int) -> list[Record]:
        return [
            record
            for record in self.all
            if record.seq > after and run in (None, record.run) and session in (None, record.session)
        ]

    def recent(self, limit: int) -> list[Record]:
        newest = self.all[-limit:] if limit else []
        return [replace(each, body=body) for each in newest if (body := outline(each.body)) is not None]

    def conversation(self, session: str, count: TokenCounter) -> list[Message]:
        return messages_from_records(self.find(None, session, 0), original=self._numbered, count=count).messages

    def first_owner(self, session: str) -> SessionOwner | None:
        """Return the user and agent of the first request in a session."""
        for record in self.find(None, session, 0):
            if isinstance(record.body, Request):
                return SessionOwner(record.body.remit.user, record.body.target)
        return None

    def _numbered(self, seq: int) -> Record | None:
        return self.all[seq - 1] if 0 < seq <= len(self.all) else None


class _Window(NamedTuple):
    start_ms: int
    total: int


class MemoryCounters:
    """Counters by time window, and values with a revision."""

    def __init__(self) -> None:
        self._counters: dict[str, _Window] = {}
        self._cells: dict[str, tuple[int, bytes]] = {}

    def incr(self, key: str, n: int, window_ms: int, now_ms: int) -> int:
        new = _Window(now_ms - now_ms % window_ms, n)
        old = self._counters.get(key)
        if old is not None and old.start_ms >= new.start_ms:
            new = _Window(old.start_ms, old.total + n)
        self._counters[key] = new
        return new.total

    def cas(self, key: str, revision: int, value: bytes) -> int | None:
        if self._cells.get(key, (0, b""))[0] != revision:
            return None
        self._cells[key] = (revision + 1, value)
        return revision + 1

    def get(self, key: str) -> tuple[int, bytes] | None:
        return self._cells.get(key)


# How long questions that are over and controls are kept.
DAY_MS = 24 * 3_600_000


class _Asked(Struct, kw_only=True):
    """A question and its answer."""

    question: Question
    over_ms: int
    """When it was answered, or expires."""
    decision: Decision | None = None

    def is_open(self, now_ms: int) -> bool:
        return self.decision is None and self.question.expires_ms > now_ms


class _Vault(NamedTuple):
    """The sealed values of one scope, and when the first was sealed."""

    at_ms: int
    sealed: dict[str, SealedValue]


class MemoryVault:
    """Sealed values by scope and token."""

    def __init__(self) -> None:
        self._vaults: dict[str, _Vault] = {}

    def seal(self, scope: str, sealed: Sequence[SealedValue], now_ms: int) -> None:
        vault = self._vaults.setdefault(scope, _Vault(now_ms, {}))
        for each in sealed:
            known = vault.sealed.setdefault(each.token, each)
            vault.sealed[each.token] = known._replace(of_user=known.of_user or each.of_user)

    def unseal(self, scope: str) -> list[SealedValue]:
        return list(self._vaults[scope].sealed.values()) if scope in self._vaults else []

    def forget(self, scope: str) -> None:
        self._vaults.pop(scope, None)

    def forget_old(self, before_ms: int, lasts: Callable[[str], bool]) -> None:
        """Delete values sealed until *before_ms*, unless they are facts about a user or *lasts* says of the scope."""
        for scope, vault in list(self._vaults.items()):
            if vault.at_ms <= before_ms and not scope.startswith(FACTS) and not lasts(scope):
                del self._vaults[scope]


class MemoryInbox:
    """Questions to people, with their answers."""

    def __init__(self) -> None:
        self._questions: dict[str, _Asked] = {}

    def put(self, question: Question) -> Question:
        return self._questions.setdefault(question.id, _Asked(question=question, over_ms=question.expires_ms)).question

    def decide(self, question: str, decision: Decision, now_ms: int) -> bool:
        asked = self._questions.get(question)
        if asked is None or not asked.is_open(now_ms):
            return False
        asked.decision, asked.over_ms = decision, now_ms
        return True

    def decision(self, question: str) -> Decision | None:
        asked = self._questions.get(question)
        return asked.decision if asked is not None else None

    def withdraw(self, question: str) -> None:
        asked = self._questions.get(question)
        if asked is not None and asked.decision is None:
            del self._questions[question]

    def pending(self, now_ms: int) -> list[Question]:
        found = [asked.question for asked in self._questions.values() if asked.is_open(now_ms)]
        return sorted(found, key=lambda question: question.asked_ms)

    def was_asked_since(self, run: str, since_ms: int) -> bool:
        """Return whether a question about a run was open at that time, or still is."""
        asked = [each for each in self._questions.values() if each.question.request.run == run]
        return any(each.decision is None or each.over_ms >= since_ms for each in asked)

    def withdraw_all(self, run: str) -> None:
        """Withdraw the questions about a run that nobody has answered."""
        for asked in [each for each in self._questions.values() if each.question.request.run == run]:
            self.withdraw(asked.question.id)

    def forget_old(self, now_ms: int, running: Callable[[str], bool]) -> None:
        for id, asked in list(self._questions.items()):
            if asked.over_ms <= now_ms - DAY_MS and not running(asked.question.request.run):
                del self._questions[id]


class MemoryControls:
    """Control commands, numbered in order."""

    def __init__(self) -> None:
        self._controls: list[tuple[int, ControlCommand]] = []
        self._last = 0

    def add(self, run: str, action: ControlAction, by: str, reason: str, delegation: str, now_ms: int) -> int:
        self._last += 1
        self._controls.append((now_ms, ControlCommand(self._last, run, action, by, reason, delegation)))
        return self._last

    def after(self, number: int, run: str | None) -> list[ControlCommand]:
        return [control for _, control in self._controls if control.seq > number and run in (None, control.run)]

    def last(self) -> int:
        return self._controls[-1][1].seq if self._controls else 0

    def forget_old(self, now_ms: int, running: Callable[[str], bool]) -> None:
        self._controls = [
            (at_ms, control) for at_ms, control in self._controls if at_ms > now_ms - DAY_MS or running(control.run)
        ]


class MemoryKnowledge:
    """Facts about users, and notes of conversations."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, str]] = {}
        self._notes: dict[str, dict[tuple[str, str], Note]] = {}

    def remember(self, user: str, run: str, facts: tuple[str, ...]) -> None:
        known = self._facts.setdefault(user, {})
        for text in facts:
            known.setdefault(text, run)

    def facts(self, user: str) -> tuple[str, ...]:
        return tuple(self._facts.get(user, ()))[-MOST_FACTS:]

    def note(self, session: str, notes: Sequence[Note]) -> None:
        fresh = {(note.kind, note.text): note for note in notes}
        kept = {at: note for at, note in self._notes.get(session, {}).items() if at not in fresh}
        self._notes[session] = kept | fresh

    def notes(self, session: str) -> list[Note]:
        return list(self._notes.get(session, {}).values())[-MOST_NOTES:]


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
