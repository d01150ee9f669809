"""What A2A carries of ours: errors with their names there, and the remit as an extension.

A client that uses it names it in the header `A2A-Extensions`; its content is in the metadata of the message, and the
server's in the metadata of the artifact that holds the result, or else of the status message. Amounts are strings of
digits, because metadata is a protobuf `Struct`, in which every number is a double. What neither A2A nor these fields
can express is JSON in the string `rest`; it adds claims, and never contradicts the fields.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, NamedTuple, cast

from msgspec import Meta, Struct
from msgspec.structs import replace

from remit.protocol.codec import convert, decode, encode, malformed
from remit.protocol.envelope import Json, Usage
from remit.protocol.errors import TABLE, Code, Fault, Problem, RemitError, fault
from remit.protocol.problems import path_of
from remit.protocol.remit import MAX_INTEGER, Name, Priority, Tools
from remit.protocol.submission import Submission
from remit.words.failures import plain_failure
from remit_server.dialects.a2a.types import A2aObject, Metadata

EXTENSION = "urn:remit:delegation:v1"
RESULT = "result"
"""The artifact that holds an answer's result, by the extension; without it, the first one."""
DESCRIPTION = "Carries the remit of a delegation: for whom, how deep, how long, how many tokens, which tools."

Place = tuple[str | int, ...]
Amount = Annotated[str, Meta(pattern=r"^[0-9]{1,16}\Z", extra={"rule": "digits, as a string"})] | float
Names = Annotated[tuple[Name, ...], Meta(max_length=1_000)]


class RemitWords(A2aObject, frozen=True, kw_only=True):
    """What a client sends with a message."""

    user: Annotated[Name | None, Meta(description="The user for whom is asked.")] = None
    depth: Annotated[Amount | None, Meta(description="How many agents are above the callee.")] = None
    max_depth: Annotated[
        Amount | None, Meta(description="The highest `depth` that the callee and all below may have.")
    ] = None
    time_ms: Annotated[Amount | None, Meta(description="Milliseconds until the outcome is of no use any more.")] = None
    tokens: Annotated[Amount | None, Meta(description="Tokens that the callee and all below it may spend.")] = None
    cost: Annotated[
        Amount | None,
        Meta(description="Money that they may spend, in millionths of the currency that both sides have."),
    ] = None
    context_tokens: Annotated[
        Amount | None, Meta(description="Tokens of earlier messages that may be shown below.")
    ] = None
    chain: Annotated[
        tuple[Name, ...], Meta(max_length=100, description="The agents above the callee, outermost first.")
    ] = ()
    tools: Annotated[
        Tools | None,
        Meta(
            description="The only tools that may be used: an array of names, or an object of conditions on their "
            "arguments; null: any."
        ),
    ] = None
    targets: Annotated[Names | None, Meta(description="The only agents that may be asked; null: any.")] = None
    may_delegate: Annotated[bool, Meta(description="Whether the callee may ask other agents.")] = True
    priority: Annotated[Priority | None, Meta(description="The order in which a busy agent serves requests.")] = None
    input_part: Annotated[
        Amount | None,
        Meta(description="The message part that is the input, if that is a text; all others are the objective."),
    ] = None
    file_parts: Annotated[
        Amount | None,
        Meta(description="How many parts at the end of the message are files, also those that hold text or JSON."),
    ] = None
    rest: Annotated[
        str, Meta(description="JSON in a text: what else the sender's system knows. Others leave it out and ignore it.")
    ] = ""


