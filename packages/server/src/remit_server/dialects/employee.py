"""The employee dialect: requests and responses of the inter-agent protocol 1.0, with its headers."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from remit.protocol.codec import Versions, convert, decode, encode, malformed, text_of, whole
from remit.protocol.envelope import (
    NOBODY,
    PREVIEW_LENGTH,
    VERSION,
    Artifact,
    Handoff,
    Json,
    Request,
    Response,
    Source,
    Text,
    Usage,
)
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.generous import with_warnings
from remit.protocol.lifecycle import Status
from remit.protocol.remit import MAX_INTEGER, Count, Name
from remit.protocol.submission import Submission
from remit_server.dialects.claims import KEY, Claims, beyond, bounded, flat, parted, refined, refined_answer
from remit_server.dialects.exchange import (
    JSON,
    ForeignMessage,
    answered_by,
    as_uuid,
    claimed,
    fault_of,
    header,
    in_sentences,
    in_time,
    read_reply,
    refuse_another,
    reply_with_status,
    settled,
    status_of,
)


class EmployeeConstraints(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The budget of a delegation; a callee's depth must stay below `max_depth`."""

    max_tokens: Count = 1_200
    max_depth: Count = 2
    deadline_ms: Count = 15_000


class Reference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A document or record, and its owner."""

    owner_scope: Name
    source_id: Name


class HandoffData(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the target may know of the work so far."""

    facts: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()
    intermediate_results: Json = None


class DelegationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One employee asks another."""

    request_id: Name
    origin_employee: Name
    target_employee: Name
    user_id: Name
    parent_session_id: Name
    objective: Text
    input: str
    constraints: EmployeeConstraints
    context_hints: tuple[str, ...]
    handoff_data: HandoffData
    child_session_id: Name | None = None
    current_depth: Count | None = None
    created_at: str | None = None
    version: str | None = None
    """Of the protocol: version 1.0 has no such field yet, later ones will."""


class UsedSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A consulted source; the document does not define the scale of relevance."""

    owner_scope: Name
    source_id: Name
    relevance: float | None = None


class TokenUsage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the target spent."""

    prompt: Count
    completion: Count
    total: Count


class DelegationResponse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The outcome of a delegation."""

    request_id: Name
    target_employee: Name
    summary: str
    result: str
    token_usage: TokenUsage
    status: Literal["success", "partial", "failed"]
    artifacts: tuple[Artifact, ...] = ()
    new_facts: tuple[str, ...] = ()
    used_sources: tuple[UsedSource, ...] = ()
    duration_ms: Count | None = None
    child_session_id: Name | None = None
    confidence: Annotated[float, Meta(ge=0, le=100)] | None = None
    requires_followup: bool = False
    error: str | None = None


_RESULTS = "intermediate_results"
_CLAIMED = ("handoff_data", _RESULTS, KEY)

_DEPTH = "x-agent-depth"
# Each header repeats a field; the depth may be in the header alone, as in the document's example.
_REPEATED = {
    "x-agent-request-id": "request_id",
    "x-agent-origin": "origin_employee",
    "x-agent-parent-session": "parent_session_id",
}


