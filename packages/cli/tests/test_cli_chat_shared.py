"""`remit chat PROFILE DEVICE`: a person watches two agents work, decides what is sent, and steps in."""

import getpass
import json
import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from checkout import TESTS
from command_line import REMIT, document, environment, remit
from commands import forked_command, popen
from shared_teams import device_of, introduce, make_annas, make_bobs, relay, up
from terminals import Terminal
from waiting import PATIENCE_S

# What it drafts, and how it fails, its objective says; it is done when that says so, or after two turns.
AGENT = r"""
import json, pathlib, sys, time

for line in sys.stdin:
    asked = json.loads(line)
    turn, objective = asked["turn_index"], asked["objective"]
    if "crash" in objective and not pathlib.Path("repaired").exists():
        sys.exit(3)
    if "slowly" in objective:
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
    text = f"message {turn} about {objective}"
    if "link" in objective:
        text += " https://example.com/page"
    if "rude" in objective:
        text += " \x1b[2J\x1b]0;title\x07\u202e"
    if "long" in objective:
        text += "".join(f"\nline {number}" for number in range(60))
    if asked.get("history") and asked["history"][-1]["role"] == "user":
        text = "better: " + asked["history"][-1]["text"].splitlines()[-1]
    answer = {
        "type": "desktop.local_prompt.response",
        "request_id": asked["request_id"],
        "status": "ok",
        "draft_message": text,
        "confidence": 0.9,
        "done": turn > 2 and "endless" not in objective,
        "metrics": {"tokens": 10},
    }
    print(json.dumps(answer), flush=True)
"""

