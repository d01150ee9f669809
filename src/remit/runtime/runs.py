"""Root requests: durable before their agent starts, executed at most once, answered after every record is durable."""

import asyncio
import logging
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from remit.policy.verdict import Ask, Facts, Refuse, Rewrite
from remit.protocol.codec import digest
from remit.protocol.envelope import VERSION, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.runtime.dispatch import Dispatch
from remit.runtime.ledger import Frame, Run
from remit.runtime.ports import Accepted, Expired, Known, StoreError
from remit.runtime.registry import Entry
from remit.runtime.respond import refused

log = logging.getLogger("remit")

# A worker that has not been heard of for this long is taken to be dead, and what it had claimed is taken up again.
LEASE_MS = 5_000
MAX_ATTEMPTS = 3
# A sender that retries does so within a day; after that its request id may be used again.
KEEP_MS = 24 * 3_600_000


class Going(NamedTuple):
    """A root request that this hub carries out."""

    digest: bytes
    task: asyncio.Task[Response]


class Runs:
    """The runs of one hub: starting, attaching to, finishing and taking up again."""

    def __init__(self, dispatch: Dispatch, worker: str) -> None:
        self._dispatch = dispatch
        self._worker = worker
        self._going: dict[tuple[str, str, str], Going] = {}
        self._unrecorded: list[tuple[Run, Response]] = []
        """Outcomes that the store could not take; they are kept until it can."""
        self._keeper: asyncio.Task[None] | None = None

    async def ask(self, request: Request) -> Response:
        """Carry out a root request, or attach to the same one under way; only the first who asked can cancel it."""
        key, content = (request.origin, request.remit.user, request.id), digest(request)
        going = self._going.get(key)
        if going is not None:
            if going.digest != content:
                return await self._refuse(request, _duplicate(request))
            return await asyncio.shield(going.task)
        task = asyncio.get_running_loop().create_task(self._run(request, content))
        self._going[key] = Going(content, task)
        task.add_done_callback(lambda _: self._going.pop(key, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self.cancel(request.run, "its caller was cancelled")
                await asyncio.wait({task})
            raise

    def cancel(self, delegation: str, reason: str) -> bool:
        """Stop a run, by its id or its request's, or one delegation of it; False if nothing of that id is in flight."""
        frames = self._dispatch.parts.ledger.frames
        frame = frames.get(delegation) or next(
            (each for each in frames.values() if each.request.id == delegation), None
        )
        if frame is None:
            return False
        self._dispatch.notice(frame, f"cancelled: {reason}", Code.CANCELLED)
        self._dispatch.stop(frame, fault(Code.CANCELLED, f"{frame.request.target} was cancelled: {reason}"))
        return True

    def open(self) -> None:
        """Keep this hub's claims alive and take up what others left behind."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """Stop everything and return once its outcome is durable."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        while self._going:
            for run in [frame.path for frame in self._dispatch.parts.ledger.frames.values() if frame.parent is None]:
                self.cancel(run, "the hub is closing")
            # One that was still being admitted may start after this; the next turn of the loop finds it.
            await asyncio.wait({going.task for going in self._going.values()}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)
        with suppress(StoreError):
            await self._record_late()

    # ── one run ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self, request: Request, content: bytes) -> Response:
        try:
            return await self._admit(request, content)
        except RemitError as error:
            if isinstance(error, StoreError):
                return refused(request, error.fault)
            return await self._refuse(request, error.fault)

    async def _admit(self, request: Request, content: bytes) -> Response:
        parts = self._dispatch.parts
        entry = parts.registry.agents.get(request.target)
        chosen = request.session if request.session != request.run else None
        owner = await parts.store.session(chosen, request.remit.user, request.target) if entry and chosen else None
        approved: frozenset[str] = frozenset()
        while True:
            now = parts.clock.now()
            facts = Facts(
                target=entry.card if entry else None,
                address=entry.address if entry else "",
                limits=parts.limits,
                agents=parts.registry.agents.keys(),
                session_user=owner.user if owner else None,
                session_agent=owner.agent if owner else None,
                rate_wait_ms=parts.ledger.rate_wait_ms(entry.card, now) if entry else 0,
                breaker_wait_ms=parts.ledger.breaker_wait_ms(request.target, now),
                approved=approved,
            )
            match self._dispatch.judge(request, facts):
                case Refuse(fault=why):
                    return await self._refuse(request, why)
                case Ask(question=question):
                    approved = await self._dispatch.ask_person(request, question, approved)
                case Rewrite(request=request):
                    assert entry is not None, "a guard refuses unknown targets"
                    return await self._submit(request, content, entry)

    async def _submit(self, request: Request, content: bytes, entry: Entry) -> Response:
        store = self._dispatch.parts.store
        match await store.submit(request, content, worker=self._worker, lease_ms=LEASE_MS):
            case Known(same_content=False):
                return await self._refuse(request, _duplicate(request))
            case Known(run=run, response=response):
                return await self._attach(request, run) if response is None else response
            case Accepted(epoch=epoch):
                return await self._carry_out(request, entry, Run(request, epoch, {} if entry.card.resumable else None))

    async def _attach(self, request: Request, run: str) -> Response:
        """Wait for another process to finish the same request, as long as this one may take."""
        try:
            async with asyncio.timeout(request.remit.time_ms / 1_000):
                return await self._dispatch.parts.store.wait(run)
        except TimeoutError:
            return refused(
                request,
                fault(Code.TIMEOUT, f"the same request, run {run}, had not ended after {request.remit.time_ms} ms"),
            )

    async def _carry_out(self, request: Request, entry: Entry, run: Run) -> Response:
        parts = self._dispatch.parts
        frame = Frame(request, entry.card, run, None, parts.clock.now(), entry.address)
        (response,) = await self._dispatch.join(None, (self._dispatch.start(frame),))
        return await self._finish(run, response)

    async def _finish(self, run: Run, response: Response) -> Response:
        parts = self._dispatch.parts
        try:
            recorded = await parts.store.finish(run.id, run.epoch, response, parts.clock.wall_ms())
        except StoreError as error:
            self._unrecorded.append((run, response))
            return replace(response, status=Status.FAILED, result=None, artifacts=(), fault=error.fault)
        if recorded:
            return response
        why = fault(
            Code.OUTCOME_UNKNOWN, "another hub took this run over, because this one had not been heard of for too long"
        )
        return replace(response, status=Status.FAILED, result=None, fault=why)

    async def _refuse(self, request: Request, why: Fault) -> Response:
        response = self._dispatch.refuse(request, why)
        await self._dispatch.parts.store.flush()
        return response

    # ── what others left behind ───────────────────────────────────────────────────────────────────────────────────────

    async def _keep(self) -> None:
        store = self._dispatch.parts.store
        while True:
            try:
                await store.heartbeat(self._worker, LEASE_MS)
                await self._record_late()
                for expired in await store.sweep(max_attempts=MAX_ATTEMPTS, keep_ms=KEEP_MS):
                    await self._take_up(expired)
            except StoreError:
                log.exception("the store cannot be swept; trying again")
            await asyncio.sleep(LEASE_MS / 3_000)

    async def _record_late(self) -> None:
        parts = self._dispatch.parts
        while self._unrecorded:
            run, response = self._unrecorded[0]
            await parts.store.finish(run.id, run.epoch, response, parts.clock.wall_ms())
            self._unrecorded.pop(0)

    async def _take_up(self, expired: Expired) -> None:
        store, request = self._dispatch.parts.store, expired.request
        entry = self._dispatch.parts.registry.agents.get(request.target)
        if entry is None:
            return  # another hub on this store may have it
        epoch = await store.claim(expired.run, self._worker, LEASE_MS)
        if epoch is None:
            return
        key = (request.origin, request.remit.user, request.id)
        work = self._resume(request, entry, epoch) if entry.card.resumable else self._give_up(request, epoch)
        task = asyncio.get_running_loop().create_task(work)
        self._going[key] = Going(digest(request), task)
        task.add_done_callback(lambda _: self._going.pop(key, None))

    async def _resume(self, request: Request, entry: Entry, epoch: int) -> Response:
        steps = await self._dispatch.parts.store.load(request.run)
        return await self._carry_out(request, entry, Run(request, epoch, steps))

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


def _duplicate(request: Request) -> Fault:
    return fault(Code.DUPLICATE_REQUEST, f"request id {request.id} was used before with another content")
