"""How a delegation's end becomes its response."""

import msgspec

from remit.protocol.codec import checked
from remit.protocol.envelope import VERSION, Answer, Json, Request, Response, Usage
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.runtime.ledger import Frame

_PLAIN = (str, int, float, bool, type(None))


def isolated(value: Json) -> Json:
    """Return a copy that nobody else can change: what one agent gives another is said, not shared."""
    return value if isinstance(value, _PLAIN) else msgspec.json.decode(msgspec.json.encode(value))


def refused(request: Request, why: Fault) -> Response:
    """A request that was judged and not started."""
    status = Status.TIMEOUT if why.code is Code.TIMEOUT else Status.REFUSED
    return Response(version=VERSION, id=request.id, target=request.target, status=status, run=request.run, fault=why)


def answered(frame: Frame, answer: Answer, max_bytes: int) -> Response:
    """The callee's answer, once it is known to be one; else the fault of a callee that needs mending."""
    if (objection := _objection(frame, answer, max_bytes)) is not None:
        return ended(frame, Status.FAILED, objection)
    request = frame.request
    capability = frame.card.capability(request.capability) if request.capability else None
    return Response(
        version=VERSION,
        id=request.id,
        target=request.target,
        status=Status.PARTIAL if answer.unfinished else Status.SUCCESS,
        run=request.run,
        session=request.session,
        result=isolated(answer.result),
        summary=answer.summary,
        confidence=answer.confidence,
        artifacts=answer.artifacts,
        new_facts=answer.new_facts,
        sources=answer.sources,
        requires_followup=answer.requires_followup,
        tool_calls=tuple(frame.tool_calls) if frame.tool_calls else (),
        warnings=answer.warnings,
        finished=answer.finished,
        unfinished=answer.unfinished,
        agent_version=frame.card.version,
        capability_version=capability.version if capability else None,
        metadata=answer.metadata,
    )


def ended(frame: Frame, status: Status, why: Fault) -> Response:
    """An end without a whole answer; what the callee had reported as finished is kept."""
    request, partial = frame.request, frame.partial or Answer()
    return Response(
        version=VERSION,
        id=request.id,
        target=request.target,
        status=status,
        run=request.run,
        session=request.session,
        result=partial.result,
        summary=partial.summary,
        confidence=partial.confidence,
        artifacts=partial.artifacts,
        fault=why,
        tool_calls=tuple(frame.tool_calls) if frame.tool_calls else (),
        warnings=partial.warnings,
        finished=partial.finished,
        unfinished=partial.unfinished,
        agent_version=frame.card.version,
    )


def stopped(frame: Frame, why: Fault) -> Response:
    """The end of a delegation that was told to stop."""
    return ended(frame, Status.TIMEOUT if why.code is Code.TIMEOUT else Status.CANCELLED, why)


def handed_on(frame: Frame, response: Response) -> Response:
    """The response of the agent that the callee named instead of answering, as the callee's own."""
    return msgspec.structs.replace(
        response,
        id=frame.request.id,
        target=frame.request.target,
        session=frame.request.session,
        usage=Usage(),
        path=(frame.request.target, *(response.path or (response.target,))),
    )


def _objection(frame: Frame, answer: Answer, max_bytes: int) -> Fault | None:
    """Say what is wrong with an answer, if anything is."""
    result = answer.result
    # The commonest answer, a short text and nothing else, needs no encoding to be known as good.
    if isinstance(result, str) and 4 * len(result) <= max_bytes and answer == Answer(result):
        return None
    try:
        checked(answer, max_bytes=max_bytes)
    except RemitError as error:
        wrong = error.fault
        message = f"{frame.card.name} gave an answer that cannot be used: {wrong.message}"
        return fault(Code.RESULT_VALIDATION_FAILED, message, problems=wrong.problems)
    return None
