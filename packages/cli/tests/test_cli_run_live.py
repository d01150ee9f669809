"""`remit run` at a terminal: the live tree, Ctrl-C, and the person who is asked."""

from pathlib import Path

import msgspec
import pytest

from crew import REMIT, make_crew, remit
from remit_server.documents.runs import RunDetails
from terminals import Terminal


@pytest.fixture
def crew(tmp_path: Path) -> Path:
    return make_crew(tmp_path)


def last_run(crew: Path) -> RunDetails:
    return msgspec.json.decode(remit(crew, "runs", "show", "last", "--json").stdout, type=RunDetails)


# ── the tree ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_tree_is_redrawn_in_place_and_stays_in_the_end(crew: Path) -> None:
    with Terminal([REMIT, "run", "lead", "Sort"], folder=crew) as terminal:
        screen = terminal.wait_until(lambda screen: screen.count("half done red") == 2)
        assert screen.count("lead  ") == 1
        assert "waiting" in screen
        assert "running" in screen
        (crew / "go").touch()
        assert terminal.wait() == 0
    lines = terminal.screen.splitlines()
    assert [line.split()[:3] for line in lines[1:5]] == [
        ["lead", "success", lines[1].split()[2]],
        ["├─", "worker", "success"],
        ["├─", "worker", "success"],
        ["└─", "lead", "refused"],
    ]
    assert "running" not in terminal.screen
    assert lines[-4:] == ["[", '  "first done",', '  "second done"', "]"]


def test_what_the_agent_says_is_shown_below_the_tree_until_it_has_answered(crew: Path) -> None:
    with Terminal([REMIT, "run", "speaker", "the end"], folder=crew, width=60, height=12) as terminal:
        screen = terminal.wait_for("One word, two words,\nand many more, ")
        assert screen.index("speaker") < screen.index("One word")
        assert len(screen.splitlines()) <= 11
        (crew / "go").touch()
        assert terminal.wait() == 0
    assert terminal.screen.count("One word, two words,") == 1
    assert terminal.screen.endswith("and the end.\n")


def test_the_answer_goes_to_the_file_and_the_tree_to_the_terminal(crew: Path) -> None:
    answer = crew / "answer.txt"
    with Terminal([REMIT, "run", "hello", "you"], folder=crew, stdout=answer) as terminal:
        assert terminal.wait() == 0
    assert answer.read_text(encoding="utf-8") == "hello you\n"
    assert "hello  success" in terminal.screen


def test_no_control_character_of_an_agent_reaches_the_terminal(crew: Path) -> None:
    """The terminal of the tests fails on every sequence that it does not know."""
    (crew / "go").touch()
    for agent in ("worker", "noisy"):
        with Terminal([REMIT, "run", agent, "\x1b[2Jevil\x07\u202e"], folder=crew) as terminal:
            assert terminal.wait() == 0
        assert "\x1b[2J" not in terminal.raw.decode()
        assert "\u202e" not in terminal.screen


def test_what_agents_print_appears_above_the_tree(crew: Path) -> None:
    with Terminal([REMIT, "run", "noisy", "x"], folder=crew) as terminal:
        assert terminal.wait() == 0
    screen = terminal.screen
    assert screen.index("said by the agent") < screen.index("noisy  success")


@pytest.mark.parametrize(("width", "height"), [(100, 5), (40, 24), (20, 6)])
def test_a_small_terminal_shows_no_more_than_it_can(crew: Path, width: int, height: int) -> None:
    with Terminal([REMIT, "run", "lead", "Sort"], folder=crew, width=width, height=height) as terminal:
        screen = terminal.wait_for("worker")
        tree = screen.splitlines()
        assert len(tree) <= height - 1
        assert max(map(len, tree)) < width
        (crew / "go").touch()
        assert terminal.wait() == 0


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"TERM": ""}])
def test_a_terminal_that_cannot_redraw_gets_lines(crew: Path, env: dict[str, str]) -> None:
    with Terminal([REMIT, "run", "hello", "you"], folder=crew, env=env) as terminal:
        assert terminal.wait() == 0
    assert b"\x1b" not in terminal.raw
    assert "0.00  " in terminal.screen


