"""The record as OpenTelemetry has it: spans and metrics, delivered to a collector."""

from typing import TYPE_CHECKING

from remit.protocol.lazy_names import lazy_names

_HOMES = {"remit_otel.hub_telemetry": ("send_telemetry",)}

if TYPE_CHECKING:
    from remit_otel.hub_telemetry import send_telemetry as send_telemetry
else:
    __getattr__ = lazy_names(__name__, _HOMES)
