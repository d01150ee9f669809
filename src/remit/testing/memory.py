"""A store that forgets when the process ends, for tests."""

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.budget import estimate
from remit.policy.context import messages_from_records, select
from remit.protocol.codec import encode
from remit.protocol.envelope import ContextFilter, Message, Note, Request, Response
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Body, Kind, Notice, Record, outline
from remit.runtime.clock import LEAST_JUMP_MS, SEEN_EVERY_MS, Jumps
from remit.runtime.ports import (
    ANYONES,
    FACTS,
    MOST_EPOCHS,
    MOST_FACTS,
    MOST_NOTES,
    AcceptedRequest,
    ControlCommand,
    Decision,
    DuplicateRequest,
    NumberedRecord,
    OrphanedRun,
    Question,
    ReusedProof,
    RunScope,
    RunState,
    RunSummary,
    SealedValue,
    SessionOwner,
    SingleUseProof,
    StoreError,
    TokenCounter,
    unknown_outcome,
)

Listener = Callable[[list[Record]], None]

# How long questions that are over and controls are kept.
DAY_MS = 24 * 3_600_000


class _Submitted(Struct, kw_only=True):
    """A request and how far it is."""

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
    """`finished_ms`, moved along with a clock that jumped."""
    forgotten: bool = False

    def state(self, now_ms: int) -> Literal["waiting", "running", "silent", "finished"]:
        if self.response is not None:
            return "finished"
        if self.waiting:
            return "waiting"
        return "silent" if self.lease_until_ms <= now_ms else "running"


class _Asked(Struct, kw_only=True):
    """A question and what was said to it."""

    question: Question
    over_ms: int
    """When it was answered, or will be too late."""
    decision: Decision | None = None


class _Vault(NamedTuple):
    """What is sealed for one scope, and since when."""

    at_ms: int
    sealed: dict[str, SealedValue]


