"""What a team file may say, and that it says the same as the runtime."""

from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import pytest
from msgspec import Meta

from remit.hub.hub import DEFAULT_STORE
from remit.policy.breaker import BreakerSettings
from remit.policy.limits import Limits
from remit.protocol.card import AgentCard, Capability
from remit.protocol.orchestration import Step
from remit.runtime.registry import NAME
from remit_cli.config.sections.agents import AgentSection, CapabilitySection, StepSection
from remit_cli.config.team import Team, team_schema
from remit_cli.config.values import AgentName, duration, duration_ms

SCHEMA = team_schema()
validator = jsonschema_rs.validator_for(SCHEMA)


def test_a_team_that_says_nothing_has_the_limits_of_a_hub_that_says_nothing(tmp_path: Path) -> None:
    team = Team(file=tmp_path / "remit.toml")
    assert team.settled_limits() == Limits()
    assert team.breaker.settings() == BreakerSettings()
    assert Path(team.store.path) == DEFAULT_STORE


def test_everything_that_a_card_holds_can_be_said() -> None:
    own = {"run", "model", "base_url", "api_key", "max_tool_rounds", "max_output_tokens", "history_tokens", "settings"}
    own |= {"peer", "remote", "card", "card_token", "card_keys", "card_hosts", "device", "max_hop_count"}
    own |= {"card_binding", "card_streaming", "card_notify", "card_notify_token"}
    own |= {"env", "sandbox", "reads", "writes", "network", "structured_answers", "sub_agent_arguments", "route"}
    own |= {"priced_as", "address"}
    # Whether it passes on its caller's authority follows from what it is, a workflow for example.
    fields = set(AgentSection.__struct_fields__) - own | {"name", "passes_on"}
    assert fields == {name.removesuffix("_ms") for name in AgentCard.__struct_fields__}
    fields = {*CapabilitySection.__struct_fields__, "code"} - {"phrase"}
    assert fields == {name.removesuffix("_ms") for name in Capability.__struct_fields__}
    assert set(StepSection.__struct_fields__) == {name.removesuffix("_ms") for name in Step.__struct_fields__}


def test_names_keep_to_the_rule_of_the_registry() -> None:
    [meta] = (each for each in get_args(AgentName) if isinstance(each, Meta))
    assert meta.pattern == rf"^{NAME.pattern.removesuffix(chr(92) + 'Z')}\Z"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("1.5s", 1_500),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("3d", 259_200_000),
        ("0s", 0),
        ("999999999d", 3_153_600_000_000),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, ms: int) -> None:
    assert duration_ms(text) == ms
    assert duration_ms(duration(ms)) == ms


def test_what_is_no_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="'soon' is no duration"):
        duration_ms("soon")


# ── for editors ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_key_of_the_schema_is_described() -> None:
    silent = [
        f"{title}.{key}"
        for title, section in (("file", SCHEMA), *SCHEMA["$defs"].items())
        for key, each in section["properties"].items()
        if not each.get("description") and title not in ("Rate", "ContextFilter")
    ]
    assert silent == []


def test_the_schema_is_one_and_knows_no_null() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(SCHEMA)
    assert "null" not in str(SCHEMA)
    assert SCHEMA["$defs"]["LimitsSection"]["properties"]["max_depth"]["default"] == Limits().max_depth


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"name": "office", "version": 1},
        {"limits": {"max_depth": 3, "grace": "1.5s"}, "store": {"durability": "process"}},
        {"agents": {"tag-ai": {"run": "office:tag", "rate": {"calls": 1, "seconds": 2.5}, "may_call": ["*"]}}},
        {"capabilities": {"TAG": {"input_schema": "tag.json", "result_schema": {"type": "object"}}}},
        {
            "rules": [{"then": "ask", "from": "*", "edit": ["input"]}],
            "redaction": {"key": "$KEY", "patterns": {"A": "a"}},
        },
        {"approvals": {"allow": ["a -> b", "c*"], "otherwise": "terminal"}},
    ],
)
def test_editors_accept_what_can_be_said(content: Any) -> None:
    assert [error.message for error in validator.iter_errors(content)] == []


@pytest.mark.parametrize(
    "content",
    [
        {"nam": "office"},
        {"version": 2},
        {"limits": {"max_depth": "3"}},
        {"limits": {"max_depth": -1}},
        {"limits": {"grace": "soon"}},
        {"agents": {"tag-ai": {}}},
        {"agents": {"tag ai": {"run": "office:tag"}}},
        {"agents": {"tag-ai": {"run": "office"}}},
        {"agents": {"tag-ai": {"run": "office:tag", "isolation": "thread"}}},
        {"rules": [{"then": "maybe"}]},
        {"rules": {"then": "ask"}},
        {"redaction": {"key": "a-secret"}},
        {"redaction": {"patterns": {"lower": "a"}}},
    ],
)
def test_editors_mark_what_cannot_be_said(content: Any) -> None:
    assert not validator.is_valid(content)


def test_a_schema_that_was_not_read_goes_no_further() -> None:
    with pytest.raises(ValueError, match=r"'tag\.json' has not been read"):
        CapabilitySection(input_schema="tag.json").capability("TAG")
