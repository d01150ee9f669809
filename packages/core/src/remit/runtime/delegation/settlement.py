"""The end of a delegation: settle its account, redact, record and deliver its response."""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from remit.policy.breaker import key_of
from remit.policy.redaction import Held, Raw, is_plain, strike
from remit.policy.verdict import Sealing
from remit.policy.weight import LIGHT, is_light_response
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind
from remit.runtime import journal
from remit.runtime.aside import aside
from remit.runtime.clock import TimerWheel
from remit.runtime.context import RunRecording, RuntimeContext, SharedAnswers
from remit.runtime.delegation import repeats
from remit.runtime.delegation.response import ended_response, for_record, stopped
from remit.runtime.frames import Frame
from remit.runtime.ports import Remote
from remit.runtime.redactor import RedactedValues
from remit.runtime.sessions import FACT_LENGTH, MOST_NEW_FACTS, memorable

log = logging.getLogger("remit")

# Bound once, because every hop needs them: looking up an enum member costs as much as a guard.
_RESULT, _SUCCESS = Kind.RESULT, Status.SUCCESS

# A shorter duration is reported as none.
_HALF_MS = 0.0005


class Settlement:
    """The one place where delegations end."""

    def __init__(
        self, parts: RuntimeContext, recording: RunRecording, cached: SharedAnswers, wheel: TimerWheel[Frame]
    ) -> None:
        self.parts = parts
        self.recording = recording
        self.cached = cached
        self._wheel = wheel

    async def settle_large(self, frame: Frame, response: Response) -> None:
        """End a delegation whose response may have to be examined outside the event loop first."""
        while True:
            stopping, run, parent = frame.stopping, frame.run, frame.parent
            if stopping is not None:
                response = stopped(frame, stopping)
            if isinstance(frame.state, Status) or is_light_response(response):
                self.settle(frame, response)
                return
            work = partial(self._look_through, frame, response, run.sealing, dict(run.known), parent and parent.held)
            # If it was told to stop meanwhile, it ends with what it had by then.
            with suppress(asyncio.CancelledError):
                looked = await aside.run(work)
                # Secrets that another part of the run learned meanwhile have to be redacted here too.
                if frame.stopping is stopping and looked.sealing is run.sealing:
                    self.settle(frame, looked.clean, looked)
                    return

    def settle(self, frame: Frame, response: Response, looked: "ResponseInspection | None" = None) -> None:
        """Settle, record and deliver the outcome exactly once, whoever comes first.

        A large response was *looked* through before, outside the event loop.
        """
        if isinstance(frame.state, Status):
            self.recording.notice(frame, "its result arrived after it was abandoned and was dropped")
            return
        now = self.parts.clock.now()
        if response is frame.short_text and self._settle_short_text(frame, response, now):
            return
        if now >= frame.deadline and self._is_overdue(frame):
            frame.stopping, looked = _too_late(frame), None
        if frame.stopping is not None and looked is None:
            response = _stopped(frame, frame.stopping)
        judged, run, parent = response, frame.run, frame.parent
        if response.fault is not None:
            if frame.faults_below and key_of(response.fault) in frame.faults_below:
                frame.passed_on = True
            if frame.doubt and not run.handed_back:
                response = self._in_doubt(frame, response, response.fault)
            elif response.fault.code is Code.OUTCOME_UNKNOWN and _reports_no_usage(frame):
                frame.meter_all()
        response = self._with_figures(frame, response, now)
        if looked is not None:
            if looked.found:
                self.parts.redactor.keep_taken(run, looked.found, looked.taken, of_user=True)
        elif run.sealing is not None and not is_plain(response, run.sealing.detect):
            response = self._redacted(frame, response, run.sealing)
        if frame.flow is not None:
            self.parts.outflow.finish(frame)
        frame.advance(response.status)
        self._wheel.discard(frame, frame.tick)
        # An unknown outcome blames nobody; a missing answer blames the callee.
        self.parts.ledger.close(frame, judged if frame.doubt else response, now, self.parts.limits.delegation_time_ms)
        if parent is not None and response.fault is not None:
            parent.note_fault_below(response.fault)
        outcome = response
        if looked is not None and parent is not None and looked.held is parent.held:
            outcome = replace(response, **looked.restored)
        elif run.known and parent is not None:
            outcome = self.parts.redactor.for_caller(response, parent)
        if parent is not None:
            repeats.note_end(frame, parent, outcome)
        try:
            if frame.lookup is not None:
                self.cached.land(frame, frame.lookup, response, now)
            if parent is not None:
                self._record(frame, _for_record(response, looked))
            if response.new_facts:
                self._keep_facts(frame, response.new_facts)
            if run.steps is not None and parent is not None and not run.handed_back:
                self.recording.note_step(frame, journal.JournalStep(frame.step, True, outcome))
                run.unsaved = True
        finally:
            # Whatever a store does, nobody waits for an outcome that has been settled.
            if not frame.outcome.done():
                frame.outcome.set_result(outcome)

    def _settle_short_text(self, frame: Frame, response: Response, now: float) -> bool:
        """End a delegation as `settle` does, where its answer is a harmless short text; False: nothing was done.

        Most end so: in time, with nothing spent, warned of, cached, streamed, redacted or to be journaled.
        """
        run, parent = frame.run, frame.parent
        if (
            parent is None
            or now >= frame.deadline
            or frame.stopping is not None
            or frame.prompt
            or frame.completion
            or frame.warnings
            or frame.flow is not None
            or frame.lookup is not None
            or run.known
            or run.steps is not None
            or (run.sealing is not None and not is_plain(response, run.sealing.detect, is_text=True))
        ):
            return False
        if now - frame.started >= _HALF_MS:
            response = self._with_figures(frame, response, now)
        frame.advance(_SUCCESS)
        self._wheel.discard(frame, frame.tick)
        self.parts.ledger.close(frame, response, now, self.parts.limits.delegation_time_ms)
        repeats.note_end(frame, parent, response)
        try:
            self._record(frame, response)
        finally:
            if not frame.outcome.done():
                frame.outcome.set_result(response)
        return True

    def _is_overdue(self, frame: Frame) -> bool:
        """Return whether an agent's time was over before it ended, and only a blocked loop kept it from being stopped.

        A remote outcome is reported all the same: it is known.
        """
        if frame.stopping is not None or frame.pauses or isinstance(frame.agent, Remote):
            return False
        return bool(frame.tick) and self._wheel.is_due(frame.tick)

    def _with_figures(self, frame: Frame, response: Response, now: float) -> Response:
        """Return the response with its usage; if it used more than was granted, it has failed."""
        duration_ms = int((now - frame.started) * 1_000 + 0.5)  # 0 below `_HALF_MS`
        if duration_ms:
            queued_ms = int((frame.taken_s - frame.started) * 1_000 + 0.5)
            response = replace(response, duration_ms=duration_ms, queued_ms=queued_ms)
            if frame.waited_s:
                response = replace(response, waited_ms=round(frame.waited_s * 1_000))
        if frame.warnings:
            response = replace(response, warnings=(*response.warnings, *frame.warnings))
        if frame.used:
            response = replace(response, usage=frame.usage())
        if frame.drawn:
            self.recording.notice(frame, f"{frame.card.name} took {frame.drawn} more tokens from its caller")
        if response.usage.overrun:
            message = f"{frame.card.name} spent {frame.used} tokens of {frame.granted} granted"
            if response.ok:
                response = replace(response, status=Status.FAILED, fault=fault(Code.TOKEN_BUDGET_EXCEEDED, message))
            self.recording.notice(frame, message, Code.TOKEN_BUDGET_EXCEEDED)
        return response

    def _look_through(
        self, frame: Frame, response: Response, sealing: Sealing | None, known: dict[str, Raw], held: Held | None
    ) -> "ResponseInspection":
        """Return a large response as it is stored, with everything derived from it; it changes no state."""
        found: dict[str, Raw] = {}
        clean = response if sealing is None else self._struck(frame, response, sealing, found)
        fresh = {token: raw for token, raw in found.items() if token not in known}
        taken = self.parts.redactor.take(frame.run.scope, found, fresh, of_user=True)
        recorded = for_record(clean)
        restored: dict[str, Any] = {}
        if frame.parent is not None:
            given = self.parts.redactor.for_caller(clean, frame.parent, known | found)
            fields = ((name, getattr(given, name)) for name in _SAID)
            restored = {name: value for name, value in fields if value is not getattr(clean, name)}
        return ResponseInspection(clean, sealing, found, taken, recorded, held, restored)

    def _in_doubt(self, frame: Frame, response: Response, why: Fault) -> Response:
        """Return the end of a delegation that may have been executed elsewhere, stopped before that was known."""
        if isinstance(frame.agent, Remote) or frame.parent is not None:
            frame.meter_all()
        if frame.parent is not None and frame.parent.stopping is not None:
            frame.parent.doubt = frame.parent.doubt or frame.doubt  # it will not see this any more
        unknown = fault(Code.OUTCOME_UNKNOWN, f"{why.message}; {frame.doubt}", detail=why.detail)
        return replace(response, status=Status.FAILED, fault=replace(unknown, origin=why.origin))

    def _redacted(self, frame: Frame, response: Response, sealing: Sealing) -> Response:
        """Return the response as it is stored, and keep the redacted values apart."""
        found: dict[str, Raw] = {}
        clean = self._struck(frame, response, sealing, found)
        if found:
            # Values found on the way up are for the user, and not for agents in between that did not have them before.
            self.parts.redactor.keep(frame.run, found, of_user=True)
        return clean

    def _struck(self, frame: Frame, response: Response, sealing: Sealing, found: dict[str, Raw]) -> Response:
        """Return the response as it is stored, or as a failure if it cannot be redacted."""
        try:
            clean = strike(replace(response, fault=None) if response.fault is not None else response, sealing, found)
        except Exception as error:  # noqa: BLE001 - logged without secret values
            found.clear()
            frame.partial = None  # this could not be redacted either
            if isinstance(error, RemitError):
                why = f"the answer of {frame.card.name} is invalid: {error.fault.message}"
                failed = ended_response(frame, Status.FAILED, fault(Code.RESULT_VALIDATION_FAILED, why))
            else:
                log.error("a detector failed on %s: %s", frame.path, self.parts.redactor.worded(error, sealing))
                what = f"({type(error).__name__}), so it is withheld"
                why = f"the answer of {frame.card.name} could not be redacted {what}"
                failed = ended_response(frame, Status.FAILED, fault(Code.DELEGATION_FAILED, why))
            return replace(failed, usage=response.usage)
        # Error texts are never restored, because they end up in logs.
        return (
            clean
            if response.fault is None
            else replace(clean, fault=self.parts.redactor.clean(response.fault, sealing))
        )

    def _record(self, frame: Frame, response: Response) -> None:
        """Store the response of a delegation; a root response is stored by its run."""
        request = frame.request
        at_ms = request.created_ms + response.duration_ms if request.created_ms else self.parts.clock.wall_ms()
        self.parts.store.append(_RESULT, at_ms, request.run, response.session or frame.path, response, frame.run.epoch)

    def _keep_facts(self, frame: Frame, stated: tuple[str, ...]) -> None:
        """Store facts for the user and the conversation, at most a bounded number per answer."""
        facts, user = memorable(stated), frame.request.remit.user
        if len(facts) < len(stated):
            rest = f"{len(stated) - len(facts)} of {len(stated)} facts of {frame.card.name} are not stored"
            self.recording.notice(
                frame, f"{rest}: at most {MOST_NEW_FACTS} of one answer are, of {FACT_LENGTH} characters each"
            )
        self.parts.store.remember(user, frame.run.id, facts, frame.run.epoch)
        self.parts.redactor.keep_facts(frame.run, user, facts)
        self.parts.sessions.note_facts(frame.run, facts, frame.card.name)


