"""A collector that keeps what it is sent, as OTLP over HTTP brings it, and can be told to be out of order."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from waiting import PATIENCE_S

PATIENCE = PATIENCE_S


def plain(value: AnyValue) -> Any:
    """Return a value as Python has it."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None


def values_of(attributes: Any) -> dict[str, Any]:
    """Return attributes as a dictionary."""
    pairs: list[KeyValue] = list(attributes)
    return {each.key: plain(each.value) for each in pairs}


class Got(NamedTuple):
    """A span as it arrived, with the service that it is of."""

    service: str
    span: Span

    @property
    def name(self) -> str:
        return self.span.name

    @property
    def id(self) -> str:
        return self.span.span_id.hex()

    @property
    def parent(self) -> str:
        return self.span.parent_span_id.hex()

    @property
    def trace(self) -> str:
        return self.span.trace_id.hex()

    @property
    def kind(self) -> str:
        return Span.SpanKind.Name(self.span.kind).removeprefix("SPAN_KIND_")

    @property
    def failed(self) -> bool:
        return self.span.status.code == Status.STATUS_CODE_ERROR

    @property
    def attributes(self) -> dict[str, Any]:
        return values_of(self.span.attributes)


class Collector:
    """Serves in a thread, until the block ends."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, dict[str, str], bytes]] = []
        """What was sent: where to, beside which headers, and the body."""
        self.answer: Callable[[int], tuple[int, dict[str, str], bytes]] = lambda number: (200, {}, b"")
        """What is answered to a request, by its number; with another status than 200 it is not kept."""
        self._news = threading.Condition()
        self._request_count = 0
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status, headers, reply = collector._take(self.path, dict(self.headers.items()), body)
                self.send_response(status)
                for name, value in {"content-length": str(len(reply)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        with self._news:
            self._request_count += 1
            answer = self.answer(self._request_count)
            if answer[0] == 200:
                self.bodies.append((path, {name.lower(): value for name, value in headers.items()}, body))
            self._news.notify_all()
            return answer

    def wait(self, until: Callable[[], object]) -> None:
        """Return once something holds, looked at again after each request."""
        with self._news:
            assert self._news.wait_for(lambda: bool(until()), PATIENCE), "the collector waited in vain"

    @property
    def request_count(self) -> int:
        return self._request_count

    @property
    def spans(self) -> list[Got]:
        return [
            Got(values_of(traced.resource.attributes)["service.name"], span)
            for path, _, body in list(self.bodies)
            if path == "/v1/traces"
            for traced in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in traced.scope_spans
            for span in scope.spans
        ]

    @property
    def metrics(self) -> dict[str, Metric]:
        """The last report, by name."""
        reports = [body for path, _, body in list(self.bodies) if path == "/v1/metrics"]
        if not reports:
            return {}
        (metered,) = ExportMetricsServiceRequest.FromString(reports[-1]).resource_metrics
        (scope,) = metered.scope_metrics
        return {metric.name: metric for metric in scope.metrics}


def rejecting(number: int) -> bytes:
    """Return what a collector says that did not take so many of the spans."""
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = number
    return response.SerializeToString()
