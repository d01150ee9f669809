"""A store that forgets when the process ends, for tests."""

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Sequence

from remit.policy.budget import estimate
from remit.policy.context import select
from remit.protocol.codec import encode
from remit.protocol.envelope import ContextFilter, Message, Note, Request, Response
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Body, Kind, Record
from remit.runtime.clock import SEEN_EVERY_MS, Jumps
from remit.runtime.ports import (
    ANYONES,
    MOST_EPOCHS,
    NO_RUN,
    AcceptedRequest,
    ControlAction,
    ControlCommand,
    Decision,
    DuplicateRequest,
    NumberedRecord,
    OrphanedRun,
    Question,
    ReusedProof,
    RunEpoch,
    RunScope,
    RunState,
    RunSummary,
    SealedValue,
    SessionOwner,
    SingleUseProof,
    StoreError,
    Submitted,
    TakenRequest,
    TokenCounter,
    silent_outcome,
)
from remit_testing.memory_tables import (
    Listener,
    MemoryControls,
    MemoryCounters,
    MemoryInbox,
    MemoryKnowledge,
    MemoryListings,
    MemoryRecords,
    MemoryVault,
    SubmittedRun,
    before,
    claimed_by,
    key_of,
    late_workers,
    newly_submitted,
    system_ms,
)


