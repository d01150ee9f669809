"""What a collector is sent: the messages that OpenTelemetry's own exporter would send."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans as encode_as_the_sdk_does
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource

from collector import plain, rejecting, values_of
from remit import Code, Response, Status, Usage, fault
from remit.policy.breaker import Phase
from remit.protocol.envelope import VERSION
from remit.protocol.records import Kind, Record, Refusal
from remit.runtime.agent_status import BUCKETS, OTHERS, AgentStatus, HubMetrics
from remit_otel import names
from remit_otel.sdk import encode_figures, encode_spans, readable_span, rejected_spans
from remit_otel.span import Span, SpanEvent, SpanKind, SpanLink
from remit_testing.samples import a_request

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
keys = st.sampled_from(sorted(names.ATTRIBUTES)) | st.text("abc.é", min_size=1, max_size=200)
values = (
    texts | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False) | st.lists(texts).map(tuple)
)
attributes = st.dictionaries(keys, values, max_size=8)
traces = st.integers(1, 2**128 - 1).map("{:032x}".format)
ids = st.integers(1, 2**64 - 1).map("{:016x}".format)
times = st.integers(0, 2**63 - 1)
events = st.builds(SpanEvent, texts, times, attributes)


@st.composite
def any_span(draw: st.DrawFn) -> Span:
    parent = draw(st.none() | ids)
    return Span(
        trace=draw(traces),
        span=draw(ids),
        parent=parent,
        parent_elsewhere=parent is not None and draw(st.booleans()),
        name=draw(texts),
        kind=draw(st.sampled_from(SpanKind)),
        start_ns=draw(times),
        end_ns=draw(times),
        attributes=draw(attributes),
        error=draw(st.none() | texts),
        events=tuple(draw(st.lists(events, max_size=3))),
        links=tuple(draw(st.lists(st.builds(SpanLink, traces, ids), max_size=2))),
    )


@given(st.lists(any_span(), min_size=1, max_size=4))
def test_spans_are_written_as_the_sdk_writes_them(spans: list[Span]) -> None:
    resource = Resource({"service.name": "here", "other": "x" * 300})
    ours = ExportTraceServiceRequest.FromString(encode_spans(spans, resource))
    theirs = encode_as_the_sdk_does([readable_span(span, resource) for span in spans])
    for span in theirs.resource_spans[0].scope_spans[0].spans:
        span.flags |= 1  # it leaves out that a span is sampled
    assert ours == theirs


@given(st.lists(any_span(), min_size=2, max_size=4))
def test_encoded_requests_in_a_row_are_one_request_with_all_spans(spans: list[Span]) -> None:
    resource = Resource({"service.name": "here"})
    joined = ExportTraceServiceRequest.FromString(b"".join(encode_spans([span], resource) for span in spans))
    whole = ExportTraceServiceRequest.FromString(encode_spans(spans, resource))
    assert [span for traced in joined.resource_spans for span in traced.scope_spans[0].spans] == list(
        whole.resource_spans[0].scope_spans[0].spans
    )


def test_no_spans_are_an_empty_request() -> None:
    assert encode_spans([], Resource({})) == b""


def test_a_collector_says_how_many_spans_it_rejected() -> None:
    assert (rejected_spans(b""), rejected_spans(rejecting(2))) == (0, 2)


def test_a_span_says_that_it_is_sampled_and_how_many_events_it_has_lost() -> None:
    span = Span(
        trace="1" * 32,
        span="2" * 16,
        parent=None,
        name="x",
        start_ns=1,
        end_ns=2,
        attributes={},
        events=(SpanEvent("e", 1, {}),),
        lost_events=3,
    )
    request = ExportTraceServiceRequest.FromString(encode_spans([span], Resource({})))
    (sent,) = request.resource_spans[0].scope_spans[0].spans
    assert (sent.flags & 1, sent.dropped_events_count, sent.parent_span_id) == (1, 3, b"")
    assert request.resource_spans[0].scope_spans[0].scope.name == "remit"


# ── figures ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def counted() -> HubMetrics:
    figures = HubMetrics(lambda name: name == "prime", since_ms=1_000)
    request = a_request()
    why = Response(
        version=VERSION, id="x", target="prime", status=Status.REFUSED, fault=fault(Code.LOOP_DETECTED, "again")
    )
    bodies: list[Any] = [
        Response(
            version=VERSION,
            id=str(number),
            target="prime",
            status=Status.SUCCESS if number else Status.FAILED,
            usage=Usage(prompt=10, completion=1),
            duration_ms=duration_ms,
        )
        for number, duration_ms in enumerate((0, 5, 6, 400_000))
    ]
    refusals = [Refusal(request=request, response=why)]
    for body in [*bodies, *refusals]:
        kind = Kind.RESULT if isinstance(body, Response) else Kind.REFUSED
        figures.count([Record(seq=1, kind=kind, at_ms=1, run="r", session="s", body=body)])
    figures.lost_spans = 7
    return figures


def points(metric: Any) -> dict[tuple[str, ...], Any]:
    data = getattr(metric, metric.WhichOneof("data"))
    return {tuple(plain(each.value) for each in point.attributes): point for point in data.data_points}


def test_figures_are_reported_as_sums_a_histogram_and_gauges() -> None:
    standing = {"prime": AgentStatus(2, 3, Phase.OPEN), "tax": AgentStatus(0, 0, Phase.CLOSED)}
    body = encode_figures(counted(), standing, 5_000, Resource({"service.name": "here"}))
    (metered,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    assert values_of(metered.resource.attributes) == {"service.name": "here"}
    metrics = {metric.name: metric for metric in metered.scope_metrics[0].metrics}
    assert set(metrics) == set(names.METRICS)
    values = {
        name: {labels: point.as_int for labels, point in points(metrics[name]).items()}
        for name in names.METRICS
        if name != names.DURATIONS
    }
    assert values == {
        names.ENDED: {("prime", "success"): 3, ("prime", "failed"): 1},
        names.REFUSALS: {("prime", "LOOP_DETECTED"): 1},
        names.TOKENS: {("prime", "input"): 40, ("prime", "output"): 4},
        names.LOST: {(): 7},
        names.RUNNING: {("prime",): 2, ("tax",): 0},
        names.QUEUED_NOW: {("prime",): 3, ("tax",): 0},
        names.BREAKER: {("prime",): 2, ("tax",): 0},
    }
    (times,) = points(metrics[names.DURATIONS]).values()
    assert (times.count, times.sum, list(times.explicit_bounds)) == (4, 400.011, list(BUCKETS))
    assert list(times.bucket_counts) == [2, 1, *[0] * 12, 1]
    assert (times.start_time_unix_nano, times.time_unix_nano) == (1_000_000_000, 5_000_000_000)
    assert (metrics[names.ENDED].sum.is_monotonic, metrics[names.ENDED].sum.aggregation_temporality) == (True, 2)


def test_those_who_are_not_there_share_one_name_in_the_figures() -> None:
    figures = HubMetrics(lambda _: False, since_ms=0)
    request = a_request()
    why = Response(version=VERSION, id="x", target="q", status=Status.REFUSED, fault=fault(Code.AGENT_NOT_FOUND, "?"))
    refusal = Refusal(request=request, response=why)
    figures.count([Record(seq=1, kind=Kind.REFUSED, at_ms=1, run="r", session="s", body=refusal)])
    assert figures.refused == {(OTHERS, "AGENT_NOT_FOUND"): 1}