def test_without_colours_the_tree_has_none(crew: Path) -> None:
    with Terminal([REMIT, "run", "failing", "x"], folder=crew, env={"NO_COLOR": "1"}) as terminal:
        assert terminal.wait() == 1
    assert b"\x1b[3" not in terminal.raw
    assert "failing  failed" in terminal.screen


def test_a_terminal_without_unicode_gets_plain_letters(crew: Path) -> None:
    (crew / "go").touch()
    with Terminal([REMIT, "run", "lead", "x"], folder=crew, env={"PYTHONIOENCODING": "latin-1"}) as terminal:
        assert terminal.wait() == 0
    assert "`- lead" in terminal.screen
    assert terminal.raw.isascii()


# ── Ctrl-C ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_control_c_cancels_and_says_what_was_kept(crew: Path) -> None:
    with Terminal([REMIT, "run", "worker", "x"], folder=crew) as terminal:
        terminal.wait_for("half done")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert "Stopping; press Ctrl-C again to exit at once." in terminal.screen
    assert "worker  cancelled" in terminal.screen
    assert terminal.screen.splitlines()[-1] == "half"
    run = last_run(crew)
    assert (run.status, run.finished, run.result) == ("cancelled", ("one",), "half")
    assert f"→ remit runs show {run.run[:16]}" in terminal.screen


def test_a_second_control_c_leaves_at_once_and_gives_the_cursor_back(crew: Path) -> None:
    with Terminal([REMIT, "run", "stubborn", "x", "--set", "limits.grace=60s"], folder=crew) as terminal:
        terminal.wait_for("stubborn  running")
        terminal.type("\x03")
        terminal.wait_for("press Ctrl-C again to exit at once")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l")


# ── the person at the terminal ────────────────────────────────────────────────────────────────────────────────────────

AT_TERMINAL = ("--set", "approvals.otherwise=terminal")
PROMPT = "? show all >"


def test_a_yes_lets_the_request_go_on_and_is_recorded_with_who_said_it(crew: Path) -> None:
    with Terminal([REMIT, "run", "boss", "x", *AT_TERMINAL], folder=crew) as terminal:
        screen = terminal.wait_for(PROMPT)
        assert "Approval needed: May the payer pay?" in screen
        assert "boss asks payer: the invoice, with amount = 30" in screen
        assert '{ "amount": 30 }' in screen
        assert "10 min to answer" in screen
        assert "waiting" not in screen, "the tree is not drawn over the question"
        terminal.type("y\n")
        assert terminal.wait() == 0
    assert "Approved." in terminal.screen
    assert terminal.screen.splitlines()[-1] == "paid the invoice {'amount': 30}"
    (approval,) = last_run(crew).approvals
    assert (approval.agreed, approval.by) == (True, last_run(crew).user)


def test_a_yes_to_what_the_terminal_has_cut_counts_once_all_of_it_was_shown(crew: Path) -> None:
    long = f"Pay Bob.{' Thanks.' * 60} And pay Eve."
    with Terminal([REMIT, "run", "payer", long, *AT_TERMINAL], folder=crew) as terminal:
        assert "And pay Eve." not in terminal.wait_for(PROMPT)
        terminal.type("y\n")
        screen = terminal.wait_for("Type your answer again.")
        assert "And pay Eve." in "".join(screen.split("\n")).replace("  ", " ")
        assert "Approved." not in screen
        terminal.wait_until(lambda screen: screen.count(PROMPT) == 2)
        terminal.type("y\n")
        assert terminal.wait() == 0
    assert "Approved." in terminal.screen


def test_a_no_refuses_it_with_the_reason(crew: Path) -> None:
    with Terminal([REMIT, "run", "payer", "x", *AT_TERMINAL], folder=crew) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("n\n")
        terminal.wait_for("Reason (optional):")
        terminal.type("too much\n")
        assert terminal.wait() == 4
    assert last_run(crew).approvals[0].reason == "too much"


