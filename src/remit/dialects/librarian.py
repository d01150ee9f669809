"""How librarians speak to each other across processes: a query with its delegation context, and an answer.

A request does not say whom it is for: the address does (`Foreign.target`).
"""

from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from remit.dialects.exchange import Foreign, read
from remit.dialects.outcome import (
    JSON,
    answered_by,
    header,
    heard,
    in_time,
    known,
    sentence,
    settled,
    status_of,
    told,
)
from remit.dialects.surplus import KEY, beyond, bounded, flat, parted, refined
from remit.protocol.codec import convert, decode, encode, malformed, text_of
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
from remit.protocol.lifecycle import Status
from remit.protocol.remit import NAME_PATTERN, Chain, Count, Name, Names
from remit.protocol.submission import Submission

T = TypeVar("T")

# Where nothing says how long a delegation may take (the document's DEFAULT_TIMEOUT).
TIME_MS = 30_000

# A query longer than an objective may be is data.
_LONGEST_OBJECTIVE = 100_000

# ── the document's words ──────────────────────────────────────────────────────────────────────────────────────────────


class DelegationContext(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """How a query came to be asked, and what is left for it."""

    original_query: Text
    delegation_chain: Chain
    """The librarians above the one that is asked; the last one asks."""
    delegation_depth: Count
    remaining_timeout: Count
    start_time: Count
    parent_span_id: Annotated[str, Meta(max_length=200, pattern=NAME_PATTERN)]
    """Empty: nobody traces it."""
    delegation_reason: str = ""
    refined_by: Name | None = None
    timeout: Count | None = None
    available_delegates: Names | None = None
    remit: dict[str, Json] | None = None


class _Version(Struct, frozen=True):
    version: Json = None


class _Address(Struct, frozen=True):
    target: Name


class _Path(Struct, frozen=True):
    agents: Chain = ()


class _Sources(Struct, frozen=True):
    known: tuple[Source, ...] = ()


class DelegationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One librarian asks another, in another process."""

    query: str
    context: DelegationContext
    version: str
    request_id: Name
    timestamp: Count


class DelegateContext(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Why someone else should answer."""

    reason: str = ""
    remit: dict[str, Json] | None = None


class DelegateRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who should answer instead; without a query, the same one."""

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
    """An answer, an error, or who should answer instead."""

    answer: str | None = None
    sources: tuple[Json, ...] = ()
    confidence: Annotated[float, Meta(ge=0, le=1)] | None = None
    metadata: dict[str, Json] = {}
    error: LibrarianError | None = None
    delegate: DelegateRequest | tuple[DelegateRequest, ...] | None = None


_PATH = "delegationPath"
_SOURCES = "sources"


# ── the dialect ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Librarian:
    """The protocol of the librarians."""

    def submission(self, asked: Foreign) -> Submission:
        version = decode(asked.body, _Version).version
        if isinstance(version, str) and version != VERSION:
            message = f"version {version[:20]!r} is not spoken here; send {VERSION}"
            raise RemitError(fault(Code.VERSION_UNSUPPORTED, message))
        words = read(asked.body, DelegationRequest)
        target = _addressed(asked.target)
        # Librarians have one name everywhere, so that a name alone says that one would end up asking itself.
        if target in words.context.delegation_chain:
            chain = " -> ".join((*words.context.delegation_chain, target))
            raise RemitError(fault(Code.LOOP_DETECTED, f"Delegation loop detected: {chain}"))
        said = _meant(words, target, asked.headers.get("traceparent"))
        return bounded(refined(said, words.context.remit or {}, ("context", KEY), _said), said)

    def reply(self, response: Response, asked: Foreign) -> Foreign:
        response = settled(response)
        words = _told(response)
        if _is_known_to(asked) and (lost := beyond(response, _heard(words, response.id, response.target))):
            words = replace(words, metadata=words.metadata | {KEY: lost})
        return told(response, encode(words))

    def request(self, request: Request) -> Foreign:
        meant = flat(request)
        words = _said(meant)
        headers = {**JSON, **header("traceparent", request.traceparent or "")}
        lost = beyond(meant, _meant(words, request.target, headers.get("traceparent")))
        words = replace(words, context=replace(words.context, remit=lost or None))
        return Foreign(headers=headers, body=encode(words), target=request.target)

    def response(self, given: Foreign, request: Request) -> Response:
        """Return how it ended there; who is named to answer instead is in `calls`, and nobody has asked them yet."""
        with answered_by(request):
            words = heard(given, LibrarianResponse, request)
            if isinstance(words, Response):
                return words
            own, claims = parted(words.metadata)
            said = _heard(replace(words, metadata=own), request.id, request.target)
            return in_time(refined(said, claims, ("metadata", KEY), _told), given)

    def calls(self, given: Foreign, request: Request) -> tuple[Call, ...]:
        """Return whom a librarian names to answer in its place: what an `Answer` of ours calls `calls`."""
        with answered_by(request):
            words = heard(given, LibrarianResponse, request)
            if isinstance(words, Response) or words.delegate is None:
                return ()
            several = (words.delegate,) if isinstance(words.delegate, DelegateRequest) else words.delegate
            return tuple(_call(each, request) for each in several)

    def delegating(self, calls: Sequence[Call]) -> Foreign:
        """Return the answer of a librarian that names others to answer in its place."""
        several = tuple(_delegating(call, index) for index, call in enumerate(calls))
        words = LibrarianResponse(delegate=several[0] if len(several) == 1 else several)
        return Foreign(headers={**JSON}, body=encode(words))


DIALECT = Librarian()


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _addressed(target: str) -> str:
    if not target:
        problem = Problem("$.target", "the address says who is asked: POST /dialects/librarian/<librarian>")
        raise RemitError(malformed((problem,)))
    return convert({"target": target}, _Address).target


def _meant(words: DelegationRequest, target: str, traceparent: str | None) -> Submission:
    context = words.context
    left = [each for each in (context.remaining_timeout, context.timeout) if each is not None]
    original = "" if context.original_query == words.query else context.original_query
    is_objective = len(words.query) <= _LONGEST_OBJECTIVE
    *above, origin = context.delegation_chain or (USER,)
    above = tuple(above)
    return Submission(
        target=target,
        id=words.request_id,
        origin=origin,
        # Who asks stands at the end of a chain once; where the name before it is the same, both are part of the way.
        chain=above if _chain(above, origin) == context.delegation_chain else context.delegation_chain,
        depth=context.delegation_depth,
        deadline_ms=min(left),
        targets=context.available_delegates or None,
        may_delegate=context.available_delegates != frozenset(),
        objective=words.query if is_objective else "",
        input=None if is_objective else words.query,
        parent=context.parent_span_id or None,
        handoff=Handoff(original_request=original) if original else None,
        reason=context.delegation_reason,
        refined_by=context.refined_by,
        created_ms=words.timestamp,
        traceparent=traceparent,
    )


def _said(meant: Submission) -> DelegationRequest:
    query = _query(meant.objective, meant.input)
    original = meant.handoff.original_request if meant.handoff else ""
    return DelegationRequest(
        query=query,
        context=DelegationContext(
            original_query=original or (query if len(query) <= _LONGEST_OBJECTIVE else query[:PREVIEW_LENGTH]),
            delegation_chain=_chain(meant.chain, meant.origin),
            delegation_depth=meant.depth,
            remaining_timeout=TIME_MS if meant.deadline_ms is None else meant.deadline_ms,
            start_time=meant.created_ms or 0,
            parent_span_id=meant.parent or "",
            delegation_reason=meant.reason,
            refined_by=meant.refined_by,
            available_delegates=meant.targets if meant.may_delegate else frozenset(),
        ),
        version=VERSION,
        request_id=meant.id or "",
        timestamp=meant.created_ms or 0,
    )


def _chain(above: tuple[str, ...], origin: str) -> tuple[str, ...]:
    """Return who stands above the callee, the last of them the one that asks: `prime@hub` is `prime`."""
    last = above[-1] if above else ""
    asks_last = origin in (USER, last, last.rpartition("@")[0])
    return above if asks_last else (*above, origin)


def _is_known_to(asked: Foreign) -> bool:
    """Say whether a client knows of claims, and so will understand some."""
    try:
        return read(asked.body, DelegationRequest).context.remit is not None
    except RemitError:
        return False


# ── responses ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _told(response: Response) -> LibrarianResponse:
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
            code=why.code, message=sentence(why), recoverable=why.recoverable, suggestion=why.suggestion
        ),
    )


def _heard(words: LibrarianResponse, id: str, target: str) -> Response:
    error = words.error
    if error is not None:
        why = known(error.code, error.message, suggestion=error.suggestion, recoverable=error.recoverable)
    elif words.delegate is not None:
        why = fault(Code.DELEGATION_FAILED, f"{target} named others to answer, whom nobody asked")
    else:
        why = None
    metadata = dict(words.metadata)
    # What the document leaves open may be anything: what is not as ours stays as it is.
    path = _read({"agents": metadata.pop(_PATH, [])}, _Path)
    if path is None:
        metadata[_PATH] = words.metadata[_PATH]
    sources = _read({"known": list(words.sources)}, _Sources)
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
        # What it cost is not said: it is not nothing.
        usage=Usage(estimated=True),
        fault=why,
        path=path.agents if path else (),
        metadata=metadata,
    )


def _read(value: Json, kind: type[T]) -> T | None:
    """Return a value as one of *kind*, if it is one."""
    try:
        return convert(value, kind)
    except RemitError:
        return None


# ── delegations ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _call(words: DelegateRequest, request: Request) -> Call:
    call = refined(_wanted(words), words.context.remit or {}, ("delegate", "context", KEY), _delegate)
    if call.objective or call.input is not None:
        return call
    return replace(call, objective=request.objective, input=request.input)


def _wanted(words: DelegateRequest) -> Call:
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
        problem = Problem(f"$.calls[{index}].target", "a librarian names who should answer, not a capability")
        raise RemitError(malformed((problem,)))
    words = _delegate(call)
    lost = beyond(call, _wanted(words))
    return replace(words, context=replace(words.context, remit=lost or None))


def _query(objective: str, input: Json) -> str:
    return "\n\n".join(filter(None, (objective, text_of(input))))
