"""Root requests: durable before their agent starts, executed at most once, answered after every record is durable."""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import TypeVar, cast

from msgspec.structs import replace

from remit.policy.permission import received
from remit.policy.reception import is_new, speaker_of
from remit.policy.redaction import strike
from remit.policy.verdict import Ask, Refuse, Rewrite
from remit.policy.weight import is_light_request
from remit.protocol.codec import digest
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.runtime import journal
from remit.runtime.aside import aside
from remit.runtime.delegation.admission import Heavy
from remit.runtime.delegation.dispatch import Dispatch
from remit.runtime.delegation.response import brief_fault
from remit.runtime.frames import Frame, Run
from remit.runtime.ports import USED, AcceptedRequest, DuplicateRequest, ReusedProof, SingleUseProof, StoreError
from remit.runtime.redactor import made_whole
from remit.runtime.root_attempt import RootAttempt

log = logging.getLogger("remit")

T = TypeVar("T")

# A worker without a heartbeat for this long is considered dead, and its claimed runs are resumed.
LEASE_MS = 5_000
# How often a closing hub looks for runs that were still being admitted when it began to close.
CLOSING_S = 0.05


class ActiveRun:
    """A root request that this hub executes, or whose end it waits for."""

    __slots__ = ("decided", "digest", "on_record", "run", "task")

    def __init__(self, digest: bytes, run: str, task: asyncio.Task[Response]) -> None:
        self.digest = digest
        self.run = run
        self.task = task
        self.on_record = ""
        """The run under which it is durably recorded: its own, or that of an earlier equal request."""
        self.decided = asyncio.Event()
        """Set once it is recorded, or has ended before that."""


