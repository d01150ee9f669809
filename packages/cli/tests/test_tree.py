"""The tree of a run, from its records alone."""

from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from remit.protocol.envelope import MODEL, Request, Usage
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Approval, Body, Delta, Kind, Notice, Progress, Record, Refusal, SharedStep, ToolUse
from remit.runtime.run_tree import Tree
from remit_cli.show.runs import steps_of
from remit_cli.show.screen import spell_ms
from remit_cli.show.tree_lines import in_columns, lines_of, sentence
from samples import a_remit, a_request, a_response

RUN = "run-1"


def make_request(path: str = RUN, target: str = "lead", *, time_ms: int = 30_000, tokens: int = 8_000) -> Request:
    parent = None if path == RUN else path.rpartition(".")[0]
    origin = "user" if parent is None else "lead"
    remit = a_remit(time_ms=time_ms, tokens=tokens, user="ana")
    return a_request(id=path, run=RUN, parent=parent, origin=origin, target=target, objective="Sort", remit=remit)


def recorded(*events: tuple[int, Body]) -> list[Record]:
    return [
        Record(seq=seq, kind=Kind.NOTICE, at_ms=at_ms, run=RUN, session=RUN, body=body)
        for seq, (at_ms, body) in enumerate(events, start=1)
    ]


def grown(*events: tuple[int, Body]) -> Tree:
    """Return the tree after what was told at these times."""
    tree = Tree()
    for record in recorded(*events):
        tree.feed(record)
    return tree


def drawn(tree: Tree, now_ms: int, *, height: int | None = None, width: int = 100, unicode: bool = True) -> list[str]:
    rows = in_columns(lines_of(tree, now_ms, height), width, unicode=unicode, head=False)
    return ["".join(text for text, _ in row).rstrip() for row in rows]


# ── one delegation ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_delegation_shows_its_agent_state_time_tokens_and_what_it_says() -> None:
    tree = grown(
        (0, make_request(time_ms=60_000, tokens=50_000)),
        (100, make_request(f"{RUN}.1", "tag")),
        (200, ToolUse(delegation=f"{RUN}.1", agent="tag", tool="look")),
        (210, ToolUse(delegation=f"{RUN}.1", agent="tag", tool="look")),
        (300, Progress(delegation=f"{RUN}.1", agent="tag", text="2 of 3")),
    )
    assert drawn(tree, 2_100) == [
        "lead    waiting  2.1 s / 60 s  0 / 50,000  Sort",
        "└─ tag  running    2 s / 30 s   0 / 8,000  2 of 3 [look ×2]",
    ]


def test_what_an_agent_reports_of_its_use_counts_for_all_above_it_until_it_ends() -> None:
    def progress(path: str, tokens: int) -> Progress:
        return Progress(delegation=path, agent="tag", text="", usage=Usage(prompt=tokens))

    events: list[tuple[int, Body]] = [
        (0, make_request()),
        (0, make_request(f"{RUN}.1")),
        (0, make_request(f"{RUN}.1.1")),
    ]
    events += [
        (1, progress(f"{RUN}.1.1", 30)),
        (2, progress(f"{RUN}.1.1", 50)),
        (3, progress(f"{RUN}.1", 7)),
        (3, progress(RUN, 100)),
    ]
    assert [node.usage.total for node in grown(*events).nodes.values()] == [157, 57, 50]
    events += [(4, a_response(id=f"{RUN}.1.1", usage=Usage(prompt=60)))]
    assert [node.usage.total for node in grown(*events).nodes.values()] == [167, 67, 60]
    events += [
        (5, progress(f"{RUN}.1", 69)),
        (5, progress(f"{RUN}.1.1", 9)),
    ]  # 60 of them below it, and a report that came late
    tree = grown(*events)
    assert [node.usage.total for node in tree.nodes.values()] == [169, 69, 60]
    assert [node.own.prompt for node in tree.nodes.values()] == [100, 9, 60]


def test_tokens_from_a_cache_that_do_not_count_are_told_apart() -> None:
    model = {MODEL: {"name": "m", "beside": 1_200}}
    tree = grown((0, make_request()), (5, a_response(id=RUN, usage=Usage(prompt=240), duration_ms=5, metadata=model)))
    assert drawn(tree, 5) == ["lead  success  5 ms  240  Sort (+1,200 cached)"]


