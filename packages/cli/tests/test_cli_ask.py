"""`remit ask` (K7): what is wanted is found out, asked back about, and done."""

import json
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from command_line import REMIT, remit
from commands import popen
from terminals import Terminal
from waiting import PATIENCE_S

SLOWLY = """\
    import asyncio
    from pathlib import Path

    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "Sunny."
"""

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
read_only = true

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
    done = remit("ask", "what is the weather like today?", folder=team)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Sunny.")
    assert "Looking at the sky…" in done.stderr


def test_a_question_can_be_replied_to_in_its_session(team: Path) -> None:
    first = remit("ask", "order a pizza", "--session", "s", folder=team)
    assert "I need one more thing: size (small or large)." in first.stdout
    assert 'Reply with: remit ask --session s "…"' in first.stderr
    back = remit("ask", "size: large", "--session", "s", folder=team)
    assert "Order a pizza (size: large)?" in back.stdout
    done = remit("ask", "yes", "--session", "s", folder=team)
    assert "One large pizza is on its way." in done.stdout


def test_a_user_reads_what_is_done_and_not_who_does_it(team: Path) -> None:
    """K6: on stderr as in the answer; whoever wants to know can see it."""
    arguments = ("ask", "what is the weather like today?")
    plain = remit(*arguments, folder=team)
    assert plain.stderr.splitlines()[0] == "Looking at the sky…"
    assert not any(name in plain.stdout + plain.stderr for name in ("sky:", "WEATHER", "orchestrator"))
    done = remit(*arguments, "--verbose", folder=team)
    assert "orchestrator asks sky" in done.stderr
    remit("ask", "order a pizza", "--input", '{"size": "huge"}', "--session", "s", folder=team)
    failed = remit("ask", "yes", "--session", "s", folder=team)
    assert failed.returncode == 2
    assert "This could not be done: the details for it were not complete or not right: size." in failed.stderr
    assert "kitchen" not in failed.stderr


def test_a_user_reads_nothing_of_an_exception(team: Path) -> None:
    """K6: neither its text nor the agent that raised it; with --verbose there is both."""
    (team / "desk.py").write_text(dedent(CODE).replace('return "Sunny."', 'raise ValueError("quux")'), encoding="utf-8")
    arguments = "ask", "what is the weather like today?"
    plain = remit(*arguments, folder=team)
    assert "This could not be done: something went wrong on the way. It can be tried again." in plain.stderr
    assert not any(
        name in plain.stdout + plain.stderr for name in ("sky:", "agent sky", "quux", "ValueError", "FAILED")
    )
    assert "ValueError: quux" in remit(*arguments, "--verbose", folder=team).stderr
    output = json.loads(remit(*arguments, "--json", folder=team).stdout)
    assert (output["fault"]["code"], output["summary"]) == (
        "DELEGATION_FAILED",
        "This could not be done: something went wrong on the way. It can be tried again.",
    )


def test_at_a_terminal_each_thing_that_is_done_has_a_line_with_how_long_it_takes(team: Path) -> None:
    """K6."""
    (team / "desk.py").write_text(dedent(CODE).replace('    return "Sunny."', SLOWLY), encoding="utf-8")
    with Terminal([REMIT, "ask", "what is the weather like today?"], folder=team, width=60) as terminal:
        terminal.wait_for("Looking at the sky… 1 s")
        (team / "go").touch()
        assert terminal.wait() == 0
        lines = terminal.screen.splitlines()
    assert lines[0].startswith("Looking at the sky… ")
    assert "Sunny." in lines
    assert not any("orchestrator" in line for line in lines)


def test_what_waits_for_a_person_is_said_without_a_name(team: Path) -> None:
    """K6."""
    with (team / "remit.toml").open("a", encoding="utf-8") as file:
        file.write('[[rules]]\nthen = "ask"\nto = "sky"\nsay = "May we look?"\n')
    asking = popen(
        [REMIT, "ask", "what is the weather like today?"],
        cwd=team,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert asking.stderr is not None
    errors = [next(asking.stderr) for _ in range(3)]
    assert errors[1] == "This waits for approval: May we look?\n"
    assert remit(*errors[2].split()[2:], folder=team).returncode == 0
    answer, _ = asking.communicate(timeout=PATIENCE_S)
    assert (asking.returncode, answer.startswith("Sunny.")) == (0, True)


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
