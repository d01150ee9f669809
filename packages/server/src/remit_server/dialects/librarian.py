"""The librarian dialect: a query with its delegation context, and an answer.

A request does not name its target: the URL does (`ForeignMessage.target`).
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from remit.protocol.codec import convert, decode, encode, malformed, text_of, whole
from remit.protocol.envelope import (
    PREVIEW_LENGTH,
    USER,
    VERSION,
    Call,
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
from remit.protocol.remit import NAME_PATTERN, Chain, Count, Name, Names
from remit.protocol.submission import Submission
from remit.protocol.trace import TraceContext, place_of, span_id, trace_id
from remit_server.dialects.claims import KEY, beyond, bounded, flat, parted, refined, refined_answer
from remit_server.dialects.exchange import (
    JSON,
    ForeignMessage,
    answered_by,
    header,
    in_reasons,
    in_time,
    known,
    read_envelope,
    read_reply,
    reply_with_status,
    settled,
    status_of,
)


class DelegationContext(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """How a query came about, and what is left for it."""

    original_query: Text
    delegation_chain: Chain
    """The librarians above the called one; the last one is the caller."""
    delegation_depth: Count
    remaining_timeout: Count
    start_time: Count
    parent_span_id: Annotated[str, Meta(max_length=200, pattern=NAME_PATTERN)]
    """Empty: it is not traced."""
    delegation_reason: str = ""
    refined_by: Name | None = None
    timeout: Count | None = None
    """For the whole query, since its start; less remains."""
    available_delegates: Names | None = None
    remit: dict[str, Json] | None = None


class ExtendedContext(DelegationContext, frozen=True, kw_only=True):
    """A context with the fields of the `Context` that it extends: on the wire they are all on one level."""

    more: dict[str, Json] = {}


class LibrarianRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One librarian asks another, in another process."""

    query: str
    context: ExtendedContext
    version: str
    request_id: Name
    timestamp: Count