def test_an_ended_delegation_shows_what_it_took_and_its_parent_what_all_below_it_took() -> None:
    tree = grown(
        (0, make_request()),
        (10, make_request(f"{RUN}.1", "tag")),
        (20, a_response(id=f"{RUN}.1", usage=Usage(prompt=40, estimated=True), duration_ms=10)),
        (30, make_request(f"{RUN}.3", "tax")),
        (
            40,
            a_response(
                id=f"{RUN}.3", usage=Usage(completion=2), duration_ms=10, status=Status.PARTIAL, unfinished=("vat",)
            ),
        ),
    )
    assert drawn(tree, 50) == [
        "lead    running  50 ms / 30 s  ~42 / 8,000  Sort",
        "├─ tag  success         10 ms          ~40  Sort",
        "└─ tax  partial         10 ms            2  not finished: vat",
    ]


def test_a_step_with_another_device_belongs_to_its_run_and_is_told_in_a_sentence() -> None:
    step = SharedStep(side="asks", profile="reviewer", device="d-2", event="Stop", by="api", via="api", state="stopped")
    record = Record(seq=1, kind=Kind.SHARED, at_ms=5, run=RUN, session=RUN, body=step)
    node = Tree().feed(record)
    assert (node.path, node.agent, node.last_message) == (RUN, "reviewer", "Stop")
    assert sentence(record, node) == "reviewer with device d-2: Stop by api, now stopped"


def test_a_refusal_shows_its_code_and_why() -> None:
    refusal = Refusal(
        request=make_request(f"{RUN}.1", "lead"),
        response=a_response(
            id=f"{RUN}.1", status=Status.REFUSED, fault=fault(Code.LOOP_DETECTED, "lead is in the chain")
        ),
    )
    line = drawn(grown((0, make_request()), (5, refusal)), 5)[1]
    assert line.split(maxsplit=3) == ["└─", "lead", "refused", "LOOP_DETECTED: lead is in the chain"]


def test_a_tool_that_cannot_be_repeated_is_shown_while_it_is_used() -> None:
    begun = ToolUse(delegation=RUN, agent="lead", tool="pay", begun=True)
    assert drawn(grown((0, make_request()), (1, begun)), 2)[0].endswith("uses pay")
    assert drawn(grown((0, make_request()), (1, begun), (3, ToolUse(delegation=RUN, agent="lead", tool="pay"))), 4)[
        0
    ].endswith("Sort [pay]")


# ── people ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def question(path: str, agreed: bool | None = None) -> Approval:
    return Approval(delegation=path, agent="payer", id="q-1", question="May it pay?", agreed=agreed, by="ana")


def test_while_a_person_is_asked_the_clocks_above_stand_still() -> None:
    events = [(0, make_request()), (1_000, question(f"{RUN}.1"))]
    assert drawn(grown(*events), 61_000) == [
        "lead      waiting  1 s / 30 s  0 / 8,000  Sort",
        "└─ payer  asking         60 s             “May it pay?”",
    ]
    events += [(61_000, question(f"{RUN}.1", agreed=True)), (61_000, make_request(f"{RUN}.1", "payer"))]
    assert drawn(grown(*events), 63_000) == [
        "lead      waiting  3 s / 30 s  0 / 8,000  Sort",
        "└─ payer  running  2 s / 30 s  0 / 8,000  Sort",
    ]


def test_two_questions_at_once_stop_a_clock_once() -> None:
    second = Approval(delegation=f"{RUN}.2", agent="payer", id="q-2", question="And this?")
    tree = grown(
        (0, make_request()), (1_000, question(f"{RUN}.1")), (2_000, second), (5_000, question(f"{RUN}.1", agreed=False))
    )
    assert tree.root is not None
    assert tree.root.taken_ms(9_000) == 1_000


