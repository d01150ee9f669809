"""The tree of a run, as one line for each delegation."""

from typing import Any

from remit.ports import MOST_LOOKED_AT, MOST_READ, RecordFilter
from remit.protocol.envelope import Usage
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Body, Delegation, Kind, Notice, Progress, Record, Refusal, ToolUse
from remit.runtime.run_tree import Tree, delegations
from remit.stores.reader import list_records
from remit_testing.samples import progress
from samples import a_remit, a_request, a_response

PROGRESS = Progress(delegation="run-1", agent="tag", text="halfway", finished=("rent",), unfinished=("food",))
TOOL = ToolUse(delegation="run-1", agent="tag", tool="read", input={"path": "a.txt"}, duration_ms=3, begun=True)
NOTICE = Notice(delegation="run-1", agent="tag", text="spent 5 tokens too many", code=Code.TOKEN_BUDGET_EXCEEDED)
REFUSED = a_response(status=Status.REFUSED, result=None, fault=fault(Code.LOOP_DETECTED, "again"))
REFUSAL = Refusal(request=a_request(), response=REFUSED)


def delegations_of(*bodies: Body) -> list[Delegation]:
    tree = Tree()
    for seq, body in enumerate(bodies):
        tree.feed(Record(seq=seq + 1, kind=Kind.NOTICE, at_ms=1_000 + seq, run="run-1", session="s-1", body=body))
    return delegations(tree)


def line(**changes: Any) -> Delegation:
    fields: dict[str, Any] = {
        "id": "run-1",
        "parent": None,
        "origin": "prime",
        "target": "tag",
        "user": "u-1",
        "objective": "Categorize",
        "depth": 1,
        "started_ms": 1_000,
    }
    return Delegation(**fields | changes)


def test_a_delegation_under_way_has_no_end_yet() -> None:
    assert delegations_of(a_request(), PROGRESS, TOOL, NOTICE) == [line()]


def test_a_delegation_that_ended_is_one_line_with_a_preview_of_200_characters() -> None:
    """O8: metadata and a 200-character preview, not the text once more."""
    response = a_response(
        result="x" * 300, duration_ms=12, usage=Usage(prompt=3, completion=4), tool_calls=("read", "write")
    )
    assert delegations_of(a_request(), response) == [
        line(
            status=Status.SUCCESS,
            preview="x" * 200,
            duration_ms=12,
            usage=Usage(prompt=3, completion=4),
            tool_calls=("read", "write"),
        )
    ]


def test_a_refused_delegation_says_why_it_never_started() -> None:
    assert delegations_of(REFUSAL) == [line(status=Status.REFUSED, fault=REFUSED.fault)]


def test_delegations_stand_in_the_order_in_which_they_were_asked_for() -> None:
    child = a_request(id="run-1.1", parent="run-1", origin="tag", target="byte", remit=a_remit(depth=2))
    ended = a_response(id="run-1.1", target="byte", result={"n": 1})
    assert delegations_of(a_request(), child, ended, a_response(result=None)) == [
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
    assert delegations_of(a_response()) == []


def test_a_response_whose_request_was_lost_does_not_end_the_run() -> None:
    """A slow listener may lose records; an id below the run's own is a path in it."""
    tree = Tree()
    for seq, body in enumerate((a_request(), a_response(id="run-1.1", target="byte")), start=1):
        tree.feed(Record(seq=seq, kind=Kind.NOTICE, at_ms=seq, run="run-1", session="s-1", body=body))
    assert (tree.response, tree.nodes["run-1.1"].state) == (None, Status.SUCCESS)


# ── pages of a listing ────────────────────────────────────────────────────────────────────────────────────────────────


def a_record(seq: int) -> Record:
    return Record(seq=seq, kind=Kind.PROGRESS, at_ms=seq, run="run-one", session="session-one", body=progress("half"))


async def nothing(_: RecordFilter, above: int, below: int, size: int) -> list[Record]:
    assert below - above <= MOST_LOOKED_AT
    assert size
    return []


async def everything(_: RecordFilter, above: int, below: int, size: int) -> list[Record]:
    return [a_record(seq) for seq in range(below - 1, max(above, below - 1 - size), -1)]


async def test_a_page_without_results_says_where_to_go_on() -> None:
    wanted = RecordFilter(kinds=frozenset({Kind.BREAK}))
    assert await list_records(nothing, wanted, before=MOST_LOOKED_AT + 10, limit=50) == ([], 11)
    assert await list_records(nothing, wanted, before=11, limit=50) == ([], None)


async def test_with_an_index_all_rows_are_looked_at() -> None:
    async def find(_: RecordFilter, above: int, below: int, size: int) -> list[Record]:
        assert above == 0
        return [a_record(1)] if below > 1 and size else []

    page = await list_records(find, RecordFilter(run="run-one"), before=3 * MOST_LOOKED_AT, limit=50)
    assert ([record.seq for record in page.records], page.next) == ([1], None)


async def test_no_more_than_a_number_of_bodies_is_read_to_find_an_agent() -> None:
    page = await list_records(everything, RecordFilter(agent="absent"), before=20_001, limit=50)
    assert page == ([], 20_001 - MOST_READ)
    page = await list_records(everything, RecordFilter(agent="prime"), before=20_001, limit=150)
    assert [record.seq for record in page.records] == list(range(20_000, 19_850, -1))
    assert page.next == 19_851


def test_a_tree_that_forgets_what_has_ended_keeps_what_still_runs() -> None:
    tree = Tree()

    def feed(*bodies: Body) -> None:
        for body in bodies:
            tree.feed(Record(seq=tree.seq + 1, kind=Kind.NOTICE, at_ms=1_000, run="run-1", session="s-1", body=body))

    def child(path: str, parent: str) -> tuple[Any, Any]:
        request = a_request(id=path, parent=parent, origin="tag", target="byte", remit=a_remit(depth=2))
        return request, a_response(id=path, target="byte")

    (above, ended), (below, ended_below) = child("run-1.1", "run-1"), child("run-1.1.1", "run-1.1")
    feed(a_request(), above, below, ended)
    tree.forget(tree.nodes["run-1.1"])
    assert sorted(tree.nodes) == ["run-1", "run-1.1", "run-1.1.1"]
    feed(ended_below)
    tree.forget(tree.nodes["run-1.1"])
    assert sorted(tree.nodes) == ["run-1"]
    assert (tree.over, tree.root and tree.root.children) == ([], [])


def test_the_same_tool_used_twice_at_once_is_told_apart_by_when_it_began() -> None:
    tree = Tree()
    uses: list[tuple[int, Body]] = [
        (1_000, a_request()),
        (2_000, ToolUse(delegation="run-1", agent="tag", tool="read", input="first", begun=True)),
        (2_500, ToolUse(delegation="run-1", agent="tag", tool="read", input="second", begun=True)),
        (3_000, ToolUse(delegation="run-1", agent="tag", tool="read", duration_ms=1_000)),
    ]
    for seq, (at_ms, body) in enumerate(uses, 1):
        tree.feed(Record(seq=seq, kind=Kind.NOTICE, at_ms=at_ms, run="run-1", session="s-1", body=body))
    node = tree.nodes["run-1"]
    assert node.last_tool is not None
    assert (node.last_tool.input, node.last_tool.begun_ms, node.last_tool.ended_ms) == ("first", 2_000, 3_000)
    assert ([each.input for each in node.running_tools], node.using) == (["second"], "read")
