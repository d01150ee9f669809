"""The tree of a run, as one line for each delegation."""

from typing import Any

from remit.protocol.envelope import Usage
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Body, Delegation, Kind, Notice, Progress, Record, Refusal, ToolUse
from remit.runtime.run_tree import Tree, delegations
from samples import a_remit, a_request, a_response

PROGRESS = Progress(delegation="run-1", agent="tag", text="halfway", finished=("rent",), unfinished=("food",))
TOOL = ToolUse(delegation="run-1", agent="tag", tool="read", input={"path": "a.txt"}, duration_ms=3, begun=True)
NOTICE = Notice(delegation="run-1", agent="tag", text="spent 5 tokens too many", code=Code.TOKEN_BUDGET_EXCEEDED)
REFUSED = a_response(status=Status.REFUSED, result=None, fault=fault(Code.LOOP_DETECTED, "again"))
REFUSAL = Refusal(request=a_request(), response=REFUSED)


def told(*bodies: Body) -> list[Delegation]:
    tree = Tree()
    for seq, body in enumerate(bodies):
        tree.feed(Record(seq=seq + 1, kind=Kind.NOTICE, at_ms=1_000 + seq, run="run-1", session="s-1", body=body))
    return delegations(tree)


def line(**changes: Any) -> Delegation:
    told: dict[str, Any] = {
        "id": "run-1",
        "parent": None,
        "origin": "prime",
        "target": "tag",
        "user": "u-1",
        "objective": "Categorize",
        "depth": 1,
        "started_ms": 1_000,
    }
    return Delegation(**told | changes)


def test_a_delegation_under_way_has_no_end_yet() -> None:
    assert told(a_request(), PROGRESS, TOOL, NOTICE) == [line()]


def test_a_delegation_that_ended_is_one_line_with_a_preview_of_200_characters() -> None:
    """O8: metadata and a 200-character preview, not the text once more."""
    response = a_response(
        result="x" * 300, duration_ms=12, usage=Usage(prompt=3, completion=4), tool_calls=("read", "write")
    )
    assert told(a_request(), response) == [
        line(
            status=Status.SUCCESS,
            preview="x" * 200,
            duration_ms=12,
            usage=Usage(prompt=3, completion=4),
            tool_calls=("read", "write"),
        )
    ]


def test_a_refused_delegation_says_why_it_never_started() -> None:
    assert told(REFUSAL) == [line(status=Status.REFUSED, fault=REFUSED.fault)]


def test_delegations_stand_in_the_order_in_which_they_were_asked_for() -> None:
    child = a_request(id="run-1.1", parent="run-1", origin="tag", target="byte", remit=a_remit(depth=2))
    ended = a_response(id="run-1.1", target="byte", result={"n": 1})
    assert told(a_request(), child, ended, a_response(result=None)) == [
        line(status=Status.SUCCESS),
        line(
            id="run-1.1",
            parent="run-1",
            origin="tag",
            target="byte",
            depth=2,
            started_ms=1_001,
            status=Status.SUCCESS,
            preview='{"n":1}',
        ),
    ]


def test_a_response_to_a_request_that_is_not_there_tells_nothing() -> None:
    assert told(a_response()) == []


def test_a_response_whose_request_was_lost_does_not_end_the_run() -> None:
    """A slow listener may lose records; an id below the run's own is a path in it."""
    tree = Tree()
    for seq, body in enumerate((a_request(), a_response(id="run-1.1", target="byte")), start=1):
        tree.feed(Record(seq=seq, kind=Kind.NOTICE, at_ms=seq, run="run-1", session="s-1", body=body))
    assert (tree.response, tree.nodes["run-1.1"].state) == (None, Status.SUCCESS)
