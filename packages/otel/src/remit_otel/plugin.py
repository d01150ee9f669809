"""Brings OpenTelemetry to the core."""


def sections() -> tuple[str, ...]:
    """Return the addresses of the sections of the team file."""
    return ("remit_otel.section:TELEMETRY",)
