"""Spans and figures as OTLP writes them, in protobuf."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, SpanFlags, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

from remit import __version__
from remit.runtime.hub import Standing
from remit.runtime.metrics import BUCKETS, PHASES, Figures
from remit.telemetry import names
from remit.telemetry.span import Event, Link, Span, Value
from remit.telemetry.spans import MS

SCOPE = InstrumentationScope(name="remit", version=__version__)

_HERE = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_ELSEWHERE = _HERE | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
_SAMPLED = 1
# Names, statuses and small numbers come again with every span; what is longer is seldom the same twice.
_SHORT = 24


def resource_of(attributes: Mapping[str, str]) -> Resource:
    """Return what says whose spans and figures they are."""
    return Resource(attributes=[_attribute(name, text) for name, text in attributes.items()])


# ── spans ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode_spans(spans: Iterable[Span], resource: Resource) -> bytes:
    """Return the body of a request that delivers spans."""
    # A message is its fields one after another, so that the many can be put behind the few as they are: made of
    # objects, the attributes of a span alone would take three times as long as all of it.
    scope = b"".join((ScopeSpans(scope=SCOPE).SerializeToString(), *(_field(b"\x12", _span(span)) for span in spans)))
    traced = ResourceSpans(resource=resource).SerializeToString() + _field(b"\x12", scope)
    return _field(b"\x0a", traced)


def turned_down(body: bytes) -> int:
    """Return how many spans a collector has not taken, by its answer."""
    return ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans


def _span(span: Span) -> bytes:
    head = OtlpSpan(
        trace_id=bytes.fromhex(span.trace),
        span_id=bytes.fromhex(span.span),
        parent_span_id=bytes.fromhex(span.parent or ""),
        flags=_SAMPLED | (_ELSEWHERE if span.parent_elsewhere else _HERE),
        name=span.name,
        kind=OtlpSpan.SpanKind.ValueType(span.kind),
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        dropped_events_count=span.lost_events,
    )
    if span.events:
        head.events.extend(map(_event, span.events))
    if span.links:
        head.links.extend(map(_link, span.links))
    if span.error is not None:
        head.status.code = Status.STATUS_CODE_ERROR
        head.status.message = span.error
    told = [
        _field(_OF_SPAN, _text(name, value))
        if isinstance(value, str) and len(value) > _SHORT
        else _of_span(name, value)
        for name, value in span.attributes.items()
    ]
    return b"".join((head.SerializeToString(), *told))


# Attributes of a span are its field 9, a message.
_OF_SPAN = b"\x4a"


@lru_cache(4_096, typed=True)
def _of_span(name: str, value: Value) -> bytes:
    return _field(_OF_SPAN, _attribute(name, value).SerializeToString())


@lru_cache(256)
def _key(name: str) -> bytes:
    return KeyValue(key=name).SerializeToString()


def _text(name: str, text: str) -> bytes:
    """Return an attribute that is a text: its key, and as its value (field 2) a message of that text (field 1)."""
    return _key(name) + _field(b"\x12", _field(b"\x0a", text.encode()))


def _field(tag: bytes, message: bytes) -> bytes:
    """Return a field that is a message, or a text: its tag, how long it is, and itself."""
    size = len(message)
    if size < 0x80:
        return tag + _SIZES[size] + message
    length = bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return tag + length + message


_SIZES = [bytes((size,)) for size in range(0x80)]


def _event(event: Event) -> OtlpSpan.Event:
    return OtlpSpan.Event(name=event.name, time_unix_nano=event.at_ns, attributes=_attributes(event.attributes))


def _link(link: Link) -> OtlpSpan.Link:
    return OtlpSpan.Link(trace_id=bytes.fromhex(link.trace), span_id=bytes.fromhex(link.span))


def _attributes(attributes: Mapping[str, Value]) -> list[KeyValue]:
    return [_attribute(name, value) for name, value in attributes.items()]


def _attribute(name: str, value: Value) -> KeyValue:
    return KeyValue(key=name, value=_value(value))


def _value(value: Value) -> AnyValue:
    match value:
        case str():
            return AnyValue(string_value=value)
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case tuple():
            return AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=each) for each in value]))


# ── figures ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode_figures(figures: Figures, standing: Mapping[str, Standing], at_ms: int, resource: Resource) -> bytes:
    """Return the body of a request that reports what a hub has done so far, and how its agents stand."""
    metrics = [*_counted(figures, at_ms), *_standing(standing, at_ms)]
    scope = ScopeMetrics(scope=SCOPE, metrics=metrics)
    return ExportMetricsServiceRequest(
        resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])]
    ).SerializeToString()


def _counted(figures: Figures, at_ms: int) -> Iterable[Metric]:
    start, now = figures.since_ms * MS, at_ms * MS

    def total(name: str, unit: str, counts: Iterable[tuple[Mapping[str, Value], int]]) -> Metric:
        points = [
            NumberDataPoint(
                attributes=_attributes(labels), start_time_unix_nano=start, time_unix_nano=now, as_int=number
            )
            for labels, number in counts
        ]
        counted = Sum(data_points=points, is_monotonic=True, aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE)
        return Metric(name=name, description=names.METRICS[name], unit=unit, sum=counted)

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
    times = Histogram(
        data_points=[
            HistogramDataPoint(
                attributes=_attributes({names.AGENT_NAME: agent}),
                start_time_unix_nano=start,
                time_unix_nano=now,
                count=sum(counts),
                sum=figures.spent_ms[agent] / 1_000,
                bucket_counts=counts,
                explicit_bounds=BUCKETS,
            )
            for agent, counts in figures.times.items()
        ],
        aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE,
    )
    yield Metric(name=names.DURATIONS, description=names.METRICS[names.DURATIONS], unit="s", histogram=times)


def _standing(standing: Mapping[str, Standing], at_ms: int) -> Iterable[Metric]:
    def level(name: str, unit: str, levels: Iterable[tuple[str, int]]) -> Metric:
        points = [
            NumberDataPoint(attributes=_attributes({names.AGENT_NAME: agent}), time_unix_nano=at_ms * MS, as_int=number)
            for agent, number in levels
        ]
        return Metric(name=name, description=names.METRICS[name], unit=unit, gauge=Gauge(data_points=points))

    yield level(names.RUNNING, "{delegation}", ((agent, each.running) for agent, each in standing.items()))
    yield level(names.QUEUED_NOW, "{delegation}", ((agent, each.queued) for agent, each in standing.items()))
    yield level(names.BREAKER, "1", ((agent, PHASES[each.breaker]) for agent, each in standing.items()))
