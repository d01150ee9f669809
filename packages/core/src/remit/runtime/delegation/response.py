"""The response of a delegation, made from its outcome."""

import sys
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from remit.policy.restoring import of_kinds, restore
from remit.policy.weight import is_light, is_short_text_answer
from remit.ports.remote import Remote
from remit.ports.store import unknown_outcome
from remit.protocol.card import AgentCard
from remit.protocol.codec import MAX_BYTES, checked
from remit.protocol.envelope import NOBODY, VERSION, Answer, Json, Request, Response, Usage
from remit.protocol.errors import Code, Fault, Problem, RemitError, fault
from remit.protocol.files import encoded_size
from remit.protocol.lifecycle import Status
from remit.protocol.typed import write
from remit.runtime.frames import Frame
from remit.runtime.origin import MAX_WORDS
from remit.runtime.schemas import MAX_MISFITS

MAX_NAME = 100

T = TypeVar("T")

# Bound once, because every hop needs them: looking up an enum member costs as much as a guard.
_PARTIAL, _SUCCESS = Status.PARTIAL, Status.SUCCESS

# The agent gave an answer, and it was not accepted.
_REJECTED = frozenset({Code.RESULT_VALIDATION_FAILED, Code.USER_MISMATCH})

_PLAIN = (str, int, float, bool, type(None))


def isolated(value: Json) -> Json:
    """Return a copy that nobody else can change: agents pass values to each other, they do not share them."""
    return value if isinstance(value, _PLAIN) else msgspec.json.decode(write(value))


def presentable(name: object) -> str:
    """Return an invented name in a form that can be recorded and shown, or a question mark."""
    return name if isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable() else NOBODY


def refused(request: Request, why: Fault, card: AgentCard | None = None) -> Response:
    """Return the response to a request that was judged and not started, or that had begun before a restart."""
    if why.code is Code.OUTCOME_UNKNOWN:
        response = unknown_outcome(request, why)
    else:
        status = Status.TIMEOUT if why.code is Code.TIMEOUT else Status.REFUSED
        response = Response(
            version=VERSION, id=request.id, target=request.target, status=status, run=request.run, fault=why
        )
    if card is None:
        return response
    capability = card.capability(request.capability) if request.capability else None
    return replace(response, agent_version=card.version, capability_version=capability.version if capability else None)


def answered(frame: Frame, answer: Answer) -> Response:
    """Return the response with the callee's answer, after all checks have passed."""
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
    # The rest is rarely set, and more than fifteen keywords in one call cost Python four times as much.
    if answer.finished or answer.unfinished or answer.warnings or answer.requires_followup:
        response = replace(
            response,
            finished=answer.finished,
            unfinished=answer.unfinished,
            warnings=answer.warnings,
            requires_followup=answer.requires_followup,
        )
    if answer.findings:
        response = replace(response, findings=answer.findings)
    if answer.artifacts or answer.new_facts or answer.sources or answer.metadata or answer.files:
        response = replace(
            response,
            artifacts=answer.artifacts,
            new_facts=answer.new_facts,
            sources=answer.sources,
            metadata=answer.metadata,
            files=answer.files,
        )
    return response


def ended_response(frame: Frame, status: Status, why: Fault) -> Response:
    """Return a response without a whole answer; what the callee reported as finished or has streamed is kept."""
    request, partial = frame.request, frame.partial() if callable(frame.partial) else frame.partial or Answer()
    if partial.result is None and frame.streamed is not None and _may_stand(frame, why):
        partial = replace(partial, result=frame.streamed.getvalue())
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
        files=partial.files,
        fault=why,
        tool_calls=tuple(frame.tool_calls) if frame.tool_calls else (),
        warnings=partial.warnings,
        finished=partial.finished,
        unfinished=partial.unfinished,
        agent_version=frame.card.version,
        # It says nothing about the callee, and readers of the record have to know that.
        cache="hit" if frame.lookup is not None and frame.lookup.follows else "none",
    )


def _may_stand(frame: Frame, why: Fault) -> bool:
    """Return whether a streamed text may stand for the missing answer: it has no form, and is no rejected answer."""
    request, card = frame.request, frame.card
    capability = None if request.capability is None else card.capability(request.capability)
    return (capability is None or capability.result_schema is None) and why.code not in _REJECTED


def stopped(frame: Frame, why: Fault) -> Response:
    """Return the response of a delegation that was told to stop."""
    return ended_response(frame, Status.TIMEOUT if why.code is Code.TIMEOUT else Status.CANCELLED, why)


def handed_on(frame: Frame, response: Response) -> Response:
    """Return the response of the agent that the callee handed over to, as the callee's own."""
    return replace(
        response,
        id=frame.request.id,
        target=frame.request.target,
        session=frame.request.session,
        usage=Usage(),
        path=(frame.request.target, *(response.path or (response.target,))),
    )