def test_a_question_that_nobody_answered_before_the_run_ended_was_not_begun() -> None:
    cancelled = a_response(id=RUN, status=Status.CANCELLED, fault=fault(Code.CANCELLED, "cancelled: by ana"))
    tree = grown((0, make_request()), (10, question(f"{RUN}.1")), (20, cancelled))
    assert [node.state for node in tree.nodes.values()] == [Status.CANCELLED, "not begun"]


# ── runs that were not told in order ──────────────────────────────────────────────────────────────────────────────────


def test_what_had_not_ended_when_the_run_did_is_unknown() -> None:
    tree = grown(
        (0, make_request()), (1, make_request(f"{RUN}.1", "tag")), (2, a_response(id=RUN, status=Status.FAILED))
    )
    assert [node.state for node in tree.nodes.values()] == [Status.FAILED, "unknown"]
    assert tree.in_flight == {}


def test_what_a_closing_hub_stopped_and_another_carries_out_again_is_under_way_again() -> None:
    stopped = a_response(id=f"{RUN}.1", status=Status.CANCELLED)
    tree = grown(
        (0, make_request()), (1, make_request(f"{RUN}.1", "tag")), (2, stopped), (9, make_request(f"{RUN}.1", "tag"))
    )
    assert [node.state for node in tree.nodes.values()] == ["waiting", "running"]
    assert tree.tally.total() == 0


def test_records_that_a_slow_listener_lost_leave_the_rest_in_its_place() -> None:
    tree = grown(
        (5, Progress(delegation=f"{RUN}.1.2", agent="tag", text="half")),
        (6, Notice(delegation=RUN, agent="lead", text="it overran")),
    )
    assert drawn(tree, 5) == [
        "lead       waiting  0 ms  it overran",
        "└─ ?       waiting  0 ms",
        "   └─ tag  waiting  0 ms  half",
    ]


def test_an_id_that_the_user_chose_ends_the_root_and_nothing_else() -> None:
    request = a_request(id="my-own", run=RUN, parent=None, target="lead")
    tree = grown((0, request), (1, a_response(id="my-own", target="lead")))
    assert tree.response == a_response(id="my-own", target="lead")
    assert len(tree.nodes) == 1


# ── little room ───────────────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """A run of some delegations in any shape, of which any may have ended, and any may ask a person."""
    paths, numbers = [RUN], count(1)
    events: list[tuple[int, Body]] = [(0, make_request())]
    for at_ms in range(draw(st.integers(0, 40))):
        path = f"{draw(st.sampled_from(paths))}.{next(numbers)}"
        paths.append(path)
        name = draw(st.sampled_from(["tag", "a-rather-long-name-for-an-agent", "税務", "\x1b[2Jevil\n"]))
        events.append((at_ms, make_request(path, name)))
        match draw(st.integers(0, 3)):
            case 0:
                events.append((at_ms, a_response(id=path)))
            case 1:
                events.append(
                    (at_ms, a_response(id=path, status=Status.FAILED, fault=fault(Code.TIMEOUT, "late\x9b2J")))
                )
            case 2:
                events.append((at_ms, Progress(delegation=path, agent=name, text="→ half\r\x1b]0;x\x07 done")))
            case _:
                pass
    return grown(*events)


@given(trees(), st.integers(1, 30))
def test_a_tree_takes_no_more_lines_than_there_are_and_accounts_for_every_delegation(tree: Tree, height: int) -> None:
    lines = lines_of(tree, 100, height)
    assert 1 <= len(lines) <= height
    shown = sum(1 for line in lines if line.state)
    if len(tree.nodes) <= height:
        assert shown == len(tree.nodes)
    else:
        assert any("more" in line.name or "below" in line.detail for line in lines)


@given(trees(), st.integers(10, 140), st.booleans())
def test_no_line_is_wider_than_the_terminal_or_steers_it(tree: Tree, width: int, unicode: bool) -> None:
    for line in drawn(tree, 100, width=width, unicode=unicode):
        assert cell_len(line) <= width
        assert line.isprintable()
        assert unicode or line.isascii()