class UsageWords(A2aObject, frozen=True, kw_only=True):
    """What a task has spent, with all agents below it."""

    prompt: Annotated[Amount, Meta(description="Tokens that models have read.")] = "0"
    completion: Annotated[Amount, Meta(description="Tokens that models have written.")] = "0"
    overrun: Annotated[Amount, Meta(description="Tokens beyond what was granted.")] = "0"
    estimated: Annotated[bool, Meta(description="Whether the figures are partly estimated.")] = False
    cache_write: Annotated[Amount, Meta(description="Of `prompt`: written to the cache of a provider.")] = "0"
    cache_read: Annotated[Amount, Meta(description="Of `prompt`: read from that cache.")] = "0"
    cost: Annotated[Amount, Meta(description="Money, in millionths of the currency that both sides have.")] = "0"
    priced: Annotated[Amount, Meta(description="Tokens that are in `cost`; the price of the others is not known.")] = (
        "0"
    )


class OutcomeWords(A2aObject, frozen=True, kw_only=True):
    """What a server sends with a result."""

    usage: Annotated[UsageWords | None, Meta(description="What it has spent; null: the server does not know.")] = None
    rest: Annotated[str, Meta(description="As in the request. If the task failed, `fault` with its `code`.")] = ""


def remit_words(meant: Submission) -> RemitWords:
    """Return the remit of a request in the fields of the extension."""
    return RemitWords(
        user=meant.user,
        depth=str(meant.depth),
        max_depth=_digits(meant.max_depth),
        time_ms=_digits(meant.deadline_ms),
        tokens=_digits(meant.max_tokens),
        cost=_digits(meant.max_cost),
        context_tokens=_digits(meant.context_tokens),
        chain=meant.chain,
        tools=meant.tools,
        targets=None if meant.targets is None else tuple(sorted(meant.targets)),
        may_delegate=meant.may_delegate,
        priority=meant.priority,
    )


def within(words: RemitWords, submission: Submission, place: Place) -> Submission:
    """Return a submission under the remit that the extension states."""
    return replace(
        submission,
        user=words.user,
        depth=count(words.depth, (*place, "depth")) or 0,
        max_depth=count(words.max_depth, (*place, "maxDepth")),
        deadline_ms=count(words.time_ms, (*place, "timeMs")),
        max_tokens=count(words.tokens, (*place, "tokens")),
        max_cost=count(words.cost, (*place, "cost")),
        context_tokens=count(words.context_tokens, (*place, "contextTokens")),
        chain=words.chain,
        tools=words.tools,
        targets=None if words.targets is None else frozenset(words.targets),
        may_delegate=words.may_delegate,
        priority=words.priority,
    )


def usage_words(usage: Usage) -> UsageWords:
    return UsageWords(
        prompt=str(usage.prompt),
        completion=str(usage.completion),
        overrun=str(usage.overrun),
        estimated=usage.estimated,
        cache_write=str(usage.cache_write),
        cache_read=str(usage.cache_read),
        cost=str(usage.cost),
        priced=str(usage.priced),
    )


def usage_of(words: UsageWords | None, place: Place) -> Usage | None:
    """Return the usage that a peer states; None if it states none."""
    if words is None:
        return None
    return Usage(
        prompt=count(words.prompt, (*place, "prompt")) or 0,
        completion=count(words.completion, (*place, "completion")) or 0,
        overrun=count(words.overrun, (*place, "overrun")) or 0,
        estimated=words.estimated,
        cache_write=count(words.cache_write, (*place, "cacheWrite")) or 0,
        cache_read=count(words.cache_read, (*place, "cacheRead")) or 0,
        cost=count(words.cost, (*place, "cost")) or 0,
        priced=count(words.priced, (*place, "priced")) or 0,
    )


def extension_content(metadata: Metadata | None) -> Json:
    """Return the content of the extension in some metadata; None if there is none."""
    return None if metadata is None else metadata.get(EXTENSION)


def claims_of(rest: str, place: Place) -> Mapping[str, Json]:
    """Return the claims beyond the fields."""
    if not rest:
        return {}
    try:
        value = decode(rest.encode(), object)
    except RemitError as error:
        raise RemitError(malformed((Problem(path_of((*place, "rest")), "is not a string that holds JSON"),))) from error
    if not isinstance(value, dict):
        raise RemitError(malformed((Problem(path_of((*place, "rest")), "does not hold a JSON object"),)))
    return cast("dict[str, Json]", value)