PATH = json.dumps(os.environ.get("PYTHONPATH", ""))
CODER = """
[profiles.coder]
acp = {acp}
env = {{ PYTHONPATH = {path} }}
files = "read"
allow_shared_agent_calls = true
devices = ["bob"]
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """Return Anna's folder, while a gateway and Bob's shared agent are there."""
    path = tmp_path_factory.mktemp("shared")
    with ExitStack() as stack:
        gateway = stack.enter_context(relay(path))
        annas = make_annas(path / "annas", gateway.said["address"])
        bobs = make_bobs(path / "bobs", gateway.said["address"])
        introduce(annas, bobs)
        (annas / "agent.py").write_text(AGENT)
        with (annas / "remit.toml").open("a") as file:
            file.write(CODER.format(acp=json.dumps(forked_command(TESTS / "acp_agent.py")), path=PATH))
        stack.enter_context(up("share", "--json", folder=bobs))
        yield annas


@pytest.fixture
def annas(world: Path) -> Path:
    for name in ("go", "repaired"):
        (world / name).unlink(missing_ok=True)
    return world


@contextmanager
def opened(annas: Path, *arguments: str, **options: Any) -> Generator[Terminal]:
    with Terminal([REMIT, "chat", "mine", "bob", *arguments], folder=annas, **options) as terminal:
        terminal.wait_for("mine works with bob")
        yield terminal


def draft_waits(terminal: Terminal, turn: int, mode: str = "manual") -> str:
    """Return the screen once the draft of a turn waits at its bottom, and an answer can be typed."""
    ends = re.compile(
        rf"\nDraft for turn {turn}; .*\n(.*\n)*a approve .*\n(.*\n)?draft needs review · {mode} .*\n(turn .*\n)?>$"
    )
    return terminal.wait_until(lambda screen: bool(ends.search(screen.rstrip())), f"the draft of turn {turn}")


def left(terminal: Terminal) -> str:
    """Return the screen once the command has been left by Ctrl-C."""
    assert terminal.wait() == 130
    return terminal.screen.rstrip()


# ── what a person decides ─────────────────────────────────────────────────────────────────────────────────────────────


def test_in_manual_mode_each_draft_is_approved_edited_or_rejected(annas: Path) -> None:
    """S6, S12: the timeline says who spoke, and who let it go."""
    (annas / "editor.py").write_text("import sys; open(sys.argv[1], 'w').write('in other words\\nand two lines\\n')")
    env = {"EDITOR": f"{sys.executable} editor.py"}
    with opened(annas, "--objective", "the API", "--mode", "manual", env=env) as terminal:
        screen = draft_waits(terminal, 1)
        assert re.search(r"\n── Objective: the API ─+\nDraft for turn 1; needs your review because of\n", screen)
        assert "  manual: In manual mode you see every draft first.\n" in screen
        assert "  │ message 1 about the API\na approve · e edit · r WHY reject · /pause" in screen
        assert re.search(r"\ndraft needs review · manual · connected · turn 0 of 8 · \d+ s of 10 min\n>", screen)
        terminal.type("r be brief\r")
        terminal.wait_for("  │ better: The reason: be brief\n")
        terminal.type("a\r")
        screen = draft_waits(terminal, 2)
        assert re.search(r"Local agent \(turn 1, approved\)\n    better: The reason: be brief\n", screen)
        assert re.search(r"Remote agent \(turn 1\)\n    heard: better: The reason: be brief\n", screen)
        assert "message 1 about the API" not in screen, "what was not sent is gone"
        terminal.type("e\r")
        assert terminal.wait() == 0
    screen = terminal.screen
    assert re.search(r"Local agent \(turn 2, edited\)\n    in other words\n    and two lines\n", screen)
    assert "The objective is met.\n    message 3 about the API\nturn 2 of 8 · " in screen


def test_without_an_editor_a_draft_is_changed_in_the_line_below(annas: Path) -> None:
    with opened(annas, "--objective", "it", "--mode", "manual", env={"EDITOR": "", "VISUAL": ""}) as terminal:
        draft_waits(terminal, 1)
        terminal.type("e\r")
        terminal.wait_for("\n> /edit message 1 about it")
        terminal.type("\x7f\x7fus\r")
        terminal.wait_for("(turn 1, edited)\n    message 1 about us\n")
        draft_waits(terminal, 2)
        terminal.type("/edit wholly new\r")
        assert terminal.wait() == 0
        assert "(turn 2, edited)\n    wholly new\n" in terminal.screen


PLAIN = {"EDITOR": "", "VISUAL": "", "TERM": "dumb"}


def test_a_terminal_without_cursor_keys_changes_a_row_and_keeps_the_rest(annas: Path) -> None:
    with opened(annas, "--objective", "long", "--mode", "manual", env=PLAIN) as terminal:
        terminal.wait_for("a approve · e edit")
        terminal.type("e\r")
        terminal.wait_for(
            "The draft in rows", "\n  1  message 1 about long\n", "\n 61  line 59\n", "send sends the draft"
        )
        terminal.type("31 line twenty-nine\r")
        terminal.wait_for("\n 31  line twenty-nine\n")
        terminal.type("3000 nothing\r")
        terminal.wait_for("There are rows 1 to 61.\n")
        terminal.type("hello\r")
        terminal.wait_for("N TEXT replaces row N")
        terminal.type("send\r")
        screen = terminal.wait_for("(turn 1, edited)\n", "heard: message 1 about long\n")
        assert re.search(r"edited\)\n    message 1 about long\n(    line \d+\n){29}    line twenty-nine\n", screen)
        assert re.search(r"    line 30\n(    line \d+\n){28}    line 59\n", screen), "the rest is as it was"
        terminal.type("/stop\r")
        assert terminal.wait() == 0
    assert b"\x1b" not in terminal.raw


def test_rows_that_were_changed_are_shown_if_the_draft_is_gone_meanwhile(annas: Path) -> None:
    with opened(annas, "--objective", "it", "--mode", "manual", env=PLAIN) as terminal:
        terminal.wait_for("a approve · e edit")
        terminal.type("/rows\r")
        terminal.wait_for("\n  1  message 1 about it\n")
        terminal.type("1 much better\r")
        terminal.wait_for("\n  1  much better\n")
        terminal.type("/pause\rsend\r")
        terminal.wait_for("Failed: STATE_CONFLICT: Approve is not possible while the run is paused")
        draft = document("pending", "list", folder=annas)["drafts"][-1]["draft"]
        terminal.type("/resume\r")
        terminal.wait_for("Resumed.\n")
        assert remit("pending", "approve", draft, folder=annas).returncode == 0
        terminal.wait_for("The draft that you edited is not pending any more.\nYour text was:\n    much better\n")
        terminal.wait_for("message 2 about it\n")
        terminal.type("/pause\r/edit my words\r")
        terminal.wait_for(
            "Not possible now: paused; a draft is pending.", "Your text is kept: /again enters it once more.\n"
        )
        terminal.type("/resume\r")
        terminal.wait_until(lambda screen: screen.count("Resumed.\n") == 2)
        terminal.type("/again\r")
        terminal.wait_for("(turn 2, edited)\n    my words\n")
        assert terminal.wait() == 0


def test_a_line_that_the_terminal_cut_is_not_sent_in_part(annas: Path) -> None:
    with opened(annas, "--objective", "it", "--mode", "manual", env=PLAIN) as terminal:
        terminal.wait_for("a approve · e edit")
        terminal.type(f"/edit {'word ' * 1_000}\r")
        terminal.wait_for(
            "The terminal cut this line after 4,095 bytes, so it was not entered.\n", "End a line with \\"
        )
        terminal.type(f"/edit {'word ' * 500}\\\r{'more ' * 500}\r")
        screen = terminal.wait_for("(turn 1, edited)\n", "heard: word")
        assert screen.count("more ") >= 500
        terminal.type("/stop\r")
        assert terminal.wait() == 0


def test_semi_auto_asks_when_a_rule_does_and_says_which(annas: Path) -> None:
    """S6."""
    with opened(annas, "--objective", "hello") as terminal:
        assert terminal.wait() == 0  # another rule asks before a device hears of a profile for the first time
    with opened(annas, "--objective", "the link", "--mode", "semi_auto") as terminal:
        screen = draft_waits(terminal, 1, "semi_auto")
        assert "  links: It links to example.com.\n" in screen
        terminal.type("/objective plain words\r")
        assert terminal.wait() == 0
        screen = terminal.screen
    assert "Objective: plain words\n" in screen
    assert "(turn 1, auto-sent)\n    message 1 about plain words\n" in screen


def test_full_auto_shows_a_banner_at_its_limit_and_says_so_to_programs(annas: Path) -> None:
    """S7, S12."""
    limit = ("--set", "profiles.mine.limits.max_turns=2", "--set", "profiles.mine.limits.max_tokens=1000")
    with opened(annas, "--objective", "endless", "--mode", "full_auto", *limit) as terminal:
        assert terminal.wait() == 5
        screen = terminal.screen
    assert screen.count("auto-sent)") == 2
    rule = "═" * 41
    assert f"{rule}\nThe run has ended at its limit of 2 turns\n{rule}\nturn 2 of 2 · " in screen
    assert " of 1,000 tokens.\n" in screen
    assert "--continue" not in screen


# ── pause, leave, take over ───────────────────────────────────────────────────────────────────────────────────────────


def test_ctrl_c_pauses_a_second_one_leaves_and_the_run_goes_on_later(annas: Path) -> None:
    """S8."""
    with opened(annas, "--objective", "the API, slowly", "--mode", "full_auto") as terminal:
        terminal.wait_for("your agent is writing")
        terminal.type("\x03")
        terminal.wait_for("Paused. Nothing is sent. /resume continues; Ctrl-C again exits.\n", "\npaused · full_auto")
        (annas / "go").touch()
        terminal.wait_for("\npaused; a draft is pending · full_auto")
        terminal.type("a\r")
        terminal.wait_for("Not possible now: paused; a draft is pending. You can: /resume, /stop.\n")
        terminal.type("\x03")
        assert left(terminal).endswith("The run stays paused.\n→ remit chat mine bob --continue")
        echo = termios.tcgetattr(terminal.number)[3] & termios.ECHO
        assert echo, "the terminal is as it was"
    with opened(annas, "--continue") as terminal:
        terminal.wait_for("  paused: It came while the run was paused.\n")
        terminal.type("a\r")
        assert terminal.wait() == 0
        assert "(turn 1, approved)" in terminal.screen
        assert "(turn 2, auto-sent)" in terminal.screen
    ended = remit("chat", "mine", "bob", "--continue", folder=annas)
    assert ended.returncode == 2
    assert "NOT_FOUND: no run between mine and bob can be continued\n→ Start one with --objective" in ended.stderr


def test_commands_pause_resume_and_stop(annas: Path) -> None:
    """S8: a draft that waits stays as it is."""
    with opened(annas, "--objective", "it", "--mode", "manual") as terminal:
        draft_waits(terminal, 1)
        terminal.type("/pause\r")
        terminal.wait_for("\npaused; a draft is pending · manual")
        terminal.type("/resume\r")
        draft_waits(terminal, 1)
        terminal.type("/mode full_auto\r")
        terminal.wait_for("Mode full_auto: drafts are sent without review.\n")
        terminal.type("/pauze\r")
        terminal.wait_for("No such command /pauze; did you mean `/pause`?\n")
        terminal.type("hello\r")
        terminal.wait_for("Your agent writes the messages. /take over lets you write;")
        terminal.type("/stop\r")
        assert terminal.wait() == 0
    assert "Stopped.\nA draft was left unsent:\n    message 1 about it\n" in terminal.screen


def test_who_takes_over_writes_until_they_hand_back(annas: Path) -> None:
    """S8, S12: what a person typed is labelled as theirs."""
    with opened(annas, "--objective", "it", "--mode", "manual") as terminal:
        draft_waits(terminal, 1)
        terminal.type("/take over\r")
        terminal.wait_for("You write now: each line that you type is sent.", "\nyour turn to write · manual")
        terminal.type("hello\r")
        terminal.wait_for("You (turn 1, yours)\n    hello\n", "Remote agent (turn 1)\n    heard: hello\n")
        terminal.type("//slash\r")
        terminal.wait_for("You (turn 2, yours)\n    /slash\n", "heard: /slash\n")
        terminal.type("/hand back\r")
        assert terminal.wait() == 0
    assert "Your agent writes again.\n" in terminal.screen


def test_a_paused_run_that_is_taken_over_is_paused_until_it_is_resumed(annas: Path) -> None:
    """S8: each act does one thing, and the draft that is set aside can still be read."""
    with opened(annas, "--objective", "it", "--mode", "manual") as terminal:
        draft_waits(terminal, 1)
        terminal.type("/pause\r")
        terminal.wait_for("\n/resume · /take over · /stop · Ctrl-C exits · /help\npaused; a draft is pending · manual")
        terminal.type("/take over\r")
        terminal.wait_for(
            "You write now: /resume first; then each line that you type is sent.",
            "The draft was set aside:\n    message 1 about it\n",
            "\n/resume · /hand back · /stop · Ctrl-C exits · /help\npaused; you write next · manual",
        )
        terminal.type("hello\r")
        terminal.wait_for("Not sent: paused; you write next; /resume first.\n", "\n> hello")
        terminal.type("\x15/resume\r")
        terminal.wait_for(
            "Resumed.\nYou write now: each line", "\ntype to send · /hand back · /pause · /stop · /help\n"
        )
        terminal.type("hello\r")
        terminal.wait_for("You (turn 1, yours)\n    hello\n", "heard: hello\n")
        terminal.type("/pause\r")
        terminal.wait_for("\npaused; you write next · manual")
        terminal.type("/hand back\r")
        terminal.wait_for("Your agent writes again, once you /resume.\n", "\npaused · manual")
        terminal.type("/resume\r")
        draft_waits(terminal, 2)
        terminal.type("/stop\r")
        assert terminal.wait() == 0


def test_an_answer_is_none_to_a_draft_that_has_come_since(annas: Path) -> None:
    with opened(annas, "--objective", "it", "--mode", "manual") as terminal:
        draft_waits(terminal, 1)
        terminal.type("/objective us\ra\r")
        terminal.wait_for("\n  │ message 1 about us\n")
        screen = terminal.wait_until(
            lambda screen: (
                "No pending draft" in screen
                or "There is a newer draft" in screen
                or "Your agent writes the messages." in screen
            )
        )
        assert "approved" not in screen
        terminal.type("/stop\r")
        assert terminal.wait() == 0


def test_what_an_agent_asks_leave_for_is_asked_here(annas: Path) -> None:
    """An agent that speaks ACP asks before it uses a tool; the draft is what it was answered."""
    steps = json.dumps([["ask", ["allow_once", "reject_once"]]])
    with Terminal([REMIT, "chat", "coder", "bob", "--objective", steps], folder=annas) as terminal:
        terminal.wait_for(
            "\nYour agent asks for permission (delete): rm -rf\n", "\n1 allow_once", " · 2 reject_once", " · n no\n"
        )
        terminal.type("7\r")
        terminal.wait_for("Your agent writes the messages.")
        terminal.type("2\r")
        terminal.wait_for("\n  │ id-reject_once\n")
        terminal.type("/stop\r")
        assert terminal.wait() == 0


def test_an_agent_may_read_what_its_profile_says(annas: Path) -> None:
    (annas / "notes.txt").write_text("what stands in the notes")
    steps = json.dumps([["read", str(annas / "notes.txt")], ["say", "; "], ["read", "/etc/passwd"]])
    with Terminal([REMIT, "chat", "coder", "bob", "--objective", steps], folder=annas) as terminal:
        terminal.wait_for("\n  │ what stands in the notes; only files in ")
        terminal.type("/stop\r")
        assert terminal.wait() == 0


# ── what goes wrong ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_error_stays_in_sight_with_what_to_do(annas: Path) -> None:
    """S4: a crashed agent puts the run in error, and the user must act."""
    with opened(annas, "--objective", "crash", "--mode", "full_auto") as terminal:
        terminal.wait_until(
            lambda screen: (
                screen.count("→ /resume retries, /take over and then /resume lets you write, /stop ends it.\n") == 2
            )
        )
        screen = terminal.wait_for("\nstopped by an error · ")
        assert screen.count("Stopped by an error: the local agent's process ended") == 2
        terminal.type("/resume\r")
        terminal.wait_until(lambda screen: screen.count("Stopped by an error: ") == 3)
        terminal.type("/stop\r")
        assert terminal.wait() == 0
    assert "Resumed.\nStopped by an error: " in terminal.screen
    assert "\nStopped.\n" in terminal.screen


def test_a_gateway_that_is_not_there_is_said_and_waited_for(annas: Path) -> None:
    nowhere = ("--set", "relay.gateway=ws://127.0.0.1:9")
    with opened(annas, "--objective", "it", "--mode", "full_auto", *nowhere) as terminal:
        terminal.wait_for("No connection: cannot reach the gateway. Retrying.\n")
        terminal.wait_for("(turn 1, auto-sent)", "\nwaiting to be sent · full_auto · no connection, retrying · turn 1")
        terminal.type("/quit\r")
        assert terminal.wait() == 0
    with opened(annas, "--continue") as terminal:
        assert terminal.wait() == 0
        assert terminal.screen.count("heard: message 1 about it\n") == 1, "what was written then is sent now, once"


def test_a_device_that_is_revoked_in_the_middle_is_said_by_its_name(tmp_path: Path) -> None:
    """S10, S12."""
    annas, bobs = make_annas(tmp_path / "annas"), make_bobs(tmp_path / "bobs")
    introduce(annas, bobs)
    with opened(annas, "--objective", "it", "--mode", "manual") as terminal:
        draft_waits(terminal, 1)
        assert remit("devices", "revoke", "bob", folder=annas).returncode == 0
        terminal.wait_for("\nThe run has ended: this device has revoked bob\n")
        assert terminal.wait() == 4


@pytest.mark.parametrize(("editor", "says"), [("false", "exited with code 1"), ("/no/vi", "No such file or directory")])
def test_an_editor_that_fails_sends_nothing_and_says_what_to_do(annas: Path, editor: str, says: str) -> None:
    with opened(annas, "--objective", "it", "--mode", "manual", env={"EDITOR": editor, "VISUAL": ""}) as terminal:
        draft_waits(terminal, 1)
        terminal.type("e\r")
        terminal.wait_for(
            f"{editor} failed: {says}. The draft is still pending.\n", "or type the new text: /edit TEXT\n"
        )
        draft_waits(terminal, 1)
        terminal.type("/stop\r")
        assert terminal.wait() == 0


# ── terminals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_scrolls_the_question_out_of_sight_and_no_agent_moves_the_cursor(annas: Path) -> None:
    """S12. The terminal of the tests fails on every sequence that it does not know."""
    with opened(annas, "--objective", "long, rude", "--mode", "manual", width=60, height=20) as terminal:
        screen = draft_waits(terminal, 1)
        assert "  … 56 more lines; /show shows all\n" in screen
        terminal.type("/show\r")
        terminal.wait_for("\n    line 59\n  manual: ")
        for _ in range(3):
            terminal.type("/help\r")
        terminal.wait_until(lambda screen: screen.count("list the commands") == 3)
        screen = draft_waits(terminal, 1)
        assert screen.count("a approve · e edit") == 1, "it is there once, at the bottom"
        assert len(screen.rsplit("Objective: long, rude", 1)[1].splitlines()) < 20
        assert b"\x1b[2J" not in terminal.raw
        terminal.type("/stop\r")
        assert terminal.wait() == 0


def test_in_a_low_and_narrow_window_it_is_still_said_what_can_be_typed(annas: Path) -> None:
    """S12: and that there is more of the draft than can be seen."""
    with opened(annas, "--objective", "long", "--mode", "manual", width=40, height=10) as terminal:
        screen = terminal.wait_for("a approve · e edit · r WHY reject ·\n/pause", "more lines; /show shows all\n")
        assert screen.count("Draft for turn 1; ") == 1
        assert all(len(line) <= 40 for line in screen.splitlines()), "all was folded before it reached the terminal"
        terminal.type("/stop\r")
        assert terminal.wait() == 0


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"PYTHONIOENCODING": "latin-1", "LC_ALL": "C", "NO_COLOR": "1"}])
def test_a_terminal_that_can_do_little_is_asked_for_little(annas: Path, env: dict[str, str]) -> None:
    with opened(annas, "--objective", "it", "--mode", "manual", env=env) as terminal:
        terminal.wait_for("message 1 about it", "a approve - e edit" if "LC_ALL" in env else "a approve · e edit")
        terminal.type("/mode\r")
        terminal.wait_for("Mode manual: you review every draft before it is sent.\n")
        if "TERM" in env:
            terminal.wait_for("The draft for turn 1 needs your review: a approve")
        terminal.type("a\r")
        terminal.wait_for("(turn 1, approved)", "heard: message 1 about it")
        terminal.wait_for("message 2 about it")
        terminal.type("/stop\r")
        assert terminal.wait() == 0
    assert b"\x1b" not in terminal.raw if "TERM" in env else terminal.raw.isascii()


def test_what_is_said_also_goes_to_a_file_as_plain_lines(annas: Path) -> None:
    output_file = annas / "said.txt"
    with opened(annas, "--objective", "it, rude", "--mode", "full_auto", stdout=output_file) as terminal:
        assert terminal.wait() == 0
    text = output_file.read_text(encoding="utf-8")
    assert re.sub(r"\d\d:\d\d:\d\d", "…", text).startswith(
        "…  Local agent (turn 1, auto-sent)\n    message 1 about it, rude \ufffd\n…  Remote agent (turn 1)\n    heard: "
    )
    assert "\x1b" not in text
    assert "Remote agent (turn 2)" in terminal.screen


def test_documents_stand_above_the_footer(annas: Path) -> None:
    with opened(annas, "--objective", "it", "--mode", "manual", "--jsonl") as terminal:
        draft_waits(terminal, 1)
        terminal.type("/stop\r")
        assert terminal.wait() == 0
    lines = [json.loads(line) for line in terminal.screen.splitlines() if line.startswith("{")]
    assert [each["text"] for each in lines if each["schema"] == "remit.shared-draft/1"] == ["message 1 about it"]
    assert lines[-1]["ended"] == "user"


def test_what_is_typed_stays_whole_while_the_agents_speak(annas: Path) -> None:
    with opened(annas, "--objective", "it", "--mode", "manual") as terminal:
        draft_waits(terminal, 1)
        terminal.type("/objectiv 日本\x1b[D\x1b[D\x1b[De")
        terminal.wait_until(lambda screen: screen.endswith("\n> /objective 日本"))
        draft = document("pending", "list", folder=annas)["drafts"][-1]["draft"]
        assert remit("pending", "approve", draft, folder=annas).returncode == 0
        screen = terminal.wait_until(
            lambda screen: "\nDraft for turn 2; " in screen and screen.endswith("\n> /objective 日本")
        )
        assert "Remote agent (turn 1)\n    heard: message 1 about it\n" in screen
        terminal.type("\r")
        terminal.wait_for("\nObjective: 日本\n", "\n  │ message 2 about 日本\n")
        terminal.type("/stop\r")
        assert terminal.wait() == 0


def test_a_draft_of_several_lines_is_edited_in_the_line_below_and_the_keys_stay_in_sight(annas: Path) -> None:
    env = {"EDITOR": "", "VISUAL": ""}
    with opened(annas, "--objective", "long", "--mode", "manual", env=env, height=24) as terminal:
        draft_waits(terminal, 1)
        terminal.type("e\r")
        screen = terminal.wait_until(lambda screen: screen.endswith("\n… line 59"))
        assert "a approve · e edit · r WHY reject · /" in screen
        assert len(screen.rsplit("Draft for turn 1; ", 1)[1].splitlines()) < 24
        terminal.type("\x1b[A\x05!\r")
        terminal.wait_for("(turn 1, edited)\n", "\n    line 58!\n    line 59\n")
        terminal.type("/stop\r")
        assert terminal.wait() == 0


def test_the_footer_follows_the_size_of_the_window(annas: Path) -> None:
    with opened(annas, "--objective", "it", "--mode", "manual", width=100) as terminal:
        draft_waits(terminal, 1)
        terminal.type("/stop now")
        terminal.wait_until(lambda screen: screen.endswith("\n> /stop now"))
        for width in (60, 120):
            terminal.resize(width, 25)
            title = "── Objective: it ".ljust(width - 1, "─")
            terminal.wait_until(lambda screen, title=title: f"\n{title}\n" in screen)
            terminal.wait_until(lambda screen: screen.endswith("\n> /stop now"))
        terminal.type("\x17\r")
        assert terminal.wait() == 0


# ── without a terminal, and for programs ──────────────────────────────────────────────────────────────────────────────


@contextmanager
def running(annas: Path, *arguments: str) -> Generator["subprocess.Popen[str]"]:
    process = popen(
        [REMIT, "chat", "mine", "bob", *arguments],
        cwd=annas,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(read: Callable[[], str], text: str) -> str:
    """Return the first line with a text."""
    while line := read():
        if text in line:
            return line
    raise AssertionError(f"{text!r} did not come")


def test_drafts_are_answered_from_another_terminal(annas: Path) -> None:
    """S6: without a terminal, manual mode waits for `remit pending`."""
    with running(annas, "--objective", "it", "--mode", "manual") as process:
        assert process.stdout
        assert process.stderr
        hint = until(process.stderr.readline, "→ remit pending approve")
        (draft,) = document("pending", "list", folder=annas)["drafts"]
        assert (draft["text"], draft["turn"], draft["device_name"]) == ("message 1 about it", 1, "bob")
        assert f"→ remit pending approve {draft['draft']}, or remit pending reject {draft['draft']}\n" == hint
        listed = remit("pending", "list", folder=annas).stdout.splitlines()[1]
        assert re.match(r"\w{6}\.p1  mine → bob  Send as turn 1: message 1 about it", listed)
        shown = remit("pending", "show", "last", folder=annas).stdout
        assert "manual: In manual mode you see every draft first." in shown
        rejected = remit("pending", "reject", listed.split()[0], "--reason", "shorter", folder=annas)
        assert "Its agent is notified" in rejected.stdout
        until(process.stderr.readline, "better: The reason: shorter")
        until(process.stderr.readline, "→ remit pending approve")
        wrong = remit("pending", "approve", "last", "--edit", "objective=x", folder=annas)
        assert wrong.returncode == 2
        assert "only `text` of a draft can be edited, not `objective`" in wrong.stderr
        answered = document("pending", "approve", "last", "--edit", "text=as I like it", folder=annas)
        assert (answered["schema"], answered["text"]) == ("remit.draft-answer/1", "as I like it")
        until(process.stdout.readline, "Local agent (turn 1, edited)")
        assert process.stdout.readline() == "    as I like it\n"
        until(process.stdout.readline, "heard: as I like it")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130
        assert stderr.endswith("The run stays paused.\n→ remit chat mine bob --continue\n")
    late = remit("pending", "approve", draft["draft"], folder=annas)
    assert late.returncode == 2, "that draft is gone"


def test_who_answered_and_by_what_is_on_record_and_no_word_of_it(annas: Path) -> None:
    """S13: typed in the chat, left by `remit pending` and by the API; all of it on the team's own chain."""
    secret = "the canary's objective"
    with opened(annas, "--objective", secret, "--mode", "manual", "--api") as terminal:
        draft_waits(terminal, 1)
        draft = document("pending", "list", folder=annas)["drafts"][-1]["draft"]
        assert remit("pending", "reject", draft, "--reason", secret, "--as", "eve", folder=annas).returncode == 0
        terminal.wait_for("  │ better: The reason: the canary's objective\n")
        terminal.type("a\r")
        draft_waits(terminal, 2)
        match = re.search(r"control the run at (\S+), with the token in\s+(\S+)\.", terminal.screen)
        assert match is not None
        headers = {"Authorization": f"Bearer {Path(match[2]).read_text().strip()}"}
        with urlopen(Request(f"{match[1]}/v1/shared/runs", None, headers), timeout=PATIENCE_S) as reply:
            run = next(each["id"] for each in json.load(reply)["runs"] if each["objective"] == secret)
        with urlopen(Request(f"{match[1]}/v1/shared/runs/{run}/take_over", b"", headers), timeout=PATIENCE_S) as reply:
            assert json.load(reply)["decides"] == "person"
        terminal.type("/stop\r")
        assert terminal.wait() == 0
    exported = remit("audit", "export", "--profile", "mine", "--run", run, folder=annas).stdout
    steps = [json.loads(json.loads(line)["body"]) for line in exported.splitlines()]
    me = getpass.getuser()
    assert [(each["event"], each["by"], each["via"]) for each in steps if "via" in each] == [
        ("Start", me, "chat"),
        ("Reject", "eve", "pending"),
        ("Approve", me, "chat"),
        ("TakeOver", "api", "api"),
        ("Stop", me, "chat"),
    ]
    assert "canary" not in exported
    assert document("audit", "verify", folder=annas)["ok"]


