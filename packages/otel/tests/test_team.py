"""`[telemetry]` in a team file."""

import sys
from pathlib import Path

import pytest

from collector import Collector
from remit import RemitError
from remit.installed import install_command
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team

TEAM = """
name = "office"

[agents.tag]
run = "office_code:tag"

[telemetry]
"""


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "office_code.py").write_text("async def tag(brief):\n    return brief.text\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "office_code", raising=False)
    return tmp_path / "remit.toml"


async def test_a_team_says_where_its_spans_go_and_what_they_tell(team: Path) -> None:
    with Collector() as collector:
        team.write_text(
            TEAM + f'endpoint = "{collector.endpoint}"\nheaders = {{ authorization = "$OTLP", x-tenant = "acme" }}\n'
            'service = "front office"\ncontent = true\nmetrics = false\n'
        )
        environ = {"OTLP": "Bearer k1"}
        async with hub_of(load_team(team, environ=environ), environ=environ) as hub:
            await hub.ask("tag", "hello there", user="u-1")
        (span,) = collector.spans
        ((path, headers, _),) = collector.bodies
    assert (path, headers["authorization"], headers["x-tenant"]) == ("/v1/traces", "Bearer k1", "acme")
    assert (span.service, "hello there" in span.attributes["gen_ai.input.messages"]) == ("front office", True)


async def test_an_empty_section_takes_the_collector_from_the_environment(team: Path) -> None:
    team.write_text(TEAM)
    with Collector() as collector:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
        async with hub_of(load_team(team, environ=environ), environ=environ) as hub:
            await hub.ask("tag", "hello there", user="u-1")
        assert [span.service for span in collector.spans] == ["office"]
        assert collector.metrics


async def test_without_the_section_nothing_is_sent_whatever_the_environment_says(team: Path) -> None:
    team.write_text(TEAM.replace("[telemetry]", ""))
    with Collector() as collector:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
        async with hub_of(load_team(team, environ=environ), environ=environ) as hub:
            await hub.ask("tag", "hello there", user="u-1")
        assert collector.request_count == 0


@pytest.mark.parametrize(
    ("setting", "where", "why"),
    [
        ("", "telemetry", "give `endpoint`, or set OTEL_EXPORTER_OTLP_ENDPOINT"),
        ('endpoint = "http://me:pw@x"', "telemetry.endpoint", "looks like a secret"),
        ('endpoint = "http://x:99999"', "telemetry.endpoint", "http://host:4318"),
        ('endpoint = "x"', "telemetry.endpoint", "expected the address of a server"),
        (
            'endpoint = "http://x"\nheaders = { authorization = "$OTLP" }',
            "telemetry.headers.authorization",
            "OTLP is not",
        ),
        ('endpoint = "http://x"\nheaders = { "a(b" = "x" }', 'telemetry.headers."a(b"', "name of an HTTP header"),
        ('endpoint = "http://x"\nsample = 2', "telemetry.sample", "1.0"),
        ('endpoint = "http://x"\ninterval = "0s"', "telemetry.interval", "a duration above 0"),
        ('endpoint = "http://x"\nmetrik = true', "telemetry.metrik", "unknown key"),
    ],
)
def test_what_is_wrong_with_it_is_said_with_its_line(team: Path, setting: str, where: str, why: str) -> None:
    team.write_text(TEAM + setting + "\n")
    with pytest.raises(RemitError) as refused:
        load_team(team, environ={})
    assert [each.path.split()[-1] for each in refused.value.fault.problems] == [where]
    assert why in refused.value.fault.problems[0].message


def test_without_the_extra_it_is_said_what_to_install(team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    team.write_text(TEAM + 'endpoint = "http://x"\n')
    monkeypatch.setitem(sys.modules, "opentelemetry.proto", None)
    with pytest.raises(RemitError) as refused:
        load_team(team, environ={})
    (problem,) = refused.value.fault.problems
    assert install_command("otel") in problem.message
