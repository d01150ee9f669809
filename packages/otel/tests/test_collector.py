"""Where a collector is: as a program or team says, else as OpenTelemetry's variables do."""

from pathlib import Path
from typing import Any

import pytest

from remit import Code, RemitError
from remit_otel.collector import Collector, collector_at
from remit_otel.hub_telemetry import resource_attributes

HERE = "http://localhost:4318"


def at(base: str, **more: Any) -> Collector:
    return Collector(traces=f"{base}/v1/traces", metrics=f"{base}/v1/metrics", **more)


@pytest.mark.parametrize(
    ("endpoint", "headers", "environ", "expected"),
    [
        (HERE, {}, {}, at(HERE)),
        (f"{HERE}/", {}, {}, at(HERE)),
        ("https://[::1]:4318/otlp", {}, {}, at("https://[::1]:4318/otlp")),
        (None, {}, {"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, at(HERE)),
        (HERE, {"X-Key": "a b"}, {}, at(HERE, headers={"x-key": "a b"})),
        (
            None,
            {"b": "mine"},
            {"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_EXPORTER_OTLP_HEADERS": "a=1%202, B=theirs,"},
            at(HERE, headers={"a": "1 2", "b": "mine"}),
        ),
        # What proves someone to the collector of the environment is for no other.
        (HERE, {}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_HEADERS": "key=secret"}, at(HERE)),
        (HERE, {}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x/t"}, at(HERE)),
        (
            None,
            {},
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x/t", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://y/m"},
            Collector(traces="http://x/t", metrics="http://y/m"),
        ),
        (None, {}, {"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, at(HERE)),
        (HERE, {}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, at(HERE)),
    ],
)
def test_a_collector_is_where_it_is_said_to_be(
    endpoint: str | None, headers: dict[str, str], environ: dict[str, str], expected: Collector
) -> None:
    assert collector_at(endpoint, headers, environ) == expected


@pytest.mark.parametrize(
    ("endpoint", "headers", "environ", "message"),
    [
        (None, {}, {}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        (None, {}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        (None, {}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "4318"),
        ("localhost:4318", {}, {}, "http://host:4318"),
        ("http://", {}, {}, "http://host:4318"),
        ("http://x:99999", {}, {}, "http://host:4318"),
        ("ftp://x", {}, {}, "http://host:4318"),
        ("http://me:pass@x", {}, {}, "as a header"),
        (HERE, {"a b": "x"}, {}, "header name for the collector: 'a b'"),
        (HERE, {"a": "x\r\ny: z"}, {}, "the header `a`"),
        (HERE, {}, {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere.pem"}, "cannot read the certificates in /nowhere.pem"),
    ],
)
def test_what_is_no_collector_is_refused_with_what_to_do(
    endpoint: str | None, headers: dict[str, str], environ: dict[str, str], message: str
) -> None:
    with pytest.raises(RemitError) as refused:
        collector_at(endpoint, headers, environ)
    assert refused.value.fault.code is Code.TEAM_INVALID
    assert message in refused.value.fault.message
    assert "pass@" not in refused.value.fault.message


def test_a_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(RemitError, match=r"cannot read the certificates in .*ca\.pem"):
        collector_at(HERE, {}, {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(tmp_path / "ca.pem")})


def test_the_service_is_named_by_the_team_else_by_the_environment_else_for_the_hub() -> None:
    environ = {"OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=prod, team=a%20b,service.name=third,odd"}
    assert resource_attributes("hub", None, {})["service.name"] == "hub"
    assert resource_attributes("hub", None, environ)["service.name"] == "third"
    assert resource_attributes("hub", None, {**environ, "OTEL_SERVICE_NAME": "second"})["service.name"] == "second"
    attributes = resource_attributes("hub", "first", {**environ, "OTEL_SERVICE_NAME": "second"})
    assert (attributes["service.name"], attributes["deployment.environment"], attributes["team"]) == (
        "first",
        "prod",
        "a b",
    )
    again = resource_attributes("hub", "first", {})
    assert attributes["service.instance.id"] != again["service.instance.id"]
