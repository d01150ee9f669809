"""The contract dialect: a request for a capability, with its hand-off, and a response."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, cast

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from remit.protocol.codec import checked, decode, encode, malformed
from remit.protocol.envelope import (
    NOBODY,
    VERSION,
    Handoff,
    Json,
    Level,
    Request,
    Response,
    Text,
    Usage,
    level_of,
    share_of,
)
from remit.protocol.errors import Code, Fault, Problem, RemitError
from remit.protocol.generous import parse, read_generously, with_warnings
from remit.protocol.lifecycle import Status
from remit.protocol.remit import Count, Name, Priority
from remit.protocol.submission import Submission
from remit_server.dialects.claims import KEY, Claims, beyond, bounded, flat, parted, refined, refined_answer
from remit_server.dialects.exchange import (
    JSON,
    ForeignMessage,
    answered_by,
    claimed,
    header,
    in_time,
    known,
    read_envelope,
    read_reply,
    refuse_another,
    reply_with_status,
    sentence,
    settled,
    status_of,
)

# The time limit of a request that states none.
TIME_MS = 30_000

# ── the document's words ──────────────────────────────────────────────────────────────────────────────────────────────


class Outcome(StrEnum):
    """The outcome of a request."""

    SUCCESS = "SUCCESS"
    PARTIAL = "PARTIAL"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"


class Context(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The session and hand-off context; further fields are data of the hand-off.

    The names up to `constraints` are the document's; it requires the rest without naming it.
    """

    session_id: Name | None = None
    user_id: Name | None = None
    original_request: Text = ""
    workflow_position: str = ""
    prior_agents: tuple[Name, ...] = ()
    prior_outputs: dict[str, Json] = {}
    constraints: dict[str, Json] = {}
    history_reference: str | None = None
    decisions: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


class ContractRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """REQUEST: one agent asks another for a capability."""

    source_agent: Name
    target_agent: Name
    capability_code: Name
    request_id: Name
    inputs_json: dict[str, Json]
    priority: Priority = Priority.NORMAL
    timeout_ms: Count = TIME_MS
    context: Context = Context()
    correlation_id: str | None = None


