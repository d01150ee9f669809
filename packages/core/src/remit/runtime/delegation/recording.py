"""Notices, warnings, tool uses and refusals in the record of a run."""

import logging

from msgspec.structs import replace

from remit.policy.redaction import kind_of
from remit.policy.restoring import HubWarning, can_be_used, token_given, tokens_asked_for
from remit.policy.verdict import Sealing
from remit.policy.weight import LIGHT, is_light_request
from remit.protocol.envelope import VERSION, Call, Request, Response
from remit.protocol.errors import Code, Fault
from remit.protocol.records import Body, Kind, Notice, Refusal
from remit.runtime import journal
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.response import brief_fault, presentable, refused
from remit.runtime.frames import Frame, Run

log = logging.getLogger("remit")

# The first few show what is wrong with a team; a model may try a hundred tools.
MOST_WARNINGS = 20


class RunRecorder:
    """Writes notices, warnings and steps to the record of a run."""

    def __init__(self, parts: RuntimeContext) -> None:
        self.parts = parts

    def notice(self, frame: Frame, text: str, code: Code | None = None) -> None:
        """Record a notice for operators."""
        body = Notice(delegation=frame.path, agent=frame.card.name, text=text, code=code)
        self.record_clean(Kind.NOTICE, frame, self.parts.redactor.clean(body, frame.run.sealing))

    def warn(self, frame: Frame, warning: HubWarning) -> None:
        """Record a warning with its details, and say it in the responses of *frame* and all frames above it."""
        frame.warned = frame.warned or set()
        if warning.details not in frame.warned and len(frame.warned) < MOST_WARNINGS:
            frame.warned.add(warning.details)
            self.notice(frame, warning.details)
        for each in frame.lineage():
            each.warnings = each.warnings or []
            if warning.text not in each.warnings and len(each.warnings) < MOST_WARNINGS:
                each.warnings.append(warning.text)

    def warn_of_tokens(self, frame: Frame, code: str) -> None:
        """Warn that an agent gets a token where its capability needs a value, and has nobody to pass it to."""
        capability = frame.card.capability(code)
        schema = capability.input_schema if capability is not None else None
        tokens = tokens_asked_for(frame.request.input, frame.run.known, schema)
        if not tokens:
            return
        registry = self.parts.registry
        agents = [entry.card for entry in registry.agents.values()]
        tools = {name: tool.card for name, tool in registry.tools.items()}
        kinds = {kind_of(token) for token in tokens.values()}
        useless = {kind for kind in kinds if not can_be_used(kind, frame.card, agents, tools)}
        for field, token in tokens.items():
            if kind_of(token) in useless:
                self.warn(frame, token_given("capability", code, field, kind_of(token)))

    def record(self, kind: Kind, run: Run, session: str, body: Body) -> None:
        """Record anything but an admitted request or its response; its text is redacted first."""
        clean = self.parts.redactor.clean(body, run.sealing)
        self.parts.store.append(kind, self.parts.clock.wall_ms(), run.id, session, clean, run.epoch)

    def record_clean(self, kind: Kind, frame: Frame, body: Body) -> None:
        """Record a body that is already redacted."""
        at_ms, session = self.parts.clock.wall_ms(), frame.request.session or frame.path
        self.parts.store.append(kind, at_ms, frame.run.id, session, body, frame.run.epoch)

    def sealing_of(self, run: str) -> Sealing | None:
        """Return the sealing of a run, if it is in flight here."""
        root = self.parts.ledger.frames.get(run)
        return self.parts.redactor.sealing(run) if root is None else root.run.sealing

    def note_step(self, frame: Frame, step: journal.JournalStep) -> None:
        journal.note(self.parts.store, frame.run, frame.path, step, self.parts.redactor.keys)


class DelegationRefusals:
    """Makes refusals and records them."""

    def __init__(self, parts: RuntimeContext, recording: RunRecorder) -> None:
        self.parts = parts
        self.recording = recording

    def refused(self, request: Request, why: Fault) -> Response:
        """Return a refusal, with the version of the requested agent."""
        entry = self.parts.registry.agents.get(request.target)
        return refused(request, why, None if entry is None else entry.card)

    def refuse(self, request: Request, why: Fault, run: Run | None = None) -> Response:
        """Record a refusal and return it; a call that may have been executed before a restart has failed instead.

        *run* is that of a call, also if the run has ended here; None: the request would have begun one.
        """
        of = run or Run(request, 0, None, self.recording.sealing_of(request.run))
        sealing = of.sealing
        caller = self.parts.ledger.frames.get(request.parent) if request.parent is not None else None
        begun = None
        if why.code is Code.OUTCOME_UNKNOWN and caller is not None:
            begun = journal.begun(caller.run, request.id, self.parts.redactor.keys)
            if begun is not None:
                request = replace(request, remit=replace(request.remit, tokens=begun.tokens))
        response = self.refused(request, self.parts.redactor.clean(brief_fault(why), sealing))
        if caller is not None and response.fault is not None:
            if why.code is not Code.CANCELLED:  # a call that is not made any more may have spent its grant before
                caller.release_journaled(request.id)
            caller.note_fault_below(response.fault)
            caller.meter_below(response.usage)
        if begun is not None:  # its request is on record
            self.recording.record(Kind.RESULT, of, request.session or request.id, response)
            return response
        if run is not None and not self._is_recorded(run, why):
            return response
        if not is_light_request(request):
            request = _without_words(request)
        if request.view is not None:
            # Redacted before it is cut: a detector does not recognise half a number.
            request = replace(request, view=self.parts.redactor.clean(request.view, sealing).recorded())
        # Not in the requested session: it may be another user's. Nor in one that a sender names as its own: that is a
        # claim.
        session = (request.parent_session if request.via is None else None) or request.run
        self.recording.record(Kind.REFUSED, of, session, Refusal(request=request, response=response))
        return response

    def _is_recorded(self, run: Run, why: Fault) -> bool:
        """Return whether one more refusal of a run is recorded: an agent that asks forever must not fill the record."""
        most = self.parts.limits.max_delegations
        if run.refusals >= most:
            return False
        # Of the refusals for lack of room, only one is recorded.
        run.refusals = most if why.code is Code.RECORD_LIMIT_EXCEEDED else run.refusals + 1
        root = self.parts.ledger.frames.get(run.id)
        if run.refusals == most and root is not None:
            self.recording.notice(root, "further refusals in this run are not recorded", why.code)
        return True


def _without_words(request: Request) -> Request:
    """Return a large request as its refusal is recorded: caller, callee, and that it was too large to store."""
    return replace(
        request,
        objective=f"[not stored: the request is larger than {LIGHT} characters, and was refused]",
        input=None,
        handoff=None,
        context=None,
        view=None,
        hints=(),
        reason="",
        files=(),
    )


def undrafted(parent: Frame, call: Call, path: str) -> Request:
    """Return a request with as much as is known of a call that could not be made into one."""
    asking, target = parent.request, call.target or call.capability
    return Request(
        version=VERSION,
        id=path,
        origin=asking.target,
        target=presentable(target),
        remit=asking.remit.narrow(caller=parent.address, time_ms=0, tokens=0),
        run=asking.run,
        parent=parent.path,
        parent_session=asking.session,
    )
