"""Checks the telemetry settings of a team, and reads its headers."""

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from remit.config.checks import secret_of
from remit.config.sections.hub import TelemetrySection
from remit.config.team import TeamFile
from remit.config.values import duration_ms
from remit.protocol.errors import RemitError
from remit.protocol.problems import WrongPart
from remit.runtime.registry import team_invalid


def undeliverable(said: dict[str, Any], team: TeamFile, environ: Mapping[str, str]) -> Iterator[WrongPart]:
    """Return the reasons why spans cannot be sent: no endpoint, or a missing package."""
    section = team.telemetry
    if section is None:
        return
    from remit.telemetry.collector import INSTALL, collector_at

    place = ("telemetry", "endpoint")
    try:
        if (
            section.endpoint is not None or "endpoint" not in said["telemetry"]
        ):  # otherwise its error is reported already
            collector_at(section.endpoint, {}, environ)
    except RemitError as error:
        yield WrongPart(place if section.endpoint is not None else place[:1], error.fault.message)
    if duration_ms(section.interval) == 0:
        yield WrongPart(("telemetry", "interval"), "expected a duration above 0")
    if not _installed():
        yield WrongPart(("telemetry",), f"spans and metrics need the extra `otel`: {INSTALL}")


def headers_of(section: TelemetrySection, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the headers for the collector, or raise a `RemitError` if one is missing from the environment."""
    try:
        return {
            name: secret_of(text, environ) if text.startswith("$") else text for name, text in section.headers.items()
        }
    except ValueError as error:
        raise team_invalid(str(error)) from error


def _installed() -> bool:
    try:
        return find_spec("opentelemetry.proto") is not None
    except (ImportError, ValueError):  # OpenTelemetry is not installed, or was removed while the program runs
        return False