class Metadata(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata fields that the document names; there may be more."""

    processing_time_ms: Count | None = None
    source_version: str | int | float | None = None
    capability_version: str | int | float | None = None
    cache_status: str | None = None


class ContractResponse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """RESPONSE: the outcome of a request."""

    request_id: Name
    status: Outcome
    result_json: Json
    """An object, or null; of peers anything."""
    confidence_level: Level | None = None
    error_code: Name | None = None
    error_message: str | None = None
    warnings: tuple[str, ...] = ()
    metadata: Metadata = Metadata()


class _Free(Struct, frozen=True):
    """The fields that the document leaves open."""

    context: dict[str, Json] = {}
    metadata: dict[str, Json] = {}


class _RequestParts(Struct, frozen=True):
    words: ContractRequest
    data: dict[str, Json]
    """The further fields of the context."""


class _ResponseParts(Struct, frozen=True):
    words: ContractResponse
    more: dict[str, Json]
    """The further fields of the metadata."""


_CONTEXT = frozenset(Context.__struct_fields__)
_METADATA = frozenset(Metadata.__struct_fields__)


# ── the dialect ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Contract:
    """The contract dialect."""

    def submission(self, message: ForeignMessage) -> Submission:
        words = read_envelope(message.body, ContractRequest)
        refuse_another(message, "target_agent", words.target_agent)
        data, claims = parted(_without(decode(message.body, _Free).context, _CONTEXT))
        parsed = _read_request(_RequestParts(words, data), message.headers.get("traceparent"))
        return bounded(refined(parsed, claims, ("context", KEY), _write_request), parsed)

    def reply(self, response: Response, message: ForeignMessage) -> ForeignMessage:
        response = settled(response)
        if response.id == NOBODY:
            response = replace(response, id=claimed(message, "request_id") or NOBODY)
        given = _write_response(response)
        lost = beyond(response, _read_response(given, response.target)) if _is_known_to(message) else {}
        return reply_with_status(response, _written(given.words, "metadata", given.more, lost))

    def request(self, request: Request) -> ForeignMessage:
        if request.capability is None:
            problem = Problem("$.capability", "the contract dialect requires a capability")
            raise RemitError(malformed((problem,)))
        meant = flat(request)
        parts = _write_request(meant)
        headers = {**JSON, **header("traceparent", request.traceparent or "")}
        lost = beyond(meant, _read_request(parts, headers.get("traceparent")))
        body = _written(parts.words, "context", parts.data, lost)
        return ForeignMessage(headers=headers, body=body, target=request.target)

    def response(self, given: ForeignMessage, request: Request) -> Response:
        with answered_by(request):
            read = read_reply(given, ContractResponse, request, {"request_id": request.id})
            if isinstance(read, Response):
                return read
            words, warnings = read
            _refuse_incomplete(words, request)
            free, _ = read_generously(parse(given.body)[0], _Free)
            more, claims = parted(_without(free.metadata, _METADATA))
            parsed = _read_response(_ResponseParts(words, more), request.target)
            response = refined_answer(parsed, claims, ("metadata", KEY), _write_response)
            return with_warnings(in_time(response, given), warnings)


DIALECT = Contract()


def _without(free: Mapping[str, Json], names: frozenset[str]) -> dict[str, Json]:
    return {name: value for name, value in free.items() if name not in names}


def _written(words: Struct, name: str, more: Mapping[str, Json], lost: Claims) -> bytes:
    """Return the JSON of *words*, with further open fields under *name*."""
    whole: dict[str, Json] = msgspec.to_builtins(words)
    claims = {KEY: lost} if lost else {}
    open_part = {**whole.pop(name, {}), **more, **claims}
    return encode(whole | {name: open_part} if open_part else whole)


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_request(parts: _RequestParts, traceparent: str | None) -> Submission:
    words, context = parts.words, parts.words.context
    handoff = Handoff(
        original_request=context.original_request,
        history=context.history_reference,
        position=context.workflow_position,
        prior_agents=context.prior_agents,
        prior_outputs=context.prior_outputs,
        decisions=context.decisions,
        constraints=context.constraints,
        findings=context.findings,
        data=parts.data,
        assumptions=context.assumptions,
    )
    return Submission(
        target=words.target_agent,
        id=words.request_id,
        origin=words.source_agent,
        user=context.user_id,
        deadline_ms=words.timeout_ms,
        priority=None if words.priority is Priority.NORMAL else words.priority,
        input=words.inputs_json,
        capability=words.capability_code,
        session=context.session_id,
        handoff=handoff if handoff != Handoff() else None,
        correlation=words.correlation_id,
        traceparent=traceparent,
    )


def _write_request(meant: Submission) -> _RequestParts:
    handoff = meant.handoff or Handoff()
    words = ContractRequest(
        source_agent=meant.origin,
        target_agent=meant.target,
        capability_code=meant.capability or "",
        request_id=meant.id or "",
        inputs_json=_object(meant.input, "input") or {},
        priority=meant.priority or Priority.NORMAL,
        timeout_ms=TIME_MS if meant.deadline_ms is None else meant.deadline_ms,
        context=Context(
            session_id=meant.session or meant.parent_session,
            user_id=meant.user,
            # The inputs say it to the capability; the objective comes nearest to the user's own words.
            original_request=handoff.original_request or meant.objective,
            workflow_position=handoff.position,
            prior_agents=handoff.prior_agents,
            prior_outputs=handoff.prior_outputs,
            constraints=handoff.constraints,
            history_reference=handoff.history,
            decisions=handoff.decisions,
            findings=handoff.findings,
            assumptions=handoff.assumptions,
        ),
        correlation_id=meant.correlation,
    )
    return _RequestParts(words, _without(handoff.data, _CONTEXT | {KEY}))


def _object(value: Json, name: str) -> dict[str, Json] | None:
    """Return a value as the object that the document requires."""
    if value is None or isinstance(value, dict):
        return cast("dict[str, Json] | None", value)
    return {name: value}


def _is_known_to(message: ForeignMessage) -> bool:
    """Return whether a client sent claims, and so will understand some."""
    try:
        return bool(parted(decode(message.body, _Free).context)[1])
    except RemitError:
        return False


# ── responses ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_OUTCOMES = {Status.SUCCESS: Outcome.SUCCESS, Status.PARTIAL: Outcome.PARTIAL, Status.TIMEOUT: Outcome.TIMEOUT}
_USABLE = {Outcome.SUCCESS: Status.SUCCESS, Outcome.PARTIAL: Status.PARTIAL}
_ERROR_CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")


def _write_response(response: Response) -> _ResponseParts:
    why, outcome = response.fault, _OUTCOMES.get(response.status, Outcome.ERROR)
    confidence = 0.0 if response.ok and response.confidence is None else response.confidence
    words = ContractResponse(
        request_id=response.id,
        status=outcome,
        result_json=None if outcome is Outcome.ERROR else _object(response.result, "result"),
        confidence_level=None if confidence is None else level_of(confidence),
        error_code=None if why is None else _error_code(why),
        error_message=None if why is None else sentence(why),
        warnings=(*response.warnings, *(f"Not completed: {each}" for each in response.unfinished)),
        metadata=Metadata(
            processing_time_ms=response.duration_ms,
            source_version=response.agent_version,
            capability_version=response.capability_version,
            cache_status="bypass" if response.cache == "none" else response.cache,
        ),
    )
    return _ResponseParts(words, _without(response.metadata, _METADATA | {KEY}))


def _error_code(why: Fault) -> str:
    """Return the peer's own code if it has one: it is more specific."""
    return why.foreign if why.foreign and _ERROR_CODE.fullmatch(why.foreign) else why.code


def _read_response(given: _ResponseParts, target: str) -> Response:
    words, metadata = given.words, given.words.metadata
    why = _why(words, target)
    version, cache = metadata.source_version, _CACHES.get((metadata.cache_status or "none").lower())
    return Response(
        version=VERSION,
        id=words.request_id,
        target=target,
        status=_status(words.status, why),
        result=_object(words.result_json, "result"),
        confidence=None if words.confidence_level is None else share_of(words.confidence_level),
        # The cost is not stated, which does not mean zero.
        usage=Usage(estimated=True),
        duration_ms=metadata.processing_time_ms or 0,
        fault=why,
        warnings=words.warnings,
        agent_version="1.0" if version is None else str(version),
        capability_version=None if metadata.capability_version is None else str(metadata.capability_version),
        cache=cache or "none",
        metadata=given.more if cache else given.more | {"cache_status": metadata.cache_status},
    )


_CACHES: dict[str, Literal["none", "hit", "miss", "similar"]] = {
    "none": "none",
    "bypass": "none",
    "hit": "hit",
    "miss": "miss",
    "similar": "similar",
}


def _why(words: ContractResponse, target: str) -> Fault | None:
    if words.status in _USABLE:
        return None
    if words.status is Outcome.TIMEOUT:
        return known(words.error_code or Code.TIMEOUT, words.error_message or f"{target} exceeded its time limit")
    return known(words.error_code or Code.DELEGATION_FAILED, words.error_message or "")


def _status(outcome: Outcome, why: Fault | None) -> Status:
    if why is None:
        return _USABLE[outcome]
    if outcome is Outcome.TIMEOUT:
        return Status.TIMEOUT
    # An error caused by a time-out further down is an error.
    status = status_of(why.code)
    return Status.FAILED if status is Status.TIMEOUT else status


def _refuse_incomplete(words: ContractResponse, request: Request) -> None:
    problems: list[Problem] = []
    if words.request_id != request.id:
        problems.append(Problem("$.request_id", "does not match the request"))
    if words.status is Outcome.ERROR and not words.error_message:
        problems.append(Problem("$.error_message", f"is required with {words.status}"))
    if problems:
        raise RemitError(malformed(tuple(problems)))


class IntentTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agents for the secondary intents."""

    agent: Name
    capability: Name


class IntentClassification(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """INTENT CLASSIFICATION: the primary and secondary intents of a user, and the agents for them."""

    primary_intent: Name
    intent_confidence: Annotated[float, Meta(ge=0, le=1)]
    target_agent: Name
    target_capability: Name
    secondary_intents: tuple[Name, ...] = ()
    secondary_targets: tuple[IntentTarget, ...] = ()


class Intent(Struct, frozen=True, kw_only=True):
    """One intent of a user, and the agent for it."""

    name: str
    agent: str
    capability: str
    confidence: float | None = None
    """The confidence; the document has none for secondary intents."""


def classified(primary: Intent, *secondary: Intent) -> bytes:
    """Return an intent classification as the document writes it."""
    return encode(
        checked(
            IntentClassification(
                primary_intent=primary.name,
                intent_confidence=primary.confidence or 0.0,
                target_agent=primary.agent,
                target_capability=primary.capability,
                secondary_intents=tuple(each.name for each in secondary),
                secondary_targets=tuple(
                    IntentTarget(agent=each.agent, capability=each.capability) for each in secondary
                ),
            )
        )
    )


def intents(body: bytes) -> tuple[Intent, ...]:
    """Return the intents of a classification, the primary one first."""
    words = decode(body, IntentClassification)
    if len(words.secondary_intents) != len(words.secondary_targets):
        problem = Problem("$.secondary_targets", "each of `secondary_intents` has its target, in the same order")
        raise RemitError(malformed((problem,)))
    primary = Intent(
        name=words.primary_intent,
        agent=words.target_agent,
        capability=words.target_capability,
        confidence=words.intent_confidence,
    )
    besides = zip(words.secondary_intents, words.secondary_targets, strict=True)
    return (primary, *(Intent(name=name, agent=each.agent, capability=each.capability) for name, each in besides))
