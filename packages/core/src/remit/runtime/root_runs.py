"""Root requests: durable before their agent starts, executed at most once, answered after every record is durable.

A request to an agent that changes nothing may begin before it is durable: it and its outcome then share a commit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from remit.policy.guards import asked_too_often
from remit.policy.reception import peer_of
from remit.policy.shares import ShareOwner
from remit.policy.verdict import Ask, Refuse, Rewrite
from remit.policy.weight import LIGHT_TO_ENCODE, is_light_request
from remit.ports import (
    FIRST_EPOCH,
    USED,
    AcceptedRequest,
    DuplicateRequest,
    Remote,
    ReusedProof,
    RunScope,
    SingleUseProof,
    StoreError,
    Submitted,
)
from remit.ports.text_reader import text_reader
from remit.protocol.codec import digest, encode
from remit.protocol.envelope import USER, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.runtime import journal
from remit.runtime.active_runs import ActiveRun, ActiveRuns
from remit.runtime.aside import aside, current_share
from remit.runtime.context import Delegator, RunRecording, RuntimeContext
from remit.runtime.delegation.admission import Heavy, RootAdmission, RootAttempt
from remit.runtime.delegation.approval import PersonDeclined
from remit.runtime.delegation.recording import DelegationRefusals
from remit.runtime.delegation.response import brief_fault, needs_wording
from remit.runtime.delegation.user_budgets import UserBudgets
from remit.runtime.frames import Frame, Run
from remit.runtime.redactor import made_whole

T = TypeVar("T")

CLOSING = fault(Code.CANCELLED, "cancelled: the hub is closing")
LEFT = fault(Code.CANCELLED, "cancelled: its caller was cancelled")


class RootRecords:
    """Writes the root requests of one hub and their outcomes to the store."""

    def __init__(
        self, parts: RuntimeContext, recording: RunRecording, refusals: DelegationRefusals, worker: str
    ) -> None:
        self._parts = parts
        self._recording = recording
        self._refusals = refusals
        self.worker = worker
        """The name under which this hub claims runs."""
        self._unrecorded: list[tuple[Run, Response, bool]] = []
        """Outcomes that the store could not take yet, and whether it should keep them."""
        self._troubled = False
        """Whether the last refusal could not be recorded."""
        self._proofs: dict[str, SingleUseProof] = {}
        """The single-use proof of a run's request, until the store has it."""
        self.parked: dict[str, int] = {}
        """Runs that wait for a person before they begin, with their epoch in the store."""
        self._begun: dict[str, Request] = {}
        """Runs that began in the store when they were claimed, as they were submitted."""

    # ── before it begins ──────────────────────────────────────────────────────────────────────────────────────────────

    def expect(self, run: str, proof: SingleUseProof) -> None:
        """Store the proof of a run in the step that submits its request, so it needs no commit of its own."""
        self._proofs[run] = proof

    def forget_proof(self, run: str) -> None:
        """Drop the proof of a run that has ended."""
        self._proofs.pop(run, None)

    async def reused(self, request: Request) -> Fault | None:
        """Store the single-use proof if that was not done yet; return the fault if it was used before."""
        proof = self._proofs.pop(request.run, None)
        if proof is None or await self._parts.store.incr(proof.key, 1, proof.until_ms) == 1:
            return None
        return USED

    def parked_before(self, run: str, epoch: int) -> None:
        """Note that a run was parked before a restart, or by a hub that stopped."""
        self.parked[run] = epoch

    def unpark(self, run: str) -> None:
        """Note that a run waits for nobody any more."""
        self.parked.pop(run, None)
        self._begun.pop(run, None)

    def begun_with_claim(self, run: str, request: Request) -> None:
        """Note that a run began in the store when it was claimed, as *request*."""
        self._begun[run] = request

    async def park(self, clean: Request, content: bytes, lease_ms: int) -> DuplicateRequest | None:
        """Make a redacted request durable before a person is asked; return its outcome if it is not new."""
        proof = self._proofs.pop(clean.run, None)
        submitted = await self._parts.store.submit(
            clean, content, worker=self.worker, lease_ms=lease_ms, waiting=True, once=proof
        )
        if isinstance(submitted, ReusedProof):
            raise RemitError(USED)
        if isinstance(submitted, DuplicateRequest):
            return submitted
        self.parked[clean.run] = submitted.epoch
        return None

    async def submit(self, clean: Request, content: bytes, lease_ms: int) -> Submitted | None:
        """Make an admitted request durable before its agent starts; None if another hub has taken the run over."""
        store, parked = self._parts.store, self.parked.pop(clean.run, None)
        begun = self._begun.pop(clean.run, None)
        if parked is not None:
            is_begun = begun is not None and encode(begun) == encode(clean)
            return AcceptedRequest(parked) if is_begun or await store.begin(clean.run, parked, clean) else None
        proof = self._proofs.pop(clean.run, None)
        return await store.submit(clean, content, worker=self.worker, lease_ms=lease_ms, once=proof)

    def submit_soon(self, clean: Request, content: bytes, lease_ms: int) -> Awaitable[Submitted] | None:
        """Submit a request that may begin before it is durable; None if it must be submitted first."""
        if clean.run in self.parked or clean.run in self._proofs:
            return None
        return self._parts.store.submit_soon(clean, content, worker=self.worker, lease_ms=lease_ms)

    def refused(self, request: Request, why: Fault) -> Response:
        """Return a refusal that is not recorded: the store cannot take it, or knows the outcome already."""
        return self._refusals.refused(request, why)

    # ── its end ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def refuse(self, request: Request, why: Fault, *, keep: bool = False) -> Response:
        """Refuse a request that has not begun, and return once that is durable.

        With *keep*, the same request gets this refusal when it is sent again.
        """
        store, parked = self._parts.store, self.parked.pop(request.run, None)
        why = await self.reused(request) or why
        if parked is not None and why is CLOSING:
            await store.release(request.run, parked, begun=False)
            return self._refusals.refused(request, why)
        if parked is None:
            if self._troubled:
                await store.flush()  # an unrecordable refusal is not a refusal, and such outcomes must not pile up
            response = self._refusals.refuse(request, why)
            try:
                await store.flush()
            except StoreError:
                self._troubled = True
                raise
            self._troubled = False
            return response
        return await self.refuse_claimed(request, parked, why, keep=keep)

    async def refuse_claimed(self, request: Request, epoch: int, why: Fault, *, keep: bool) -> Response:
        """Refuse a request that the store has, under a claim of this hub: only the outcome is recorded."""
        clean = self._parts.redactor.clean(brief_fault(why), self._recording.sealing_of(request.run))
        response = self._refusals.refused(request, clean)
        if why.code is Code.CANCELLED:
            response = replace(response, status=Status.CANCELLED)
        return await self.finish(Run(request, epoch, None), response, keep=keep)

    async def finish(self, run: Run, response: Response, *, keep: bool = True) -> Response:
        """Record the outcome of a run, or release the run."""
        parts = self._parts
        if run.handed_back:
            released = await parts.store.release(run.id, run.epoch)
            return response if released else _taken_over(response)
        try:
            recorded = await parts.store.finish(run.id, run.epoch, response, parts.clock.wall_ms(), keep=keep)
        except StoreError as error:
            self._unrecorded.append((run, response, keep))
            return replace(response, status=Status.FAILED, result=None, artifacts=(), files=(), fault=error.fault)
        if recorded:
            if parts.ended is not None:
                parts.ended(run.id, response)
            return response
        run.handed_back = True  # whoever has it now settles what it holds
        return _taken_over(response)

    def holds(self, run: str) -> bool:
        """Return whether a run waits here for a person, or its outcome for the store."""
        return run in self.parked or any(each.id == run for each, _, _ in self._unrecorded)

    async def record_late(self) -> None:
        """Record the outcomes that the store could not take before."""
        parts = self._parts
        while self._unrecorded:
            run, response, keep = self._unrecorded[0]
            await parts.store.finish(run.id, run.epoch, response, parts.clock.wall_ms(), keep=keep)
            self._unrecorded.pop(0)


