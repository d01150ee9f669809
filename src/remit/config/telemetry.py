"""Where the spans and metrics of a team go, and why some cannot be delivered from here."""

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from remit.config.checks import secret_of
from remit.config.sections.hub import TelemetrySection
from remit.config.team import TeamFile
from remit.config.values import duration_ms
from remit.protocol.codec import WrongPart
from remit.protocol.errors import RemitError
from remit.runtime.registry import team_invalid


def undeliverable(said: dict[str, Any], team: TeamFile, environ: Mapping[str, str]) -> Iterator[WrongPart]:
    """Say why spans could not be sent from here: nobody says where to, or what it takes is not installed."""
    section = team.telemetry
    if section is None:
        return
    from remit.telemetry.collector import INSTALL, collector_at

    place = ("telemetry", "endpoint")
    try:
        if section.endpoint is not None or "endpoint" not in said["telemetry"]:  # else it is said what is wrong with it
            collector_at(section.endpoint, {}, environ)
    except RemitError as error:
        yield WrongPart(place if section.endpoint is not None else place[:1], error.fault.message)
    if duration_ms(section.interval) == 0:
        yield WrongPart(("telemetry", "interval"), "expected a duration that is longer than nothing")
    if not _installed():
        yield WrongPart(("telemetry",), f"spans and metrics need the extra `otel`: {INSTALL}")


def headers_of(section: TelemetrySection, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the headers that a collector wants, or raise a `RemitError` if one of them is not in the environment."""
    try:
        return {
            name: secret_of(text, environ) if text.startswith("$") else text for name, text in section.headers.items()
        }
    except ValueError as error:
        raise team_invalid(str(error)) from error


def _installed() -> bool:
    try:
        return find_spec("opentelemetry.proto") is not None
    except (ImportError, ValueError):  # nothing of OpenTelemetry is there, or it was taken out of the running program
        return False
