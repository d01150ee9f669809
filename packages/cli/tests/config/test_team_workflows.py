"""Workflows in a team file: they run, what is wrong with them is said with its line, and commands show them."""

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import remit
from remit import Progress, Status
from remit_cli.config.composition import hub_of, reload
from remit_cli.config.load import load_team
from remit_cli.config.team import Team, team_schema

CODE = '''
async def money(brief):
    """Count the money."""
    return {"value": brief.input["amount"] * 2}


async def market(brief):
    return f"turnover of {brief.input}"


async def never(brief):
    raise ValueError("broken")
'''

TEAM = """\
[store]
durability = "process"

[agents.ANL]
run = "desk:money"
capabilities = ["NPV"]

[agents.MKT]
run = "desk:market"

[agents.BAD]
run = "desk:never"

[agents.boss]
run = "desk:market"
may_call = ["case"]

[capabilities.NPV]
phrase = "Working out the financial side…"
read_only = true

[glossary]
turnover = "revenue"

[workflows.case]
description = "Makes a business case."
examples = ["Is it worth it?"]
time = "1m"
tokens = 9_000

[[workflows.case.steps]]
name = "npv"
capability = "NPV"
input = { amount = "{input.amount}" }
time = "30s"
share = 0.25

[[workflows.case.steps]]
name = "market"
agent = "BAD"
fallback = ["MKT"]
input = "{npv.value}"
when = "npv.value > 10"
title = "Looking at the market…"
attempts = 2

[[workflows.case.steps]]
name = "extra"
agent = "MKT"
after = ["market"]
optional = true
tokens = 100
when = "npv.value > 1000"
context = { last_messages = 2 }

[[rules]]
then = "refuse"
from = "case"
to = "boss"
"""


@pytest.fixture
def desk(folder: Path) -> Path:
    (folder / "desk.py").write_text(CODE, encoding="utf-8")
    (folder / "remit.toml").write_text(TEAM, encoding="utf-8")
    return folder


def load(desk: Path, text: str = TEAM, *overrides: str) -> Team:
    (desk / "remit.toml").write_text(text, encoding="utf-8")
    return load_team(desk / "remit.toml", overrides=overrides, environ={})


# ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_workflow_of_the_file_is_asked_like_an_agent(desk: Path) -> None:
    """K6, K8: its phrases and terms are those of the file."""
    hub = hub_of(load(desk))
    async with hub:
        records = [each async for each in hub.stream("case", "Is it?", user="u", input={"amount": 30})]
    response: Any = records[-1].body
    assert response.status is Status.SUCCESS
    assert "revenue of 60" in response.result
    texts = [each.body.text for each in records if isinstance(each.body, Progress)]
    assert texts == ["Working out the financial side…", "Looking at the market…"]
    assert (hub.cards["case"].time_ms, hub.cards["case"].tokens) == (60_000, 9_000)
    assert hub.cards["case"].description == "Makes a business case."


def test_every_key_of_a_step_reaches_the_workflow(desk: Path) -> None:
    npv, market, extra = load(desk).workflows["case"].workflow("case").steps
    assert (npv.time_ms, npv.share, npv.input) == (30_000, 0.25, {"amount": "{input.amount}"})
    assert (market.fallback, market.attempts, market.title) == (("MKT",), 2, "Looking at the market…")
    assert (extra.after, extra.optional, extra.tokens) == (("market",), True, 100)
    assert extra.context is not None
    assert extra.context.last_messages == 2


def test_a_date_of_the_file_is_a_text_in_the_input(desk: Path) -> None:
    text = TEAM.replace('{ amount = "{input.amount}" }', "{ day = 2026-01-31 }")
    assert load(desk, text).workflows["case"].workflow("case").steps[0].input == {"day": "2026-01-31"}


async def test_a_changed_workflow_waits_for_a_restart(desk: Path) -> None:
    team = load(desk)
    changed = load(desk, TEAM.replace('title = "Looking at the market…"', "").replace('"revenue"', '"sales"'))
    async with hub_of(team) as hub:
        done = reload(hub, team, changed)
    assert (done.applied, done.needs_restart) == ((), ("workflows.case.steps", "glossary.turnover"))


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_workflow_is_shown_as_one_with_its_steps(desk: Path) -> None:
    shown = remit("agents", "show", "case", folder=desk).stdout
    assert shown.startswith("workflow")
    assert "npv: NPV (30 s; 25% of the tokens)" in shown
    assert "market: BAD (after npv; when npv.value > 10; else MKT; up to 2 attempts)" in shown
    assert "extra: MKT (after market, npv; when npv.value > 1000; 100 tokens; optional)" in shown
    document = json.loads(remit("agents", "show", "case", "--json", folder=desk).stdout)
    assert [step["name"] for step in document["workflow"]["steps"]] == ["npv", "market", "extra"]
    assert document["called_by"] == ["user", "boss"]
    assert "npv, market, extra" in remit("agents", "list", folder=desk).stdout
    listed = json.loads(remit("agents", "list", "--json", folder=desk).stdout)["agents"]
    assert {each["name"]: each["steps"] for each in listed}["case"] == ["npv", "market", "extra"]


def test_validate_counts_workflows_and_names_what_is_wrong_with_them(desk: Path) -> None:
    assert "4 agents, 1 workflow, 1 capability, 1 rule" in remit("validate", folder=desk).stdout
    (desk / "remit.toml").write_text(
        TEAM + "[workflows.w]\nsteps = [{ name = 'a', agent = 'MKT', when = 'first(' }]", encoding="utf-8"
    )
    done = remit("validate", folder=desk)
    assert done.returncode == 3
    assert "workflows.w.steps[0].when: invalid condition; write it like" in done.stdout


def test_policy_explains_calls_of_a_workflow(desk: Path) -> None:
    done = remit("policy", "explain", "case", "MKT", "x", folder=desk)
    assert done.returncode == 0, done.stderr


def test_a_workflow_is_completed_like_an_agent(desk: Path) -> None:
    words = {"_REMIT_COMPLETE": "bash_complete", "COMP_WORDS": "remit run ca", "COMP_CWORD": "2"}
    assert remit(folder=desk, **words).stdout == "plain,case\n"


def test_editors_know_workflows() -> None:
    schema = team_schema()
    assert schema["properties"]["workflows"]["additionalProperties"] == {"$ref": "#/$defs/WorkflowSection"}
    assert schema["$defs"]["StepSection"]["anyOf"] == [{"required": ["agent"]}, {"required": ["capability"]}]
    assert schema["$defs"]["WorkflowSection"]["required"] == ["steps"]
    assert "\\Z" not in json.dumps(schema)
