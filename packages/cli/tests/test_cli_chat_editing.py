"""The input line of `remit chat` at a terminal: keys, pasted text, wide letters, history, windows of other sizes."""

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crew import REMIT, documents, make_crew, remit
from terminals import Terminal

LEFT, RIGHT, UP, DOWN, HOME, END, DELETE = (f"\x1b[{key}" for key in ("D", "C", "A", "B", "H", "F", "3~"))
BACKSPACE, CTRL_A, CTRL_E, CTRL_K, CTRL_U, CTRL_W, CTRL_R = "\x7f", "\x01", "\x05", "\x0b", "\x15", "\x17", "\x12"


def pasted(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


@pytest.fixture
def crew(tmp_path: Path) -> Path:
    return make_crew(tmp_path)


@contextmanager
def opened(crew: Path, agent: str, *arguments: str, **options: Any) -> Generator[Terminal]:
    """Begin a conversation, up to its first prompt."""
    with Terminal([REMIT, "chat", agent, *arguments], folder=crew, **options) as terminal:
        terminal.wait_until(lambda screen: screen.endswith("\n>"), "the prompt")
        yield terminal


def answer_to(terminal: Terminal, typed: str, answer: str) -> str:
    """Return the screen once what is typed has been answered, and the next can be typed."""
    terminal.type(typed + "\r")
    return terminal.wait_until(
        lambda screen: bool(re.search(rf"\n{re.escape(answer)}\nsuccess.*\n(.*\n)?>$", screen)), answer
    )


# ── within a line ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("typed", "entered"),
    [
        (f"the wold{LEFT}{LEFT}r", "the world"),
        (f"orld{HOME}the w{END}!", "the world!"),
        (f"orld{CTRL_A}the w{CTRL_E}?", "the world?"),
        (f"the xworld{LEFT * 5}{BACKSPACE}{RIGHT * 2}{LEFT * 2}", "the world"),
        (f"xthe world{HOME}{DELETE}", "the world"),
        (f"the moon{CTRL_W}world", "the world"),
        (f"nonsense{CTRL_U}the world", "the world"),
        (f"the world and more{LEFT * 9}{CTRL_K}", "the world"),
    ],
)
def test_a_line_is_edited_in_its_middle(crew: Path, typed: str, entered: str) -> None:
    with opened(crew, "hello") as terminal:
        screen = answer_to(terminal, typed, f"hello {entered}")
    assert f"\n> {entered}\nhello " in screen


@pytest.mark.parametrize(
    ("typed", "entered"),
    [
        (f"日本x{LEFT}語{DELETE}", "日本語"),
        (f"日本人語{LEFT}{BACKSPACE}", "日本語"),
        (f"本語{LEFT * 2}日{RIGHT * 2}!", "日本語!"),
        (f"a🎉b🚀c{LEFT * 3}{BACKSPACE}{END}d", "ab🚀cd"),
        (f"u\u0308ber{HOME}日", "日u\u0308ber"),
    ],
)
def test_wide_letters_are_edited_as_they_look(crew: Path, typed: str, entered: str) -> None:
    with opened(crew, "hello") as terminal:
        terminal.type(typed)
        terminal.wait_until(lambda screen: screen.endswith(f"\n> {entered}"), "what was typed, as it was meant")
        answer_to(terminal, "", f"hello {entered}")


def test_a_line_that_is_longer_than_the_window_is_edited_in_all_its_rows(crew: Path) -> None:
    words = " ".join(f"word{number}" for number in range(20))
    with opened(crew, "hello", width=40) as terminal:
        terminal.type(words)
        terminal.wait_until(lambda screen: screen.endswith("word19"))
        screen = answer_to(terminal, f"{HOME}many: {END}!", f"hello many: {words}!")
    assert screen.count("word19") == 2, "once as it was entered, and once in the answer"


# ── several lines ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pasted_lines_are_one_message_that_can_be_edited_before_it_is_entered(crew: Path) -> None:
    with opened(crew, "hello") as terminal:
        terminal.type(pasted("one\r\ntwo\nthree"))
        screen = terminal.wait_until(lambda screen: screen.endswith("three"))
        assert screen.endswith("\n> one\n… two\n… three")
        assert "success" not in screen, "nothing is sent before it is entered"
        answer_to(terminal, f"{UP}{CTRL_E}!", "hello one\ntwo!\nthree")


def test_no_control_character_that_is_pasted_reaches_the_terminal(crew: Path) -> None:
    """The terminal of the tests fails on every sequence that it does not know."""
    with opened(crew, "hello") as terminal:
        terminal.type(pasted("a\x1b[2J\x1b]0;title\x07\u202eb"))
        terminal.wait_until(lambda screen: screen.endswith("b"))
        terminal.type("\r")
        terminal.wait_until(lambda screen: "success" in screen and screen.endswith("\n>"))
    assert b"\x1b[2J" not in terminal.raw
    assert "\u202e" not in terminal.raw.decode()