# The texts of a response; the rest are names and numbers.
_SAID = (
    *("result", "summary", "artifacts", "new_facts", "sources"),
    *("warnings", "finished", "unfinished", "metadata", "files"),
)


class ResponseInspection(NamedTuple):
    """What was derived from a large response outside the event loop."""

    clean: Response
    sealing: Sealing | None
    found: dict[str, Raw]
    taken: RedactedValues
    recorded: Response
    held: Held | None
    """The values that its caller held at that time."""
    restored: dict[str, Any]
    """The fields whose values differ between the caller's response and the stored one."""

    def on_record(self, response: Response) -> Response:
        """Return the response for the record: a copy, so that the caller's changes do not affect it."""
        kept = self.recorded
        return replace(response, result=kept.result, artifacts=kept.artifacts, metadata=kept.metadata)


def _for_record(response: Response, looked: ResponseInspection | None) -> Response:
    return for_record(response) if looked is None else looked.on_record(response)


def _stopped(frame: Frame, why: Fault) -> Response:
    """Return the response of a delegation that was stopped, with its partial answer unless that is large."""
    response = stopped(frame, why)
    if is_light_response(response):
        return response
    # Only for an agent that does not stop: nothing can be awaited for it any more.
    frame.partial = None
    return replace(
        stopped(frame, why), warnings=(f"What was finished is not stored: it is larger than {LIGHT} characters.",)
    )


def _reports_no_usage(frame: Frame) -> bool:
    """Return whether a peer that was called did not say what it had spent."""
    return isinstance(frame.agent, Remote) and frame.parent is not None and not frame.used


def _too_late(frame: Frame) -> Fault:
    return fault(Code.TIMEOUT, f"Delegation timeout after {frame.request.remit.time_ms}ms")
