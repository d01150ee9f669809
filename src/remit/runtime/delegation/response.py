"""How a delegation's end becomes its response."""

import sys

import msgspec
from msgspec.structs import replace

from remit.policy.weight import is_light
from remit.protocol.card import AgentCard
from remit.protocol.codec import checked
from remit.protocol.envelope import NOBODY, VERSION, Answer, Json, Request, Response, Usage
from remit.protocol.errors import Code, Fault, Problem, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.plain import write
from remit.runtime.frames import Frame
from remit.runtime.origin import MAX_WORDS
from remit.runtime.schemas import MAX_MISFITS

MAX_NAME = 100

# Bound once, for every hop needs them: to look a member up on its enum costs as much as a guard.
_PARTIAL, _SUCCESS = Status.PARTIAL, Status.SUCCESS

_PLAIN = (str, int, float, bool, type(None))


def isolated(value: Json) -> Json:
    """Return a copy that nobody else can change: what one agent gives another is said, not shared."""
    return value if isinstance(value, _PLAIN) else msgspec.json.decode(write(value))


def presentable(name: object) -> str:
    """Return a name that someone made up as one that can be recorded and shown, or a question mark."""
    return name if isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable() else NOBODY


def refused(request: Request, why: Fault, card: AgentCard | None = None) -> Response:
    """A request that was judged and not started."""
    status = Status.TIMEOUT if why.code is Code.TIMEOUT else Status.REFUSED
    response = Response(
        version=VERSION, id=request.id, target=request.target, status=status, run=request.run, fault=why
    )
    if card is None:
        return response
    capability = card.capability(request.capability) if request.capability else None
    return replace(response, agent_version=card.version, capability_version=capability.version if capability else None)


def answered(frame: Frame, answer: Answer) -> Response:
    """The callee's answer, once nothing is to be objected to it."""
    request = frame.request
    capability = frame.card.capability(request.capability) if request.capability else None
    response = Response(
        version=VERSION,
        id=request.id,
        target=request.target,
        status=_PARTIAL if answer.unfinished else _SUCCESS,
        run=request.run,
        session=request.session,
        result=answer.result,
        summary=answer.summary,
        confidence=answer.confidence,
        tool_calls=tuple(frame.tool_calls) if frame.tool_calls else (),
        agent_version=frame.card.version,
        capability_version=capability.version if capability else None,
    )
    # The rest is seldom said, and more than fifteen keywords in one call cost Python four times as much.
    if answer.finished or answer.unfinished or answer.warnings or answer.requires_followup:
        response = replace(
            response,
            finished=answer.finished,
            unfinished=answer.unfinished,
            warnings=answer.warnings,
            requires_followup=answer.requires_followup,
        )
    if answer.artifacts or answer.new_facts or answer.sources or answer.metadata:
        response = replace(
            response,
            artifacts=answer.artifacts,
            new_facts=answer.new_facts,
            sources=answer.sources,
            metadata=answer.metadata,
        )
    return response


def ended_response(frame: Frame, status: Status, why: Fault) -> Response:
    """An end without a whole answer; what the callee had reported as finished is kept."""
    request, partial = frame.request, frame.partial() if callable(frame.partial) else frame.partial or Answer()
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
        # It says nothing about the callee, and whoever reads the record has to know that.
        cache="hit" if frame.lookup is not None and frame.lookup.follows else "none",
    )


def stopped(frame: Frame, why: Fault) -> Response:
    """The end of a delegation that was told to stop."""
    return ended_response(frame, Status.TIMEOUT if why.code is Code.TIMEOUT else Status.CANCELLED, why)


def handed_on(frame: Frame, response: Response) -> Response:
    """The response of the agent that the callee named instead of answering, as the callee's own."""
    return replace(
        response,
        id=frame.request.id,
        target=frame.request.target,
        session=frame.request.session,
        usage=Usage(),
        path=(frame.request.target, *(response.path or (response.target,))),
    )