class DelegateContext(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Why someone else should answer."""

    reason: str = ""
    remit: dict[str, Json] | None = None


class DelegateRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who should answer instead; without a query, the same query."""

    to: Name
    query: str = ""
    context: DelegateContext = DelegateContext()


class LibrarianError(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why there is no answer."""

    code: Name
    message: str
    recoverable: bool | None = None
    suggestion: str | None = None


class LibrarianResponse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An answer, an error, or a referral."""

    answer: str | None = None
    sources: tuple[Json, ...] = ()
    confidence: Annotated[float, Meta(ge=0, le=1)] | None = None
    metadata: dict[str, Json] = {}
    error: LibrarianError | None = None
    delegate: DelegateRequest | tuple[DelegateRequest, ...] | None = None


T = TypeVar("T")

# The default time limit of a delegation (the document's DEFAULT_TIMEOUT).
TIME_MS = 30_000

# A query longer than the maximum objective is data.
_LONGEST_OBJECTIVE = 100_000


class _Version(Struct, frozen=True):
    version: Json = None


class _Address(Struct, frozen=True):
    target: Name


class _Path(Struct, frozen=True):
    agents: Chain = ()


class _Sources(Struct, frozen=True):
    known: tuple[Source, ...] = ()


_SPAN = re.compile(r"(?!0{16})[0-9a-f]{16}", re.ASCII)
_PATH = "delegationPath"
_SOURCES = "sources"


# ── the dialect ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Librarian:
    """The protocol of the librarians."""

    def submission(self, message: ForeignMessage) -> Submission:
        version = decode(message.body, _Version).version
        if isinstance(version, str) and version != VERSION:
            why = f"version {version[:20]!r} is not supported; supported: {VERSION}"
            raise RemitError(fault(Code.VERSION_UNSUPPORTED, why))
        words = _request_in(message.body)
        target = _addressed(message.target)
        # Librarians have one name everywhere, so a name alone shows that one would call itself.
        if target in words.context.delegation_chain:
            chain = " -> ".join((*words.context.delegation_chain, target))
            raise RemitError(fault(Code.LOOP_DETECTED, f"Delegation loop detected: {chain}"))
        parsed = _read_request(words, target, message.headers.get("traceparent"))
        return bounded(refined(parsed, words.context.remit or {}, ("context", KEY), _write_request), parsed)

    def reply(self, response: Response, message: ForeignMessage) -> ForeignMessage:
        response = settled(response)
        words = _write_response(response)
        if _is_known_to(message) and (lost := beyond(response, _read_response(words, response.id, response.target))):
            words = replace(words, metadata=words.metadata | {KEY: lost})
        return reply_with_status(response, encode(words))

    def request(self, request: Request) -> ForeignMessage:
        meant = flat(request)
        words = _write_request(meant)
        headers = {**JSON, **header("traceparent", request.traceparent or "")}
        lost = beyond(meant, _read_request(words, request.target, headers.get("traceparent")))
        words = replace(words, context=replace(words.context, remit=lost or None))
        return ForeignMessage(headers=headers, body=_written(words), target=request.target)

    def response(self, given: ForeignMessage, request: Request) -> Response:
        """Return the outcome; the librarians it refers to are in `calls`, and nobody has called them yet."""
        with answered_by(request):
            read = read_reply(given, LibrarianResponse, request)
            if isinstance(read, Response):
                return read
            words, warnings = read
            if words.answer is words.error is None and not words.delegate and warnings:
                read_envelope(given.body, LibrarianResponse)  # says why there is no answer
            own, claims = parted(words.metadata)
            parsed = _read_response(replace(words, metadata=own), request.id, request.target)
            response = refined_answer(parsed, claims, ("metadata", KEY), _write_response)
            return with_warnings(in_time(response, given), warnings)

    def calls(self, given: ForeignMessage, request: Request) -> tuple[Call, ...]:
        """Return the librarians that should answer instead: what an `Answer` of ours calls `calls`."""
        with answered_by(request):
            read = read_reply(given, LibrarianResponse, request)
            if isinstance(read, Response) or (delegate := read[0].delegate) is None:
                return ()
            several = (delegate,) if isinstance(delegate, DelegateRequest) else delegate
            return tuple(_call(each, request) for each in several)

    def delegating(self, calls: Sequence[Call]) -> ForeignMessage:
        """Return the answer of a librarian that refers to others."""
        several = tuple(_delegating(call, index) for index, call in enumerate(calls))
        words = LibrarianResponse(delegate=several[0] if len(several) == 1 else several)
        return ForeignMessage(headers={**JSON}, body=encode(words))


DIALECT = Librarian()


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _addressed(target: str) -> str:
    if not target:
        problem = Problem("$.target", "the URL names the agent: POST /dialects/librarian/<librarian>")
        raise RemitError(malformed((problem,)))
    return convert({"target": target}, _Address).target


_CONTEXT = frozenset(DelegationContext.__struct_encode_fields__)


def _request_in(raw: bytes) -> LibrarianRequest:
    """Return a request whose context may hold more fields than the document names."""
    envelope: Json = decode(raw, object)
    if isinstance(envelope, dict) and isinstance(context := cast("dict[str, Json]", envelope).get("context"), dict):
        context = cast("dict[str, Json]", context)
        own = {name: value for name, value in context.items() if name in _CONTEXT}
        more = {name: value for name, value in context.items() if name not in _CONTEXT}
        envelope = cast("dict[str, Json]", envelope) | {"context": {**own, "more": more}}
    return convert(whole(envelope, LibrarianRequest), LibrarianRequest)


def _written(words: LibrarianRequest) -> bytes:
    plain: dict[str, Any] = msgspec.to_builtins(words)
    plain["context"] |= plain["context"].pop("more", {})
    return encode(plain)


def _left_ms(words: LibrarianRequest) -> int:
    """Return the time left: the remaining time, and at most the total time less what has passed."""
    context = words.context
    if context.timeout is None:
        return context.remaining_timeout
    # Both are read from the sender's clock, so our clock does not matter.
    passed_ms = max(0, words.timestamp - context.start_time) if context.start_time else 0
    return min(context.remaining_timeout, max(0, context.timeout - passed_ms))


def _read_request(words: LibrarianRequest, target: str, traceparent: str | None) -> Submission:
    context = words.context
    original = "" if context.original_query == words.query else context.original_query
    is_objective = len(words.query) <= _LONGEST_OBJECTIVE
    *above, origin = context.delegation_chain or (USER,)
    above = tuple(above)
    return Submission(
        target=target,
        id=words.request_id,
        origin=origin,
        # The caller is at the end of a chain once; if the name before it is the same, both are part of the chain.
        chain=above if _chain(above, origin) == context.delegation_chain else context.delegation_chain,
        depth=context.delegation_depth,
        user=_id_in(context.more.get("user")),
        parent_session=_id_in(context.more.get("sessionId")),
        deadline_ms=_left_ms(words),
        targets=context.available_delegates or None,
        may_delegate=context.available_delegates != frozenset(),
        objective=words.query if is_objective else "",
        input=None if is_objective else words.query,
        parent=context.parent_span_id or None,
        handoff=Handoff(original_request=original, data=context.more) if original or context.more else None,
        reason=context.delegation_reason,
        refined_by=context.refined_by,
        created_ms=words.timestamp,
        traceparent=below_span(context.parent_span_id, traceparent),
    )


def _id_in(value: Json) -> str | None:
    """Return the id in a field: a text, or an object with an `id`; None if there is none."""
    value = cast("dict[str, Json]", value).get("id") if isinstance(value, dict) else value
    address = _convert({"target": value}, _Address)
    return None if address is None else address.target


def _write_request(meant: Submission) -> LibrarianRequest:
    query = _query(meant.objective, meant.input)
    original = meant.handoff.original_request if meant.handoff else ""
    data = meant.handoff.data if meant.handoff else {}
    return LibrarianRequest(
        query=query,
        context=ExtendedContext(
            original_query=original or (query if len(query) <= _LONGEST_OBJECTIVE else query[:PREVIEW_LENGTH]),
            delegation_chain=_chain(meant.chain, meant.origin),
            delegation_depth=meant.depth,
            remaining_timeout=TIME_MS if meant.deadline_ms is None else meant.deadline_ms,
            start_time=meant.created_ms or 0,
            parent_span_id=span_above(meant.parent or "", meant.traceparent),
            delegation_reason=meant.reason,
            refined_by=meant.refined_by,
            available_delegates=meant.targets if meant.may_delegate else frozenset(),
            more={name: value for name, value in data.items() if name not in _CONTEXT},
        ),
        version=VERSION,
        request_id=meant.id or "",
        timestamp=meant.created_ms or 0,
    )


def _chain(above: tuple[str, ...], origin: str) -> tuple[str, ...]:
    """Return the agents above the callee, the caller last: `prime@hub` is `prime`."""
    last = above[-1] if above else ""
    asks_last = origin in (USER, last, last.rpartition("@")[0])
    return above if asks_last else (*above, origin)


def _is_known_to(message: ForeignMessage) -> bool:
    """Return whether a client sent claims, and so will understand some."""
    try:
        return _request_in(message.body).context.remit is not None
    except RemitError:
        return False


# ── responses ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write_response(response: Response) -> LibrarianResponse:
    why = response.fault
    own = {name: value for name, value in response.metadata.items() if name != KEY}
    return LibrarianResponse(
        answer=None if response.result is None else text_of(response.result),
        sources=tuple(msgspec.to_builtins(each) for each in response.sources),
        confidence=response.confidence,
        metadata=own | ({_PATH: list(response.path)} if response.path else {}),
        error=None
        if why is None
        else LibrarianError(
            code=why.code, message=in_reasons(why), recoverable=why.recoverable, suggestion=why.suggestion
        ),
    )


def _read_response(words: LibrarianResponse, id: str, target: str) -> Response:
    error = words.error
    if error is not None:
        why = known(error.code, error.message, suggestion=error.suggestion, recoverable=error.recoverable)
    elif words.delegate is not None:
        why = fault(Code.DELEGATION_FAILED, f"{target} referred to other agents that were not asked")
    else:
        why = None
    metadata = dict(words.metadata)
    # Open fields may hold anything: values that are not of our types stay as they are.
    path = _convert({"agents": metadata.pop(_PATH, [])}, _Path)
    if path is None:
        metadata[_PATH] = words.metadata[_PATH]
    sources = _convert({"known": list(words.sources)}, _Sources)
    if sources is None:
        metadata[_SOURCES] = list(words.sources)
    return Response(
        version=VERSION,
        id=id,
        target=target,
        status=Status.SUCCESS if why is None else status_of(why.code),
        result=words.answer,
        confidence=words.confidence,
        sources=sources.known if sources else (),
        # The cost is not stated, which does not mean zero.
        usage=Usage(estimated=True),
        fault=why,
        path=path.agents if path else (),
        metadata=metadata,
    )


def _convert(value: Json, kind: type[T]) -> T | None:
    """Return a value as one of *kind*, if it is one."""
    try:
        return convert(value, kind)
    except RemitError:
        return None


# ── delegations ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _call(words: DelegateRequest, request: Request) -> Call:
    call = refined(_call_of(words), words.context.remit or {}, ("delegate", "context", KEY), _delegate)
    if call.objective or call.input is not None:
        return call
    return replace(call, objective=request.objective, input=request.input)


def _call_of(words: DelegateRequest) -> Call:
    is_objective = len(words.query) <= _LONGEST_OBJECTIVE
    return Call(
        target=words.to,
        objective=words.query if is_objective else "",
        input=None if is_objective else words.query,
        reason=words.context.reason,
    )


def _delegate(call: Call) -> DelegateRequest:
    return DelegateRequest(
        to=call.target or "", query=_query(call.objective, call.input), context=DelegateContext(reason=call.reason)
    )


def _delegating(call: Call, index: int) -> DelegateRequest:
    if call.target is None:
        problem = Problem(f"$.calls[{index}].target", "the librarian dialect addresses agents, not capabilities")
        raise RemitError(malformed((problem,)))
    words = _delegate(call)
    lost = beyond(call, _call_of(words))
    return replace(words, context=replace(words.context, remit=lost or None))


def _query(objective: str, input: Json) -> str:
    return "\n\n".join(filter(None, (objective, text_of(input))))


# ── the span above a request ──────────────────────────────────────────────────────────────────────────────────────────


def below_span(span: str, traceparent: str | None) -> str | None:
    """Return the trace context of a request below *span*.

    With a `traceparent`, a span belongs to that trace. Alone it does not name its trace: then all requests from the
    same span are one trace, whose id is derived from it.
    """
    place = place_of(traceparent)
    if not span or (place is not None and not _SPAN.fullmatch(span)):
        return traceparent
    return str(_alone(span) if place is None else place._replace(span=span))


def span_above(parent: str, traceparent: str | None) -> str:
    """Return the parent span to name for a request in a trace; without a trace, *parent*."""
    place = place_of(traceparent)
    return parent if place is None or (parent and place == _alone(parent)) else place.span


def _alone(span: str) -> TraceContext:
    return TraceContext(trace_id(f"span {span}"), span if _SPAN.fullmatch(span) else span_id(span), sampled=True)