def test_what_the_person_edits_is_what_is_asked(crew: Path) -> None:
    with Terminal([REMIT, "run", "boss", "x", *AT_TERMINAL], folder=crew, env={"EDITOR": "", "VISUAL": ""}) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("e\n")
        terminal.wait_for("New input (JSON)")
        terminal.type('{"amount": 3}\n')
        terminal.wait_for("New objective;")
        terminal.type("\n")
        assert terminal.wait() == 0
    assert terminal.screen.splitlines()[-1] == "paid the invoice {'amount': 3}"
    assert last_run(crew).approvals[0].edited == ("input",)


FORM = """
from typing import Literal
from msgspec import Struct
from remit import Brief

class Booking(Struct):
    name: str
    seat: Literal["aisle", "window"] = "aisle"
    bags: int = 1

async def book(brief: Brief) -> object:
    return await brief.fill("Which seat?", Booking)
"""


def test_a_form_is_filled_in_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text('[approvals]\notherwise = "terminal"\n[agents.travel]\nrun = "travel:book"\n')
    (tmp_path / "travel.py").write_text(FORM)
    with Terminal([REMIT, "run", "travel", "x"], folder=tmp_path) as terminal:
        screen = terminal.wait_for(PROMPT)
        assert "seat: one of aisle, window" in screen
        terminal.type("y\n")
        terminal.wait_until(lambda screen: "the form is not filled in: name" in screen and screen.endswith(PROMPT))
        terminal.type("e\n")
        terminal.wait_for("name (required): string:")
        terminal.type("Bo\n")
        terminal.wait_for("seat: one of aisle, window [aisle]:")
        terminal.type("window\n")
        terminal.wait_for("bags: integer [1]:")
        terminal.type("\n")
        assert terminal.wait() == 0
    assert last_run(tmp_path).result == {"name": "Bo", "seat": "window", "bags": 1}


def test_an_editor_is_used_where_there_is_one(crew: Path) -> None:
    editor = crew / "editor"
    editor.write_text('#!/bin/sh\ncase "$1" in *.json) echo \'{"amount": 7}\' > "$1";; esac\n', encoding="utf-8")
    editor.chmod(0o755)
    with Terminal([REMIT, "run", "boss", "x", *AT_TERMINAL], folder=crew, env={"VISUAL": str(editor)}) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("e\n")
        assert terminal.wait() == 0
    assert terminal.screen.splitlines()[-1] == "paid the invoice {'amount': 7}"


def test_an_edit_that_cannot_be_used_is_asked_for_again(crew: Path) -> None:
    with Terminal([REMIT, "run", "boss", "x", *AT_TERMINAL], folder=crew, env={"EDITOR": "", "VISUAL": ""}) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("e\n")
        terminal.wait_for("New input (JSON)")
        terminal.type("{\n")
        terminal.wait_for("Invalid value")
        terminal.wait_until(lambda screen: screen.count(PROMPT) == 2)
        terminal.type("\x04")
        assert terminal.wait() == 0
    assert terminal.screen.splitlines()[-1] == "APPROVAL_DECLINED"


def test_what_was_typed_before_the_question_is_no_answer_to_it(crew: Path) -> None:
    with Terminal([REMIT, "run", "boss", "x", *AT_TERMINAL], folder=crew) as terminal:
        terminal.type("y\n")
        terminal.wait_for(PROMPT)
        terminal.type("n\n")
        terminal.wait_for("Reason (optional):")
        terminal.type("\n")
        assert terminal.wait() == 0
    assert terminal.screen.splitlines()[-1] == "APPROVAL_DECLINED"


def test_control_c_at_the_question_cancels_the_run(crew: Path) -> None:
    with Terminal([REMIT, "run", "boss", "x", *AT_TERMINAL], folder=crew) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert "└─ payer  not begun" in terminal.screen


def test_a_question_that_nobody_answers_in_time_counts_as_a_no(crew: Path) -> None:
    arguments = [*AT_TERMINAL, "--set", "approvals.timeout=1s"]
    with Terminal([REMIT, "run", "boss", "x", *arguments], folder=crew) as terminal:
        assert terminal.wait() == 0
    assert terminal.screen.splitlines()[-1] == "APPROVAL_DECLINED"
