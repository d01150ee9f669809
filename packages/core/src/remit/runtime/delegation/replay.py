"""The outcomes of calls from before a restart."""

import logging

from msgspec.structs import replace

from remit.policy.repeats import EarlierAnswer, beside_of, call_key_of
from remit.ports import Departure, RegisteredAgent, Remote
from remit.protocol.envelope import Call, Request, Response, Usage
from remit.protocol.errors import Code, Fault, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Notice
from remit.runtime import journal
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.admission import Admission
from remit.runtime.delegation.recording import DelegationRefusals, RunRecorder
from remit.runtime.delegation.repeats import count_change, is_read_only, keep_answer
from remit.runtime.frames import Frame, Run

log = logging.getLogger("remit")


class JournalReplay:
    """Answers calls from the journal of a resumed run."""

    def __init__(
        self, parts: RuntimeContext, recording: RunRecorder, refusals: DelegationRefusals, admission: Admission
    ) -> None:
        self.parts = parts
        self.recording = recording
        self.refusals = refusals
        self.admission = admission

    async def take_over(self, parent: Frame, of: str, path: str) -> None:
        """Give a retry access to the finished steps below the call that it retries."""
        if of.startswith(f"{parent.path}."):
            await self.parts.store.flush()
            steps = await self.parts.store.load(parent.run.id)
            journal.take_over(parent.run, path, parent.run.id, of, steps, self.parts.redactor.keys)

    async def find_again(
        self, parent: Frame, request: Request, entry: RegisteredAgent, path: str
    ) -> Response | tuple[bytes, journal.JournalStep | None]:
        """Return the outcome of a call from before a restart; if unknown, its digest and how far it came."""
        keys = self.parts.redactor.keys
        step = journal.delegation_digest(parent.run, request, keys)
        before = journal.begun(parent.run, path, keys)
        repeatable = await self._is_repeatable(parent, request, entry, before)
        known = self._replay(parent, request, entry, step, repeatable=repeatable)
        if known is not None:
            return known
        if before is not None and before.departed is not None and self.whereabouts(entry, before) is None:
            return self.refusals.refuse(request, _at_home_now(entry, before.departed), parent.run)
        return step, before

    def whereabouts(self, entry: RegisteredAgent, before: journal.JournalStep | None) -> RegisteredAgent | None:
        """Return where a call goes on: where it was sent before a restart; None: that place is not known any more."""
        if before is None or before.departed is None or isinstance(entry.agent, Remote):
            return entry
        return self.parts.registry.elsewhere(entry)

    async def _is_repeatable(
        self, parent: Frame, request: Request, entry: RegisteredAgent, before: journal.JournalStep | None
    ) -> bool:
        """Return whether a call that had begun before a restart, if it had, may be executed again."""
        if before is not None and not before.local and before.departed is None:
            return True  # it was to be sent to another hub, and was not
        if before is None or not (before.local and isinstance(entry.agent, Remote)):
            place = self.whereabouts(entry, before) or entry
            return journal.is_repeatable(place.card, request)
        if is_read_only(entry.card, request):
            return True
        # A request that is sent again under its id is not executed twice. One that began in the process of another hub
        # was not sent: its host would execute it from the start, without the steps that it has finished since.
        if any(step.startswith(f"{request.id}.") for step in parent.run.steps or ()):
            return False
        within_s = parent.time_left_ms(self.parts.clock.now()) / 2_000
        return await entry.agent.is_resumable(within_s) is True

    def _replay(
        self, parent: Frame, request: Request, entry: RegisteredAgent, digest: bytes, *, repeatable: bool
    ) -> Response | None:
        keys = self.parts.redactor.keys
        step = journal.recall(parent.run, request.id, digest, keys, repeatable=repeatable)
        if isinstance(step, Fault):
            return self.refusals.refuse(request, step, parent.run)
        if step is None or step.response is None:
            return None
        reads = is_read_only(entry.card, request)
        if not reads:
            count_change(parent)
        if step.response.status is Status.SUCCESS:
            key, changes = call_key_of(request), parent.run.changes
            parent.calls_by_key = {**(parent.calls_by_key or {}), key: None if reads else EarlierAnswer(None, changes)}
            if reads:
                keep_answer(parent, key, step.response, changes, beside_of(request))
        if step.response.fault is not None:
            parent.note_fault_below(step.response.fault)
        parent.release_journaled(request.id)
        self.admission.holds(parent, request)
        self.recording.record(Kind.NOTICE, parent.run, request.session or request.id, _replayed(request, step))
        if step.earlier:  # its cost was counted in the run that did it
            return replace(step.response, id=request.id, run=request.run, usage=Usage())
        parent.meter_below(step.response.usage)
        if step.response.usage.overrun:
            parent.run.overrun = True
        return step.response

    def still_true(self, run: Run, path: str, entry: RegisteredAgent | None, call: Call, why: Fault) -> Fault:
        """Return why a call is refused; if it had begun before a restart, say that it may have been executed."""
        before = journal.begun(run, path, self.parts.redactor.keys) if run.steps else None
        doubt = "" if before is None else doubt_about(before, entry, call.capability)
        if not doubt or why.code is Code.OUTCOME_UNKNOWN:
            return why
        return fault(Code.OUTCOME_UNKNOWN, f"{doubt}; it cannot be resumed now: {why.message}", detail=why.detail)


def doubt_about(before: journal.JournalStep, entry: RegisteredAgent | None, code: str | None) -> str:
    """Return why the outcome of an unfinished step is unknown; empty: nothing happened."""
    if before.departed is not None:
        return "it was sent to another hub before the restart and may have been executed"
    capability = entry.card.capability(code) if entry is not None and code is not None else None
    if not before.local or (capability is not None and capability.read_only):
        return ""  # a call of a remote agent that was not sent, or one that changes nothing
    return "it had begun before the restart, and its progress is unknown"


def _at_home_now(entry: RegisteredAgent, left: Departure) -> Fault:
    """Return why the outcome of a call is unknown that was sent to a peer, and whose agent lives here now."""
    what = f"it was sent to another hub before the restart, and {entry.card.name} lives in this hub now"
    return fault(Code.OUTCOME_UNKNOWN, f"{what}: it is not known what came of it", detail=f"it was sent to {left.to}")


def _replayed(request: Request, step: journal.JournalStep) -> Notice:
    when = "in the run that this one retries" if step.earlier else "before the restart"
    return Notice(delegation=request.id, agent=request.target, text=f"answered from the journal: it was done {when}")


def restore_departure(frame: Frame, before: journal.JournalStep, entry: RegisteredAgent) -> None:
    """Continue a call from where it was before a restart."""
    frame.departed = before.departed
    frame.doubt = doubt_about(before, entry, frame.request.capability)
