"""`remit chat` at a terminal: the answer as it comes, the line that is typed meanwhile, Ctrl-C, and who is asked."""

import re
import termios
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crew import REMIT, make_crew, remit
from terminals import Terminal

ENDED = re.compile(r"^(success|partial|failed|cancelled|refused)\b", re.MULTILINE)


@pytest.fixture
def crew(tmp_path: Path) -> Path:
    return make_crew(tmp_path)


@contextmanager
def opened(crew: Path, agent: str, *arguments: str, **options: Any) -> Generator[Terminal]:
    """Begin a conversation, up to its first prompt."""
    with Terminal([REMIT, "chat", agent, *arguments], folder=crew, **options) as terminal:
        terminal.wait_until(lambda screen: "/help lists commands" in screen and screen.endswith("\n>"))
        yield terminal


def answered(terminal: Terminal, times: int = 1) -> str:
    """Return the screen once so many answers have been given, and the next can be typed."""
    return terminal.wait_until(
        lambda screen: len(ENDED.findall(screen)) == times and screen.endswith("\n>"), f"{times} answers"
    )


# ── an answer ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_answer_is_shown_as_it_comes_and_only_once(crew: Path) -> None:
    with opened(crew, "speaker") as terminal:
        terminal.type("the end\r")
        screen = terminal.wait_for("two words,\nand many more, and many more, ")
        assert "the end." not in screen
        (crew / "go").touch()
        screen = answered(terminal)
        assert "One word, two words,\n" + "and many more, " * 10 + "and the end.\nsuccess in " in screen
        assert screen.count("One word") == 1
        terminal.type("\x04")
        assert terminal.wait() == 0


def test_calls_are_shown_between_what_the_agent_says(crew: Path) -> None:
    with opened(crew, "planner") as terminal:
        terminal.type("it\r")
        terminal.wait_for("  planner → worker: it\n", "… worker ")
        (crew / "go").touch()
        screen = answered(terminal)
        assert re.search(r"\n  worker returned: SUCCESS \(100 tokens, .*\) tools: look\n", screen)
        assert screen.count("It is done:") == 1
        assert screen.count("it done") == 1
        assert "… worker" not in screen, "the line that shows who is at work is gone"


def test_no_control_character_of_an_agent_reaches_the_terminal(crew: Path) -> None:
    """The terminal of the tests fails on every sequence that it does not know."""
    (crew / "go").touch()
    with opened(crew, "speaker", env={"NO_COLOR": "1"}) as terminal:
        terminal.type("x\r")
        answered(terminal)
        assert b"\x1b[2J" not in terminal.raw
        assert b"\x1b[2m" not in terminal.raw, "there are no colours where none are wanted"


def test_an_answer_that_is_no_text_is_shown_as_json_and_what_agents_print_above_it(crew: Path) -> None:
    with opened(crew, "noisy") as terminal:
        terminal.type("x\r")
        screen = answered(terminal)
    assert "said by the agent\n" in screen
    assert screen.index("said by the agent") < screen.index('  "a": 1,')
    assert b"\x1b[31m" not in terminal.raw


def test_the_answer_goes_to_a_file_as_a_whole(crew: Path) -> None:
    (crew / "go").touch()
    answers = crew / "answers.txt"
    with opened(crew, "planner", stdout=answers) as terminal:
        terminal.type("it\r")
        answered(terminal)
        terminal.type("/quit\r")
        assert terminal.wait() == 0
    assert answers.read_text(encoding="utf-8") == "It is done: it done\n"
    assert "It is done" not in terminal.screen


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"PYTHONIOENCODING": "latin-1", "LC_ALL": "C", "NO_COLOR": "1"}])
def test_a_terminal_that_can_do_little_is_asked_for_little(crew: Path, env: dict[str, str]) -> None:
    (crew / "go").touch()
    with opened(crew, "planner", env=env) as terminal:
        terminal.type("it\r")
        screen = answered(terminal)
    # What is recorded is shown once it is on disk, and what is said at once: that may be in the middle of a sentence.
    assert screen.count("\n  worker returned: SUCCESS ") == 1
    text = re.sub(r"\n  .*", "", screen)
    assert text.replace("\n", " ").count("It is done: it done ") == 1
    assert b"\x1b" not in terminal.raw if env.get("TERM") else terminal.raw.isascii()


