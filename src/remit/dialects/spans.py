"""Spans of systems that name a parent span alone, as places in a trace."""

import re

from remit.protocol.trace import TraceContext, place_of, span_id, trace_id

_SPAN = re.compile(r"(?!0{16})[0-9a-f]{16}", re.ASCII)


def below_span(span: str, traceparent: str | None) -> str | None:
    """Return the place in a trace of what was asked below *span*.

    Beside a `traceparent` a span is one of that trace. Alone it says nothing of its trace: then all that comes from the
    same span is one trace, whose id follows from it.
    """
    place = place_of(traceparent)
    if not span or (place is not None and not _SPAN.fullmatch(span)):
        return traceparent
    return str(_alone(span) if place is None else place._replace(span=span))


def span_above(parent: str, traceparent: str | None) -> str:
    """Return the span to name for what is asked at a place in a trace; without a trace, *parent*."""
    place = place_of(traceparent)
    return parent if place is None or (parent and place == _alone(parent)) else place.span


def _alone(span: str) -> TraceContext:
    return TraceContext(trace_id(f"span {span}"), span if _SPAN.fullmatch(span) else span_id(span), sampled=True)
