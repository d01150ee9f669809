"""The section `[telemetry]` of the team file: its keys, its checks, and what it gives a hub."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Annotated

from msgspec import Meta

from remit.installed import install_command
from remit.protocol.errors import RemitError
from remit.protocol.orchestration import Share
from remit.protocol.problems import WrongPart
from remit.runtime.registry import team_invalid
from remit_cli.config.checks import secret_of
from remit_cli.config.team import Composition, Inspection, TeamSection
from remit_cli.config.values import Duration, HeaderName, Section, Url, duration_ms


class TelemetrySection(Section, frozen=True, kw_only=True):
    """Spans and metrics for an OpenTelemetry collector, with the extra `otel`; see `remit docs tracing`."""

    endpoint: Annotated[
        Url | None,
        Meta(
            description="The URL of the collector, OTLP over HTTP: `http://localhost:4318` (default: "
            "`OTEL_EXPORTER_OTLP_ENDPOINT`)."
        ),
    ] = None
    headers: Annotated[
        dict[HeaderName, Annotated[str, Meta(min_length=1, extra={"secret": True})]],
        Meta(description='Headers for the collector, each a text or a secret: `{ authorization = "$OTLP_AUTH" }`.'),
    ] = {}
    service: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The service name of the spans (default: `OTEL_SERVICE_NAME`, else the team's name)."),
    ] = None
    content: Annotated[bool, Meta(description="Whether spans include objectives, inputs and results, redacted.")] = (
        False
    )
    sample: Annotated[
        Share,
        Meta(description="The share of runs started here that is traced; for other runs, the sender decides."),
    ] = 1.0
    metrics: Annotated[bool, Meta(description="Whether metrics are sent as well.")] = True
    interval: Annotated[Duration, Meta(description="How often metrics are sent.")] = "60s"


def _undeliverable(file: Inspection) -> Iterator[WrongPart]:
    """Return the reasons why spans cannot be sent: no endpoint, or a missing package."""
    section = TELEMETRY.of(file.team)
    if section is None or not file.secrets:
        return
    from remit_otel.collector import collector_at

    place = ("telemetry", "endpoint")
    try:
        if (
            section.endpoint is not None or "endpoint" not in file.values["telemetry"]
        ):  # otherwise its error is reported already
            collector_at(section.endpoint, {}, file.environ)
    except RemitError as error:
        yield WrongPart(place if section.endpoint is not None else place[:1], error.fault.message)
    if duration_ms(section.interval) == 0:
        yield WrongPart(("telemetry", "interval"), "expected a duration above 0")
    if not _installed():
        yield WrongPart(("telemetry",), f"spans and metrics need the extra `otel`: {install_command('otel')}")


def _observe(made: Composition) -> None:
    section = TELEMETRY.of(made.team)
    if section is None:
        return
    from remit_otel import send_telemetry  # most teams send none

    send_telemetry(
        made.hub,
        section.endpoint,
        headers=_headers_of(section, made.environ),
        service=section.service,
        content=section.content,
        sample=section.sample,
        metrics=section.metrics,
        every_s=duration_ms(section.interval) / 1_000,
        environ=made.environ,
    )


def _headers_of(section: TelemetrySection, environ: Mapping[str, str]) -> dict[str, str]:
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


TELEMETRY: TeamSection[TelemetrySection | None] = TeamSection(
    key="telemetry",
    kind=Annotated[TelemetrySection | None, Meta(description="Where spans and metrics are sent, for OpenTelemetry.")],
    default=None,
    problems=_undeliverable,
    compose=_observe,
)