def test_an_answer_from_elsewhere_that_comes_too_late_is_said_in_the_chat(annas: Path) -> None:
    """S6: the draft that it was for is gone by then."""
    with opened(annas, "--objective", "it", "--mode", "manual") as terminal:
        draft_waits(terminal, 1)
        terminal.type("/pause\r")
        terminal.wait_for("\npaused; a draft is pending · manual")
        draft = document("pending", "list", folder=annas)["drafts"][-1]
        left = remit("pending", "approve", draft["draft"], "--as", "Ann", folder=annas)
        assert left.returncode == 0, left.stderr
        assert "when the chat of run" in left.stdout, "while it is paused, an answer waits"
        assert f"→ If no chat is open: remit chat mine bob --continue {draft['run']}\n" in left.stderr
        terminal.type("/objective us\r")
        terminal.wait_for("The command of Ann in another terminal failed: ")
        terminal.type("/stop\r")
        assert terminal.wait() == 0
    assert "approved)" not in terminal.screen


def test_who_answers_elsewhere_learns_that_it_was_done(annas: Path) -> None:
    with opened(annas, "--objective", "it", "--mode", "manual") as terminal:
        draft_waits(terminal, 1)
        draft = document("pending", "list", folder=annas)["drafts"][-1]
        done = remit("pending", "approve", draft["draft"], folder=annas)
        assert done.returncode == 0, done.stderr
        assert re.search(r"\nIt is sent( when the chat of run .*)?\.\n", done.stdout)
        draft_waits(terminal, 2)
        again = remit("pending", "approve", draft["draft"], folder=annas)
        assert again.returncode == 2
        assert f"no pending question or draft `{draft['draft']}`\n→ List them with" in again.stderr
        terminal.type("/stop\r")
        assert terminal.wait() == 0