async def _once_stored(act: Callable[[], Awaitable[T]]) -> T:
    """Return the result of *act*, tried again for as long as the store is away."""
    while True:
        try:
            return await act()
        except StoreError as error:
            if error.fault.code is not Code.STORE_UNAVAILABLE:
                raise
        await asyncio.sleep(AGAIN_S)


def _taken_over(response: Response) -> Response:
    return replace(response, status=Status.FAILED, result=None, fault=journal.TAKEN_OVER)


# A worker without a heartbeat for this long is considered dead, and its claimed runs are resumed.
LEASE_MS = 5_000
# How often a cancel is passed on again while the store is away.
AGAIN_S = 0.25
# How often a closing hub looks for runs that were still being admitted when it began to close.
CLOSING_S = 0.05


class RootRuns:
    """The runs of one hub: start, attach, cancel, answer."""

    def __init__(
        self, dispatch: Delegator, admission: RootAdmission, records: RootRecords, budgets: UserBudgets
    ) -> None:
        self._dispatch = dispatch
        self._admission = admission
        self._records = records
        self._budgets = budgets
        self.active = ActiveRuns(self._gone)
        self._cancelled: list[tuple[Request, bytes, int | None, Fault]] = []
        """Requests that were cancelled while the store was away: their digests, and the epochs of those it has."""

    @property
    def lease_ms(self) -> int:
        """For how long a run is claimed."""
        return LEASE_MS

    async def ask(self, request: Request) -> Response:
        """Execute a root request, or attach to an equal one in flight; only the first caller can cancel it."""
        going = await self.begin(request)
        if isinstance(going, Response):
            return self._for_asker(request, going)
        try:
            return self._for_asker(request, await asyncio.shield(going.task))
        except asyncio.CancelledError:
            if not going.task.done() and going.run == request.run:
                if going.on_record in ("", going.run) or not self.active.interrupt(going.task, LEFT):
                    self.cancel(request.run, "its caller was cancelled")
                await asyncio.wait({going.task})
            raise

    async def begin(self, request: Request, once: SingleUseProof | None = None) -> ActiveRun | Response:
        """Start a root request, attach to an equal one in flight, or refuse it; it continues without a waiting caller.

        *once* is the single-use proof that came with it.
        """
        registry = self._dispatch.parts.registry
        if registry.other_hubs is not None and request.target not in registry.agents:
            await registry.other_hubs.find(request.target)
        if once is not None:
            self._records.expect(request.run, once)
        light = is_light_request(request, LIGHT_TO_ENCODE)
        content = self.digest_of(request) if light else await aside.run(self.digest_of, request)
        going = self.active.get(request.key)
        if going is not None and going.digest != content:
            # A request that was edited before it began, and resumed since, is known to the store by its original
            # content.
            known = await self._dispatch.parts.store.find(request, content)
            if known is None or not known.same_content:
                return await self._records.refuse(request, _duplicate(request))
            going = going if known.run == going.run else None
        if going is not None and (why := await self._records.reused(request)) is not None:
            return await self._records.refuse(request, why)
        return going or self.launch(request, content, self.run(request, content))

    async def refuse(self, request: Request, why: Fault) -> Response:
        """Refuse a root request that has not begun, and record that."""
        try:
            return await self._records.refuse(request, why)
        except StoreError as error:
            return self._records.refused(request, error.fault)

    def cancel(self, delegation: str, reason: str) -> bool:
        """Stop a run, by its id or its request's id, or one delegation; False if no such id is in flight."""
        why = fault(Code.CANCELLED, f"cancelled: {reason}")
        going = self.active.named(delegation)
        if going is not None and self.active.interrupt(going.task, why):
            return True
        frames = self._dispatch.parts.ledger.frames
        frame = frames.get(delegation) or (frames.get(going.run) if going is not None else None)
        if frame is None:
            if going is not None:  # it is still being admitted, and will see that it must not start
                self.active.call_off(going.run, why)
            return going is not None
        # A run that is still on its way to the store must not start; one that another hub has is stopped there.
        if frame.run.epoch == 0 or (frame.parent is None and _is_order(why)):
            self.active.call_off(frame.run.id, why)
        self._dispatch.recording.notice(frame, why.message, why.code)
        self._dispatch.tasks.stop(frame, fault(Code.CANCELLED, f"{frame.request.target} was cancelled: {reason}"))
        return True

    def extend(self, run: str, tokens: int, reason: str, cost: int = 0) -> bool:
        """Grant a run more tokens or money, on record; False if it is not in flight."""
        frame = self._dispatch.parts.ledger.frames.get(run)
        if frame is None or frame.parent is not None:
            return False
        self._dispatch.extension.extend(frame, tokens, reason, cost)
        return True

    async def close(self) -> None:
        """Stop everything and return once each outcome is durable, or the run is released to be resumed."""
        while self.active:
            roots = [frame for frame in self._dispatch.parts.ledger.frames.values() if frame.parent is None]
            for frame in roots:
                if frame.stopping is None and frame.card.resumable:
                    frame.run.handed_back = True
            for frame in roots:
                self.cancel(frame.path, "the hub is closing")
            self.active.stop_all(CLOSING)
            # A run that was still being admitted may start after this; the next round of the loop finds it.
            await self.active.wait_for_one(CLOSING_S)
        with suppress(StoreError):
            await self.record_late()

    async def record_late(self) -> None:
        """Record what the store could not take before: outcomes, and cancels of requests that had not begun.

        Such a request may come again under its id, also at another hub, and stays cancelled.
        """
        await self._records.record_late()
        while self._cancelled:
            request, content, epoch, why = self._cancelled[0]
            if epoch is not None:
                ended = await self._records.refuse_claimed(request, epoch, why, keep=True)
                if ended.fault is journal.TAKEN_OVER:
                    await self.pass_cancel_on(request.run, why)
                self._cancelled.pop(0)
                continue
            run = Run(request, 0, None, self._dispatch.parts.redactor.sealing(request.session or request.run))
            clean = await self._admission.redacted(run, request)
            known = await self._records.park(clean, content, LEASE_MS)
            if known is None:
                await self._records.refuse(request, why, keep=True)
            elif known.response is None:
                await self.pass_cancel_on(known.run, why)
            self._cancelled.pop(0)

    def launch(self, request: Request, content: bytes, work: Coroutine[None, None, Response]) -> ActiveRun:
        """Run a root request in its own task; *content* is the digest of the request."""
        self._dispatch.parts.store.sizes[request.run] = 0
        return self.active.launch(request, content, work)

    def running(self, name: str, sender: str, scope: RunScope) -> ActiveRun | None:
        """Return a run in progress here: by its id, or by that which *sender* gave it."""
        return self.active.visible(name, sender, scope)

    def _gone(self, run: str) -> None:
        """Drop what was kept for a run until it ended."""
        parts = self._dispatch.parts
        self._records.forget_proof(run)
        parts.passed_on.pop(run, None)
        parts.remarks.pop(run, None)
        parts.store.sizes.pop(run, None)

    # ── one run ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, request: Request, content: bytes, parked: int | None = None) -> Response:
        """Admit a root request and execute it, or refuse it; *parked* is its epoch if the store already has it."""
        current_share.set(ShareOwner(request.via or "", request.remit.user))  # of this run's own task
        if parked is not None:
            self._records.parked_before(request.run, parked)
        try:
            try:
                return await self._admit(request, content)
            except StoreError:
                raise
            except RemitError as error:
                kept = isinstance(error, PersonDeclined) or _is_order(error.fault)
                ended = await self._records.refuse(request, error.fault, keep=kept)
                return await self._wherever(request, ended, error.fault)
        except StoreError as error:  # also a store that could not even record the refusal
            why = self._cancel_of(request.run)
            if why is not None and (parked is not None or request.id != request.run):
                self._cancelled.append((request, content, parked, why))
            return self._records.refused(request, error.fault)
        finally:
            self._records.unpark(request.run)

    async def _admit(self, request: Request, content: bytes) -> Response:
        """Judge a root request; if it is admitted, submit and execute it."""
        may_be_known = request.id != request.run and request.run not in self._records.parked
        attempt = RootAttempt(request, content, may_be_known=may_be_known)
        if (known := await self._admission.prepare(attempt)) is not None:
            return await self._answer_duplicate(attempt.request, known)
        try:
            return await self._judge(attempt)
        finally:
            await self._budgets.end(attempt.run, attempt.frame)

    async def _judge(self, attempt: RootAttempt) -> Response:
        """Judge a root request until it is refused, or admitted, submitted and executed."""
        admission, clock = self._admission, self._dispatch.parts.clock
        while True:
            request, now = attempt.request, clock.now()
            attempt.run.epoch = self._records.parked.get(request.run, 0)
            facts = admission.facts_of(attempt, now)
            verdict = admission.judge(attempt, facts)
            # A request that has an outcome already must not be refused, asked about or stored again.
            may_go_on = isinstance(verdict, Rewrite) and not verdict.struck
            if not may_go_on and (known := await admission.find(attempt)) is not None:
                return await self._answer_duplicate(request, known)
            match verdict:
                case Heavy():
                    await admission.look_through(attempt, facts)
                case Refuse(fault=why):
                    return await self._records.refuse(request, why)
                case Ask() as ask:
                    if (ended := await self._ask(attempt, ask)) is not None:
                        return ended
                case Rewrite():
                    if attempt.session is not None and not attempt.taken:
                        await admission.assign_session(attempt, attempt.session, verdict.request)
                    elif (why := self.active.why_called_off(request.run)) is not None:
                        return await self._not_now(attempt, why, keep=_is_order(why))
                    elif (shared := self._dispatch.parts.shared) is not None and attempt.needs_permit:
                        if (wait_ms := await shared.rate_wait_ms(facts.target)) > 0:
                            return await self._not_now(attempt, asked_too_often(request.target, wait_ms).fault)
                        attempt.permitted = True
                    elif not attempt.run.reserved and self._budgets.applies_to(request):
                        match await self._budgets.reserve(request, attempt.run):
                            case Fault() as nothing_left:
                                return await self._not_now(attempt, nothing_left)
                            case allowance:
                                attempt.allow(allowance)
                    else:
                        attempt.frame = frame = admission.reserve(attempt, verdict, now)
                        return await self._submit(frame, frame.recorded or frame.run.request, attempt.content)

    async def _not_now(self, attempt: RootAttempt, why: Fault, *, keep: bool = False) -> Response:
        """Refuse an admitted request for a limit that all hubs share, or since it is called off.

        One that has begun before, or has an outcome, is answered with that.
        """
        if (known := await self._admission.find(attempt)) is not None:
            return await self._answer_duplicate(attempt.request, known)
        return await self._records.refuse(attempt.request, why, keep=keep)

    async def _ask(self, attempt: RootAttempt, ask: Ask) -> Response | None:
        """Ask a person, unless another hub of the team did; return the outcome if the request goes no further."""
        run, parts, approval = attempt.run, self._dispatch.parts, self._dispatch.approval
        approved = attempt.request.approved
        agreed = approved and parts.redactor.keys.question_digest(f"{ask.question}") in approved
        # Only who chose the id can send the same request again.
        shown = None if attempt.request.id == attempt.request.run else attempt.request
        if agreed or (shown is not None and await approval.agreed_before(shown, f"{ask.question}")):
            attempt.agreed(ask.question, {})
            return None
        if (known := await self._park(attempt)) is not None:
            return await self._answer_duplicate(attempt.request, known)
        if (why := self.active.why_called_off(attempt.request.run)) is not None:
            return await self._records.refuse(attempt.request, why, keep=_is_order(why))
        asking = approval.ask_person(attempt.request, ask, attempt.questions, run)
        edits = await self.active.interruptible(asking)
        if shown is not None and not edits:
            await approval.remember_yes(shown, f"{ask.question}")
        attempt.agreed(ask.question, edits)
        if edits and attempt.request.view is not None:  # a longer task leaves less room for the rest
            attempt.request = await self._admission.with_context(run, attempt.request, goes_on=attempt.goes_on)
        attempt.entry = parts.registry.agents.get(attempt.request.target)
        return None

    async def _park(self, attempt: RootAttempt) -> DuplicateRequest | None:
        """Make a request durable that waits for a person before it begins; return its outcome if it is not new."""
        request = attempt.request
        if request.run in self._records.parked or self._dispatch.parts.approver is None:
            return None
        clean = await self._admission.redacted(attempt.run, request)
        if clean.view is not None:
            clean = replace(clean, view=clean.view.recorded())
        if (known := await self._records.park(clean, attempt.content, LEASE_MS)) is not None:
            return known
        attempt.run.epoch = self._records.parked[request.run]
        self.active.note_on_record(request, request.run)
        return None

    async def _submit(self, frame: Frame, clean: Request, content: bytes) -> Response:
        """Make an admitted request durable, then execute it."""
        parts = self._dispatch.parts
        if _changes_nothing(frame) and (soon := self._records.submit_soon(clean, content, LEASE_MS)) is not None:
            return await self._execute_early(frame, clean, soon)
        try:
            submitted = await self._records.submit(clean, content, LEASE_MS)
        except BaseException:
            parts.ledger.withdraw(frame, parts.clock.now())
            raise
        if isinstance(submitted, AcceptedRequest):
            frame.run.epoch = submitted.epoch
            self.active.note_on_record(clean, clean.run)
            for path, step in (frame.run.steps or {}).items():
                parts.store.journal(clean.run, submitted.epoch, path, step)
            if frame.run.reserved:
                journal.note_extension(parts.store, frame.run, 0, 0, parts.redactor.keys)
            return await self.carry_out(frame)
        parts.ledger.withdraw(frame, parts.clock.now())
        match submitted:
            case ReusedProof():
                return await self._records.refuse(clean, USED)
            case DuplicateRequest():
                return await self._answer_duplicate(clean, submitted)
            case None:
                return await self._wherever(clean, self._records.refused(clean, journal.TAKEN_OVER))

    async def _execute_early(self, frame: Frame, clean: Request, submitting: Awaitable[Submitted]) -> Response:
        """Execute a request that changes nothing while it is being submitted: it and its outcome share a commit."""
        frame.run.epoch = FIRST_EPOCH
        submitted = asyncio.ensure_future(submitting)
        submitted.add_done_callback(lambda done: self._note_submitted(clean, done))
        response = await self._execute(frame)
        match await submitted:
            case AcceptedRequest():
                return await self._answer(frame, response)
            case DuplicateRequest() as known:  # another process submitted it first
                return await self._answer_duplicate(clean, known)
            case ReusedProof():
                return await self._records.refuse(clean, USED)

    def _note_submitted(self, request: Request, done: "asyncio.Future[Submitted]") -> None:
        if not done.cancelled() and done.exception() is None and isinstance(done.result(), AcceptedRequest):
            self.active.note_on_record(request, request.run)

    async def _answer_duplicate(self, request: Request, known: DuplicateRequest) -> Response:
        """Answer a request that was made before, once there is an answer."""
        if not known.same_content:
            return await self._records.refuse(request, _duplicate(request))
        if (why := await self._records.reused(request)) is not None:
            return await self._records.refuse(request, why)
        while True:
            self.active.note_on_record(request, known.run)
            response = known.response or await self._attach(request, known.run)
            newer = await self._sent_again(request, known.run) if response.status is Status.REFUSED else None
            if newer is None:
                return self._for_asker(request, await self._dispatch.parts.redactor.for_user(known.run, response))
            known = newer

    async def _sent_again(self, request: Request, run: str) -> DuplicateRequest | None:
        """Return the newer run of a request whose *run* was refused, if it was sent again elsewhere meanwhile.

        The refusal says that nothing was started, and is not true any more.
        """
        going = self.active.get(request.key)
        newer = None if going is None else await self._dispatch.parts.store.find(request, going.digest)
        return newer if newer is not None and newer.same_content and newer.run != run else None

    async def _attach(self, request: Request, run: str, *, began: bool = False) -> Response:
        """Wait for another process to finish the same request, for at most this request's time; pass each cancel on.

        If it *began* here, it also waits for a store that is away: nothing else is known of it here.
        """
        why = self._cancel_of(request.run)
        waiting: Awaitable[Response | None] = (
            self._dispatch.parts.store.wait(run) if why is None else self.pass_cancel_on(run, why)
        )
        try:
            async with asyncio.timeout(request.remit.time_ms / 1_000):
                while True:
                    try:
                        if (ended := await self.active.interruptible(waiting)) is not None:
                            return ended
                        waiting = self._dispatch.parts.store.wait(run)
                    except RemitError as error:
                        why = error.fault
                        if began and why.code is Code.STORE_UNAVAILABLE:
                            waiting = asyncio.sleep(AGAIN_S)
                        elif why.code is not Code.CANCELLED or why in (CLOSING, LEFT):
                            raise
                        else:
                            waiting = self.pass_cancel_on(run, why)
        except TimeoutError:
            # The run continues, so this is not a timeout, after which the same would be requested under a new id.
            until = f"did not end within {request.remit.time_ms} ms"
        except RemitError as error:
            if error.fault.code is not Code.CANCELLED:
                raise
            until = "nobody waits for it here any more"
        again = "Ask again with the same id to get its outcome; this does not start another run."
        why = fault(Code.OUTCOME_UNKNOWN, f"the same request, run {run}, is in progress and {until}", suggestion=again)
        return self._records.refused(request, why)

    def _cancel_of(self, run: str) -> Fault | None:
        """Return why somebody cancelled a run here, if somebody did."""
        why = self.active.why_called_off(run)
        return why if why is not None and _is_order(why) else None

    async def pass_cancel_on(self, run: str, why: Fault) -> None:
        """Tell the hub that executes a run, or will, to stop it, once the store can be used."""
        parts, reason = self._dispatch.parts, why.message.removeprefix("cancelled: ")
        await _once_stored(lambda: parts.store.control(run, "cancel", parts.registry.hub, reason))

    async def cancel_handed_over(self, run: Run) -> None:
        """Tell the hubs that execute what a run handed over before a restart to stop it, once the store can be used."""
        store, user = self._dispatch.parts.store, run.request.remit.user
        for _, there in await _once_stored(lambda: store.handed_over(run.id, user)):
            await self.pass_cancel_on(there, LEFT)

    async def resume(self, frame: Frame) -> Response:
        """Go on with a run that was begun before, and settle what it holds of its user's day."""
        self._budgets.hold(frame.run)
        try:
            return await self.carry_out(frame)
        finally:
            await self._budgets.end(frame.run, frame)

    async def carry_out(self, frame: Frame) -> Response:
        """Execute an admitted and submitted request, and answer once its outcome is durable."""
        return await self._answer(frame, await self._execute(frame))

    async def _execute(self, frame: Frame) -> Response:
        (response,) = await self._dispatch.tasks.join(None, (self._dispatch.tasks.start(frame),))
        if frame.request.origin == USER and (frame.run.scope != frame.run.id or response.handover):
            with suppress(StoreError):  # it is answered, whatever happens to the question
                await self._dispatch.parts.sessions.end_turn(frame.run, response)
        # Only outcomes after the agent's code began are kept: before that, the same request may come again. A cancel
        # stands, too: whoever sends the same again may not have heard of it.
        unknown = response.fault is not None and response.fault.code is Code.OUTCOME_UNKNOWN
        cancelled = self._cancel_of(frame.run.id) is not None
        ended = await self._records.finish(frame.run, response, keep=frame.ran or unknown or cancelled)
        return await self._wherever(frame.request, ended)

    async def _wherever(self, request: Request, ended: Response, why: Fault | None = None) -> Response:
        """Return how a run ended here; if another hub took it over, whoever waits here gets the outcome there.

        *why* it ended here: a cancel is passed on, and a caller that has left waits for nothing.
        """
        if ended.fault is not journal.TAKEN_OVER or why in (CLOSING, LEFT):
            return ended
        try:
            if why is not None and why.code is Code.CANCELLED:
                await self.active.interruptible(self.pass_cancel_on(request.run, why))
            outcome = await self._attach(request, request.run, began=True)
            return await self._dispatch.parts.redactor.for_user(request.run, outcome)
        except RemitError:  # this hub closes, or cannot reach the store
            return ended

    async def _answer(self, frame: Frame, response: Response) -> Response:
        if frame.run.held:
            response = await made_whole(response, frame.run.held)
        return self._for_asker(frame.request, response)

    def _for_asker(self, request: Request, response: Response) -> Response:
        """Return a response as its caller gets it: only this hub's own programs see details of its code.

        A user reads plain sentences in it; another hub words them for its own users.
        """
        if response.findings:
            response = replace(response, findings=())
        if request.via is not None:
            response = response.outward()
        if not needs_wording(response) or peer_of(request) is not None:
            return response
        return text_reader().for_user(response, self._dispatch.parts.registry.cards)

    def digest_of(self, request: Request) -> bytes:
        """Return a digest of a request's content that reveals nothing to those who can only read the store."""
        return self._dispatch.parts.redactor.keys.digest(digest(request))


def _changes_nothing(frame: Frame) -> bool:
    """Return whether a request may begin before it is durable: it changes nothing, so it may begin again."""
    card, code = frame.card, frame.request.capability
    if code is None or card.resumable or card.callees or isinstance(frame.agent, Remote):
        return False
    capability = card.capability(code)
    return capability is not None and capability.read_only


def _is_order(why: Fault) -> bool:
    """Return whether somebody cancelled the run itself, and not only the wait for it."""
    return why.code is Code.CANCELLED and why not in (CLOSING, LEFT)


def _duplicate(request: Request) -> Fault:
    return fault(Code.DUPLICATE_REQUEST, f"request id {request.id} was used before with other content")
