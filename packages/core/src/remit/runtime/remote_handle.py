"""What this hub does for a delegation while another hub executes it."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

from msgspec.structs import replace

from remit.protocol.envelope import Answer, Json, Request, Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Approval, Kind
from remit.protocol.trace import trace_id
from remit.runtime import journal
from remit.runtime.brief import BriefBackend
from remit.runtime.context import Delegator
from remit.runtime.delegation.response import verified
from remit.runtime.frames import Frame, give_up_slot, regain_slot
from remit.runtime.ports import Departure

# Agents seldom ask several people at once; a peer that claims so must not fill the memory here.
MOST_QUESTIONS = 100


class LocalRemoteHandle:
    """The handle of one remote delegation, within its frame."""

    __slots__ = (
        "_backend",
        "_departure",
        "_dispatch",
        "_frame",
        "_open",
        "_patience_s",
        "_stop_waiting",
        "_waits_since",
        "trace",
    )

    def __init__(self, dispatch: Delegator, frame: Frame, backend: BriefBackend) -> None:
        self._dispatch = dispatch
        self._frame = frame
        self._backend = backend
        self._open: set[str] = set()
        """The questions to people there."""
        self._patience_s = dispatch.parts.limits.approval_timeout_ms / 1_000
        """How much longer the clock may stand still here for questions there."""
        self._waits_since = 0.0
        self._departure: Departure | None = None
        self._stop_waiting: Callable[[], None] | None = None
        self.trace = trace_id(frame.run.id, frame.run.request.traceparent)

    @property
    def heard(self) -> bool:
        return self._dispatch.parts.outflow.heard

    @property
    def traceparent(self) -> str:
        return self._backend.traceparent()

    @property
    def root(self) -> Request:
        return self._frame.run.request

    @property
    def handed_back(self) -> bool:
        return self._frame.run.handed_back

    @property
    def passed_on(self) -> Mapping[str, str]:
        return self._dispatch.parts.passed_on.get(self._frame.run.id, {})

    def time_left_ms(self) -> int:
        return self._backend.time_left_ms()

    def progress(self, text: str, partial: Answer | None) -> None:
        self._backend.progress(text, partial)

    def say(self, text: str) -> None:
        self._backend.say(text)

    def settle(self, response: Response) -> None:
        frame = self._frame
        frame.doubt = ""
        frame.meter(response.usage)
        if response.result is None and not response.finished and not response.files:
            return
        part = Answer(
            response.result,
            summary=response.summary,
            confidence=response.confidence,
            artifacts=response.artifacts,
            files=response.files,
            warnings=response.warnings,
            finished=response.finished,
            unfinished=response.unfinished,
        )
        kept = verified(frame, part, self._dispatch.parts.limits.max_result_bytes)
        if isinstance(kept, Answer):
            frame.partial = kept

    async def asked(self, approval: Approval) -> None:
        frame = self._frame
        own = replace(
            approval, delegation=frame.path, agent=frame.request.target, id=f"{frame.path}-{approval.id}"[:200]
        )
        session = frame.request.parent_session if frame.request.via is None else None  # a sender's session is a claim
        if self._dispatch.parts.asking is not None:
            self._dispatch.parts.asking(frame.run.id)
        self._dispatch.recording.record(Kind.APPROVAL, frame.run.id, session or frame.run.id, own)
        if approval.agreed is not None:
            self._open.discard(approval.id)
        elif len(self._open) < MOST_QUESTIONS:
            self._open.add(approval.id)
        if self._open:
            self._wait()
        else:
            await self._unpause()

    @asynccontextmanager
    async def paused(self) -> AsyncGenerator[None]:
        self._wait()
        try:
            yield
        finally:
            await self._unpause()

    def _wait(self) -> None:
        if self._stop_waiting is None and self._patience_s > 0:
            clock = self._dispatch.parts.clock
            self._waits_since = clock.now()
            self._stop_waiting = clock.call_at(self._waits_since + self._patience_s, self.close)
            # The peer says when it begins and ends to wait, so this is no `async with`.
            self._dispatch.tasks.pause(self._frame)
            give_up_slot(self._frame)

    async def _unpause(self) -> None:
        if self._stop_waiting is not None:
            self.close()
            if self._frame.stopping is None:
                await regain_slot(self._frame)

    def close(self) -> None:
        """Restart the clock, whatever the peer says: the question is closed, or has taken longer than a person may."""
        if self._stop_waiting is not None:
            self._stop_waiting()
            self._stop_waiting = None
            self._patience_s -= self._dispatch.parts.clock.now() - self._waits_since
            self._frame.waiting -= 1
            self._dispatch.tasks.unpause(self._frame)

    # ── leaving ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def depart(self, to: str, *, in_store: bool = False) -> Departure | None:
        frame, parts, left = self._frame, self._dispatch.parts, self._frame.departed
        if left is not None and left.to != to:
            why = f"{frame.request.target} ran elsewhere before the restart: its outcome there is unknown"
            raise RemitError(fault(Code.OUTCOME_UNKNOWN, why, detail=f"it was sent to {left.to}, and is at {to} now"))
        if left is not None or frame.run.steps is None:
            # A run that is not resumed ends as `OUTCOME_UNKNOWN` after a restart, whatever is recorded of it.
            if not in_store:
                await parts.store.flush()
            return left
        self._departure = Departure(to, parts.clock.wall_ms(), id=frame.request.path)
        step = journal.JournalStep(frame.step, departed=self._departure, tokens=frame.reservation)
        await journal.note_durably(parts.store, frame.run, frame.path, step, parts.redactor.keys)
        return None

    def age_ms(self, left: Departure) -> int:
        return self._dispatch.parts.clock.wall_ms() - left.at_ms

    def name(self, task: str) -> None:
        left = self._frame.departed or self._departure
        if left is not None and left.task != task:
            self._departure = replace(left, task=task)
            frame, parts = self._frame, self._dispatch.parts
            step = journal.JournalStep(frame.step, departed=self._departure, tokens=frame.reservation)
            journal.note(parts.store, frame.run, frame.path, step, parts.redactor.keys)

    async def state(self) -> dict[str, Json]:
        return await self._backend.state()

    async def change(self, changes: dict[str, Json]) -> dict[str, Json]:
        return await self._backend.change(changes)

    @property
    def in_doubt(self) -> bool:
        return bool(self._frame.doubt)

    def doubt(self, why: str) -> None:
        self._frame.doubt = why
        # A request that was never sent has not begun, and may be repeated, here or elsewhere.
        self._frame.ran = bool(why)