def test_another_program_shows_and_steers_the_run(annas: Path) -> None:
    with running(annas, "--objective", "it", "--mode", "manual", "--api") as process:
        assert process.stderr
        stderr = until(process.stderr.readline, "Programs can show and control the run at ")
        address, _, file = stderr.removeprefix("Programs can show and control the run at ").partition(
            ", with the token in "
        )
        headers = {"Authorization": f"Bearer {Path(file.strip().rstrip('.')).read_text().strip()}"}
        until(process.stderr.readline, "→ remit pending approve")

        def fetch(path: str, body: bytes | None = None) -> Any:
            with urlopen(Request(f"{address}{path}", body, headers), timeout=PATIENCE_S) as reply:
                return json.load(reply)

        (run,) = [each for each in fetch("/v1/shared/runs")["runs"] if each["state"] == "ready_to_send"]
        assert fetch(f"/v1/shared/runs/{run['id']}/stop", b"")["state"] == "stopped"
        _, stderr = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, stderr


def test_an_answer_that_is_given_while_no_chat_is_there_counts_once_it_goes_on(annas: Path) -> None:
    with running(annas, "--objective", "it", "--mode", "manual") as process:
        assert process.stderr
        until(process.stderr.readline, "→ remit pending approve")
        process.kill()
        process.wait()
    draft = document("pending", "list", folder=annas)["drafts"][-1]
    assert document("pending", "approve", draft["draft"], folder=annas)["agreed"]
    assert draft not in document("pending", "list", folder=annas)["drafts"], "it is answered"
    done = remit("chat", "mine", "bob", "--continue", "--mode", "full_auto", folder=annas)
    assert done.returncode == 0, done.stderr
    assert "Local agent (turn 1, approved)\n    message 1 about it\n" in done.stdout