class MemoryStore:
    """Everything a hub remembers, in plain lists and dicts; implements `remit.runtime.ports.Store`.

    Records count as committed at once; closing keeps everything for the next `open`.
    """

    full = False

    def __init__(
        self,
        *,
        count: TokenCounter = estimate,
        wall_ms: Callable[[], int] = system_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._wall_ms = wall_ms
        self._jumps = Jumps(monotonic)
        self._seen_ms, self._is_open = 0, False
        self._records = MemoryRecords()
        self.sizes = self._records.sizes
        self._submitted: dict[str, SubmittedRun] = {}
        self._older: list[SubmittedRun] = []
        self.listings = MemoryListings(self._records, lambda: [*self._older, *self._submitted.values()])
        self._journal: dict[str, dict[str, bytes]] = {}
        self._secret = secrets.token_bytes(32)
        self._vault, self._inbox, self._controls = MemoryVault(), MemoryInbox(), MemoryControls()
        self._sessions: dict[str, SessionOwner] = {}
        self._knowledge = MemoryKnowledge()
        self._counters = MemoryCounters()
        self._awaited: dict[str, list[asyncio.Future[Response]]] = {}

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    # ── the record ────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, kind: Kind, at_ms: int, run: str, session: str, body: Body, epoch: int = 0) -> None:
        if not self._is_replaced(RunEpoch(run, epoch)):
            self._records.append(kind, at_ms, run, session, body)

    def _is_replaced(self, claim: RunEpoch) -> bool:
        known = self._submitted.get(claim.run)
        return known is not None and not known.forgotten and 0 < claim.epoch < known.epoch

    async def room(self) -> None:
        self._check_open()

    async def flush(self) -> None:
        self._check_open()

    async def transfer(self, source: str, entries: Sequence[NumberedRecord]) -> int:
        self._check_open()
        return self._records.transfer(source, entries)

    def listen(self, listener: Listener, *, patient: bool = False) -> Callable[[], None]:  # noqa: ARG002 - none waits here
        self._check_open()
        return self._records.listen(listener)

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
    ) -> Submitted:
        self._check_open()
        if once is not None and await self.incr(once.key, 1, once.until_ms) > 1:
            return ReusedProof()
        now_ms = self._wall_ms()
        new = newly_submitted(request, digest, worker, now_ms, lease_ms, waiting=waiting)
        if known := await self.find(request, digest):
            return known
        if request.run in self._submitted:
            self._older.append(self._submitted.pop(request.run))
        self._submitted[request.run] = new
        self._start(request, new.started_ms)
        return AcceptedRequest(new.epoch)

    def submit_soon(self, request: Request, digest: bytes, *, worker: str, lease_ms: int) -> None:  # noqa: ARG002 - the port's
        self._check_open()  # in memory, nothing is gained

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

    async def release(self, run: str, epoch: int, *, begun: bool = True) -> bool:
        self._check_open()
        known = self._held(run, epoch)
        if known is None:
            return False
        known.epoch += 1
        known.attempts -= 1
        known.worker, known.lease_until_ms = "", 0
        known.waiting = known.waiting or not begun
        return True

    async def find(self, request: Request, digest: bytes) -> DuplicateRequest | None:
        self._check_open()
        for known in self._submitted.values():
            if known.key == key_of(request) and not known.forgotten:
                return DuplicateRequest(known.run, known.digest == digest, known.response)
        return None

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        self._check_open()
        known, now_ms = self._running(run), self._wall_ms()
        if known is None or known.lease_until_ms > now_ms:
            return None
        asked = self._inbox.was_asked_since(run, known.lease_until_ms - lease_ms)
        if not (asked and known.lease_until_ms > 0 and known.epoch < MOST_EPOCHS):
            known.attempts += 1
        known.epoch, known.worker, known.lease_until_ms = known.epoch + 1, worker, now_ms + lease_ms
        return known.epoch

    async def take(self, run: str, worker: str, lease_ms: int, *, begin: bool = False) -> TakenRequest | None:
        known = self._running(run)
        epoch = await self.claim(run, worker, lease_ms) if known is not None and known.waiting else None
        if known is None or epoch is None:
            return None
        if begin:
            known.waiting, known.attempts = False, 1
        return TakenRequest(epoch, known.request)

    async def heartbeat(self, worker: str, lease_ms: int) -> None:
        for run, _ in await self.claimed(worker):
            self._submitted[run].lease_until_ms = self._wall_ms() + lease_ms

    async def claimed(self, worker: str) -> list[tuple[str, int]]:
        self._check_open()
        return [(each.run, each.epoch) for each in claimed_by(worker, self._submitted.values())]

    async def late_workers(self, within_ms: int) -> list[str]:
        self._check_open()
        return late_workers(self._submitted.values(), self._wall_ms(), within_ms)

    async def end_leases(self, worker: str, within_ms: int) -> bool:
        if worker not in await self.late_workers(within_ms):
            return False
        for known in claimed_by(worker, self._submitted.values()):
            known.lease_until_ms = min(known.lease_until_ms, self._wall_ms())
        return True

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
                self._end(known, silent_outcome(known.request, known.attempts), now_ms)
                known.epoch += 1  # as after a claim, nothing that its worker still writes of the run counts
        return expired

    def _follow_clock(self, now_ms: int) -> None:
        jump_ms = self._jumps.since(self._seen_ms, now_ms)
        for known in self._submitted.values():
            known.follow_clock(jump_ms, now_ms)
        if jump_ms or not 0 <= now_ms - self._seen_ms < SEEN_EVERY_MS:
            self._seen_ms = now_ms
            self._jumps.noted(now_ms)

    def _forget_old(self, now_ms: int, keep_ms: int) -> None:
        for known in self._submitted.values():
            if known.response is not None and known.kept_since_ms <= now_ms - keep_ms:
                self._forget(known)
        self._vault.forget_old(now_ms - keep_ms, self._keeps_scope)
        self._inbox.forget_old(now_ms, lambda run: self._running(run) is not None)
        self._controls.forget_old(now_ms, lambda run: self._running(run) is not None)

    def _keeps_scope(self, scope: str) -> bool:
        known = self._submitted.get(scope)
        return scope in self._sessions or (known is not None and not known.forgotten)

    def _forget(self, known: SubmittedRun) -> None:
        if not known.forgotten:
            known.forgotten = True
            self._journal.pop(known.run, None)
            if known.run not in self._sessions:
                self._vault.forget(known.run)

    def _running(self, run: str) -> SubmittedRun | None:
        return known if (known := self._submitted.get(run)) is not None and known.response is None else None

    def _held(self, run: str, epoch: int) -> SubmittedRun | None:
        return known if (known := self._running(run)) is not None and known.epoch == epoch else None

    def _start(self, request: Request, at_ms: int) -> None:
        self.append(Kind.STARTED, at_ms, request.run, request.session or request.run, request)

    def _end(self, known: SubmittedRun, response: Response, at_ms: int) -> None:
        run = known.run
        known.response, known.finished_ms, known.kept_since_ms = response, at_ms, at_ms
        if response.status is Status.SUCCESS:
            self._journal.pop(run, None)
        self.append(Kind.RESULT, at_ms, run, response.session or known.request.session or run, response)
        for outcome in self._awaited.pop(run, ()):
            if not outcome.done():
                outcome.set_result(response)
        self._inbox.withdraw_all(run)

    # ── vault, inbox, controls ────────────────────────────────────────────────────────────────────────────────────────

    def secret(self) -> bytes:
        self._check_open()
        return self._secret

    def seal(self, scope: str, sealed: Sequence[SealedValue]) -> None:
        self._vault.seal(scope, sealed, self._wall_ms())

    async def unseal(self, scope: str) -> list[SealedValue]:
        self._check_open()
        return self._vault.unseal(scope)

    async def put(self, question: Question) -> Question:
        self._check_open()
        return self._inbox.put(question)

    async def decide(self, question: str, decision: Decision) -> bool:
        self._check_open()
        return self._inbox.decide(question, decision, self._wall_ms())

    async def decision(self, question: str) -> Decision | None:
        self._check_open()
        return self._inbox.decision(question)

    async def withdraw(self, question: str) -> None:
        self._check_open()
        self._inbox.withdraw(question)

    async def pending(self) -> list[Question]:
        self._check_open()
        return self._inbox.pending(self._wall_ms())

    async def control(self, run: str, action: ControlAction, by: str, reason: str, delegation: str = "") -> int:
        self._check_open()
        return self._controls.add(run, action, by, reason, delegation, self._wall_ms())

    async def controls(self, after: int, run: str | None = None) -> list[ControlCommand]:
        self._check_open()
        return self._controls.after(after, run)

    async def last_control(self) -> int:
        self._check_open()
        return self._controls.last()

    # ── conversations ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def messages(self, session: str, wanted: ContextFilter, *, now_ms: int, tokens: int) -> list[Message]:
        self._check_open()
        said = self._records.conversation(session, self._count)
        return select(said, wanted, now_ms=now_ms, tokens=tokens)

    async def seen(self, session: str, messages: Collection[int]) -> frozenset[int]:
        self._check_open()
        said = self._records.conversation(session, self._count)
        return frozenset(messages).intersection(message.seq for message in said)

    def note(self, session: str, notes: Sequence[Note], of: RunEpoch = NO_RUN) -> None:
        if not self._is_replaced(of):
            self._knowledge.note(session, notes)

    async def notes(self, session: str) -> list[Note]:
        self._check_open()
        return self._knowledge.notes(session)

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
        return self._counters.incr(key, n, window_ms, self._wall_ms())

    async def cas(self, key: str, revision: int, value: bytes) -> int | None:
        self._check_open()
        return self._counters.cas(key, revision, value)

    async def get(self, key: str) -> tuple[int, bytes] | None:
        self._check_open()
        return self._counters.get(key)

    async def owner(self, session: str) -> SessionOwner | None:
        self._check_open()
        return self._sessions.get(session) or self._records.first_owner(session)

    async def session(self, session: str, user: str, agent: str) -> SessionOwner:
        return self._sessions.setdefault(session, await self.owner(session) or SessionOwner(user, agent))

    async def records(
        self, *, run: str | None = None, session: str | None = None, after: int = 0, limit: int = 1_000
    ) -> list[Record]:
        self._check_open()
        return self._records.find(run, session, after)[:limit]

    async def newest(self) -> int:
        self._check_open()
        return self._records.all[-1].seq if self._records.all else 0

    async def recent(self, limit: int) -> list[Record]:
        self._check_open()
        return self._records.recent(limit)

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
        known = before(of.before, [*self._older, *self._submitted.values()])
        found = [each for each in reversed(known) if each.fits(user, run or "", correlation) and each.is_in(of)]
        return [each.summary(self._wall_ms()) for each in found[:limit]]

    async def named(self, id: str, of: RunScope) -> list[str]:
        self._check_open()
        newest = reversed(self._submitted.values())
        return [known.run for known in newest if known.key[2] == id and not known.forgotten and known.is_in(of)]

    async def handed_over(self, run: str, user: str) -> list[tuple[str, str]]:
        return [(each.key[2], each.run) for each in self._submitted.values() if each.is_part_of(run, user)]

    async def states(
        self, *, agent: str, users: Collection[str] | None = None, session: str | None = None, limit: int = 10_000
    ) -> list[RunState]:
        self._check_open()
        found = [
            known.state(self._records.all)
            for known in (*self._older, *self._submitted.values())
            if known.request.target == agent
            and (users is None or known.request.remit.user in users)
            and session in (None, known.request.session or known.run)
        ]
        return sorted(found, key=lambda state: (-state.changed_ms, -state.seq))[:limit]

    def remember(self, user: str, run: str, facts: tuple[str, ...], epoch: int = 0) -> None:
        if not self._is_replaced(RunEpoch(run, epoch)):
            self._knowledge.remember(user, run, facts)

    async def facts(self, user: str) -> tuple[str, ...]:
        self._check_open()
        return self._knowledge.facts(user)

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError(fault(Code.STORE_UNAVAILABLE, "the store is not open", suggestion="Open it first."))