# ── history ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_earlier_requests_are_found_with_the_arrow_keys_and_by_searching(crew: Path) -> None:
    with opened(crew, "hello", "--session", "s-1") as terminal:
        answer_to(terminal, "first", "hello first")
        answer_to(terminal, pasted("two\nlines"), "hello two\nlines")
        answer_to(terminal, "third", "hello third")
        terminal.type(f"new{UP}")
        terminal.wait_until(lambda screen: screen.endswith("\n> third"))
        terminal.type(UP)
        terminal.wait_until(lambda screen: screen.endswith("\n> two\n… lines"))
        terminal.type(f"{UP}{UP}")
        terminal.wait_until(lambda screen: screen.endswith("\n> first"))
        terminal.type(DOWN * 4)
        terminal.wait_until(lambda screen: screen.endswith("\n> new"))
        terminal.type(f"{CTRL_U}{CTRL_R}fir")
        terminal.wait_until(lambda screen: "> first" in screen.rpartition("success")[2])
        answer_to(terminal, "\r", "hello first")
        terminal.type("\x04")
        assert terminal.wait() == 0
    with opened(crew, "hello", "--session", "s-1") as terminal:
        terminal.type(f"{UP}{UP}")
        terminal.wait_until(lambda screen: screen.endswith("\n> third"))
        terminal.type("\x03\x04")
        assert terminal.wait() == 0


# ── while an answer is made ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_typed_stays_whole_while_an_answer_comes(crew: Path) -> None:
    with opened(crew, "speaker") as terminal:
        terminal.type("the end\r")
        terminal.wait_for("two words,\nand many more, ")
        terminal.type(f"日本x{LEFT}語")
        terminal.wait_until(lambda screen: screen.endswith("  日本語x"))
        (crew / "go").touch()
        screen = terminal.wait_until(lambda screen: "success" in screen and screen.endswith("\n> 日本語x"))
        assert "\nand many more, and many more, " in screen
        terminal.type(f"{DELETE}\r")
        screen = terminal.wait_until(lambda screen: screen.count("success") == 2 and screen.endswith("\n>"))
    assert "\n> 日本語\nOne word, two words,\n" + "and many more, " * 10 + "and 日本語.\n" in screen


def test_pasted_lines_are_one_message_also_while_an_answer_is_made(crew: Path) -> None:
    with opened(crew, "worker") as terminal:
        terminal.type("first\r")
        terminal.wait_for("half done")
        terminal.type(pasted("two\nlines") + "\r")
        terminal.wait_for("Queued: two lines\n")
        (crew / "go").touch()
        terminal.wait_for("\ntwo\nlines done\n")


def test_control_c_at_the_prompt_leaves_nobody_also_after_a_cancelled_answer(crew: Path) -> None:
    with opened(crew, "worker") as terminal:
        terminal.type("first\r")
        terminal.wait_for("half done")
        terminal.type("\x03")
        terminal.wait_until(lambda screen: "cancelled in" in screen and screen.endswith("\n>"))
        for times in (1, 2):
            terminal.type("\x03")
            terminal.wait_until(
                lambda screen, times=times: screen.count("(Ctrl-D or /quit") == times and screen.endswith("\n>")
            )
        (crew / "go").touch()
        answer_to(terminal, "second", "second done")


# ── the window ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_window_of_another_size_keeps_what_is_typed(crew: Path) -> None:
    words = " ".join(f"word{number}" for number in range(12))
    with opened(crew, "hello", width=100) as terminal:
        terminal.type(words)
        terminal.wait_until(lambda screen: screen.endswith(words))
        for width in (50, 120):
            before = len(terminal.raw)
            terminal.resize(width, 20)
            terminal.wait_until(lambda screen, before=before: len(terminal.raw) > before and screen.endswith("word11"))
        terminal.type(f"{LEFT * 2}x")
        terminal.wait_until(lambda screen: screen.endswith("wordx11"))
        answer_to(terminal, "", f"hello {words[:-2]}x11")


def test_a_window_that_is_closed_cancels_the_answer_and_ends_the_conversation(crew: Path) -> None:
    with opened(crew, "worker") as terminal:
        terminal.type("first\r")
        terminal.wait_for("half done")
        terminal.hang_up()
        terminal.wait()
    (shown,) = documents(remit(crew, "runs", "show", "last", "--json"))
    assert shown["status"] == "cancelled"


# As much of a shell as a suspended process needs.
SHELL = """
import os, signal, sys, termios

signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if not child:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(child, os.WUNTRACED)
os.tcsetpgrp(0, os.getpgrp())
print("suspended", os.WIFSTOPPED(status), "echo", bool(termios.tcgetattr(0)[3] & termios.ECHO), flush=True)
os.tcsetpgrp(0, child)
os.kill(child, signal.SIGCONT)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_control_z_gives_the_terminal_back_and_what_was_typed_is_there_afterwards(crew: Path) -> None:
    with Terminal([sys.executable, "-c", SHELL, REMIT, "chat", "hello"], folder=crew) as terminal:
        terminal.wait_until(lambda screen: screen.endswith("\n>"), "the prompt")
        terminal.type("the wor")
        terminal.wait_until(lambda screen: screen.endswith("the wor"))
        terminal.type("\x1a")
        terminal.wait_until(lambda screen: screen.endswith("suspended True echo True\n> the wor"))
        answer_to(terminal, "ld", "hello the world")
        terminal.type("\x04")
        assert terminal.wait() == 0
