"""Spans and figures as OTLP messages, by the encoders of the OpenTelemetry SDK."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from opentelemetry.exporter.otlp.proto.common import metrics_encoder, trace_encoder
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import TraceFlags

from remit.runtime.engine import AgentStatus
from remit.runtime.metrics import HubMetrics
from remit.telemetry.sdk import metrics_data, readable_span
from remit.telemetry.span import Span, Value

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