def relayed(frame: Frame, given: Response, max_bytes: int) -> Response:
    """Return how a delegation ended elsewhere, as far as a peer may say that; what it says it used is counted here."""
    request = frame.request
    frame.meter(given.usage)
    try:
        given = checked(given, max_bytes=max_bytes)
    except RemitError as error:
        wrong = error.fault
        message = f"{request.target} gave an answer that cannot be used: {wrong.message}"
        return ended_response(
            frame, Status.FAILED, fault(Code.RESULT_VALIDATION_FAILED, message, problems=wrong.problems)
        )
    if given.ok is (given.fault is not None):
        message = f"{request.target} gave an answer that contradicts itself: {given.status} with and without an error"
        return ended_response(frame, Status.FAILED, fault(Code.RESULT_VALIDATION_FAILED, message))
    return replace(
        # What an agent's code did is for its own hub to say.
        given if given.fault is None or given.fault.origin is None else given.outward(),
        version=VERSION,
        id=request.id,
        target=request.target,
        run=request.run,
        session=request.session,
        usage=Usage(),
        duration_ms=0,
        queued_ms=0,
        cache="none",
    )


def verified(frame: Frame, answer: Answer, max_bytes: int) -> Answer | Fault:
    """Return a copy of an answer that is one, or what is wrong with it."""
    result = answer.result
    # The commonest answer, a short text and nothing else, needs no encoding to be known as good.
    if type(result) is str and result.isascii() and len(result) < max_bytes and answer == Answer(result):
        return answer
    try:
        return checked(answer, max_bytes=max_bytes)
    except RemitError as error:
        wrong = error.fault
        message = f"{frame.card.name} gave an answer that cannot be used: {wrong.message}"
        return fault(Code.RESULT_VALIDATION_FAILED, message, problems=wrong.problems)


def failure(frame: Frame, error: BaseException, words: str) -> Fault:
    """Return the fault for what an agent's code raised, in these words; one that it raised on purpose is its own."""
    if isinstance(error, RemitError) and isinstance(error.fault, Fault):  # pyright: ignore[reportUnnecessaryIsInstance]
        try:
            return checked(error.fault)
        except RemitError:
            pass  # made by hand, and not well
    return fault(Code.DELEGATION_FAILED, f"{frame.card.name} raised {words}")


def for_callee(request: Request) -> Request:
    """Return the request as its callee gets it: what it does to its input changes nobody else's."""
    if request.handoff is None and isinstance(request.input, _PLAIN):
        return request
    return replace(
        request,
        input=isolated(request.input),
        handoff=None if request.handoff is None else checked(request.handoff),
    )


def for_record(response: Response) -> Response:
    """Return the response as it is recorded: what its caller does to it changes no record."""
    if not response.artifacts and not response.metadata and isinstance(response.result, _PLAIN):
        return response
    # Redacted, it may be larger than an envelope that is sent.
    return checked(response, max_bytes=sys.maxsize)


def brief_fault(why: Fault) -> Fault:
    """Return a fault as it can be redacted in the event loop: of many problems the first, and no long words."""
    if is_light(why):
        return why
    problems: list[Problem] = []
    for problem in why.problems[:MAX_MISFITS]:
        if not is_light(*problems, problem):
            break
        problems.append(problem)
    message = why.message if len(why.message) <= MAX_WORDS else "the reason is too long to be told"
    detail = why.detail if len(why.detail) <= MAX_WORDS else ""
    short = fault(why.code, message, problems=tuple(problems), retry_after_ms=why.retry_after_ms, detail=detail)
    if (origin := why.origin) is None:
        return short
    # Of the exception only its type: of half a number no detector knows whose it is.
    error = origin.error.partition(":")[0][:MAX_NAME]
    frames = tuple(each for each in origin.frames[-1:] if is_light(each))
    return replace(short, origin=replace(origin, error=error, frames=frames))
