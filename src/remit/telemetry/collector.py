"""A collector, and how spans and figures are sent to it: OTLP over HTTP."""

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from remit import __version__
from remit.runtime.hub import Standing
from remit.runtime.metrics import Figures
from remit.runtime.registry import team_invalid
from remit.telemetry.span import Span

if TYPE_CHECKING:  # it takes its time to load, and most hubs have no collector
    from aiohttp import ClientSession

INSTALL = "pip install 'remit[otel]'"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"

# As long as OpenTelemetry's own exporters wait.
TIMEOUT_S = 10.0
# A collector says little.
MOST_BYTES = 65_536
# Who asks for more patience than this is asked again all the same.
LONGEST_PAUSE_S = 60.0
_AGAIN = (429, 502, 503, 504)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TEXT = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class UndeliveredError(Exception):
    """A collector did not take what it was sent; after so many seconds it may, or (None) never."""

    def __init__(self, why: str, after_s: float | None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Sink(Protocol):
    """Where spans and figures go."""

    async def deliver(self, spans: Sequence[Span]) -> int:
        """Return how many were turned down, or raise `UndeliveredError`."""
        ...

    async def report(self, figures: Figures, standing: Mapping[str, Standing], at_ms: int) -> None:
        """Return once they have arrived, or raise `UndeliveredError`."""
        ...

    async def close(self) -> None: ...


class Collector(Struct, frozen=True, kw_only=True):
    """Where a collector is, and what it wants to be sent with every request."""

    traces: str
    metrics: str
    headers: dict[str, str] = {}
    certificate: str | None = None
    """A file with the certificates of those who may vouch for it; None: those that this machine trusts."""


def collector_at(endpoint: str | None, headers: Mapping[str, str], environ: Mapping[str, str]) -> Collector:
    """Return the collector at an address, else the one that OpenTelemetry's variables name.

    Raises a `RemitError` that says what is missing or wrong. Headers of the environment go only to an address of it.
    """
    named = environ.get(ENDPOINT, "").strip()
    base = endpoint or named
    traces = "" if endpoint else environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    metrics = "" if endpoint else environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "").strip()
    if not base and not (traces and metrics):
        raise team_invalid(f"nobody says where the collector is: give `endpoint`, or set {ENDPOINT}")
    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip()
    if not endpoint and protocol not in ("", "http/protobuf"):
        raise team_invalid(
            f"OTEL_EXPORTER_OTLP_PROTOCOL says {protocol[:40]!r}; spans are sent by http/protobuf: give the "
            "collector's address for that as `endpoint`, its port is 4318 as a rule"
        )
    base = base.rstrip("/")
    found = Collector(
        traces=_address(traces or f"{base}/v1/traces"),
        metrics=_address(metrics or f"{base}/v1/metrics"),
        headers=_headers({**({} if endpoint else _said(environ)), **headers}),
        certificate=environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE") or None,
    )
    if found.certificate is not None:
        _context(found.certificate)
    return found


def _said(environ: Mapping[str, str]) -> dict[str, str]:
    pairs = (each.partition("=") for each in environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",") if each.strip())
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        parts, is_address = urlsplit(""), False
    if not is_address:
        raise team_invalid(f"`{url[:200]}` is not the address of a collector: write http://host:4318")
    if parts.username or parts.password:
        raise team_invalid("a collector's address holds no password: give it as a header")
    return url


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name):
            raise team_invalid(f"{name[:100]!r} is not the name of a header that a collector can be sent")
        if not _TEXT.fullmatch(value):
            raise team_invalid(f"the value of the header `{name}` for the collector holds what no header can")
    return {name.lower(): value for name, value in headers.items()}


def _context(certificate: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificate)
    except OSError as error:
        why = error.strerror or "it holds no certificate"
        raise team_invalid(
            f"OTEL_EXPORTER_OTLP_CERTIFICATE names {certificate}, which cannot be used: {why}"
        ) from error


class OtlpSink:
    """Sends to a collector, over connections that are kept."""

    def __init__(self, collector: Collector, resource: Mapping[str, str]) -> None:
        from remit.telemetry import otlp  # it needs the extra

        self._otlp = otlp
        self._collector = collector
        self._resource = otlp.resource_of(resource)
        self._session: ClientSession | None = None

    async def deliver(self, spans: Sequence[Span]) -> int:
        body = await asyncio.to_thread(self._otlp.encode_spans, spans, self._resource)
        reply = await self._send(self._collector.traces, body)
        try:
            return min(len(spans), max(0, self._otlp.turned_down(reply)))
        except Exception:  # noqa: BLE001 - whatever it is, it is no answer of a collector, and they were taken
            return 0

    async def report(self, figures: Figures, standing: Mapping[str, Standing], at_ms: int) -> None:
        await self._send(self._collector.metrics, self._otlp.encode_figures(figures, standing, at_ms, self._resource))

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _send(self, url: str, body: bytes) -> bytes:
        from aiohttp import ClientError

        try:
            # Not redirected: what proves this hub to its collector is for nobody else.
            async with self._open().post(url, data=body, allow_redirects=False) as reply:
                said = await reply.content.read(MOST_BYTES)
                if reply.status // 100 == 2:
                    return said
                again = _pause(reply.headers.get("retry-after", "")) if reply.status in _AGAIN else None
                raise UndeliveredError(f"{_shown(url)} answered with status {reply.status}", again)
        except (ClientError, OSError, TimeoutError) as error:
            raise UndeliveredError(f"{_shown(url)} cannot be reached ({type(error).__name__})", 0.0) from error

    def _open(self) -> "ClientSession":
        if self._session is None:
            from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

            certificate = self._collector.certificate
            headers = {
                "user-agent": f"remit/{__version__}",
                **self._collector.headers,
                "content-type": "application/x-protobuf",
            }
            self._session = ClientSession(
                connector=TCPConnector(ssl=True if certificate is None else _context(certificate), limit=2),
                timeout=ClientTimeout(TIMEOUT_S),
                headers=headers,
                cookie_jar=DummyCookieJar(),
                trust_env=True,
            )
        return self._session


def _pause(said: str) -> float:
    return min(float(said), LONGEST_PAUSE_S) if said.isdecimal() and len(said) < 6 else 0.0


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