# ── the dialect ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Employee:
    """The protocol of the employees, in its current version and the two before it."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions

    def submission(self, message: ForeignMessage) -> Submission:
        words, _ = self._parse_request(message.body)
        words = _agreed(words, message.headers)
        refuse_another(message, "target_employee", words.target_employee)
        words, claims = _parted(words)
        parsed = _read_request(words, message.headers.get("traceparent"))
        return bounded(refined(parsed, claims, _CLAIMED, _write_request), parsed)

    def reply(self, response: Response, message: ForeignMessage) -> ForeignMessage:
        response = _echoed(settled(response), message)
        words = _write_response(response)
        sent, version = self._understood(message)
        # Only for a client that sent claims: another would take them for an artifact of the answer.
        if sent is not None and _parted(sent)[1] and (lost := beyond(response, _read_response(words))):
            artifact = Artifact(type="json", value=lost, label=KEY)
            words = replace(words, artifacts=(*words.artifacts, artifact))
        if sent is not None and sent.request_id == as_uuid(response.id):
            words = replace(words, request_id=sent.request_id)
        return reply_with_status(response, self._written(words, version))

    def request(self, request: Request) -> ForeignMessage:
        meant = flat(request)
        words = _write_request(meant)
        headers = {
            **JSON,
            **header("x-agent-request-id", words.request_id),
            **header("x-agent-origin", words.origin_employee),
            **header(_DEPTH, str(words.current_depth)),
            **header("x-agent-parent-session", words.parent_session_id),
            **header("traceparent", request.traceparent or ""),
        }
        lost = beyond(meant, _read_request(words, headers.get("traceparent")))
        return ForeignMessage(headers=headers, body=encode(_with(words, lost)), target=request.target)

    def response(self, given: ForeignMessage, request: Request) -> Response:
        with answered_by(request):
            blanks: dict[str, Json] = {"request_id": request.id, "target_employee": request.target}
            read = read_reply(given, DelegationResponse, request, _BLANKS | blanks)
            if isinstance(read, Response):
                return read
            words, warnings = read
            _refuse_another(words, request)
            words = replace(words, request_id=request.id)
            words, claims = _own_artifacts(words)
            parsed = _read_response(words)
            if any(each.startswith("$.token_usage") for each in warnings):
                parsed = replace(parsed, usage=Usage(estimated=True))
            response = refined_answer(parsed, claims, ("artifacts", KEY), _write_response)
            return with_warnings(in_time(response, given), warnings)

    # ── versions ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _parse_request(self, raw: bytes) -> tuple[DelegationRequest, str]:
        """Return a request in the current version, and the version in which it came."""
        envelope: Json = decode(raw, object)
        version = self._versions.current
        if isinstance(envelope, dict):
            # The first version has no such field.
            stated_version = cast("dict[str, Json]", envelope).get("version") or self._versions.first
            if isinstance(stated_version, str):
                version = self._versions.spoken(stated_version)
                envelope = self._versions.upgrade(cast("dict[str, Any]", envelope), version)
        return convert(whole(envelope, DelegationRequest), DelegationRequest), version

    def _understood(self, message: ForeignMessage) -> tuple[DelegationRequest | None, str]:
        try:
            return self._parse_request(message.body)
        except RemitError:
            return None, self._versions.current

    def _written(self, words: DelegationResponse, version: str) -> bytes:
        if version == self._versions.current:
            return encode(words)
        plain = self._versions.downgrade(msgspec.to_builtins(words), version)
        return encode({name: value for name, value in plain.items() if name != "version"})


DIALECT = Employee(Versions(VERSION))


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _agreed(words: DelegationRequest, headers: Mapping[str, str]) -> DelegationRequest:
    """Return the envelope with the depth of the header, if only that states it; contradictions are refused."""
    problems = [
        Problem(_shown(name), f"contradicts `{field}` of the envelope: leave the header out, or repeat the field in it")
        for name, field in _REPEATED.items()
        if headers.get(name, in_body := getattr(words, field)) != in_body
    ]
    if _DEPTH in headers:
        depth = _number(headers[_DEPTH])
        if depth is None:
            problems.append(Problem(_shown(_DEPTH), "is not a depth; expected digits"))
        elif words.current_depth not in (None, depth):
            problems.append(Problem(_shown(_DEPTH), "contradicts `current_depth` of the envelope"))
        else:
            words = replace(words, current_depth=depth)
    if problems:
        raise RemitError(malformed(tuple(problems)))
    return words


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,16}", text) and int(text) <= MAX_INTEGER else None


def _shown(name: str) -> str:
    return name.title().replace("-Id", "-ID")


def _read_request(words: DelegationRequest, traceparent: str | None) -> Submission:
    limits = words.constraints
    if limits.max_depth == 0:
        message = "Delegation depth limit reached (0/0). Cannot delegate further. Return results to parent."
        problem = Problem("$.constraints.max_depth", "allows no calls: not even a depth of 0 is below it")
        raise RemitError(fault(Code.MAX_DEPTH_EXCEEDED, message, problems=(problem,), suggestion=""))
    handoff = Handoff(
        facts=words.handoff_data.facts,
        references=tuple(
            Source(owner_scope=each.owner_scope, source_id=each.source_id) for each in words.handoff_data.references
        ),
        prior_outputs=_outputs(words.handoff_data.intermediate_results),
    )
    return Submission(
        target=words.target_employee,
        id=words.request_id,
        origin=words.origin_employee,
        user=words.user_id,
        max_tokens=limits.max_tokens,
        deadline_ms=limits.deadline_ms,
        # The document's limit is exclusive; ours is the maximum depth.
        max_depth=limits.max_depth - 1,
        depth=words.current_depth or 0,
        objective=words.objective,
        input=words.input,
        session=words.child_session_id,
        parent_session=words.parent_session_id,
        handoff=handoff if handoff != Handoff() else None,
        hints=words.context_hints,
        created_ms=None if words.created_at is None else _created_ms(words.created_at),
        traceparent=traceparent,
    )


def _write_request(meant: Submission) -> DelegationRequest:
    limits, handoff, text = EmployeeConstraints(), meant.handoff or Handoff(), text_of(meant.input)
    return DelegationRequest(
        request_id=as_uuid(meant.id or ""),
        origin_employee=meant.origin,
        target_employee=meant.target,
        user_id=meant.user or "",
        parent_session_id=as_uuid(meant.parent_session or meant.run or meant.id or ""),
        # The document requires both a goal and a message; if we have only one of them, it is used for both.
        objective=meant.objective or text[:PREVIEW_LENGTH],
        input=text or meant.objective,
        constraints=EmployeeConstraints(
            max_tokens=limits.max_tokens if meant.max_tokens is None else meant.max_tokens,
            max_depth=limits.max_depth if meant.max_depth is None else min(meant.max_depth + 1, MAX_INTEGER),
            deadline_ms=limits.deadline_ms if meant.deadline_ms is None else meant.deadline_ms,
        ),
        context_hints=meant.hints,
        handoff_data=HandoffData(
            facts=handoff.facts,
            references=tuple(
                Reference(owner_scope=each.owner_scope, source_id=each.source_id) for each in handoff.references
            ),
            intermediate_results=_results(handoff.prior_outputs),
        ),
        # A session named after the request is new. Any other is the target's own name, sent as it came.
        child_session_id=None if meant.session == meant.id else meant.session,
        current_depth=meant.depth,
        created_at=None if meant.created_ms is None else _created_at(meant.created_ms),
    )


def _outputs(results: Json) -> dict[str, Json]:
    """Return results of any form as named values."""
    if isinstance(results, dict):
        return cast("dict[str, Json]", results)
    return {} if results is None else {_RESULTS: results}


def _results(outputs: dict[str, Json]) -> Json:
    outputs = {name: value for name, value in outputs.items() if name != KEY}
    if list(outputs) == [_RESULTS] and not isinstance(outputs[_RESULTS], dict | None):
        return outputs[_RESULTS]
    return outputs or None


def _parted(words: DelegationRequest) -> tuple[DelegationRequest, Claims]:
    results = words.handoff_data.intermediate_results
    if not isinstance(results, dict):
        return words, {}
    own, claims = parted(cast("dict[str, Json]", results))
    return _with_results(words, own or None), claims


def _with(words: DelegationRequest, lost: Claims) -> DelegationRequest:
    return _with_results(words, _outputs(words.handoff_data.intermediate_results) | {KEY: lost})


def _with_results(words: DelegationRequest, results: Json) -> DelegationRequest:
    return replace(words, handoff_data=replace(words.handoff_data, intermediate_results=results))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# The last millisecond of the year 9999, after which no timestamp can be written.
_LAST_MS = 253_402_300_799_999


def _created_ms(created_at: str) -> int:
    try:
        at = datetime.fromisoformat(created_at)
        at_ms = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        at_ms = -1
    if at_ms < 0:
        problem = Problem("$.created_at", "expected an ISO timestamp since 1970, such as 2025-10-09T12:00:00Z")
        raise RemitError(malformed((problem,)))
    return at_ms


def _created_at(created_ms: int) -> str | None:
    if created_ms > _LAST_MS:
        return None
    return (_EPOCH + timedelta(milliseconds=created_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ── responses ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write_response(response: Response) -> DelegationResponse:
    usage, why = response.usage, response.fault
    return DelegationResponse(
        request_id=response.id,
        target_employee=response.target,
        summary=response.summary or _in_short(text_of(response.result)),
        result=text_of(response.result),
        token_usage=TokenUsage(prompt=usage.prompt, completion=usage.completion, total=min(usage.total, MAX_INTEGER)),
        status=_STATUSES.get(response.status, "failed"),
        artifacts=tuple(each for each in response.artifacts if not _claimed_in(each)),
        new_facts=response.new_facts,
        used_sources=tuple(
            UsedSource(owner_scope=each.owner_scope, source_id=each.source_id, relevance=each.relevance)
            for each in response.sources
        ),
        duration_ms=response.duration_ms,
        child_session_id=response.session,
        confidence=None if response.confidence is None else round(100 * response.confidence),
        requires_followup=response.requires_followup,
        error=None if why is None else in_sentences(why),
    )


def _read_response(words: DelegationResponse) -> Response:
    usage = words.token_usage
    ok = words.status != "failed"
    why = None if ok else fault_of(words.error or f"{words.target_employee} gave no reason")
    return Response(
        version=VERSION,
        id=words.request_id,
        target=words.target_employee,
        status=Status(words.status) if why is None else status_of(why.code),
        session=words.child_session_id,
        result=words.result,
        summary=words.summary,
        confidence=None if words.confidence is None else words.confidence / 100,
        artifacts=words.artifacts,
        new_facts=words.new_facts,
        sources=tuple(
            Source(owner_scope=each.owner_scope, source_id=each.source_id, relevance=_share(each.relevance))
            for each in words.used_sources
        ),
        # Tokens that are only in the total were spent as well.
        usage=Usage(prompt=usage.prompt, completion=max(usage.completion, usage.total - usage.prompt)),
        duration_ms=words.duration_ms or 0,
        requires_followup=words.requires_followup,
        fault=why,
        warnings=(words.error,) if ok and words.error else (),
    )


def _in_short(result: str) -> str:
    """Return the first sentence of a result, since the document requires a summary; cut if it is long."""
    first = re.split(r"(?<=[.!?])\s|\n", result.strip(), maxsplit=1)[0]
    return first if len(first) <= PREVIEW_LENGTH else f"{first[: PREVIEW_LENGTH - 1].rstrip()}…"


_STATUSES: dict[Status, Literal["success", "partial"]] = {Status.SUCCESS: "success", Status.PARTIAL: "partial"}


# What a response may leave out.
_BLANKS: dict[str, Json] = {"summary": "", "token_usage": {"prompt": 0, "completion": 0, "total": 0}}


def _share(relevance: float | None) -> float | None:
    return relevance if relevance is not None and 0 <= relevance <= 1 else None


def _own_artifacts(words: DelegationResponse) -> tuple[DelegationResponse, Claims]:
    """Return the response without the artifact that holds claims: the last one, since it was added last."""
    claims: Claims = _claimed_in(words.artifacts[-1]) if words.artifacts else {}
    return (replace(words, artifacts=words.artifacts[:-1]) if claims else words), claims


def _claimed_in(artifact: Artifact) -> Claims:
    return parted({KEY: artifact.value})[1] if artifact.label == KEY and artifact.type == "json" else {}


def _echoed(response: Response, message: ForeignMessage) -> Response:
    """Return a refusal of an unreadable envelope with the ids that it states."""
    if response.id != NOBODY:
        return response
    id = claimed(message, "request_id", "x-agent-request-id") or NOBODY
    return replace(response, id=id, target=claimed(message, "target_employee") or response.target)


def _refuse_another(words: DelegationResponse, request: Request) -> None:
    problems = [
        Problem(f"$.{name}", "does not match the request")
        for name, expected in (
            ("request_id", (as_uuid(request.id), request.id)),
            ("target_employee", (request.target,)),
        )
        if getattr(words, name) not in expected
    ]
    if problems:
        raise RemitError(malformed(tuple(problems)))
