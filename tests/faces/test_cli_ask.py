"""`remit ask` (K7): what is wanted is found out, asked back about, and done."""

from pathlib import Path
from textwrap import dedent

import pytest

from command_line import remit

CODE = """
async def weather(brief):
    return "Sunny."


async def pizza(brief):
    return f"One {brief.input['size']} pizza is on its way."
"""

TEAM = """
[store]
durability = "process"

[orchestrator]

[agents.sky]
run = "desk:weather"
capabilities = ["WEATHER"]

[agents.kitchen]
run = "desk:pizza"
capabilities = ["PIZZA"]

[capabilities.WEATHER]
description = "Say what the weather will be like"
phrase = "Looking at the sky…"
examples = ["will it rain tomorrow", "what is the weather like", "is it sunny outside", "how warm is it today"]

[capabilities.PIZZA]
description = "Order a pizza"
examples = ["order a pizza", "I want a margherita", "get me some food delivered", "I am hungry, order dinner"]
input_schema = { type = "object", properties = { size = { enum = ["small", "large"] } }, required = ["size"] }
"""


@pytest.fixture
def team(tmp_path: Path) -> Path:
    (tmp_path / "desk.py").write_text(dedent(CODE))
    (tmp_path / "remit.toml").write_text(TEAM)
    return tmp_path


def test_what_is_asked_for_is_done(team: Path) -> None:
    done = remit("ask", "is it going to rain today?", folder=team)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Sunny.")
    assert "Looking at the sky…" in done.stderr


def test_a_question_can_be_replied_to_in_its_session(team: Path) -> None:
    asked = remit("ask", "please order me a pizza", "--session", "s", folder=team)
    assert "- size" in asked.stdout
    assert "Reply with: remit chat orchestrator --session s" in asked.stderr
    done = remit("ask", "size: large", "--session", "s", folder=team)
    assert "One large pizza is on its way." in done.stdout


def test_without_an_orchestrator_it_is_said_what_to_add(team: Path) -> None:
    (team / "remit.toml").write_text(TEAM.replace("[orchestrator]", ""))
    refused = remit("ask", "hello", folder=team)
    assert refused.returncode == 2
    assert "has no `[orchestrator]`" in refused.stderr


def test_its_name_must_be_free(team: Path) -> None:
    (team / "remit.toml").write_text(TEAM.replace("[orchestrator]", '[orchestrator]\nname = "sky"'))
    wrong = remit("validate", folder=team)
    assert wrong.returncode == 3
    assert "`sky` is taken" in wrong.stdout