def test_programs_get_what_happens_and_nothing_secret(annas: Path) -> None:
    """S1: high-level events alone; no key, token or sealed word."""
    done = remit("chat", "mine", "bob", "--objective", "it", "--mode", "full_auto", "--jsonl", folder=annas)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = {"remit.shared-state/1", "remit.shared-turn/1", "remit.shared-delivery/1"}
    assert {each["schema"] for each in events} == kinds
    moved = [(each["turn"], each["state"]) for each in events if each["schema"] == "remit.shared-delivery/1"]
    assert {(1, "waiting"), (1, "answered"), (2, "waiting"), (2, "answered")} <= set(moved)
    turns = [each for each in events if each["schema"] == "remit.shared-turn/1"]
    assert [(each["speaker"], each["label"], each["text"]) for each in turns] == [
        ("local_agent", "auto_sent", "message 1 about it"),
        ("remote_agent", None, "heard: message 1 about it"),
        ("local_agent", "auto_sent", "message 2 about it"),
        ("remote_agent", None, "heard: message 2 about it"),
    ]
    ended = events[-1]
    assert (ended["state"], ended["ended"], ended["result"]) == ("completed", "done", "message 3 about it")
    secret = json.loads((annas / ".remit" / "device.key").read_text())["secret"]
    assert secret not in done.stdout + done.stderr
    assert all(len(word) < 65 for word in re.findall(r"[0-9A-Za-z+/=_-]+", done.stdout)), "nothing that is sealed"


