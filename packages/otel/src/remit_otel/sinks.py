"""Where spans and figures go: to a collector over HTTP, or to an exporter of the OpenTelemetry SDK."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from remit import __version__
from remit.runtime.agent_status import AgentStatus, HubMetrics
from remit_otel.collector import Collector, ssl_context
from remit_otel.exporter import Batch, UndeliveredError
from remit_otel.sdk import encode_figures, encode_spans, readable_span, rejected_spans
from remit_otel.span import Span

if TYPE_CHECKING:  # loaded with the first spans: it takes 240 ms, and not every command has something to send
    from aiohttp import ClientSession

# The SDK's exporters wait as long.
TIMEOUT_S = 10.0
# The response of a collector is a few bytes; a longer one is not read to its end.
MAX_RESPONSE_BYTES = 65_536
# A collector that asks for a longer pause is tried again after this one.
MAX_PAUSE_S = 60.0
# The hub has waited for its spans already when it shuts an exporter down.
SHUTDOWN_S = 1.0
# A span without its texts.
SPAN_BYTES = 1_000
_RETRYABLE = (429, 502, 503, 504)


class OtlpSink:
    """Sends to a collector, over connections that are kept.

    The encoding is the SDK's, the sending is not, since `OTLPSpanExporter` breaks what a hub promises: it sends the
    headers in `OTEL_EXPORTER_OTLP_HEADERS`, secrets as a rule, to any endpoint; it takes a redirect for a success and
    does not see which spans were rejected; it drops what it could not deliver within ten seconds and logs every
    attempt; and it blocks a thread that nobody can interrupt when the hub closes.
    """

    def __init__(self, collector: Collector, resource: Mapping[str, str]) -> None:
        self._collector = collector
        self._resource = Resource(resource)
        self._session: ClientSession | None = None

    def prepare(self, spans: Sequence[Span]) -> Batch:
        import_module("aiohttp")  # in this thread, because it would hold up the event loop
        body = encode_spans(spans, self._resource)
        return Batch(body, len(spans), len(body))

    async def deliver(self, batches: Sequence[Batch]) -> int:
        # Encoded requests in a row are one request with the spans of all of them: that is how protobuf merges.
        body = b"".join(cast("bytes", batch.payload) for batch in batches)
        response = await self._post(self._collector.traces, body)
        try:
            return min(sum(batch.spans for batch in batches), max(0, rejected_spans(response)))
        except DecodeError:  # not OTLP, but a success by its status
            return 0

    async def report(self, figures: HubMetrics, standing: Mapping[str, AgentStatus], at_ms: int) -> None:
        await self._post(self._collector.metrics, encode_figures(figures, standing, at_ms, self._resource))

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(self, url: str, body: bytes) -> bytes:
        from aiohttp import ClientError

        try:
            # No redirects: the headers may hold a secret that only this collector may see.
            async with self._open().post(url, data=body, allow_redirects=False) as response:
                content = await response.content.read(MAX_RESPONSE_BYTES)
                if response.status // 100 == 2:
                    return content
                retryable = response.status in _RETRYABLE
                after_s = _pause(response.headers.get("retry-after", "")) if retryable else None
                raise UndeliveredError(f"{_origin(url)} answered with status {response.status}", after_s)
        except (ClientError, OSError, TimeoutError) as error:
            raise UndeliveredError(f"{_origin(url)} cannot be reached ({type(error).__name__})", 0.0) from error

    def _open(self) -> "ClientSession":
        if self._session is None:
            from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

            certificate = self._collector.certificate
            self._session = ClientSession(
                connector=TCPConnector(ssl=True if certificate is None else ssl_context(certificate), limit=2),
                timeout=ClientTimeout(TIMEOUT_S),
                headers={
                    "user-agent": f"remit/{__version__}",
                    **self._collector.headers,
                    "content-type": "application/x-protobuf",
                },
                cookie_jar=DummyCookieJar(),
                trust_env=True,
            )
        return self._session


class ExporterSink:
    """Hands spans to an exporter of the SDK, in a thread; figures are not for it."""

    def __init__(self, exporter: SpanExporter, resource: Mapping[str, str]) -> None:
        self._exporter = exporter
        self._resource = Resource(resource)

    def prepare(self, spans: Sequence[Span]) -> Batch:
        exported = [readable_span(span, self._resource) for span in spans]
        return Batch(exported, len(spans), sum(map(_size, spans)))

    async def deliver(self, batches: Sequence[Batch]) -> int:
        spans = [span for batch in batches for span in cast("list[ReadableSpan]", batch.payload)]
        result = await asyncio.to_thread(self._exporter.export, spans)
        return 0 if result is SpanExportResult.SUCCESS else len(spans)

    async def report(self, figures: HubMetrics, standing: Mapping[str, AgentStatus], at_ms: int) -> None:
        del figures, standing, at_ms

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_S):
                await asyncio.to_thread(self._exporter.shutdown)


def _pause(retry_after: str) -> float:
    return min(float(retry_after), MAX_PAUSE_S) if retry_after.isdecimal() and len(retry_after) < 6 else 0.0


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _size(span: Span) -> int:
    """Return about how many bytes a span takes in memory."""
    texts = (span.attributes, *(event.attributes for event in span.events))
    return SPAN_BYTES + sum(len(text) for each in texts for text in each.values() if isinstance(text, str))