def as_metadata(words: A2aObject) -> Metadata:
    """Return the fields as metadata."""
    return convert(decode(encode(words), object), dict[str, Json])


def _digits(amount: int | None) -> str | None:
    return None if amount is None else str(amount)


def count(amount: str | float | None, place: Place) -> int | None:
    """Return an amount as a number, or raise a `RemitError` that names the invalid field."""
    if amount is None:
        return None
    number = int(amount) if isinstance(amount, str) or int(amount) == amount else -1
    if not 0 <= number <= MAX_INTEGER:
        raise RemitError(malformed((Problem(path_of(place), "is not a whole number of 0 or more"),)))
    return number


DOMAIN = "a2a-protocol.org"
OWN_DOMAIN = "remit"
"""The domain of errors that A2A does not define: the reason is one of our codes."""

ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
LOCALIZED_MESSAGE = "type.googleapis.com/google.rpc.LocalizedMessage"
"""The type of the detail that can be shown to users as it is."""

# JSON-RPC leaves this code to servers, and A2A's own begin after it: for errors that A2A does not define.
OWN_RPC = -32000


class Error(StrEnum):
    """The errors that A2A defines, by their reasons."""

    TASK_NOT_FOUND = "TASK_NOT_FOUND"
    TASK_NOT_CANCELABLE = "TASK_NOT_CANCELABLE"
    PUSH_NOTIFICATION_NOT_SUPPORTED = "PUSH_NOTIFICATION_NOT_SUPPORTED"
    UNSUPPORTED_OPERATION = "UNSUPPORTED_OPERATION"
    CONTENT_TYPE_NOT_SUPPORTED = "CONTENT_TYPE_NOT_SUPPORTED"
    INVALID_AGENT_RESPONSE = "INVALID_AGENT_RESPONSE"
    EXTENDED_AGENT_CARD_NOT_CONFIGURED = "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
    EXTENSION_SUPPORT_REQUIRED = "EXTENSION_SUPPORT_REQUIRED"
    VERSION_NOT_SUPPORTED = "VERSION_NOT_SUPPORTED"
    PARSE_ERROR = "PARSE_ERROR"
    INVALID_REQUEST = "INVALID_REQUEST"
    METHOD_NOT_FOUND = "METHOD_NOT_FOUND"
    INVALID_PARAMS = "INVALID_PARAMS"
    INTERNAL_ERROR = "INTERNAL_ERROR"


class A2aErrorRow(NamedTuple):
    """An error in each binding, and the code for it if a peer sends it."""

    rpc: int
    status: int
    grpc: str
    code: Code