# ── what is typed ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_can_be_edited_and_an_earlier_one_taken_again(crew: Path) -> None:
    with opened(crew, "hello", "--session", "s-1") as terminal:
        terminal.type("wold\x1b[D\x1b[Dr\r")
        assert "\nhello world\n" in answered(terminal)
        terminal.type("\x1b[A!\r")
        assert "\nhello world!\n" in answered(terminal, 2)
        terminal.type("/his\t2\r")
        terminal.wait_for("> /history 2\n", "you\n    world!\n", "hello world!\n>")
        terminal.type("\x04")
        assert terminal.wait() == 0
    with opened(crew, "hello", "--session", "s-1") as terminal:
        terminal.type("\x1b[A?\r")
        assert "\nhello world!?\n" in answered(terminal)


def test_pasted_text_and_lines_that_go_on_are_one_request(crew: Path) -> None:
    with opened(crew, "hello") as terminal:
        terminal.type("\x1b[200~one\ntwo\x1b[201~")
        terminal.wait_for("two")
        terminal.type("\r")
        answered(terminal)
        terminal.type("three\\\rfour\r")
        answered(terminal, 2)
        terminal.type("/quit\r")
        assert terminal.wait() == 0
    assert "hello one\ntwo\n" in terminal.screen
    assert "hello three\nfour\n" in terminal.screen


def test_what_is_typed_meanwhile_is_shown_and_asked_next_or_typed_on(crew: Path) -> None:
    with opened(crew, "worker") as terminal:
        terminal.type("first\r")
        terminal.wait_for("half done")
        terminal.type("secx\x7fo")
        terminal.wait_until(lambda screen: bool(re.search(r"… worker .*  seco$", screen)), "what was typed")
        terminal.type("nd\r")
        terminal.wait_for("Queued: second\n")
        terminal.type("/budget\rthi")
        terminal.wait_for("an answer may take 1,000,000 tokens")
        (crew / "go").touch()
        terminal.wait_until(lambda screen: len(ENDED.findall(screen)) == 2 and screen.endswith("\n> thi"))
        terminal.type("rd\r")
        screen = answered(terminal, 3)
    for word in ("first", "second", "third"):
        assert f"\n{word} done\n" in screen


# ── stopping ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("typed", ["\x03", "/cancel\r"])
def test_an_answer_can_be_stopped_and_the_conversation_goes_on(crew: Path, typed: str) -> None:
    with opened(crew, "worker") as terminal:
        terminal.type("first\r")
        terminal.wait_for("half done")
        terminal.type(typed)
        screen = answered(terminal)
        assert "\nhalf\ncancelled in " in screen
        (crew / "go").touch()
        terminal.type("second\r")
        assert "\nsecond done\n" in answered(terminal, 2)
        terminal.type("\x04")
        assert terminal.wait() == 0


def test_control_c_at_the_prompt_drops_the_line(crew: Path) -> None:
    with opened(crew, "hello") as terminal:
        terminal.type("nonsense")
        terminal.wait_for("> nonsense")
        terminal.type("\x03")
        terminal.wait_until(lambda screen: screen.endswith("(Ctrl-D or /quit to exit.)\n>"))
        terminal.type("you\r")
        assert "\nhello you\n" in answered(terminal)
        terminal.type("/quit\r")
        assert terminal.wait() == 0