def test_one_document_has_the_whole_run(annas: Path) -> None:
    whole = document("chat", "mine", "bob", "--objective", "it", "--mode", "full_auto", folder=annas)
    assert (whole["schema"], whole["state"], whole["connection"]) == ("remit.shared-run/1", "completed", "connected")
    assert [each["turn"] for each in whole["turns"]] == [1, 1, 2, 2]


def test_an_error_without_a_terminal_ends_the_command_and_not_the_run(annas: Path) -> None:
    failed = remit("chat", "mine", "bob", "--objective", "crash", "--mode", "full_auto", folder=annas)
    assert failed.returncode == 1
    assert "Stopped by an error: " in failed.stderr
    (annas / "repaired").touch()
    done = remit("chat", "mine", "bob", "--continue", folder=annas)
    assert done.returncode == 0, done.stderr
    assert "    heard: message 2 about crash\n" in done.stdout


# ── which agent ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """Return Anna's folder, while Bob shares two agents with her and she knows that."""
    path = tmp_path_factory.mktemp("several")
    with ExitStack() as stack:
        gateway = stack.enter_context(relay(path))
        annas = make_annas(path / "annas", gateway.said["address"])
        bobs = make_bobs(path / "bobs", gateway.said["address"])
        introduce(annas, bobs)
        with (bobs / "remit.toml").open("a") as file:
            file.write('[shared.expert]\nagent = "helper"\ndescription = "Knows the API."\ndevices = ["anna"]\n')
        stack.enter_context(up("share", "--json", folder=bobs))
        whole = document("chat", "mine", "bob", "--agent", "expert", "--objective", "it", folder=annas)
        assert (whole["state"], whole["agent"]) == ("completed", "expert")
        yield annas


