"""Spans for an exporter that someone else wrote: anything that OpenTelemetry's SDK would hand spans to."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, TraceFlags
from opentelemetry.trace import SpanKind as OtelKind
from opentelemetry.trace.status import Status, StatusCode

from remit import __version__
from remit.runtime.hub import Standing
from remit.runtime.metrics import Figures
from remit.telemetry.span import Span, SpanKind

SCOPE = InstrumentationScope("remit", __version__)
# Whoever closes a hub has waited for its spans already.
SHUTDOWN_S = 1.0

_KINDS = {SpanKind.INTERNAL: OtelKind.INTERNAL, SpanKind.SERVER: OtelKind.SERVER, SpanKind.CLIENT: OtelKind.CLIENT}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class ForeignSink:
    """Hands spans to an exporter, in a thread; what becomes of them is up to it, and figures it takes none."""

    def __init__(self, exporter: SpanExporter, resource: Mapping[str, str]) -> None:
        self._exporter = exporter
        self._resource = Resource(resource)

    async def deliver(self, spans: Sequence[Span]) -> int:
        return await asyncio.to_thread(self._export, spans)

    async def report(self, figures: Figures, standing: Mapping[str, Standing], at_ms: int) -> None:
        del figures, standing, at_ms

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_S):
                await asyncio.to_thread(self._exporter.shutdown)

    def _export(self, spans: Sequence[Span]) -> int:
        taken = self._exporter.export([readable(span, self._resource) for span in spans])
        return 0 if taken is SpanExportResult.SUCCESS else len(spans)


def readable(span: Span, resource: Resource) -> ReadableSpan:
    """Return a span as the SDK has it, under its own ids and times."""
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace, span.span),
        parent=None if span.parent is None else _context(span.trace, span.parent, elsewhere=span.parent_elsewhere),
        resource=resource,
        attributes=span.attributes,
        events=[Event(each.name, each.attributes, each.at_ns) for each in span.events],
        links=[Link(_context(each.trace, each.span)) for each in span.links],
        kind=_KINDS[span.kind],
        instrumentation_scope=SCOPE,
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=span.start_ns,
        end_time=span.end_ns,
    )


def _context(trace: str, span: str, *, elsewhere: bool = False) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), elsewhere, _SAMPLED)
