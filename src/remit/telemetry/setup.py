"""What a program or a team says about its spans and metrics, made into what delivers them."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from remit import __version__
from remit.runtime.clock import LoopClock
from remit.runtime.hub import Hub
from remit.runtime.registry import team_invalid
from remit.telemetry.collector import INSTALL, collector_at
from remit.telemetry.exporter import Sink, Telemetry
from remit.telemetry.spans import Spans, Who

if TYPE_CHECKING:  # it comes with whoever brings an exporter
    from opentelemetry.sdk.trace.export import SpanExporter

EVERY_S = 60.0
"""How often figures are reported, as OpenTelemetry has it."""


def sink_for(
    hub: str,
    endpoint: str | None,
    *,
    headers: Mapping[str, str],
    service: str | None,
    exporter: "SpanExporter | None",
    environ: Mapping[str, str],
) -> Sink:
    """Return where spans and figures go, or raise a `RemitError` that says what is missing or wrong."""
    resource = resource_attributes(hub, service, environ)
    try:
        from remit.telemetry.sinks import ExporterSink, OtlpSink
    except ImportError as error:
        raise team_invalid(f"spans and metrics need the extra `otel`: {INSTALL}") from error
    if exporter is None:
        return OtlpSink(collector_at(endpoint, headers, environ), resource)
    if endpoint is not None or headers:
        raise team_invalid("spans go to an `exporter`, or to an `endpoint` with its `headers`: give one of them")
    return ExporterSink(exporter, resource)


def telemetry_for(
    hub: Hub,
    name: str,
    sink: Sink,
    describe: Callable[[str], Who],
    *,
    content: bool,
    sample: float,
    every_s: float | None,
) -> Telemetry:
    """Return what delivers the spans and figures of a hub of that name."""
    spans = Spans(name, describe, content=content, ratio=sample)
    return Telemetry(hub, sink, spans, every_s=every_s, wall_ms=LoopClock().wall_ms)


def resource_attributes(hub: str, service: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what says whose spans and figures they are."""
    pairs = (each.partition("=") for each in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
    said = {unquote(name.strip()): unquote(value.strip()) for name, mark, value in pairs if mark and name.strip()}
    service = service or environ.get("OTEL_SERVICE_NAME", "").strip() or said.get("service.name") or hub
    return {
        "service.namespace": "remit",
        # Without it the figures of two processes of one team would be taken for each other's.
        "service.instance.id": os.urandom(16).hex(),
        **said,
        "service.name": service,
        "telemetry.sdk.name": "remit",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": __version__,
    }
