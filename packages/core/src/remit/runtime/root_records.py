"""Root requests in the store: submitted once, parked while a person is asked, and ended by a durable outcome."""

from collections.abc import Awaitable

from msgspec.structs import replace

from remit.protocol.codec import encode
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.runtime import journal
from remit.runtime.context import RecordedRefusals, RunRecording, RuntimeContext
from remit.runtime.delegation.response import brief_fault
from remit.runtime.frames import Run
from remit.runtime.ports import (
    USED,
    AcceptedRequest,
    DuplicateRequest,
    ReusedProof,
    SingleUseProof,
    StoreError,
    Submitted,
)

CLOSING = fault(Code.CANCELLED, "cancelled: the hub is closing")
LEFT = fault(Code.CANCELLED, "cancelled: its caller was cancelled")


class RootRecords:
    """Writes the root requests of one hub and their outcomes to the store."""

    def __init__(self, parts: RuntimeContext, recording: RunRecording, refusals: RecordedRefusals, worker: str) -> None:
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
        self.parked = recording.parked
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
        # Its request is recorded: only the outcome is added.
        clean = self._parts.redactor.clean(brief_fault(why), self._recording.sealing_of(request.run))
        response = self._refusals.refused(request, clean)
        if why.code is Code.CANCELLED:
            response = replace(response, status=Status.CANCELLED)
        return await self.finish(Run(request, parked, None), response, keep=keep)

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


def _taken_over(response: Response) -> Response:
    return replace(response, status=Status.FAILED, result=None, fault=journal.TAKEN_OVER)
