"""Sends the spans and metrics of a hub while it is open."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypedDict, Unpack
from urllib.parse import unquote

from remit import __version__
from remit.agents.cards import refuse_unknown
from remit.hub.hub import Hub
from remit.installed import install_command
from remit.runtime.clock import LoopClock
from remit.runtime.registry import team_invalid
from remit_otel.collector import collector_at
from remit_otel.exporter import Sink, Telemetry
from remit_otel.spans import AgentKind, Role, Spans

if TYPE_CHECKING:  # most hubs do not load the SDK
    from opentelemetry.sdk.trace.export import SpanExporter


def sink_for(
    hub: str,
    endpoint: str | None,
    *,
    headers: Mapping[str, str],
    service: str | None,
    exporter: "SpanExporter | None",
    environ: Mapping[str, str],
) -> Sink:
    """Return where spans and figures go, or raise a `RemitError` if something is missing or invalid."""
    resource = resource_attributes(hub, service, environ)
    try:
        from remit_otel.sinks import ExporterSink, OtlpSink
    except ImportError as error:
        raise team_invalid(f"spans and metrics need the extra `otel`: {install_command('otel')}") from error
    if exporter is None:
        return OtlpSink(collector_at(endpoint, headers, environ), resource)
    if endpoint is not None or headers:
        raise team_invalid("give either an `exporter`, or an `endpoint` with its `headers`, not both")
    return ExporterSink(exporter, resource)


def resource_attributes(hub: str, service: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes that identify the service that sends."""
    pairs = (each.partition("=") for each in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
    given = {unquote(name.strip()): unquote(value.strip()) for name, mark, value in pairs if mark and name.strip()}
    service = service or environ.get("OTEL_SERVICE_NAME", "").strip() or given.get("service.name") or hub
    return {
        "service.namespace": "remit",
        # It tells the figures of two processes of one team apart.
        "service.instance.id": os.urandom(16).hex(),
        **given,
        "service.name": service,
        "telemetry.sdk.name": "remit",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": __version__,
    }


class TelemetryOptions(TypedDict, total=False):
    """Options of a hub's spans and metrics."""

    headers: Mapping[str, str] | None
    """Headers for the collector."""
    service: str | None
    """The name of the service; default: that of the hub."""
    content: bool
    """Whether texts are sent, redacted; default: False."""
    sample: float
    """The share of runs that are traced; default: 1.0, every run."""
    metrics: bool
    """Whether metrics are sent; default: True."""
    every_s: float
    """How often metrics are sent; default: 60 seconds."""
    exporter: "SpanExporter | None"
    """An exporter of OpenTelemetry's SDK, instead of an address."""
    environ: Mapping[str, str]
    """Variables; default: the environment of this process."""


def send_telemetry(hub: Hub, endpoint: str | None = None, **options: Unpack[TelemetryOptions]) -> None:
    """Send spans of every run of a hub, and metrics, to the OpenTelemetry collector at *endpoint*.

    The default endpoint is that in `OTEL_EXPORTER_OTLP_ENDPOINT`. An *exporter* of OpenTelemetry's SDK gets the spans
    instead, and no metrics. With *content* spans include messages, redacted; *sample* is the share of the runs that
    begin here that is traced. Call it before the hub is opened; it needs the extra `otel`.
    """
    if hub.is_open or hub.kept(HubTelemetry) is not None:
        raise team_invalid("call `send_telemetry` once, and before the hub is opened")
    telemetry = HubTelemetry(hub, endpoint, options)
    hub.keep(telemetry)
    hub.accompany(telemetry)


class HubTelemetry:
    """The telemetry of one hub: configured before the hub opens, running until it closes."""

    def __init__(self, hub: Hub, endpoint: str | None, options: TelemetryOptions) -> None:
        refuse_unknown(options, TelemetryOptions.__optional_keys__)
        exporter, every_s = options.get("exporter"), options.get("every_s", 60.0)
        self._sample = options.get("sample", 1.0)
        if not 0 <= self._sample <= 1 or not every_s > 0:
            raise team_invalid("`sample` is a share from 0 to 1, and `every_s` a number of seconds above 0")
        hub.sample(self._sample)
        self._hub = hub
        self._content = options.get("content", False)
        self._every_s = every_s if options.get("metrics", True) and exporter is None else None
        self._sink = sink_for(
            hub.name,
            endpoint,
            headers=options.get("headers") or {},
            service=options.get("service"),
            exporter=exporter,
            environ=options.get("environ", os.environ),
        )
        self._running: Telemetry | None = None

    async def open(self) -> None:
        """Start to send."""
        spans = Spans(self._hub.name, self._describe(), content=self._content, ratio=self._sample)
        self._running = Telemetry(self._hub, self._sink, spans, every_s=self._every_s, wall_ms=LoopClock().wall_ms)
        self._running.open()

    async def drain(self, within_s: float) -> None: ...

    async def leave(self) -> None: ...

    async def close(self) -> None:
        """Send what is left, and stop."""
        running, self._running = self._running, None
        if running is not None:
            await running.close()

    def _describe(self) -> Callable[[str], AgentKind]:
        """Return a function that returns the role of an agent and whether it is remote."""
        roles = {name: Role(getattr(code, "remit_role", Role.AGENT)) for name, code in self._hub.made_of.items()}
        return lambda name: AgentKind(roles.get(name, Role.AGENT), self._hub.is_remote(name))
