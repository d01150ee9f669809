"""Spans and figures as the OpenTelemetry SDK represents them, and as OTLP messages by its encoders."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from opentelemetry.exporter.otlp.proto.common import metrics_encoder, trace_encoder
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from remit import __version__
from remit.runtime.agent_status import BUCKETS, PHASES, AgentStatus, HubMetrics
from remit_otel import names
from remit_otel.span import Attributes, Span, Value
from remit_otel.spans import MAX_EVENTS, MS

SCOPE = InstrumentationScope("remit", __version__, names.SCHEMA_URL)

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


# ── spans ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def readable_span(span: Span, resource: Resource, attributes: Attributes | None = None) -> ReadableSpan:
    """Return a span for an exporter, under its own ids and times; *attributes* replace those that it has."""
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace, span.span),
        parent=None if span.parent is None else _context(span.trace, span.parent, remote=span.parent_elsewhere),
        resource=resource,
        attributes=span.attributes if attributes is None else attributes,
        events=_events(span) if span.events else (),
        links=[Link(_context(each.trace, each.span)) for each in span.links],
        kind=SpanKind[span.kind.name],
        instrumentation_scope=SCOPE,
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=span.start_ns,
        end_time=span.end_ns,
    )


def _events(span: Span) -> BoundedList[Event]:
    events = BoundedList[Event](MAX_EVENTS)
    events.extend([Event(each.name, each.attributes, each.at_ns) for each in span.events])
    events.dropped += span.lost_events
    return events


def _context(trace: str, span: str, *, remote: bool = False) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), remote, _SAMPLED)


# ── figures ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def metrics_data(
    figures: HubMetrics, standing: Mapping[str, AgentStatus], at_ms: int, resource: Resource
) -> MetricsData:
    """Return what a hub has done so far, and the current state of its agents.

    The hub has counted already (`/metrics` of a server shows the same numbers), so that no instruments of the SDK count
    a second time.
    """
    metrics = [each for each in (*_totals(figures, at_ms), *_levels(standing, at_ms)) if each.data.data_points]
    scope = ScopeMetrics(scope=SCOPE, metrics=metrics, schema_url=names.SCHEMA_URL)
    return MetricsData([ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url=names.SCHEMA_URL)])


def _totals(figures: HubMetrics, at_ms: int) -> Iterable[Metric]:
    start, now = figures.since_ms * MS, at_ms * MS

    def total(name: str, unit: str, counts: Iterable[tuple[Mapping[str, str], int]]) -> Metric:
        points = [NumberDataPoint(labels, start, now, number) for labels, number in counts]
        return _metric(name, unit, Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True))

    ended = (({names.AGENT_NAME: agent, names.STATUS: status}, n) for (agent, status), n in figures.ended.items())
    yield total(names.ENDED, "{delegation}", ended)
    refused = (({names.AGENT_NAME: agent, names.ERROR: code}, n) for (agent, code), n in figures.refused.items())
    yield total(names.REFUSALS, "{request}", refused)
    spent = (("input", figures.prompt), ("output", figures.completion))
    tokens = (
        ({names.AGENT_NAME: agent, names.TOKEN_TYPE: kind}, n) for kind, counts in spent for agent, n in counts.items()
    )
    yield total(names.TOKENS, "{token}", tokens)
    yield total(names.LOST, "{span}", [({}, figures.lost_spans)])
    times = [
        HistogramDataPoint(
            attributes={names.AGENT_NAME: agent},
            start_time_unix_nano=start,
            time_unix_nano=now,
            count=sum(counts),
            sum=figures.spent_ms[agent] / 1_000,
            bucket_counts=counts,
            explicit_bounds=BUCKETS,
            # Optional in OTLP, though not by these types; the hub does not count them.
            min=None,  # pyright: ignore[reportArgumentType]
            max=None,  # pyright: ignore[reportArgumentType]
        )
        for agent, counts in figures.times.items()
    ]
    yield _metric(names.DURATIONS, "s", Histogram(times, AggregationTemporality.CUMULATIVE))


def _levels(standing: Mapping[str, AgentStatus], at_ms: int) -> Iterable[Metric]:
    def level(name: str, unit: str, levels: Iterable[tuple[str, int]]) -> Metric:
        now = at_ms * MS
        return _metric(
            name, unit, Gauge([NumberDataPoint({names.AGENT_NAME: agent}, now, now, n) for agent, n in levels])
        )

    yield level(names.RUNNING, "{delegation}", ((agent, each.running) for agent, each in standing.items()))
    yield level(names.QUEUED_NOW, "{delegation}", ((agent, each.queued) for agent, each in standing.items()))
    yield level(names.BREAKER, "1", ((agent, PHASES[each.breaker]) for agent, each in standing.items()))


def _metric(name: str, unit: str, data: Sum | Gauge | Histogram) -> Metric:
    return Metric(name=name, description=names.METRICS[name], unit=unit, data=data)


# Names, statuses and the ids of runs repeat; longer texts would only fill the cache.
MAX_CACHED_CHARS = 32


def encode_spans(spans: Sequence[Span], resource: Resource) -> bytes:
    """Return the body of a request that delivers spans.

    Attributes are encoded here, with a cache, because most of them repeat in every span: the SDK takes 145 µs for a
    span with 20 attributes, and 110 of them are for the attributes.
    """
    request = trace_encoder.encode_spans([readable_span(span, resource, {}) for span in spans])
    # All spans have the same resource and scope, so that the SDK keeps them together and in order.
    messages = request.resource_spans[0].scope_spans[0].spans if spans else ()
    for span, message in zip(spans, messages, strict=True):
        message.flags |= TraceFlags.SAMPLED  # which the SDK leaves out
        # A message followed by another of its type is both of them merged: that is how protobuf encodes.
        message.MergeFromString(b"".join([_attribute(name, value) for name, value in span.attributes.items()]))
    return request.SerializeToString()


def encode_figures(figures: HubMetrics, standing: Mapping[str, AgentStatus], at_ms: int, resource: Resource) -> bytes:
    """Return the body of a request that reports what a hub has done so far, and the current state of its agents."""
    return metrics_encoder.encode_metrics(metrics_data(figures, standing, at_ms, resource)).SerializeToString()


def rejected_spans(response: bytes) -> int:
    """Return how many spans a collector has rejected, by its response."""
    return ExportTraceServiceResponse.FromString(response).partial_success.rejected_spans


def _attribute(name: str, value: Value) -> bytes:
    """Return a span that has one attribute and nothing else."""
    if isinstance(value, str) and len(value) > MAX_CACHED_CHARS:
        return _encode_attribute(name, value)
    return _cached_attribute(name, value)


def _encode_attribute(name: str, value: Value) -> bytes:
    match value:
        case str():
            any_value = AnyValue(string_value=value)
        case bool():
            any_value = AnyValue(bool_value=value)
        case int():
            any_value = AnyValue(int_value=value)
        case float():
            any_value = AnyValue(double_value=value)
        case tuple():
            any_value = AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=each) for each in value]))
    return SpanMessage(attributes=[KeyValue(key=name, value=any_value)]).SerializeToString()


_cached_attribute = lru_cache(4_096, typed=True)(_encode_attribute)