def test_of_thousands_those_under_way_are_shown_and_the_others_are_counted() -> None:
    events: list[tuple[int, Body]] = [(0, make_request())]
    for number in range(1, 5_001):
        events.append((number, make_request(f"{RUN}.{number}", "tag")))
        if number != 17:
            status = Status.FAILED if number == 99 else Status.SUCCESS
            events.append((number, a_response(id=f"{RUN}.{number}", status=status)))
    lines = drawn(grown(*events), 5_000, height=5)
    assert len(lines) == 5
    assert [line.split()[2] for line in lines[1:4]] == ["running", "success", "success"]
    assert lines[4] == "└─ … 4,997 more: 4,996 success, 1 failed"


def test_one_that_waits_for_a_person_is_shown_however_much_is_going_on() -> None:
    events: list[tuple[int, Body]] = [(0, make_request())]
    events += [(number, make_request(f"{RUN}.{number}", "tag")) for number in range(1, 100)]
    lines = drawn(grown(*events, (100, question(f"{RUN}.500"))), 100, height=4)
    assert any("asking" in line for line in lines)


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ms", "spelt"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (1_250, "1.2 s"),
        (9_960, "10 s"),
        (119_000, "119 s"),
        (120_000, "2 min"),
        (125_000, "2 min 5 s"),
        (7_200_000, "2 h"),
        (7_260_000, "2 h 1 min"),
    ],
)
def test_a_time_is_said_the_coarser_the_longer_it_is(ms: int, spelt: str) -> None:
    assert spell_ms(ms) == spelt


def test_each_record_is_one_plain_line() -> None:
    tree = Tree()
    refused = a_response(id=f"{RUN}.2", status=Status.REFUSED, fault=fault(Code.LOOP_DETECTED, "in the chain"))
    events: Sequence[tuple[Body, str]] = [
        (make_request(), "ana asks lead: Sort"),
        (make_request(f"{RUN}.1", "tag"), "lead asks tag: Sort"),
        (Progress(delegation=f"{RUN}.1", agent="tag", text="1 of\n2\x1b[2J"), "tag: 1 of 2"),
        (ToolUse(delegation=f"{RUN}.1", agent="tag", tool="pay", begun=True), "tag starts to use pay"),
        (ToolUse(delegation=f"{RUN}.1", agent="tag", tool="pay", duration_ms=5), "tag used pay (5 ms)"),
        (
            ToolUse(delegation=f"{RUN}.1", agent="tag", tool="rm", fault=fault(Code.TOOL_NOT_ALLOWED, "not yours")),
            "tag could not use rm, TOOL_NOT_ALLOWED: not yours",
        ),
        (
            ToolUse(
                delegation=f"{RUN}.1",
                agent="tag",
                tool="send",
                refused=True,
                fault=fault(Code.PERMISSION_DENIED, "not there"),
            ),
            "tag could not use send, PERMISSION_DENIED: not there",
        ),
        (Delta(delegation=f"{RUN}.1", agent="tag", text="a word\x1b[2J\nor two"), "tag says: a word or two"),
        (Notice(delegation=f"{RUN}.1", agent="tag", text="it overran"), "tag: it overran"),
        (question(f"{RUN}.1"), "payer: a person is asked: May it pay?"),
        (question(f"{RUN}.1", agreed=True), "payer: ana agreed"),
        (
            a_response(id=f"{RUN}.1", duration_ms=1_500, usage=Usage(prompt=1_200)),
            "tag: success in 1.5 s, 1,200 tokens, tools: pay, rm refused, send refused",
        ),
        (
            Refusal(request=make_request(f"{RUN}.2", "lead"), response=refused),
            "lead asks lead: Sort: refused, LOOP_DETECTED: in the chain",
        ),
    ]
    for seq, (body, expected) in enumerate(events):
        record = Record(seq=seq, kind=Kind.NOTICE, at_ms=0, run=RUN, session=RUN, body=body)
        assert sentence(record, tree.feed(record)) == expected


def test_in_a_replay_time_does_not_go_back_where_two_wrote_at_once() -> None:
    steps = steps_of(
        RUN,
        "running",
        recorded((100, make_request()), (105, make_request(f"{RUN}.2")), (104, make_request(f"{RUN}.1"))),
    ).steps
    assert [(step.at_ms, step.elapsed_ms) for step in steps] == [(100, 0), (105, 5), (104, 5)]
