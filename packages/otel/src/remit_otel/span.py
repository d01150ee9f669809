"""Spans as they are delivered, and the attributes of a delegation's span."""

import re
from enum import IntEnum
from typing import NamedTuple, cast

from msgspec import Struct

from remit.protocol.codec import encode, text_of
from remit.protocol.envelope import MODEL, Json, Request, Response, Usage
from remit.protocol.trace import span_id, trace_id
from remit_otel import names

Value = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, Value]


class SpanKind(IntEnum):
    """The side of a call that a span describes, with OpenTelemetry's numbers."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


class SpanEvent(NamedTuple):
    """Something that happened during a span."""

    name: str
    at_ns: int
    attributes: Attributes


class SpanLink(NamedTuple):
    """A reference to a related span."""

    trace: str
    span: str


class Span(Struct, frozen=True, kw_only=True):
    """One finished operation in a trace."""

    trace: str
    span: str
    parent: str | None
    parent_elsewhere: bool = False
    """Whether the parent span belongs to another process."""
    name: str
    kind: SpanKind = SpanKind.INTERNAL
    start_ns: int
    end_ns: int
    attributes: Attributes
    error: str | None = None
    """Why the operation failed; None if it did not."""
    events: tuple[SpanEvent, ...] = ()
    lost_events: int = 0
    links: tuple[SpanLink, ...] = ()


# People read content in a span, and nobody reads more of it than this.
MAX_TEXT_CHARS = 10_000


def add_outcome(attributes: Attributes, request: Request, response: Response, own: Usage, *, never_began: bool) -> None:
    """Add how a delegation ended; *own* is what it spent without the spans below it."""
    attributes[names.STATUS] = response.status.value
    if never_began:
        return
    usage, remit = response.usage, request.remit
    attributes[names.AGENT_VERSION] = response.agent_version
    attributes[names.INPUT_TOKENS] = own.prompt
    attributes[names.OUTPUT_TOKENS] = own.completion
    attributes[names.ALL_INPUT] = usage.prompt
    attributes[names.ALL_OUTPUT] = usage.completion
    attributes[names.TOKENS_LEFT] = max(0, remit.tokens - usage.total)
    attributes[names.TIME_LEFT] = max(0, remit.time_ms - response.duration_ms)
    attributes[names.QUEUED] = response.queued_ms
    if usage.overrun:
        attributes[names.TOKENS_OVERRUN] = usage.overrun
    if usage.cost or usage.priced:
        attributes[names.COST] = own.cost
        attributes[names.TOKENS_UNPRICED] = usage.unpriced
    if usage.estimated:
        attributes[names.TOKENS_ESTIMATED] = True
    if response.capability_version is not None:
        attributes[names.CAPABILITY_VERSION] = response.capability_version
    if response.confidence is not None:
        attributes[names.CONFIDENCE] = float(response.confidence)
    if response.cache != "none":
        attributes[names.CACHE] = response.cache
    if response.path:
        attributes[names.PATH] = response.path


def add_content(attributes: Attributes, request: Request, response: Response | None) -> None:
    """Add objective, input and result, in OpenTelemetry's format for messages."""
    texts = [request.objective, *([] if request.input is None else [text_of(request.input)])]
    attributes[names.INPUT_MESSAGES] = _message("user", *texts)
    if response is not None and response.result is not None:
        reason = "stop" if response.fault is None else "error"
        attributes[names.OUTPUT_MESSAGES] = _message("assistant", text_of(response.result), finish_reason=reason)


def _message(role: str, *texts: str, **more: str) -> str:
    # Truncated before it is encoded, so that the JSON stays valid.
    parts = [{"type": "text", "content": text[:MAX_TEXT_CHARS]} for text in texts if text]
    return encode([{"role": role, "parts": parts, **more}]).decode()


_ATTEMPT = re.compile(r"(?:~([0-9]{1,4}))?(?:\+([0-9]{1,4}))?\Z")


def attempt_of(path: str) -> tuple[int, str | None]:
    """Return the number of the attempt that a delegation's path stands for, and the path of the previous attempt.

    The second attempt at a step of a workflow has the path `run.npv~2`; a call by capability that went to another agent
    has `run.2+1`.
    """
    if "~" not in path and "+" not in path:
        return 1, None
    match = _ATTEMPT.search(path)
    assert match is not None, "the pattern matches the empty text"
    attempt, leg = int(match[1] or 1), int(match[2] or 0)
    if leg:
        return attempt + leg, path[: match.start(2) - 1] + (f"+{leg - 1}" if leg > 1 else "")
    if attempt > 1:
        return attempt, path[: match.start(1) - 1] + (f"~{attempt - 1}" if attempt > 2 else "")
    return 1, None


_PATH = re.compile(r"[0-9a-f]{32}(\.[^.]+)*")


def links_of(request: Request, trace: str) -> tuple[SpanLink, ...]:
    """Return a link to the span of the request that this one retries, if a hub made its id; *trace* is the own one."""
    before = request.retry_of
    if before is None or not _PATH.fullmatch(before):
        return ()
    run = before.partition(".")[0]
    return (SpanLink(trace if run == request.run else trace_id(run), span_id(before)),)


class ModelCall(NamedTuple):
    """A call of a model, as an answer tells of it."""

    model: str
    start_ms: int
    end_ms: int
    attributes: Attributes
    usage: Usage


def calls_of(response: Response) -> list[ModelCall]:
    """Return the calls of its model that an answer tells of; what cannot be read is left out."""
    match response.metadata.get(MODEL):
        case {"name": str(name), "calls": list()} as model:
            calls = cast("list[Json]", model["calls"])
            return [made for each in calls if (made := _call(name, each)) is not None]
        case _:
            return []


def _call(name: str, call: Json) -> ModelCall | None:
    match call:
        case {"at_ms": int(at_ms), "ms": int(ms), "input": int(prompt), "output": int(completion), **rest}:
            provider, _, model = name.rpartition(":")
            attributes: Attributes = {
                names.OPERATION: names.CHAT,
                names.PROVIDER: str(rest.get("provider") or provider or "unknown"),
                names.REQUEST_MODEL: model,
                names.INPUT_TOKENS: prompt,
                names.OUTPUT_TOKENS: completion,
            }
            if isinstance(cached := rest.get("cached"), int):
                attributes[names.CACHED_TOKENS] = cached
            if isinstance(answered := rest.get("model"), str):
                attributes[names.RESPONSE_MODEL] = answered
            if isinstance(finish := rest.get("finish"), str):
                attributes[names.FINISH_REASONS] = (finish,)
            return ModelCall(model, at_ms, at_ms + ms, attributes, Usage(prompt=prompt, completion=completion))
        case _:
            return None
