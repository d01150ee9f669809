"""Trace context (W3C): every run is a trace, or part of one that began elsewhere."""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

# Version 00: trace, span, flags; a trace or span of only zeros is invalid.
_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})", re.ASCII)
_IS_TRACE = re.compile(r"(?!0{32})[0-9a-f]{32}", re.ASCII)
_SAMPLED = 1

# The headers that are forwarded unread, and their longest size: as much as W3C asks everyone to accept.
PASSED = {"tracestate": 512, "baggage": 8_192}
_PLAIN = re.compile(r"[\t\x20-\x7e]+")


class TraceContext(NamedTuple):
    """A place in a trace: the trace, the parent span, and whether that span is kept."""

    trace: str
    span: str
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace}-{self.span}-{'01' if self.sampled else '00'}"


def place_of(traceparent: str | None) -> TraceContext | None:
    """Return the place that a `traceparent` names; None if it is invalid."""
    match = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent)
    return None if match is None else TraceContext(match[1], match[2], bool(int(match[3], 16) & _SAMPLED))


def trace_id(run: str, traceparent: str | None = None) -> str:
    """Return the trace of a run: the one that it came with, else its own."""
    place = place_of(traceparent)
    if place is not None:
        return place.trace
    # A run's id is 32 hexadecimal digits unless its request was made by hand.
    return run if _IS_TRACE.fullmatch(run) else _digits(run, 16)


def span_id(path: str) -> str:
    """Return the span id of a delegation, by its path in its run."""
    return _digits(path, 8)


def is_sampled(run: str, traceparent: str | None, ratio: float) -> bool:
    """Return whether the spans of a run are kept: as its sender decided, else by ratio, from the trace id alone."""
    place = place_of(traceparent)
    return place.sampled if place is not None else int(trace_id(run)[16:], 16) < ratio * 2**64


def passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the forwarded headers of a request: unread, unchanged, and only within the size limit."""
    forwarded = {name: headers[name] for name in PASSED if name in headers}
    if "tracestate" in forwarded and place_of(headers.get("traceparent")) is None:
        del forwarded["tracestate"]  # it means nothing without the place that it belongs to
    return {name: text for name, text in forwarded.items() if len(text) <= PASSED[name] and _PLAIN.fullmatch(text)}


def _digits(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()