def test_control_d_meanwhile_leaves_after_the_answer_and_quit_stops_it(crew: Path) -> None:
    with opened(crew, "worker") as terminal:
        terminal.type("first\r")
        terminal.wait_for("half done")
        terminal.type("\x04")
        terminal.wait_for("Exiting after this answer")
        (crew / "go").touch()
        assert terminal.wait() == 0
        assert "\nfirst done\n" in terminal.screen
    (crew / "go").unlink()
    with opened(crew, "worker") as terminal:
        terminal.type("first\r")
        terminal.wait_for("half done")
        terminal.type("/quit\r")
        assert terminal.wait() == 130
        assert "\nhalf\ncancelled in " in terminal.screen


def test_a_second_control_c_leaves_at_once_and_gives_the_terminal_back(crew: Path) -> None:
    with opened(crew, "deaf", "--set", "limits.grace=60s") as terminal:
        terminal.type("x\r")
        terminal.wait_for("hears nothing", "… deaf ")
        assert not termios.tcgetattr(terminal.number)[3] & termios.ECHO
        terminal.type("\x03")
        terminal.wait_for("press Ctrl-C again to exit at once")
        terminal.type("\x03")
        assert terminal.wait() == 130
        assert termios.tcgetattr(terminal.number)[3] & termios.ECHO


def test_an_agent_that_nothing_stops_keeps_nobody_from_going_on_or_leaving(crew: Path) -> None:
    with opened(crew, "deaf") as terminal:
        terminal.type("x\r")
        terminal.wait_for("hears nothing")
        terminal.type("\x03")
        assert "\ncancelled in " in answered(terminal)
        terminal.type("/quit\r")
        assert terminal.wait() == 130


def test_what_was_answered_before_a_kill_is_shown_when_the_conversation_goes_on(crew: Path) -> None:
    (crew / "go").touch()
    with opened(crew, "speaker", "--session", "s-1") as terminal:
        terminal.type("first\r")
        answered(terminal)
        (crew / "go").unlink()
        terminal.type("second\r")
        terminal.wait_until(lambda screen: screen.count("two words,\nand many more, ") == 2)
        terminal.process.kill()
        terminal.wait()
    (crew / "go").touch()
    with opened(crew, "speaker", "--session", "s-1", width=60) as terminal:
        screen = terminal.screen
        assert "Earlier in this conversation (/history shows more):\n  you: first\n  speaker: One word, " in screen
        assert "\n  you: second\n  (no answer)\n>" in screen
        terminal.type("third\r")
        assert "and third.\nsuccess" in answered(terminal)


# ── the person at the terminal ────────────────────────────────────────────────────────────────────────────────────────

AT_TERMINAL = ("--set", "approvals.otherwise=terminal")
QUESTION = "? show all >"


def test_a_person_is_asked_in_the_conversation(crew: Path) -> None:
    with opened(crew, "boss", *AT_TERMINAL) as terminal:
        terminal.type("pay\r")
        screen = terminal.wait_for(QUESTION)
        assert "Approval needed: May the payer pay?" in screen
        terminal.type("y\n")
        screen = answered(terminal)
        assert "Approved.\n  boss → payer: the invoice\n  payer returned: SUCCESS" in screen
        assert "\npaid the invoice {'amount': 30}\n" in screen
        terminal.type("pay\r")
        terminal.wait_until(lambda screen: screen.count(QUESTION) == 2)
        terminal.type("n\n")
        terminal.wait_for("Reason (optional):")
        terminal.type("too much\n")
        assert "\nAPPROVAL_DECLINED\n" in answered(terminal, 2)
        terminal.type("pay\r")
        terminal.wait_until(lambda screen: screen.count(QUESTION) == 3)
        terminal.type("\x03")
        assert "cancelled in" in answered(terminal, 3)


def test_a_question_that_goes_to_the_inbox_is_announced(crew: Path) -> None:
    with opened(crew, "boss") as terminal:
        terminal.type("pay\r")
        screen = terminal.wait_until(lambda screen: bool(re.search(r"→ remit pending approve \S+\n", screen)))
        (question,) = re.findall(r"→ remit pending approve (\S+)\n", screen)
        assert remit(crew, "pending", "approve", question).returncode == 0
        assert "\npaid the invoice" in answered(terminal)