def relayed(frame: Frame, given: Response, max_bytes: int, *, known_valid: bool = False) -> Response:
    """Return a remote outcome, limited to what a peer may say; the usage it reports is counted here."""
    request = frame.request
    frame.meter(given.usage)
    try:
        given = given if known_valid else checked(given, max_bytes=_with_files(max_bytes, given))
    except RemitError as error:
        wrong = error.fault
        message = f"{request.target} gave an answer that cannot be used: {wrong.message}"
        return ended_response(
            frame, Status.FAILED, fault(Code.RESULT_VALIDATION_FAILED, message, problems=wrong.problems)
        )
    if given.ok is (given.fault is not None):
        message = f"{request.target} returned a contradictory answer: {given.status} with and without an error"
        return ended_response(frame, Status.FAILED, fault(Code.RESULT_VALIDATION_FAILED, message))
    return replace(
        # The details of an agent's failure are for its own hub to report.
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
        # Who is in charge at another team's hub is known there.
        findings=(),
        handover=given.handover if isinstance(frame.agent, Remote) and frame.agent.shares_store else (),
    )


def verified(frame: Frame, answer: Answer, max_bytes: int) -> Answer | Fault:
    """Return a validated copy of an answer, or the fault."""
    if is_short_text_answer(answer, max_bytes):
        return answer
    try:
        return checked(answer, max_bytes=_with_files(max_bytes, answer))
    except RemitError as error:
        wrong = error.fault
        message = f"{frame.card.name} gave an answer that cannot be used: {wrong.message}"
        return fault(Code.RESULT_VALIDATION_FAILED, message, problems=wrong.problems)


def _with_files(max_bytes: int, given: Answer | Response) -> int:
    """Return how large an answer may be: its files have limits of their own, and do not count as its text."""
    # An answer is measured before it is validated.
    files = given.files if isinstance(given.files, tuple | list) else ()  # pyright: ignore[reportUnnecessaryIsInstance]
    return max(max_bytes, min(max_bytes + encoded_size(files), MAX_BYTES))


def failure(frame: Frame, error: BaseException, words: str) -> Fault:
    """Return the fault for an agent's exception, in these words; a `RemitError` of the agent keeps its own fault."""
    if isinstance(error, RemitError) and isinstance(error.fault, Fault):  # pyright: ignore[reportUnnecessaryIsInstance]
        try:
            return checked(error.fault)
        except RemitError:
            pass  # made by hand, and invalid
    return fault(Code.DELEGATION_FAILED, f"{frame.card.name} raised {words}")


def can_be_changed(request: Request) -> bool:
    """Return whether a callee could change what it gets: then it has to be a copy (`for_callee`)."""
    held = request.handoff is not None or isinstance(request.remit.tools, dict)
    return held or not isinstance(request.input, _PLAIN)


def for_callee(request: Request) -> Request:
    """Return the request for the callee: a copy, so that changes to it affect nobody else."""
    return replace(
        request,
        remit=checked(request.remit) if isinstance(request.remit.tools, dict) else request.remit,
        input=isolated(request.input),
        handoff=None if request.handoff is None else checked(request.handoff),
    )


def for_record(response: Response) -> Response:
    """Return the response for the record: a copy, so that the caller's changes do not affect it."""
    if not (response.artifacts or response.metadata or response.findings) and isinstance(response.result, _PLAIN):
        return response
    # A redacted response may be larger than an envelope may be.
    return checked(response, max_bytes=sys.maxsize)


def brief_fault(why: Fault) -> Fault:
    """Return a fault small enough to redact in the event loop: the first of many problems, and no long texts."""
    if is_light(why):
        return why
    problems: list[Problem] = []
    for problem in why.problems[:MAX_MISFITS]:
        if not is_light(*problems, problem):
            break
        problems.append(problem)
    message = why.message if len(why.message) <= MAX_WORDS else "the reason is too long to show"
    detail = why.detail if len(why.detail) <= MAX_WORDS else ""
    short = fault(why.code, message, problems=tuple(problems), retry_after_ms=why.retry_after_ms, detail=detail)
    if (origin := why.origin) is None:
        return short
    # Only the exception's type: a detector does not recognise half a number in a cut text.
    error = origin.error.partition(":")[0][:MAX_NAME]
    frames = tuple(each for each in origin.frames[-1:] if is_light(each))
    return replace(short, origin=replace(origin, error=error, frames=frames))


def needs_wording(response: Response) -> bool:
    """Return whether a response has texts besides its answer, which users read in plain words."""
    return response.fault is not None or bool(response.warnings or response.finished or response.unfinished)


def revealed(frame: Frame, kept: T) -> T:
    """Return an agent's state or a tool's result with the raw values that the agent's team lets it see."""
    capability = frame.card.capability(frame.request.capability) if frame.request.capability else None
    kinds = frame.card.sees if capability is None else frame.card.sees | capability.sees
    return restore(kept, of_kinds(frame.run.known, kinds)) if kinds else kept