class _Window(NamedTuple):
    start_ms: int
    total: int


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryStore:
    """Everything a hub remembers, in plain lists and dicts; implements `remit.runtime.ports.Store`.

    What was appended counts as committed at once; closing it keeps everything for the next `open`.
    """

    full = False

    def __init__(
        self,
        *,
        count: TokenCounter = estimate,
        wall_ms: Callable[[], int] = _wall_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._wall_ms = wall_ms
        self._jumps = Jumps(monotonic)
        self._seen_ms = 0
        self.sizes: dict[str, int] = {}
        self._is_open = False
        self._records: list[Record] = []
        self._submitted: dict[str, _Submitted] = {}
        self._older: list[_Submitted] = []
        self._journal: dict[str, dict[str, bytes]] = {}
        self._secret = secrets.token_bytes(32)
        self._vaults: dict[str, _Vault] = {}
        self._questions: dict[str, _Asked] = {}
        self._controls: list[tuple[int, ControlCommand]] = []
        self._last_control = 0
        self._sessions: dict[str, SessionOwner] = {}
        self._facts: dict[str, dict[str, str]] = {}
        self._notes: dict[str, dict[tuple[str, str], Note]] = {}
        self._counters: dict[str, _Window] = {}
        self._cells: dict[str, tuple[int, bytes]] = {}
        self._awaited: dict[str, list[asyncio.Future[Response]]] = {}
        self._listeners: dict[object, Listener] = {}
        self._transferred: dict[str, int] = {}

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    # ── the record ────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, kind: Kind, at_ms: int, run: str, session: str, body: Body) -> None:
        record = Record(seq=len(self._records) + 1, kind=kind, at_ms=at_ms, run=run, session=session, body=body)
        self._records.append(record)
        if run in self.sizes:
            self.sizes[run] += len(encode(body))
        if self._listeners:
            asyncio.get_running_loop().call_soon(self._tell, record)

    async def room(self) -> None:
        self._check_open()

    async def flush(self) -> None:
        self._check_open()

    async def transfer(self, source: str, entries: Sequence[NumberedRecord]) -> int:
        self._check_open()
        for entry in entries:
            if entry.number > self._transferred.get(source, 0):
                self._transferred[source] = entry.number
                self.append(*entry[1:])
        return self._transferred.get(source, 0)

    def listen(self, listener: Listener, *, patient: bool = False) -> Callable[[], None]:  # noqa: ARG002 - none waits here
        self._check_open()
        token = object()
        self._listeners[token] = listener

        def stop() -> None:
            self._listeners.pop(token, None)

        return stop

    def _tell(self, record: Record) -> None:
        for listener in list(self._listeners.values()):
            listener([record])

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(
        self,
        request: Request,
        digest: bytes,
        *,
        worker: str,
        lease_ms: int,
        waiting: bool = False,
        once: SingleUseProof | None = None,
    ) -> AcceptedRequest | DuplicateRequest | ReusedProof:
        self._check_open()
        if once is not None and await self.incr(once.key, 1, once.until_ms) > 1:
            return ReusedProof()
        now_ms = self._wall_ms()
        new = _Submitted(
            request=request,
            key=_key(request),
            run=request.run,
            digest=digest,
            started_ms=request.created_ms or now_ms,
            epoch=1,
            waiting=waiting,
            worker=worker,
            lease_until_ms=now_ms + lease_ms,
        )
        if known := await self.find(request, digest):
            return known
        if request.run in self._submitted:
            self._older.append(self._submitted.pop(request.run))
        self._submitted[request.run] = new
        self._start(request, new.started_ms)
        return AcceptedRequest(new.epoch)

    async def begin(self, run: str, epoch: int, request: Request) -> bool:
        self._check_open()
        known = self._held(run, epoch)
        if known is None:
            return False
        if known.waiting:
            known.waiting, known.attempts = False, 1
        if encode(known.request) != encode(request):
            known.request = request
            self._start(request, self._wall_ms())
        return True

    async def release(self, run: str, epoch: int) -> bool:
        self._check_open()
        known = self._held(run, epoch)
        if known is None:
            return False
        known.epoch += 1
        known.attempts -= 1
        known.worker, known.lease_until_ms = "", 0
        return True

    async def find(self, request: Request, digest: bytes) -> DuplicateRequest | None:
        self._check_open()
        for known in self._submitted.values():
            if known.key == _key(request) and not known.forgotten:
                return DuplicateRequest(known.run, known.digest == digest, known.response)
        return None

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        self._check_open()
        known, now_ms = self._running(run), self._wall_ms()
        if known is None or known.lease_until_ms > now_ms:
            return None
        if not self._was_asking(known, lease_ms):
            known.attempts += 1
        known.epoch += 1
        known.worker = worker
        known.lease_until_ms = now_ms + lease_ms
        return known.epoch

    def _was_asking(self, known: _Submitted, lease_ms: int) -> bool:
        """Say whether a person was being asked in it when its worker fell silent."""
        asked = [each for each in self._questions.values() if each.question.request.run == known.run]
        silent_ms = known.lease_until_ms - lease_ms
        over = any(each.decision is None or each.over_ms >= silent_ms for each in asked)
        return over and known.lease_until_ms > 0 and known.epoch < MOST_EPOCHS

    async def heartbeat(self, worker: str, lease_ms: int) -> None:
        self._check_open()
        for known in self._submitted.values():
            if known.worker == worker and known.response is None:
                known.lease_until_ms = self._wall_ms() + lease_ms

    async def finish(self, run: str, epoch: int, response: Response, at_ms: int, *, keep: bool = True) -> bool:
        self._check_open()
        known = self._held(run, epoch)
        if known is None:
            return False
        self._end(known, response, at_ms)
        if not keep:
            self._forget(known)
        return True

    async def wait(self, run: str) -> Response:
        self._check_open()
        known = self._submitted.get(run)
        if known is None:
            raise StoreError(fault(Code.OUTCOME_UNKNOWN, f"no request was submitted here as run {run}"))
        if known.response is not None:
            return known.response
        outcome: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(run, []).append(outcome)
        return await outcome

    async def sweep(self, *, max_attempts: int, keep_ms: int) -> list[OrphanedRun]:
        self._check_open()
        now_ms = self._wall_ms()
        self._follow_clock(now_ms)
        self._forget_old(now_ms, keep_ms)
        expired: list[OrphanedRun] = []
        for known in list(self._submitted.values()):
            if known.response is not None or known.lease_until_ms > now_ms:
                continue
            if known.waiting or known.attempts < max_attempts:
                expired.append(OrphanedRun(known.run, known.request, known.waiting))
            else:
                self._end(known, unknown_outcome(known.request, known.attempts), now_ms)
        return expired

    def _follow_clock(self, now_ms: int) -> None:
        jump_ms = self._jumps.since(self._seen_ms, now_ms)
        for known in self._submitted.values():
            if jump_ms > 0 and known.kept_since_ms <= now_ms - jump_ms + LEAST_JUMP_MS:
                known.kept_since_ms += jump_ms
            if jump_ms > 0 and 0 < known.lease_until_ms <= now_ms - jump_ms + LEAST_JUMP_MS:
                known.lease_until_ms += jump_ms
            if jump_ms < 0:
                known.kept_since_ms = min(known.kept_since_ms, now_ms)
            if jump_ms < 0 and known.lease_until_ms >= now_ms - jump_ms - LEAST_JUMP_MS:
                known.lease_until_ms += jump_ms
        if jump_ms or not 0 <= now_ms - self._seen_ms < SEEN_EVERY_MS:
            self._seen_ms = now_ms
            self._jumps.noted(now_ms)

    def _forget_old(self, now_ms: int, keep_ms: int) -> None:
        for known in self._submitted.values():
            if known.response is not None and known.kept_since_ms <= now_ms - keep_ms:
                self._forget(known)
        for scope, vault in list(self._vaults.items()):
            known = self._submitted.get(scope)
            lasts = scope in self._sessions or scope.startswith(FACTS)
            if vault.at_ms <= now_ms - keep_ms and (known is None or known.forgotten) and not lasts:
                del self._vaults[scope]
        for id, asked in list(self._questions.items()):
            if asked.over_ms <= now_ms - DAY_MS and self._running(asked.question.request.run) is None:
                del self._questions[id]
        self._controls = [
            (at_ms, control)
            for at_ms, control in self._controls
            if at_ms > now_ms - DAY_MS or self._running(control.run) is not None
        ]

    def _forget(self, known: _Submitted) -> None:
        if not known.forgotten:
            known.forgotten = True
            self._journal.pop(known.run, None)
            if known.run not in self._sessions:
                self._vaults.pop(known.run, None)

    def _running(self, run: str) -> _Submitted | None:
        known = self._submitted.get(run)
        return known if known is not None and known.response is None else None

    def _held(self, run: str, epoch: int) -> _Submitted | None:
        known = self._running(run)
        return known if known is not None and known.epoch == epoch else None

    def _start(self, request: Request, at_ms: int) -> None:
        self.append(Kind.STARTED, at_ms, request.run, request.session or request.run, request)

    def _end(self, known: _Submitted, response: Response, at_ms: int) -> None:
        run = known.run
        known.response, known.finished_ms, known.kept_since_ms = response, at_ms, at_ms
        if response.status is Status.SUCCESS:
            self._journal.pop(run, None)
        self.append(Kind.RESULT, at_ms, run, response.session or known.request.session or run, response)
        for outcome in self._awaited.pop(run, ()):
            if not outcome.done():
                outcome.set_result(response)
        for asked in [each for each in self._questions.values() if each.question.request.run == known.run]:
            if asked.decision is None:
                del self._questions[asked.question.id]

    # ── vault, inbox, controls ────────────────────────────────────────────────────────────────────────────────────────

    def secret(self) -> bytes:
        self._check_open()
        return self._secret

    def seal(self, scope: str, sealed: Sequence[SealedValue]) -> None:
        vault = self._vaults.setdefault(scope, _Vault(self._wall_ms(), {}))
        for each in sealed:
            known = vault.sealed.setdefault(each.token, each)
            vault.sealed[each.token] = known._replace(of_user=known.of_user or each.of_user)

    async def unseal(self, scope: str) -> list[SealedValue]:
        self._check_open()
        return list(self._vaults[scope].sealed.values()) if scope in self._vaults else []

    async def put(self, question: Question) -> Question:
        self._check_open()
        return self._questions.setdefault(question.id, _Asked(question=question, over_ms=question.expires_ms)).question

    async def decide(self, question: str, decision: Decision) -> bool:
        self._check_open()
        asked, now_ms = self._questions.get(question), self._wall_ms()
        if asked is None or not _is_open(asked, now_ms):
            return False
        asked.decision, asked.over_ms = decision, now_ms
        return True

    async def decision(self, question: str) -> Decision | None:
        self._check_open()
        asked = self._questions.get(question)
        return asked.decision if asked is not None else None

    async def withdraw(self, question: str) -> None:
        self._check_open()
        asked = self._questions.get(question)
        if asked is not None and asked.decision is None:
            del self._questions[question]

    async def pending(self) -> list[Question]:
        self._check_open()
        now_ms = self._wall_ms()
        found = [asked.question for asked in self._questions.values() if _is_open(asked, now_ms)]
        return sorted(found, key=lambda question: question.asked_ms)

    async def control(self, run: str, action: Literal["cancel", "reload"], by: str, reason: str) -> int:
        self._check_open()
        self._last_control += 1
        self._controls.append((self._wall_ms(), ControlCommand(self._last_control, run, action, by, reason)))
        return self._last_control

    async def controls(self, after: int, run: str | None = None) -> list[ControlCommand]:
        self._check_open()
        return [control for _, control in self._controls if control.seq > after and run in (None, control.run)]

    async def last_control(self) -> int:
        self._check_open()
        return self._controls[-1][1].seq if self._controls else 0

    # ── conversations ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def messages(self, session: str, wanted: ContextFilter, *, now_ms: int, tokens: int) -> list[Message]:
        self._check_open()
        return select(self._conversation(session), wanted, now_ms=now_ms, tokens=tokens)

    async def seen(self, session: str, messages: Collection[int]) -> frozenset[int]:
        self._check_open()
        return frozenset(messages).intersection(message.seq for message in self._conversation(session))

    def note(self, session: str, notes: Sequence[Note]) -> None:
        kept = self._notes.setdefault(session, {})
        for note in notes:
            kept.setdefault((note.kind, note.text), note)

    async def notes(self, session: str) -> list[Note]:
        self._check_open()
        return list(self._notes.get(session, {}).values())[-MOST_NOTES:]

    def _conversation(self, session: str) -> list[Message]:
        records = [record for record in self._records if record.session == session]
        return messages_from_records(records, original=self._record, count=self._count).messages

    def _record(self, seq: int) -> Record | None:
        return self._records[seq - 1] if 0 < seq <= len(self._records) else None

    # ── journal, counters, archive ────────────────────────────────────────────────────────────────────────────────────

    def journal(self, run: str, epoch: int, step: str, value: bytes) -> None:
        if self._held(run, epoch) is not None:
            self._journal.setdefault(run, {})[step] = value

    async def journal_durably(self, run: str, epoch: int, step: str, value: bytes) -> bool:
        self._check_open()
        self.journal(run, epoch, step, value)
        return self._held(run, epoch) is not None

    async def load(self, run: str) -> dict[str, bytes]:
        self._check_open()
        return dict(self._journal.get(run, {}))

    async def incr(self, key: str, n: int, window_ms: int) -> int:
        self._check_open()
        now_ms = self._wall_ms()
        new = _Window(now_ms - now_ms % window_ms, n)
        old = self._counters.get(key)
        if old is not None and old.start_ms >= new.start_ms:
            new = _Window(old.start_ms, old.total + n)
        self._counters[key] = new
        return new.total

    async def cas(self, key: str, revision: int, value: bytes) -> int | None:
        self._check_open()
        if self._cells.get(key, (0, b""))[0] != revision:
            return None
        self._cells[key] = (revision + 1, value)
        return revision + 1

    async def get(self, key: str) -> tuple[int, bytes] | None:
        self._check_open()
        return self._cells.get(key)

    async def owner(self, session: str) -> SessionOwner | None:
        self._check_open()
        return self._sessions.get(session) or self._first_owner(session)

    async def session(self, session: str, user: str, agent: str) -> SessionOwner:
        return self._sessions.setdefault(session, await self.owner(session) or SessionOwner(user, agent))

    def _first_owner(self, session: str) -> SessionOwner | None:
        for record in self._records:
            if record.session == session and isinstance(record.body, Request):
                return SessionOwner(record.body.remit.user, record.body.target)
        return None

    async def records(
        self, *, run: str | None = None, session: str | None = None, after: int = 0, limit: int = 1_000
    ) -> list[Record]:
        self._check_open()
        found = [
            record
            for record in self._records
            if record.seq > after and run in (None, record.run) and session in (None, record.session)
        ]
        return found[:limit]

    async def recent(self, limit: int) -> list[Record]:
        self._check_open()
        newest = self._records[-limit:] if limit else []
        return [replace(each, body=body) for each in newest if (body := outline(each.body)) is not None]

    async def runs(
        self,
        *,
        user: str | None = None,
        run: str | None = None,
        correlation: str | None = None,
        of: RunScope = ANYONES,
        limit: int = 50,
    ) -> list[RunSummary]:
        self._check_open()
        newest = reversed([*self._older, *self._submitted.values()])
        found = [
            known
            for known in newest
            if user in (None, known.request.remit.user)
            and known.run.startswith(run or "")
            and correlation in (None, known.request.correlation or known.run)
            and _is_of(known, of)
        ]
        return [_summary(known, self._wall_ms()) for known in found[:limit]]

    async def named(self, id: str, of: RunScope) -> list[str]:
        self._check_open()
        newest = reversed(self._submitted.values())
        return [known.run for known in newest if known.key[2] == id and not known.forgotten and _is_of(known, of)]

    async def states(
        self, *, agent: str, users: Collection[str] | None = None, session: str | None = None, limit: int = 10_000
    ) -> list[RunState]:
        self._check_open()
        found = [
            self._state(known)
            for known in (*self._older, *self._submitted.values())
            if known.request.target == agent
            and (users is None or known.request.remit.user in users)
            and session in (None, known.request.session or known.run)
        ]
        return sorted(found, key=lambda state: (-state.changed_ms, -state.seq))[:limit]

    def _state(self, known: _Submitted) -> RunState:
        request, response = known.request, known.response
        records = [record for record in self._records if record.run == known.run]
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
            known.run,
            request.id,
            request.remit.user,
            request.via or "",
            request.session or known.run,
            request.correlation or "",
            max(called_off, default=last.at_ms),
            last.seq,
            None if response is None else response.status,
            asks_back,
            bool(called_off),
        )

    def remember(self, user: str, run: str, facts: tuple[str, ...]) -> None:
        known = self._facts.setdefault(user, {})
        for text in facts:
            known.setdefault(text, run)

    async def facts(self, user: str) -> tuple[str, ...]:
        self._check_open()
        return tuple(self._facts.get(user, ()))[-MOST_FACTS:]

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError(fault(Code.STORE_UNAVAILABLE, "the store is not open", suggestion="Open it first."))


def _key(request: Request) -> tuple[str, str, str]:
    return (request.sender, request.remit.user, request.id)


def _is_of(known: _Submitted, of: RunScope) -> bool:
    request = known.request
    return (
        (of.users is None or request.remit.user in of.users)
        and (of.agents is None or request.target in of.agents)
        and of.via in (None, request.via)
    )


def _is_open(asked: _Asked, now_ms: int) -> bool:
    return asked.decision is None and asked.question.expires_ms > now_ms


def _of_root(record: Record) -> bool:
    return not isinstance(record.body, Response) or not record.body.id.startswith(f"{record.run}.")


def _summary(known: _Submitted, now_ms: int) -> RunSummary:
    request, state = known.request, known.state(now_ms)
    return RunSummary(
        known.run,
        request.remit.user,
        request.target,
        request.objective,
        known.started_ms,
        known.response,
        state,
        request.via or "",
        request.session or known.run,
        known.finished_ms or known.started_ms,
        request.correlation or known.run,
    )
