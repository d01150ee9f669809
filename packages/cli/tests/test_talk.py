"""What a conversation is made of: commands, pieces of answers, lines about calls."""

import pytest

from remit.protocol.envelope import Message, Usage, View
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Body, Kind, Record, ToolUse
from remit.runtime.run_tree import Tree
from remit_cli.show.runs import delegation
from remit_cli.show.tree_lines import call_line, history, return_line
from remit_cli.talk.conversation import command_in, format_messages, request_in, shortly
from remit_cli.talk.transcript import AnswerSoFar
from samples import a_request, a_response

# ── what is typed ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "command", "request_"),
    [
        ("/help", "help", "/help"),
        ("  /history 5 ", "history 5", "/history 5"),
        ("//etc/hosts", None, "/etc/hosts"),
        ("what is 1/2?", None, "what is 1/2?"),
    ],
)
def test_a_slash_makes_a_command_and_two_make_a_request(text: str, command: str | None, request_: str) -> None:
    assert (command_in(text), request_in(text)) == (command, request_)


# ── what is missing of an answer ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pieces", "answer", "missing"),
    [
        ([], "One", None),
        (["One ", "two"], "One two", ""),
        (["One two\n"], "One two", ""),
        (["One "], "One two", "two"),
        (["One"], "One\ntwo", "\ntwo"),
        (["  One"], "One two\n", " two"),
        (["I ask them. ", None, "They ", "say"], "They say yes", " yes"),
        (["I ask them. They say", None], "They say yes", " yes"),
        (["I ask them. ", None, "They say yes"], "They say yes", ""),
        (["Something else"], "They say yes", None),
        (["and I"], "I think", None),
        (["They say no"], "They say yes", None),
        (["x"], "", ""),
    ],
)
def test_of_an_answer_only_that_is_written_which_is_not_there_yet(
    pieces: list[str | None], answer: str, missing: str | None
) -> None:
    written = AnswerSoFar()
    for piece in pieces:
        if piece is None:
            written.interrupt()
        else:
            written.add(piece)
    assert written.missing_of(answer) == missing


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def grown(*bodies: Body) -> Tree:
    tree = Tree()
    for seq, body in enumerate(bodies, start=1):
        tree.feed(Record(seq=seq, kind=Kind.NOTICE, at_ms=0, run="r", session="s", body=body))
    return tree


CALL = a_request(id="r.1", run="r", parent="r", origin="planner", target="coder", objective="Write\nit\x1b[2J")


def test_a_call_and_its_result_are_one_line_each() -> None:
    tree = grown(
        a_request(id="r", run="r", parent=None, target="planner"),
        CALL,
        ToolUse(delegation="r.1", agent="coder", tool="read"),
        ToolUse(delegation="r.1", agent="coder", tool="edit"),
        a_response(id="r.1", target="coder", usage=Usage(prompt=3_245), duration_ms=12_000),
    )
    node = tree.nodes["r.1"]
    assert call_line(node) == "planner → coder: Write it"
    assert return_line(node) == "coder returned: SUCCESS (3,245 tokens, 12 s) tools: read, edit"


def test_the_history_of_calls_says_what_each_was_shown_took_used_and_gave() -> None:
    shown = a_request(
        id="r.1", run="r", parent="r", origin="planner", target="coder", objective="Write", view=View(tokens=812)
    )
    again = a_request(id="r.2", run="r", parent="r", origin="planner", target="coder", objective="Again")
    request = a_request(id="r.3", run="r", parent="r", origin="planner", target="tester", objective="Test")
    tree = grown(
        a_request(id="r", run="r", parent=None, target="planner"),
        shown,
        ToolUse(delegation="r.1", agent="coder", tool="read"),
        a_response(id="r.1", target="coder", usage=Usage(prompt=40), duration_ms=1_200, result="x" * 300),
        again,
        a_response(id="r.2", target="coder", status=Status.TIMEOUT, result=None, fault=fault(Code.TIMEOUT, "too late")),
        request,
    )
    lines = list(history(delegation(node, 500) for node in tree.nodes.values()))
    assert lines == [
        "[planner -> coder] OK  1.2 s  40 tokens  ctx 812  tools: read",
        "    task Write",
        f"    gave {'x' * 200}",
        "[planner -> coder] FAILED (timeout)  0 ms",
        "    task Again",
        "    why  TIMEOUT: too late",
        "[planner -> tester] RUNNING  500 ms",
        "    task Test",
    ]


# ── what was said ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_conversation_is_told_with_what_got_no_answer() -> None:
    messages = [
        Message(role="user", text="lost"),
        Message(role="user", text="What\nnow?\x1b[2J"),
        Message(role="assistant", text="This. " * 50, name="lead"),
    ]
    assert list(shortly(messages, 40)) == [
        "  you: lost",
        "  (no answer)",
        "  you: What now?",
        f"  lead: {('This. ' * 50)[:32].strip()}",
    ]
    lines = list(format_messages(messages[:2]))
    assert [line for line in lines if line.startswith("  ")] == [
        "    lost",
        "    (no answer)",
        "    What",
        "    now?",
        "    (no answer)",
    ]
    assert [line.split()[-1] for line in lines if not line.startswith("  ")] == ["you", "you"]