def test_who_sits_at_a_terminal_is_asked_which_of_several_agents_is_meant(several: Path) -> None:
    with Terminal([REMIT, "chat", "mine", "bob", "--objective", "it"], folder=several) as terminal:
        terminal.wait_for(
            "bob shares several agents with you:\n  1  expert  Knows the API.\n  2  helper\n", "Which one?"
        )
        terminal.type("3\r")
        terminal.wait_for("enter a number from 1 to 2, or a name")
        terminal.type("2\r")
        terminal.wait_for("mine works with bob (helper): run ")
        assert terminal.wait() == 0
    (bob,) = document("devices", "list", folder=several)["devices"]
    assert [each["name"] for each in bob["offers"]] == ["expert", "helper"]


def test_without_a_terminal_it_has_to_be_said_which_of_several_agents_is_meant(several: Path) -> None:
    unclear = remit("chat", "mine", "bob", "--objective", "it", folder=several)
    assert unclear.returncode == 2
    assert "bob shares several agents with this device: expert, helper\n→ Choose one (--agent NAME" in unclear.stderr
    wrong = remit("chat", "mine", "bob", "--agent", "exprt", "--objective", "it", folder=several)
    assert wrong.returncode == 2
    assert "bob shares no agent `exprt` with this device; it shares: expert, helper\n" in wrong.stderr


