"""Colours: in a terminal, where `FORCE_COLOR` asks for them, and never with `NO_COLOR`."""

from pathlib import Path

import pytest

from command_line import REMIT, make_team, remit
from terminals import Terminal

BOLD, GREEN, RED = "\x1b[1m", "\x1b[32m", "\x1b[31m"


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("office")
    make_team(folder)
    assert remit("run", "counter", "One two", folder=folder).returncode == 0
    return folder


COMMANDS = (
    (("runs", "list"), BOLD),
    (("runs", "show", "last"), BOLD),
    (("runs", "tree", "last"), GREEN),
    (("agents", "list"), BOLD),
    (("doctor",), GREEN),
    (("policy", "explain", "user", "counter", "One"), GREEN),
    (("policy", "explain", "counter", "reader", "One"), RED),
    (("run", "counter", "One two"), BOLD),
)


@pytest.mark.parametrize(("command", "colour"), COMMANDS, ids=lambda each: " ".join(each) if each[0] != "\x1b" else "")
def test_force_color_colours_a_pipe_and_no_color_wins(office: Path, command: tuple[str, ...], colour: str) -> None:
    assert colour in remit(*command, folder=office, NO_COLOR="", FORCE_COLOR="1").stdout
    for variables in ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"NO_COLOR": ""}, {"NO_COLOR": "", "FORCE_COLOR": "0"}):
        assert "\x1b" not in remit(*command, folder=office, **variables).stdout


def test_the_answer_of_a_run_stands_out_in_a_terminal(office: Path) -> None:
    with Terminal([REMIT, "run", "counter", "One two"], folder=office) as terminal:
        assert terminal.wait() == 0
    assert b"\x1b[1mletters 6, words 2, sentences 1\x1b[0m" in terminal.raw
