"""Builds the delivery of spans and metrics from the settings of a program or a team."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from remit import __version__
from remit.runtime.clock import LoopClock
from remit.runtime.engine import Engine
from remit.runtime.registry import team_invalid
from remit_otel.collector import INSTALL, collector_at
from remit_otel.exporter import Sink, Telemetry
from remit_otel.spans import AgentKind, Spans

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
        raise team_invalid(f"spans and metrics need the extra `otel`: {INSTALL}") from error
    if exporter is None:
        return OtlpSink(collector_at(endpoint, headers, environ), resource)
    if endpoint is not None or headers:
        raise team_invalid("give either an `exporter`, or an `endpoint` with its `headers`, not both")
    return ExporterSink(exporter, resource)


def telemetry_for(
    hub: Engine,
    name: str,
    sink: Sink,
    describe: Callable[[str], AgentKind],
    *,
    content: bool,
    sample: float,
    every_s: float | None,
) -> Telemetry:
    """Return the delivery of spans and figures for the hub called *name*."""
    spans = Spans(name, describe, content=content, ratio=sample)
    return Telemetry(hub, sink, spans, every_s=every_s, wall_ms=LoopClock().wall_ms)


def resource_attributes(hub: str, service: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes that identify the service that sends."""
    pairs = (each.partition("=") for each in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
    said = {unquote(name.strip()): unquote(value.strip()) for name, mark, value in pairs if mark and name.strip()}
    service = service or environ.get("OTEL_SERVICE_NAME", "").strip() or said.get("service.name") or hub
    return {
        "service.namespace": "remit",
        # It tells the figures of two processes of one team apart.
        "service.instance.id": os.urandom(16).hex(),
        **said,
        "service.name": service,
        "telemetry.sdk.name": "remit",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": __version__,
    }
