"""Root requests: durable before their agent starts, executed at most once, answered after every record is durable."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import NamedTuple, TypeVar, cast

from msgspec.structs import replace

from remit.policy.redaction import restore, strike
from remit.policy.verdict import Ask, Facts, Refuse, Rewrite
from remit.protocol.codec import digest
from remit.protocol.envelope import VERSION, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.runtime.dispatch import Dispatch
from remit.runtime.ledger import Frame, Run
from remit.runtime.ports import Accepted, Control, Expired, Known, StoreError
from remit.runtime.redactor import whole
from remit.runtime.registry import Entry
from remit.runtime.respond import refused

log = logging.getLogger("remit")

T = TypeVar("T")

# A worker that has not been heard of for this long is taken to be dead, and what it had claimed is taken up again.
LEASE_MS = 5_000
MAX_ATTEMPTS = 3
# A sender that retries does so within a day; after that its request id may be used again.
KEEP_MS = 24 * 3_600_000


# A person who cancels a run from another terminal should see it end at once: a fifth of a second, the rest included.
LISTEN_S = 0.1
# How often a hub that closes looks for runs that were still being admitted when it began to.
CLOSING_S = 0.05


class Going(NamedTuple):
    """A root request that this hub carries out."""

    digest: bytes
    run: str
    task: asyncio.Task[Response]


class Runs:
    """The runs of one hub: starting, attaching to, finishing and taking up again."""

    def __init__(self, dispatch: Dispatch, worker: str) -> None:
        self._dispatch = dispatch
        self._worker = worker
        self._going: dict[tuple[str, str, str], Going] = {}
        self._tasks: set[asyncio.Task[Response]] = set()
        self._waiting: dict[asyncio.Task[Response], Fault | None] = {}
        """Those that wait for a person or for another hub, and why they need not wait any more."""
        self._called_off: dict[str, Fault] = {}
        """Runs that were cancelled before they were admitted."""
        self._unrecorded: list[tuple[Run, Response, bool]] = []
        """Outcomes that the store could not take, and whether it is to keep them; they wait here until it can."""
        self._parked: dict[str, int] = {}
        """Runs that wait for a person before they begin, with the epoch under which the store has them."""
        self._attendants: list[asyncio.Task[None]] = []
        self.on_reload: Callable[[Control], Awaitable[None]] | None = None
        """What to do when someone asks every hub to read its team file again."""

    async def ask(self, request: Request) -> Response:
        """Carry out a root request, or attach to the same one under way; only the first who asked can cancel it."""
        key, content = (request.origin, request.remit.user, request.id), self._digest(request)
        going = self._going.get(key)
        if going is not None and going.digest != content:
            # One that was changed before it began, and taken up since, is known to the store by what was said first.
            known = await self._dispatch.parts.store.find(request, content)
            if known is None or not known.same_content:
                return await self._refuse(request, _duplicate(request))
            going = going if known.run == going.run else None
        if going is not None:
            return await asyncio.shield(going.task)
        task = self._go(key, content, request.run, self._run(request, content))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self.cancel(request.run, "its caller was cancelled")
                await asyncio.wait({task})
            raise

    def cancel(self, delegation: str, reason: str) -> bool:
        """Stop a run, by its id or its request's, or one delegation of it; False if nothing of that id is in flight."""
        why = fault(Code.CANCELLED, f"cancelled: {reason}")
        going = self._named(delegation)
        if going is not None and self._interrupt(going.task, why):
            return True
        frames = self._dispatch.parts.ledger.frames
        frame = frames.get(delegation) or (frames.get(going.run) if going is not None else None)
        if frame is None:
            if going is not None:  # it is still being admitted, and will find that it need not be
                self._called_off.setdefault(going.run, why)
            return going is not None
        self._dispatch.notice(frame, why.message, why.code)
        self._dispatch.stop(frame, fault(Code.CANCELLED, f"{frame.request.target} was cancelled: {reason}"))
        return True

    def _named(self, name: str) -> Going | None:
        """Return the run of that id; else the one whose request has it, if there is only one."""
        found = [going for going in self._going.values() if going.run == name] or [
            # Request ids are the sender's own, so two users may have chosen the same one: then it names neither.
            going
            for (_, _, request_id), going in self._going.items()
            if request_id == name
        ]
        return found[0] if len(found) == 1 else None

    async def open(self) -> None:
        """Keep this hub's claims alive, take up what others left behind, and listen to other processes."""
        heard = await self._dispatch.parts.store.last_control()
        loop = asyncio.get_running_loop()
        self._attendants = [loop.create_task(self._keep()), loop.create_task(self._listen(heard))]

    async def close(self) -> None:
        """Stop everything and return once it is durable how it ended, or that it is to be taken up again."""
        for task in self._attendants:
            task.cancel()
        if self._attendants:
            await asyncio.wait(self._attendants)
        while self._tasks:
            for frame in self._dispatch.parts.ledger.frames.values():
                if frame.parent is None and frame.stopping is None and frame.card.resumable:
                    frame.run.handed_back = True
            for run in [frame.path for frame in self._dispatch.parts.ledger.frames.values() if frame.parent is None]:
                self.cancel(run, "the hub is closing")
            for task in self._tasks:
                self._interrupt(task, _CLOSING)
            for going in self._going.values():
                self._called_off.setdefault(going.run, _CLOSING)
            # One that was still being admitted may start after this; the next turn of the loop finds it.
            await asyncio.wait(self._tasks, timeout=CLOSING_S, return_when=asyncio.FIRST_COMPLETED)
        with suppress(StoreError):
            await self._record_late()

    # ── one run ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _go(
        self, key: tuple[str, str, str], content: bytes, run: str, work: Coroutine[None, None, Response]
    ) -> asyncio.Task[Response]:
        task = asyncio.get_running_loop().create_task(work)
        going = self._going[key] = Going(content, run, task)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._gone(key, going))
        return task

    def _gone(self, key: tuple[str, str, str], going: Going) -> None:
        self._tasks.discard(going.task)
        self._called_off.pop(going.run, None)
        if self._going.get(key) is going:
            del self._going[key]

    def _interrupt(self, task: asyncio.Task[Response], why: Fault) -> bool:
        """End the waiting of a run for a person or another hub; False if it does not wait for one."""
        if task not in self._waiting:
            return False
        self._waiting[task] = self._waiting[task] or why
        task.cancel()
        return True

    async def _interruptible(self, waiting: Awaitable[T]) -> T:
        """Await a person or another hub; `cancel` and `close` end it with a fault."""
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
            # Who was asked may not have noticed that nobody wants to know any more.
            if (why := self._waiting[task]) is not None:
                raise RemitError(why)
            return given
        finally:
            del self._waiting[task]

    async def _run(self, request: Request, content: bytes, parked: int | None = None) -> Response:
        if parked is not None:
            self._parked[request.run] = parked
        try:
            return await self._admit(request, content)
        except StoreError as error:
            return refused(request, error.fault)
        except RemitError as error:
            return await self._refuse(request, error.fault)
        finally:
            self._parked.pop(request.run, None)

    async def _admit(self, request: Request, content: bytes) -> Response:
        parts = self._dispatch.parts
        entry = parts.registry.agents.get(request.target)
        is_new = request.run not in self._parked
        # What the sender chose may have been used before: an id for the same request, a session by its owner.
        if is_new and request.id != request.run and (known := await parts.store.find(request, content)) is not None:
            return await self._known(request, known)
        chosen = request.session if request.session != request.run else None
        owner = await parts.store.owner(chosen) if chosen else None
        approved: frozenset[str] = frozenset()
        questions = 0
        steps: dict[str, bytes] | None = {} if entry is not None and entry.card.resumable else None
        run = Run(request, 0, steps, parts.redactor.sealing(request.run))
        while True:
            now = parts.clock.now()
            facts = Facts(
                target=entry.card if entry else None,
                address=entry.address if entry else "",
                limits=parts.limits,
                agents=parts.registry.agents,
                session_user=owner.user if owner else None,
                session_agent=owner.agent if owner else None,
                rate_wait_ms=parts.ledger.rate_wait_ms(entry.card, now) if entry else 0,
                breaker_wait_ms=parts.ledger.breaker_wait_ms(request.target, now),
                approved=approved,
                sealing=run.sealing,
            )
            match self._dispatch.judge(request, facts, run):
                case Refuse(fault=why):
                    return await self._refuse(request, why)
                case Ask() as ask:
                    if (known := await self._park(request, content, run)) is not None:
                        return await self._known(request, known)
                    if (why := self._called_off.get(request.run)) is not None:
                        return await self._refuse(request, why)
                    asking = self._dispatch.ask_person(request, ask, questions, run.sealing)
                    edits = await self._interruptible(asking)
                    # A yes is to what the person was shown: what another makes of it is asked about again.
                    approved = (frozenset[str]() if edits else approved) | {ask.question}
                    questions += 1
                    request = replace(request, **edits) if edits else request
                    entry = parts.registry.agents.get(request.target)
                case Rewrite(request=clean, struck=struck):
                    assert entry is not None, "a guard refuses unknown targets"
                    if chosen and owner is None and is_new:
                        owner = await parts.store.session(chosen, request.remit.user, request.target)
                        continue
                    if (why := self._called_off.get(request.run)) is not None:
                        return await self._refuse(request, why)
                    if struck:
                        parts.redactor.keep(run, struck, of_user=True)
                    run.request = clean
                    # What the guards allowed is taken before anything is awaited, so that others cannot take it too.
                    frame = self._dispatch.admitted(clean, entry, run, None, now)
                    return await self._submit(frame, clean, content)

    async def _park(self, request: Request, content: bytes, run: Run) -> Known | None:
        """Make a request durable that waits for a person before it begins; return what is known if it is not new."""
        parts = self._dispatch.parts
        if request.run in self._parked or parts.approver is None:
            return None
        struck: dict[str, str | int] = {}
        try:
            clean = request if run.sealing is None else strike(request, run.sealing, struck)
        except Exception as error:
            log.error("a detector failed on %s: %s", request.run, parts.redactor.worded(error))
            why = f"the request could not be redacted ({type(error).__name__}), so nothing is let through"
            raise RemitError(fault(Code.PERMISSION_DENIED, why)) from error
        if struck:
            parts.redactor.keep(run, struck, of_user=True)
        submitted = await parts.store.submit(clean, content, worker=self._worker, lease_ms=LEASE_MS, waiting=True)
        if isinstance(submitted, Known):
            return submitted
        self._parked[request.run] = submitted.epoch
        return None

    async def _submit(self, frame: Frame, clean: Request, content: bytes) -> Response:
        parts = self._dispatch.parts
        parked = self._parked.pop(clean.run, None)
        try:
            if parked is not None:
                begun = await parts.store.begin(clean.run, parked, clean)
                submitted = Accepted(parked) if begun else None
            else:
                submitted = await parts.store.submit(clean, content, worker=self._worker, lease_ms=LEASE_MS)
        except BaseException:
            parts.ledger.withdraw(frame, parts.clock.now())
            raise
        if isinstance(submitted, Accepted):
            frame.run.epoch = submitted.epoch
            return await self._carry_out(frame)
        parts.ledger.withdraw(frame, parts.clock.now())
        return refused(clean, _TAKEN_OVER) if submitted is None else await self._known(clean, submitted)

    async def _known(self, request: Request, known: Known) -> Response:
        if not known.same_content:
            return await self._refuse(request, _duplicate(request))
        response = known.response or await self._attach(request, known.run)
        return await self._dispatch.parts.redactor.for_user(known.run, response)

    async def _attach(self, request: Request, run: str) -> Response:
        """Wait for another process to finish the same request, as long as this one may take."""
        try:
            async with asyncio.timeout(request.remit.time_ms / 1_000):
                return await self._interruptible(self._dispatch.parts.store.wait(run))
        except TimeoutError:
            return refused(
                request,
                fault(Code.TIMEOUT, f"the same request, run {run}, had not ended after {request.remit.time_ms} ms"),
            )

    async def _carry_out(self, frame: Frame) -> Response:
        (response,) = await self._dispatch.join(None, (self._dispatch.start(frame),))
        # Only what happened after the agent's code began is kept: before that, the same request may come again.
        response = await self._finish(frame.run, response, keep=frame.ran)
        return whole(response, frame.run.held)

    async def _finish(self, run: Run, response: Response, *, keep: bool = True) -> Response:
        parts = self._dispatch.parts
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
        return replace(response, status=Status.FAILED, result=None, fault=_TAKEN_OVER)

    async def _refuse(self, request: Request, why: Fault) -> Response:
        store, parked = self._dispatch.parts.store, self._parked.pop(request.run, None)
        if parked is not None and why is _CLOSING:
            await store.release(request.run, parked)
            return refused(request, why)
        if parked is None:
            response = self._dispatch.refuse(request, why)
            await store.flush()
            return response
        # Its request is on record: what is to be added is how it ended.
        response = refused(request, self._dispatch.parts.redactor.clean(why, self._dispatch.sealing_of(request.run)))
        if why.code is Code.CANCELLED:
            response = replace(response, status=Status.CANCELLED)
        return await self._finish(Run(request, parked, None), response, keep=False)

    def _digest(self, request: Request) -> bytes:
        """Return what identifies a request's content, and tells nothing of it to who can only read the store."""
        return self._dispatch.parts.redactor.keys.digest(digest(request))

    # ── what others want ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _listen(self, heard: int) -> None:
        """Do what other processes ask for through the store."""
        store, turn = self._dispatch.parts.store, asyncio.Lock()
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(LISTEN_S)
                try:
                    for control in await store.controls(heard):
                        heard = control.seq
                        self._obey(control)
                        if control.action == "reload":
                            # Beside the listening: it may take its time.
                            group.create_task(self._reload(control, turn))
                except StoreError as error:
                    log.error("the store cannot be read; trying again: %s", error)

    async def _reload(self, control: Control, turn: asyncio.Lock) -> None:
        try:
            async with turn:
                if self.on_reload is not None:
                    await self.on_reload(control)
        except Exception as error:  # noqa: BLE001 - logged; what was configured before goes on
            log.error("the configuration could not be taken over: %s", self._dispatch.parts.redactor.worded(error))

    def _obey(self, control: Control) -> None:
        if control.action == "cancel":
            self.cancel(control.run, f"by {control.by}" + (f", {control.reason}" if control.reason else ""))

    # ── what others left behind ───────────────────────────────────────────────────────────────────────────────────────

    async def _keep(self) -> None:
        store = self._dispatch.parts.store
        while True:
            try:
                await store.heartbeat(self._worker, LEASE_MS)
                await self._record_late()
                for expired in await store.sweep(max_attempts=MAX_ATTEMPTS, keep_ms=KEEP_MS):
                    await self._take_up(expired)
            except Exception as error:  # noqa: BLE001 - without its heartbeat a hub would lose all its runs
                log.error("the store cannot be swept; trying again: %s", self._dispatch.parts.redactor.worded(error))
            await asyncio.sleep(LEASE_MS / 3_000)

    async def _record_late(self) -> None:
        parts = self._dispatch.parts
        while self._unrecorded:
            run, response, keep = self._unrecorded[0]
            await parts.store.finish(run.id, run.epoch, response, parts.clock.wall_ms(), keep=keep)
            self._unrecorded.pop(0)

    async def _take_up(self, expired: Expired) -> None:
        entry = self._dispatch.parts.registry.agents.get(expired.request.target)
        if entry is None or expired.run in self._dispatch.parts.ledger.frames or expired.run in self._parked:
            return  # another hub on this store may have the agent; or it is at work here, and its lease was lost
        if expired.waiting and self._dispatch.parts.approver is None:
            return  # another hub may have someone to ask
        # A hub that closes meanwhile must not keep a claim on what nobody works at: once claimed, it is gone on with.
        claiming = asyncio.get_running_loop().create_task(self._claim(expired, entry))
        try:
            await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await asyncio.wait({claiming})
            raise

    async def _claim(self, expired: Expired, entry: Entry) -> None:
        store = self._dispatch.parts.store
        epoch = await store.claim(expired.run, self._worker, LEASE_MS)
        if epoch is None:
            return
        try:
            await self._go_on(expired, entry, epoch)
        except StoreError:
            with suppress(StoreError):
                await store.release(expired.run, epoch)
            raise

    async def _go_on(self, expired: Expired, entry: Entry, epoch: int) -> None:
        """Take up what was claimed."""
        store, request = self._dispatch.parts.store, expired.request
        called_off = await store.controls(0, request.run)
        key = (request.origin, request.remit.user, request.id)
        run = Run(request, epoch, None, self._dispatch.parts.redactor.sealing(request.run))
        await self._dispatch.parts.redactor.recall(run)
        # What the user said, as the guards and the digest knew it before.
        said = restore(request, run.held)
        content = self._digest(said)
        if expired.waiting:
            work = self._run(said, content, epoch)
        elif entry.card.resumable:
            work = self._resume(run, entry)
        else:
            work = self._give_up(request, epoch)
        self._go(key, content, request.run, work)
        for control in called_off:
            self._obey(control)

    async def _resume(self, run: Run, entry: Entry) -> Response:
        parts = self._dispatch.parts
        run.steps = await parts.store.load(run.id)
        frame = self._dispatch.admitted(run.request, entry, run, None, parts.clock.now())
        frame.ran = True  # its code was called before, whatever becomes of it here
        if (why := self._called_off.get(run.id)) is not None:
            run.handed_back = why is _CLOSING
            self._dispatch.stop(frame, why)
        self._dispatch.notice(frame, "taken up again after a restart")
        return await self._carry_out(frame)

    async def _give_up(self, request: Request, epoch: int) -> Response:
        why = fault(
            Code.OUTCOME_UNKNOWN,
            f"the hub stopped while {request.target} was at work, and it is not known how far it came",
        )
        response = Response(
            version=VERSION,
            id=request.id,
            target=request.target,
            status=Status.FAILED,
            run=request.run,
            session=request.session,
            fault=why,
        )
        return await self._finish(Run(request, epoch, None), response)


_CLOSING = fault(Code.CANCELLED, "cancelled: the hub is closing")

_TAKEN_OVER = fault(
    Code.OUTCOME_UNKNOWN, "another hub took this run over, because this one had not been heard of for too long"
)


def _duplicate(request: Request) -> Fault:
    return fault(Code.DUPLICATE_REQUEST, f"request id {request.id} was used before with another content")