# Sections 5.4 and 9.5 of the specification.
ERRORS: dict[Error, A2aErrorRow] = {
    Error.TASK_NOT_FOUND: A2aErrorRow(-32001, 404, "NOT_FOUND", Code.NOT_FOUND),
    Error.TASK_NOT_CANCELABLE: A2aErrorRow(-32002, 400, "FAILED_PRECONDITION", Code.STATE_CONFLICT),
    Error.PUSH_NOTIFICATION_NOT_SUPPORTED: A2aErrorRow(-32003, 400, "FAILED_PRECONDITION", Code.DELEGATION_FAILED),
    Error.UNSUPPORTED_OPERATION: A2aErrorRow(-32004, 400, "FAILED_PRECONDITION", Code.STATE_CONFLICT),
    Error.CONTENT_TYPE_NOT_SUPPORTED: A2aErrorRow(-32005, 415, "INVALID_ARGUMENT", Code.INPUT_VALIDATION_FAILED),
    Error.INVALID_AGENT_RESPONSE: A2aErrorRow(-32006, 500, "INTERNAL", Code.RESULT_VALIDATION_FAILED),
    Error.EXTENDED_AGENT_CARD_NOT_CONFIGURED: A2aErrorRow(-32007, 400, "FAILED_PRECONDITION", Code.DELEGATION_FAILED),
    Error.EXTENSION_SUPPORT_REQUIRED: A2aErrorRow(-32008, 400, "FAILED_PRECONDITION", Code.PERMISSION_DENIED),
    Error.VERSION_NOT_SUPPORTED: A2aErrorRow(-32009, 400, "FAILED_PRECONDITION", Code.VERSION_UNSUPPORTED),
    Error.PARSE_ERROR: A2aErrorRow(-32700, 400, "INVALID_ARGUMENT", Code.DELEGATION_FAILED),
    Error.INVALID_REQUEST: A2aErrorRow(-32600, 400, "INVALID_ARGUMENT", Code.DELEGATION_FAILED),
    Error.METHOD_NOT_FOUND: A2aErrorRow(-32601, 404, "NOT_FOUND", Code.DELEGATION_FAILED),
    Error.INVALID_PARAMS: A2aErrorRow(-32602, 400, "INVALID_ARGUMENT", Code.INPUT_VALIDATION_FAILED),
    Error.INTERNAL_ERROR: A2aErrorRow(-32603, 500, "INTERNAL", Code.DELEGATION_FAILED),
}

# Problems of a message are problems of its parameters, whatever our code for them.
_OF_CODE = {
    Code.MALFORMED_ENVELOPE: Error.INVALID_PARAMS,
    Code.INPUT_VALIDATION_FAILED: Error.INVALID_PARAMS,
    Code.DUPLICATE_REQUEST: Error.INVALID_PARAMS,
    Code.CAPABILITY_NOT_FOUND: Error.INVALID_PARAMS,
    Code.UNSUPPORTED_MEDIA_TYPE: Error.CONTENT_TYPE_NOT_SUPPORTED,
    Code.DELEGATION_FAILED: Error.INTERNAL_ERROR,
    Code.OUTCOME_UNKNOWN: Error.INTERNAL_ERROR,
    Code.RESULT_VALIDATION_FAILED: Error.INVALID_AGENT_RESPONSE,
}

# A request refused with one of these may be sent again, or was never for this client: it has no task.
TASKLESS = frozenset(_OF_CODE) | {
    Code.RATE_LIMITED,
    Code.OVERLOADED,
    Code.STORE_UNAVAILABLE,
    Code.DELEGATION_UNAVAILABLE,
    Code.USER_MISMATCH,
    Code.AGENT_NOT_FOUND,
    Code.VERSION_UNSUPPORTED,
    Code.TOO_LARGE,
}