class RootRuns:
    """The runs of one hub: start, attach, finish, resume."""

    def __init__(self, dispatch: Dispatch, worker: str) -> None:
        self.dispatch = dispatch
        self.worker = worker
        self._going: dict[tuple[str, str, str], ActiveRun] = {}
        self._by_run: dict[str, ActiveRun] = {}
        self._tasks: set[asyncio.Task[Response]] = set()
        self._waiting: dict[asyncio.Task[Response], Fault | None] = {}
        """Runs that wait for a person or another hub, and why they need not wait any more."""
        self.called_off: dict[str, Fault] = {}
        """Runs that were cancelled before they were admitted."""
        self._unrecorded: list[tuple[Run, Response, bool]] = []
        """Outcomes that the store could not take yet, and whether it should keep them."""
        self._troubled = False
        """Whether the last refusal could not be recorded."""
        self._once: dict[str, SingleUseProof] = {}
        """The single-use proof of a run's request, until the store has it."""
        self.parked: dict[str, int] = {}
        """Runs that wait for a person before they begin, with their epoch in the store."""

    async def ask(self, request: Request) -> Response:
        """Execute a root request, or attach to an equal one in flight; only the first caller can cancel it."""
        going = await self.begin(request)
        if isinstance(going, Response):
            return going
        try:
            return await asyncio.shield(going.task)
        except asyncio.CancelledError:
            if not going.task.done() and going.run == request.run:
                self.cancel(request.run, "its caller was cancelled")
                await asyncio.wait({going.task})
            raise

    async def begin(self, request: Request, once: SingleUseProof | None = None) -> ActiveRun | Response:
        """Start a root request, attach to an equal one in flight, or refuse it; it continues without a waiting caller.

        The proof *once* is stored in the step that submits the request, so it needs no commit of its own.
        """
        if once is not None:
            self._once[request.run] = once
        light = is_light_request(request)
        content = self.digest_of(request) if light else await aside.run(self.digest_of, request)
        key = (request.sender, request.remit.user, request.id)
        going = self._going.get(key)
        if going is not None and going.digest != content:
            # A request that was edited before it began, and resumed since, is known to the store by its original
            # content.
            known = await self.dispatch.parts.store.find(request, content)
            if known is None or not known.same_content:
                return await self._refuse(request, _duplicate(request))
            going = going if known.run == going.run else None
        if going is not None and (why := await self._used(request)) is not None:
            return await self._refuse(request, why)
        return going or self.launch(key, content, request.run, self.run(request, content))

    async def refuse(self, request: Request, why: Fault) -> Response:
        """Refuse a root request that has not begun, and record that."""
        try:
            return await self._refuse(request, why)
        except StoreError as error:
            return self.dispatch.refusals.refused(request, error.fault)

    def cancel(self, delegation: str, reason: str) -> bool:
        """Stop a run, by its id or its request's id, or one delegation; False if no such id is in flight."""
        why = fault(Code.CANCELLED, f"cancelled: {reason}")
        going = self._named(delegation)
        if going is not None and self._interrupt(going.task, why):
            return True
        frames = self.dispatch.parts.ledger.frames
        frame = frames.get(delegation) or (frames.get(going.run) if going is not None else None)
        if frame is None:
            if going is not None:  # it is still being admitted, and will see that it must not start
                self.called_off.setdefault(going.run, why)
            return going is not None
        self.dispatch.recording.notice(frame, why.message, why.code)
        self.dispatch.tasks.stop(frame, fault(Code.CANCELLED, f"{frame.request.target} was cancelled: {reason}"))
        return True

    def _named(self, name: str) -> ActiveRun | None:
        """Return the run with that id; else the only one whose request has it."""
        if name in self._by_run:
            return self._by_run[name]
        # Senders choose request ids, so two users may have chosen the same one: then it names neither.
        found = [going for (_, _, request_id), going in self._going.items() if request_id == name]
        return found[0] if len(found) == 1 else None

    async def close(self) -> None:
        """Stop everything and return once each outcome is durable, or the run is released to be resumed."""
        while self._tasks:
            for frame in self.dispatch.parts.ledger.frames.values():
                if frame.parent is None and frame.stopping is None and frame.card.resumable:
                    frame.run.handed_back = True
            for run in [frame.path for frame in self.dispatch.parts.ledger.frames.values() if frame.parent is None]:
                self.cancel(run, "the hub is closing")
            for task in self._tasks:
                self._interrupt(task, CLOSING)
            for going in self._going.values():
                self.called_off.setdefault(going.run, CLOSING)
            # A run that was still being admitted may start after this; the next round of the loop finds it.
            await asyncio.wait(self._tasks, timeout=CLOSING_S, return_when=asyncio.FIRST_COMPLETED)
        with suppress(StoreError):
            await self.record_late()

    # ── one run ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def launch(
        self, key: tuple[str, str, str], content: bytes, run: str, work: Coroutine[None, None, Response]
    ) -> ActiveRun:
        """Run a root request in its own task."""
        task = asyncio.get_running_loop().create_task(work)
        going = self._going[key] = self._by_run[run] = ActiveRun(content, run, task)
        self._tasks.add(task)
        self.dispatch.parts.store.sizes[run] = 0
        task.add_done_callback(lambda _: self._gone(key, going))
        return going

    def _gone(self, key: tuple[str, str, str], going: ActiveRun) -> None:
        self._tasks.discard(going.task)
        self.called_off.pop(going.run, None)
        self._once.pop(going.run, None)
        self.dispatch.parts.passed_on.pop(going.run, None)
        self.dispatch.parts.remarks.pop(going.run, None)
        self.dispatch.parts.store.sizes.pop(going.run, None)
        going.decided.set()
        if self._going.get(key) is going:
            del self._going[key]
        if self._by_run.get(going.run) is going:
            del self._by_run[going.run]

    def note_on_record(self, request: Request, run: str) -> None:
        """Note that a request is durably recorded."""
        if (going := self._by_run.get(request.run)) is not None:
            going.on_record = run
            going.decided.set()

    def _interrupt(self, task: asyncio.Task[Response], why: Fault) -> bool:
        """Stop a run from waiting for a person or another hub; False if it does not wait."""
        if task not in self._waiting:
            return False
        self._waiting[task] = self._waiting[task] or why
        task.cancel()
        return True

    async def _interruptible(self, waiting: Awaitable[T]) -> T:
        """Wait for a person or another hub; `cancel` and `close` end the wait with a fault."""
        task = cast("asyncio.Task[Response]", asyncio.current_task())
        self._waiting[task] = None
        try:
            given = await waiting
        except asyncio.CancelledError:
            why = self._waiting[task]
            if why is None:
                raise
            raise RemitError(why) from None
        else:
            # The approver may not have noticed that the answer is not needed any more.
            if (why := self._waiting[task]) is not None:
                raise RemitError(why)
            return given
        finally:
            del self._waiting[task]

    async def run(self, request: Request, content: bytes, parked: int | None = None) -> Response:
        """Admit a root request and execute it, or refuse it; *parked* is its epoch if the store already has it."""
        if parked is not None:
            self.parked[request.run] = parked
        try:
            try:
                return await self._admit(request, content)
            except StoreError:
                raise
            except RemitError as error:
                return await self._refuse(request, error.fault)
        except StoreError as error:  # also a store that could not even record the refusal
            return self.dispatch.refusals.refused(request, error.fault)
        finally:
            self.parked.pop(request.run, None)

    async def _admit(self, request: Request, content: bytes) -> Response:
        """Judge a root request; if it is admitted, submit and execute it."""
        attempt = RootAttempt(
            request, content, may_be_known=request.id != request.run and request.run not in self.parked
        )
        admission, clock = self.dispatch.admission, self.dispatch.parts.clock
        if (known := await self._prepare(attempt)) is not None:
            return await self._known(attempt.request, known)
        run = attempt.run
        while True:
            request, now = attempt.request, clock.now()
            facts = admission.facts_of_root(request, run, attempt.entry, attempt.owner, attempt.approved, now)
            verdict = admission.judge(request, facts, run, attempt.looked)
            # A request that has an outcome already must not be refused, asked about or stored again.
            may_go_on = isinstance(verdict, Rewrite) and not verdict.struck
            if not may_go_on and (known := await self._find(attempt)) is not None:
                return await self._known(request, known)
            match verdict:
                case Heavy():
                    attempt.looked = await admission.look_through(request, facts, run, of_user=True)
                case Refuse(fault=why):
                    return await self._refuse(request, why)
                case Ask() as ask:
                    if (ended := await self._ask(attempt, ask)) is not None:
                        return ended
                case Rewrite():
                    if attempt.session is not None and not attempt.taken:
                        # Also a session that was used before it was assigned: its values are stored from now on.
                        user, store = request.remit.user, self.dispatch.parts.store
                        attempt.owner = await store.session(attempt.session, user, request.target)
                        attempt.taken = True
                    elif (why := self.called_off.get(request.run)) is not None:
                        return await self._refuse(request, why)
                    else:
                        frame = self._reserve(attempt, verdict, now)
                        return await self._submit(frame, frame.recorded or verdict.request, content)

    async def _prepare(self, attempt: RootAttempt) -> DuplicateRequest | None:
        """Read what judging a request needs; return the outcome if the same was requested before."""
        parts, request = self.dispatch.parts, attempt.request
        attempt.entry = entry = parts.registry.agents.get(request.target)
        if entry is not None and request.remit.chain:
            attempt.request = request = received(request, entry.card, parts.limits)
        # Most requests learn this when they are submitted; not those that read or store something before.
        needed = (
            (attempt.session and not is_new(request)) or request.context is not None or request.retry_of is not None
        )
        if needed and (known := await self._find(attempt)) is not None:
            return known
        attempt.owner = owner = await parts.store.owner(attempt.session) if attempt.session else None
        if owner is None and is_new(request):
            attempt.session = None  # begun by this request, it is like one that nobody chose
        steps: dict[str, bytes] | None = {} if entry is not None and entry.card.resumable else None
        attempt.run = run = Run(request, 0, steps, parts.redactor.sealing(request.session or request.run))
        run.tally = parts.ledger.tally_of(request)
        # Nothing of another user's conversation is even read.
        attempt.goes_on = goes_on = owner == (request.remit.user, request.target)
        if goes_on:
            await parts.redactor.recall(run)
        if request.retry_of is not None and run.steps is not None:
            await self._take_over(run, request, attempt.content)
        if goes_on or request.view is not None or (owner is None and request.context is not None):
            attempt.request = await self.with_context(run, request, goes_on=goes_on)
        return None

    async def _find(self, attempt: RootAttempt) -> DuplicateRequest | None:
        """Return what is known of an earlier equal request; it is looked up once."""
        if not attempt.may_be_known:
            return None
        known = await self.dispatch.parts.store.find(attempt.request, attempt.content)
        attempt.may_be_known = known is not None
        return known

    async def _ask(self, attempt: RootAttempt, ask: Ask) -> Response | None:
        """Ask a person; return the outcome if the request goes no further."""
        run = attempt.run
        if (known := await self._park(attempt.request, attempt.content, run)) is not None:
            return await self._known(attempt.request, known)
        if (why := self.called_off.get(attempt.request.run)) is not None:
            return await self._refuse(attempt.request, why)
        asking = self.dispatch.approval.ask_person(attempt.request, ask, attempt.questions, run.sealing)
        edits = await self._interruptible(asking)
        attempt.agreed(ask.question, edits)
        if edits and attempt.request.view is not None:  # a longer task leaves less room for the rest
            attempt.request = await self.with_context(run, attempt.request, goes_on=attempt.goes_on)
        attempt.entry = self.dispatch.parts.registry.agents.get(attempt.request.target)
        return None

    def _reserve(self, attempt: RootAttempt, verdict: Rewrite, now: float) -> Frame:
        """Reserve what the guards allowed before anything is awaited, so that nobody else can take it."""
        clean, run, entry, sessions = verdict.request, attempt.run, attempt.entry, self.dispatch.parts.sessions
        assert entry is not None, "a guard refuses unknown targets"
        if verdict.struck:
            self.dispatch.admission.keep(run, verdict.struck, attempt.looked, of_user=True)
        run.request = clean
        if attempt.session is not None:
            sessions.hear(run, clean)
        if clean.handoff is not None:
            sessions.heed(run, clean.handoff, speaker_of(clean))
        frame = self.dispatch.admission.reserve(clean, entry, run, None, now)
        frame.lookup = self.dispatch.admission.lookup(attempt.request, clean, entry, run)
        return frame

    async def _take_over(self, run: Run, request: Request, content: bytes) -> None:
        """Give a retry the finished steps of the run that it retries, so that nothing is done twice.

        Only for the same user and the same content; any other request begins from the start.
        """
        store, redactor = self.dispatch.parts.store, self.dispatch.parts.redactor
        known = await store.find(replace(request, id=request.retry_of), content)
        if known is None or not known.same_content or known.response is None:
            return
        journal.take_over(run, run.id, known.run, known.run, await store.load(known.run), redactor.keys)
        if run.steps:
            await redactor.take_over(run, known.response.session or known.run, known.run)

    async def with_context(self, run: Run, request: Request, *, goes_on: bool) -> Request:
        """Return a root request with the part of its conversation that its agent is shown, if there is one."""
        sessions, room = self.dispatch.parts.sessions, request.remit.context_tokens
        if goes_on:
            await sessions.recall(run)
        # A session that had no owner a moment ago may have another owner now.
        of = run.scope if goes_on else run.id
        shown = await sessions.show(request, of=of, frame=None, run=run, to=None, room=room)
        if request.via is not None and request.view is not None:
            shown = await sessions.brought(request.view, shown)
        return replace(request, view=None) if shown is None else await sessions.shown_aside(request, shown)

    async def _park(self, request: Request, content: bytes, run: Run) -> DuplicateRequest | None:
        """Make a request durable that waits for a person before it begins; return its outcome if it is not new."""
        parts = self.dispatch.parts
        if request.run in self.parked or parts.approver is None:
            return None
        clean = await self.redacted(run, request)
        if clean.view is not None:
            clean = replace(clean, view=clean.view.recorded())
        submitted = await parts.store.submit(
            clean,
            content,
            worker=self.worker,
            lease_ms=LEASE_MS,
            waiting=True,
            once=self._once.pop(request.run, None),
        )
        if isinstance(submitted, ReusedProof):
            raise RemitError(USED)
        if isinstance(submitted, DuplicateRequest):
            return submitted
        self.parked[request.run] = submitted.epoch
        self.note_on_record(request, request.run)
        return None

    async def redacted(self, run: Run, request: Request) -> Request:
        """Return a root request in a form that may be stored and shown; the redacted values belong to its user."""
        if run.sealing is None:
            return request
        redactor = self.dispatch.parts.redactor
        struck: dict[str, str | int] = {}
        light = is_light_request(request)
        try:
            if light:
                clean = strike(request, run.sealing, struck)
            else:
                clean = await aside.run(strike, request, run.sealing, struck)
        except RemitError:
            raise
        except Exception as error:
            log.error("a detector failed on %s: %s", request.run, redactor.worded(error))
            why = f"the request could not be redacted ({type(error).__name__}), so nothing is let through"
            how = "Correct the detector; the log of the hub says why it failed."
            raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=how)) from error
        if struck and light:
            redactor.keep(run, struck, of_user=True)
        elif struck:
            taken = await aside.run(redactor.take, run.scope, struck, struck, of_user=True)
            redactor.keep_taken(run, struck, taken, of_user=True)
        return clean

    async def _submit(self, frame: Frame, clean: Request, content: bytes) -> Response:
        parts = self.dispatch.parts
        parked = self.parked.pop(clean.run, None)
        try:
            if parked is not None:
                begun = await parts.store.begin(clean.run, parked, clean)
                submitted = AcceptedRequest(parked) if begun else None
            else:
                once = self._once.pop(clean.run, None)
                submitted = await parts.store.submit(clean, content, worker=self.worker, lease_ms=LEASE_MS, once=once)
        except BaseException:
            parts.ledger.withdraw(frame, parts.clock.now())
            raise
        if isinstance(submitted, AcceptedRequest):
            frame.run.epoch = submitted.epoch
            self.note_on_record(clean, clean.run)
            for path, step in (frame.run.steps or {}).items():
                parts.store.journal(clean.run, submitted.epoch, path, step)
            return await self.carry_out(frame)
        parts.ledger.withdraw(frame, parts.clock.now())
        if isinstance(submitted, ReusedProof):
            return await self._refuse(clean, USED)
        return (
            self.dispatch.refusals.refused(clean, journal.TAKEN_OVER)
            if submitted is None
            else await self._known(clean, submitted)
        )

    async def _used(self, request: Request) -> Fault | None:
        """Store the single-use proof if that was not done yet; return the fault if it was used before."""
        once = self._once.pop(request.run, None)
        if once is None or await self.dispatch.parts.store.incr(once.key, 1, once.until_ms) == 1:
            return None
        return USED

    async def _known(self, request: Request, known: DuplicateRequest) -> Response:
        if not known.same_content:
            return await self._refuse(request, _duplicate(request))
        if (why := await self._used(request)) is not None:
            return await self._refuse(request, why)
        self.note_on_record(request, known.run)
        response = known.response or await self._attach(request, known.run)
        return _for_asker(request, await self.dispatch.parts.redactor.for_user(known.run, response))

    async def _attach(self, request: Request, run: str) -> Response:
        """Wait for another process to finish the same request, for at most this request's time."""
        try:
            async with asyncio.timeout(request.remit.time_ms / 1_000):
                return await self._interruptible(self.dispatch.parts.store.wait(run))
        except TimeoutError:
            # The run continues, so this is not a timeout, after which the same would be requested under a new id.
            why = f"the same request, run {run}, is in progress and did not end within {request.remit.time_ms} ms"
            again = "Ask again with the same id to get its outcome; this does not start another run."
            unknown = self.dispatch.refusals.refused(request, fault(Code.OUTCOME_UNKNOWN, why, suggestion=again))
            return replace(unknown, status=Status.FAILED)

    async def carry_out(self, frame: Frame) -> Response:
        """Execute an admitted and submitted request, and answer once its outcome is durable."""
        (response,) = await self.dispatch.tasks.join(None, (self.dispatch.tasks.start(frame),))
        # Only outcomes after the agent's code began are kept: before that, the same request may come again.
        response = await self.finish(frame.run, response, keep=frame.ran)
        if frame.run.scope != frame.run.id:
            with suppress(StoreError):  # it is answered, whatever happens to the question
                await self.dispatch.parts.sessions.ask_back(frame.run, response)
        return _for_asker(frame.request, await made_whole(response, frame.run.held))

    async def finish(self, run: Run, response: Response, *, keep: bool = True) -> Response:
        """Record the outcome of a run, or release the run."""
        parts = self.dispatch.parts
        if run.handed_back:
            await parts.store.release(run.id, run.epoch)
            return response
        try:
            recorded = await parts.store.finish(run.id, run.epoch, response, parts.clock.wall_ms(), keep=keep)
        except StoreError as error:
            self._unrecorded.append((run, response, keep))
            return replace(response, status=Status.FAILED, result=None, artifacts=(), fault=error.fault)
        if recorded:
            return response
        return replace(response, status=Status.FAILED, result=None, fault=journal.TAKEN_OVER)

    async def _refuse(self, request: Request, why: Fault) -> Response:
        store, parked = self.dispatch.parts.store, self.parked.pop(request.run, None)
        why = await self._used(request) or why
        if parked is not None and why is CLOSING:
            await store.release(request.run, parked)
            return self.dispatch.refusals.refused(request, why)
        if parked is None:
            if self._troubled:
                await store.flush()  # an unrecordable refusal is not a refusal, and such outcomes must not pile up
            response = self.dispatch.refusals.refuse(request, why)
            try:
                await store.flush()
            except StoreError:
                self._troubled = True
                raise
            self._troubled = False
            return response
        # Its request is recorded: only the outcome is added.
        sealing = self.dispatch.recording.sealing_of(request.run)
        clean = self.dispatch.parts.redactor.clean(brief_fault(why), sealing)
        response = self.dispatch.refusals.refused(request, clean)
        if why.code is Code.CANCELLED:
            response = replace(response, status=Status.CANCELLED)
        return await self.finish(Run(request, parked, None), response, keep=False)

    def digest_of(self, request: Request) -> bytes:
        """Return a digest of a request's content that reveals nothing to those who can only read the store."""
        return self.dispatch.parts.redactor.keys.digest(digest(request))

    async def record_late(self) -> None:
        """Record the outcomes that the store could not take before."""
        parts = self.dispatch.parts
        while self._unrecorded:
            run, response, keep = self._unrecorded[0]
            await parts.store.finish(run.id, run.epoch, response, parts.clock.wall_ms(), keep=keep)
            self._unrecorded.pop(0)


CLOSING = fault(Code.CANCELLED, "cancelled: the hub is closing")


def _duplicate(request: Request) -> Fault:
    return fault(Code.DUPLICATE_REQUEST, f"request id {request.id} was used before with other content")


def _for_asker(request: Request, response: Response) -> Response:
    """Return a response as its caller gets it: only this hub's own programs see details of its code."""
    return response if request.via is None else response.outward()
