"""Refusals, recorded within bounds."""

import logging

from msgspec.structs import replace

from remit.policy.weight import LIGHT, is_light_request
from remit.protocol.envelope import VERSION, Call, Request, Response
from remit.protocol.errors import Code, Fault
from remit.protocol.records import Kind, Refusal
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.recording import RunRecorder
from remit.runtime.delegation.response import brief_fault, presentable, refused
from remit.runtime.frames import Frame

log = logging.getLogger("remit")


class DelegationRefusals:
    """Makes refusals and records them."""

    def __init__(self, parts: RuntimeContext, recording: RunRecorder) -> None:
        self.parts = parts
        self.recording = recording

    def refused(self, request: Request, why: Fault) -> Response:
        """Return a refusal, with the version of the requested agent."""
        entry = self.parts.registry.agents.get(request.target)
        return refused(request, why, None if entry is None else entry.card)

    def refuse(self, request: Request, why: Fault) -> Response:
        """Record a refusal and return it."""
        sealing = self.recording.sealing_of(request.run)
        response = self.refused(request, self.parts.redactor.clean(brief_fault(why), sealing))
        caller = self.parts.ledger.frames.get(request.parent) if request.parent is not None else None
        if caller is not None and response.fault is not None:
            caller.note_fault_below(response.fault)
        if not self._is_recorded(request.run, why):
            return response
        if not is_light_request(request):
            request = _without_words(request)
        if request.view is not None:
            # Redacted before it is cut: a detector does not recognise half a number.
            request = replace(request, view=self.parts.redactor.clean(request.view, sealing).recorded())
        # Not in the requested session: it may be another user's. Nor in one that a sender names as its own: that is a
        # claim.
        session = (request.parent_session if request.via is None else None) or request.run
        self.recording.record(Kind.REFUSED, request.run, session, Refusal(request=request, response=response))
        return response

    def _is_recorded(self, id: str, why: Fault) -> bool:
        """Return whether one more refusal of a run is recorded: an agent that asks forever must not fill the record."""
        root = self.parts.ledger.frames.get(id)
        if root is None:
            return True
        run, most = root.run, self.parts.limits.max_delegations
        if run.refusals >= most:
            return False
        # Of the refusals for lack of room, only one is recorded.
        run.refusals = most if why.code is Code.RECORD_LIMIT_EXCEEDED else run.refusals + 1
        if run.refusals == most:
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