# ── a team that shares, too ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_team_shares_is_shared_while_somebody_chats(tmp_path: Path) -> None:
    """S1: one process speaks for a device, so the chat answers what others ask meanwhile, and says so."""
    with relay(tmp_path) as gateway:
        address = gateway.said["address"]
        annas, bobs = make_annas(tmp_path / "annas", address), make_bobs(tmp_path / "bobs", address)
        introduce(annas, bobs)
        introduce(bobs, annas)
        (annas / "annas_code.py").write_text(
            'async def clerk(brief):\n    return f"Anna\'s clerk heard: {brief.text}"\n'
        )
        with (annas / "remit.toml").open("a") as file:
            file.write('[agents.clerk]\nrun = "annas_code:clerk"\n[shared.clerk]\ndevices = ["bob"]\n')
        (bobs / "agent.py").write_text(AGENT)
        with (bobs / "remit.toml").open("a") as file:
            run = json.dumps([sys.executable, "agent.py"])
            file.write(f'[profiles.his]\nrun = {run}\nallow_shared_agent_calls = true\ndevices = ["anna"]\n')
        with opened(annas, "--objective", "it", "--mode", "manual") as terminal:
            terminal.wait_for("Meanwhile other devices can call clerk, as set in [shared].\n")
            draft_waits(terminal, 1)
            done = remit("chat", "his", "anna", "--objective", "us", "--mode", "full_auto", folder=bobs)
            assert done.returncode == 0, done.stderr
            assert "Anna's clerk heard: message 2 about us" in done.stdout
            terminal.wait_for("  bob calls clerk\n", "  clerk answered bob\n")
            screen = draft_waits(terminal, 1)
            assert "message 1 about us" not in screen, "what others say to her agents is not for this screen"
            terminal.type("/stop\r")
            assert terminal.wait() == 0


# ── what is typed wrongly ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mine", "bob"], "give --objective TEXT to start a run, or --continue to resume one"),
        (["mein", "--objective", "x"], "--objective needs a DEVICE: remit chat PROFILE DEVICE"),
        (["mein", "--json"], "--json needs a DEVICE"),
        (["mein", "--agent", "x"], "--agent needs a DEVICE"),
        (["mine", "--json"], "give --objective TEXT to start a run, or --continue to resume one"),
        (["mine", "--objective", "x", "--session", "s"], "--session is for a chat with an agent of this team"),
        (["mine", "bob", "--objective", "x", "--session", "s"], "--session is for a chat without DEVICE"),
        (["mine", "bob", "--objective", " "], "--objective: must not be empty"),
        (["mine", "bob", "--objective", "x", "--json", "--jsonl"], "--json and --jsonl cannot be combined"),
        (["mein", "bob", "--objective", "x"], "NOT_FOUND: no such profile `mein`; did you mean `mine`?"),
        (["mine"], "give --objective TEXT to start a run, or --continue to resume one"),
        (["mine", "bop", "--objective", "x"], "NOT_FOUND: there is no device `bop`; did you mean `bob`?"),
    ],
)
def test_what_is_typed_wrongly_is_said(annas: Path, arguments: list[str], says: str) -> None:
    done = remit("chat", *arguments, folder=annas)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr


def test_a_device_that_a_profile_may_not_call_is_refused_with_what_to_write(annas: Path) -> None:
    """S10."""
    done = remit("chat", "mine", "bob", "--objective", "x", "--set", "profiles.mine.devices=[]", folder=annas)
    assert done.returncode == 4
    assert "the profile mine may not use the device bob\n" in done.stderr
    assert "→ To allow it: remit devices allow bob --profile mine\n" in done.stderr
    off = ("--set", "profiles.mine.allow_shared_agent_calls=false")
    done = remit("chat", "mine", "bob", "--objective", "x", *off, folder=annas)
    assert done.returncode == 4
    assert "→ To allow it, set `allow_shared_agent_calls = true` in [profiles.mine] in" in done.stderr


def test_a_device_that_is_not_allowed_or_was_revoked_is_refused_with_what_to_type(tmp_path: Path) -> None:
    """S10."""
    annas, bobs = make_annas(tmp_path / "annas"), make_bobs(tmp_path / "bobs")
    introduce(annas, bobs)
    assert remit("devices", "allow", "bob", "--one-way", "--remove", folder=annas).returncode == 0
    done = remit("chat", "mine", "bob", "--objective", "x", folder=annas)
    assert done.returncode == 4
    assert "remit devices allow bob\n" in done.stderr
    assert device_of(bobs) not in done.stderr
    assert remit("devices", "revoke", "bob", folder=annas).returncode == 0
    done = remit("chat", "mine", "bob", "--objective", "x", folder=annas)
    assert done.returncode == 4
    assert "this device has revoked bob\n→ Ask its owner to create a new device" in done.stderr
