"""The sub-agent dialect: the arguments of a model's tool `sub_agent`, and its result."""

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from remit.protocol import envelope
from remit.protocol.codec import encode, malformed, text_of
from remit.protocol.envelope import PREVIEW_LENGTH, VERSION, Json, Request, Response, Text, Usage
from remit.protocol.errors import Code, Fault, Problem, RemitError, fault, in_sentences
from remit.protocol.generous import with_warnings
from remit.protocol.lifecycle import Status
from remit.protocol.remit import CONTEXT_TOKENS, MAX_INTEGER, Count, Name, Names
from remit.protocol.submission import Submission
from remit_server.dialects.claims import KEY, beyond, bounded, flat, refined, refined_answer
from remit_server.dialects.exchange import (
    JSON,
    ForeignMessage,
    answered_by,
    fault_of,
    header,
    in_time,
    read_envelope,
    read_reply,
    refuse_another,
    reply_with_status,
    sentence,
    settled,
    status_of,
)

# The document's time limit for a call; the arguments state none.
TIME_MS = 300_000

# ── the document's words ──────────────────────────────────────────────────────────────────────────────────────────────


class SubAgentContext(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which part of the caller's conversation the sub-agent may see."""

    last_messages: Count | None = None
    roles: Names | None = None
    keywords: Annotated[tuple[envelope.Keyword, ...], Meta(max_length=100)] | None = None
    include_summary: bool | None = None
    include_workspace: bool | None = None
    workspace_files: Annotated[tuple[envelope.FilePath, ...], Meta(max_length=100)] | None = None
    max_age_seconds: Count | None = None
    known: envelope.Known | None = None
    """Not from the document: which notes of the conversation pass besides the messages."""


class SubAgentArgs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The arguments of the tool."""

    agent_name: Name
    task: Text
    context: SubAgentContext | None = None
    input: Json = None
    max_context_tokens: Count | None = None
    allowed_tools: Names | None = None
    allow_nested_calls: bool | None = None


class SubAgentCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A call of the tool. The document has no further fields; `remit` is beside the arguments."""

    args: SubAgentArgs
    tool: Literal["sub_agent"]
    remit: dict[str, Json] | None = None


class SubAgentResult(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The result of the tool; `remit` only for callers that sent it."""

    agent_name: Name
    success: bool
    output: str
    tool_calls: tuple[str, ...]
    tokens_used: Count
    duration_seconds: Count
    errors: tuple[str, ...]
    remit: dict[str, Json] | None = None


class _Wrapped(Struct, frozen=True):
    tool: Json = None
    args: Json = None


# ── the dialect ───────────────────────────────────────────────────────────────────────────────────────────────────────


class SubAgent:
    """The tool that calls sub-agents."""

    def submission(self, message: ForeignMessage) -> Submission:
        call = _call(message.body)
        refuse_another(message, "agent_name", call.args.agent_name)
        parsed = _read_request(call.args, message.headers.get("traceparent"))
        return bounded(refined(parsed, call.remit or {}, (KEY,), _write_request), parsed)

    def reply(self, response: Response, message: ForeignMessage) -> ForeignMessage:
        response = settled(response)
        words = _write_response(response)
        if _is_known_to(message):
            words = replace(words, remit=beyond(response, _read_response(words, response.id)) or None)
        return reply_with_status(response, encode(words))

    def request(self, request: Request) -> ForeignMessage:
        meant = flat(request)
        args = _write_request(meant)
        headers = {**JSON, **header("traceparent", request.traceparent or "")}
        lost = beyond(meant, _read_request(args, headers.get("traceparent")))
        call = SubAgentCall(tool="sub_agent", args=args, remit=lost or None)
        return ForeignMessage(headers=headers, body=encode(call), target=request.target)

    def response(self, given: ForeignMessage, request: Request) -> Response:
        with answered_by(request):
            read = read_reply(given, SubAgentResult, request, _BLANKS | {"agent_name": request.target})
            if isinstance(read, Response):
                return read
            words, warnings = read
            if words.agent_name != request.target:
                raise RemitError(malformed((Problem("$.agent_name", "is not the agent that was asked"),)))
            parsed = _read_response(words, request.id)
            if any(each.startswith("$.tokens_used") for each in warnings):
                parsed = replace(parsed, usage=Usage(estimated=True))
            response = refined_answer(parsed, words.remit or {}, (KEY,), _write_response)
            return with_warnings(in_time(response, given), warnings)


DIALECT = SubAgent()


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _call(body: bytes) -> SubAgentCall:
    """Return a call of the tool, whether it names the tool or is only its arguments."""
    wrapped = read_envelope(body, _Wrapped)
    if wrapped.tool is None and wrapped.args is None:
        return SubAgentCall(tool="sub_agent", args=read_envelope(body, SubAgentArgs))
    return read_envelope(body, SubAgentCall)


def _is_known_to(message: ForeignMessage) -> bool:
    """Return whether a client sent claims: a model that did not would read them in vain."""
    try:
        return _call(message.body).remit is not None
    except RemitError:
        return False


def _read_request(args: SubAgentArgs, traceparent: str | None) -> Submission:
    wanted = args.context or SubAgentContext()
    return Submission(
        target=args.agent_name,
        deadline_ms=TIME_MS,
        context_tokens=CONTEXT_TOKENS if args.max_context_tokens is None else args.max_context_tokens,
        tools=args.allowed_tools,
        may_delegate=bool(args.allow_nested_calls),
        objective=args.task,
        input=args.input,
        # Without a filter a sub-agent sees the newest messages that fit, which is what an empty filter asks for.
        context=envelope.ContextFilter(
            last_messages=wanted.last_messages,
            roles=wanted.roles,
            keywords=wanted.keywords,
            include_summary=bool(wanted.include_summary),
            include_workspace=bool(wanted.include_workspace),
            workspace_files=wanted.workspace_files,
            max_age_seconds=wanted.max_age_seconds,
            known=wanted.known or "none",
        ),
        traceparent=traceparent,
    )


def _write_request(meant: Submission) -> SubAgentArgs:
    wanted = meant.context
    return SubAgentArgs(
        agent_name=meant.target,
        task=meant.objective or text_of(meant.input)[:PREVIEW_LENGTH],
        context=_NOTHING
        if wanted is None
        else SubAgentContext(
            last_messages=wanted.last_messages,
            roles=wanted.roles,
            keywords=wanted.keywords,
            include_summary=wanted.include_summary or None,
            include_workspace=wanted.include_workspace or None,
            workspace_files=wanted.workspace_files,
            max_age_seconds=wanted.max_age_seconds,
            known=None if wanted.known == "none" else wanted.known,
        ),
        input=meant.input,
        max_context_tokens=meant.context_tokens,
        allowed_tools=None if meant.tools is None else frozenset(meant.tools),
        allow_nested_calls=meant.may_delegate,
    )


# A request of ours without a filter shows no message.
_NOTHING = SubAgentContext(last_messages=0)


# ── results ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write_response(response: Response) -> SubAgentResult:
    why = response.fault
    errors = () if why is None else (f"{why.code}: {in_sentences(sentence(why), why.suggestion)}",)
    return SubAgentResult(
        agent_name=response.target,
        success=response.ok,
        output=text_of(response.result),
        tool_calls=response.tool_calls,
        tokens_used=min(response.usage.total, MAX_INTEGER),
        duration_seconds=response.duration_ms // 1_000,
        errors=(*errors, *response.warnings),
    )


def _read_response(words: SubAgentResult, id: str) -> Response:
    why = None if words.success else _why(words)
    return Response(
        version=VERSION,
        id=id,
        target=words.agent_name,
        status=Status.SUCCESS if why is None else status_of(why.code),
        result=words.output,
        tool_calls=words.tool_calls,
        # The split into input and output tokens is not stated.
        usage=Usage(completion=words.tokens_used),
        duration_ms=min(words.duration_seconds * 1_000, MAX_INTEGER),
        fault=why,
        warnings=words.errors if why is None else words.errors[1:],
    )


# What a result may leave out.
_BLANKS: dict[str, Json] = {"tool_calls": [], "tokens_used": 0, "duration_seconds": 0, "errors": []}


def _why(words: SubAgentResult) -> Fault:
    if not words.errors:
        return fault(Code.DELEGATION_FAILED, f"{words.agent_name} gave no reason")
    code, colon, message = words.errors[0].partition(": ")
    if colon and code in Code.__members__:
        return fault(Code(code), message, suggestion="")
    return fault_of(words.errors[0])