_GRPC = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    415: "INVALID_ARGUMENT",
    422: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Declined(Exception):
    """A request cannot be served, for a reason that A2A defines."""

    def __init__(
        self,
        error: Error,
        message: str,
        *,
        about: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.about = dict(about or {})
        """Details of the case: the id of the task, the supported versions."""
        self.fields = dict(fields or {})
        """The invalid fields, with what is wrong."""


class ErrorBody(Struct, frozen=True, kw_only=True):
    """An error as both bindings write it, apart from its number."""

    message: str
    details: tuple[Json, ...]
    rpc: int
    status: int
    grpc: str
    retry_after_ms: int | None = None


def error_body(why: Declined | RemitError) -> ErrorBody:
    """Return an error as it is written for a client."""
    if isinstance(why, Declined):
        row = ERRORS[why.error]
        details = [_info(why.error, DOMAIN, why.about), *_violations(why.fields), _for_users(fault(row.code, ""))]
        return ErrorBody(message=why.message, details=tuple(details), rpc=row.rpc, status=row.status, grpc=row.grpc)
    return _fault_body(why.fault.outward())


def _fault_body(why: Fault) -> ErrorBody:
    error = _OF_CODE.get(why.code)
    about = {"suggestion": why.suggestion} if why.suggestion else {}
    if why.retry_after_ms is not None:
        about["retryAfterMs"] = str(why.retry_after_ms)
    details = [_info(why.code, OWN_DOMAIN, about)]
    if error is not None:
        details.insert(0, _info(error, DOMAIN, {}))
    # The user is named only in the extension.
    places = {"$.user": f"message.metadata.{EXTENSION}.user"}
    fields = {places.get(each.path, each.path.removeprefix("$.")): each.message for each in why.problems}
    details += [*_violations(fields), _for_users(why)]
    status = TABLE[why.code].status
    row = ERRORS[error] if error is not None else A2aErrorRow(OWN_RPC, status, _GRPC.get(status, "INTERNAL"), why.code)
    return ErrorBody(
        message=why.message,
        details=tuple(details),
        rpc=row.rpc,
        status=row.status,
        grpc=row.grpc,
        retry_after_ms=why.retry_after_ms,
    )


def _info(reason: str, domain: str, about: Mapping[str, str]) -> Json:
    return {"@type": ERROR_INFO, "reason": reason, "domain": domain, **({"metadata": dict(about)} if about else {})}


def _for_users(why: Fault) -> Json:
    return {"@type": LOCALIZED_MESSAGE, "locale": "en", "message": plain_failure(why)}


def _violations(fields: Mapping[str, str]) -> list[Json]:
    if not fields:
        return []
    return [{"@type": BAD_REQUEST, "fieldViolations": [{"field": f, "description": d} for f, d in fields.items()]}]


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Violation(Struct, frozen=True, kw_only=True):
    field: str = ""
    description: str = ""


class Detail(Struct, frozen=True, kw_only=True, rename={"kind": "@type", "violations": "fieldViolations"}):
    """One of the details of an error, as far as it is understood."""

    kind: str = ""
    reason: str = ""
    domain: str = ""
    metadata: dict[str, Json] = {}
    violations: tuple[_Violation, ...] = ()


class PeerError(Struct, frozen=True, kw_only=True):
    """An error as a peer writes it in either binding."""

    code: int = 0
    message: str = ""
    details: Json = None
    data: Json = None


Reason = Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]{0,62}\Z")]

_OF_RPC = {row.rpc: error for error, row in ERRORS.items()}


def fault_from_error(code: int, message: str, details: tuple[Detail, ...], peer: str, status: int = 0) -> Fault:
    """Return a peer's error as a fault: ours if it is one of ours, else the nearest, with the peer's own reason."""
    infos = [each for each in details if each.kind == ERROR_INFO and each.reason]
    text = message.strip()[:1_000] or "it gave no reason"
    problems = tuple(
        Problem(f"$.{each.field[:200]}", each.description[:500])
        for detail in details
        for each in detail.violations[:100]
    )
    for info in infos:
        if info.domain == OWN_DOMAIN and info.reason in Code.__members__:
            wait = str(info.metadata.get("retryAfterMs", ""))
            wait_ms = int(wait) if wait.isdecimal() and len(wait) <= 9 else None
            return fault(Code[info.reason], text, problems=problems, retry_after_ms=wait_ms)
    reason = next((each.reason[:100] for each in infos), None)
    error = _OF_RPC.get(code) or (Error(reason) if reason in Error.__members__ else None)
    if error is not None:
        return fault(ERRORS[error].code, f"{peer} declined: {text}", problems=problems, foreign=reason or error)
    own = {401: Code.UNAUTHENTICATED, 403: Code.PERMISSION_DENIED, 404: Code.AGENT_NOT_FOUND, 413: Code.TOO_LARGE,
           429: Code.RATE_LIMITED, 503: Code.DELEGATION_UNAVAILABLE, 504: Code.TIMEOUT}.get(status)  # fmt: skip
    return fault(own or Code.DELEGATION_FAILED, f"{peer} declined: {text}", problems=problems, foreign=reason)
