"""What the record shows of delegations: a table, what was held back, and the verdicts of guards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.policy import guards
from remit.policy.guards import GUARDS
from remit.policy.limits import Limits
from remit.policy.verdict import Facts, Guard, Refuse
from remit.protocol.card import AgentCard, Capability
from remit.protocol.envelope import (
    MODEL,
    VERSION,
    ContextFilter,
    Handoff,
    Message,
    Request,
    Response,
    Source,
    Usage,
    View,
)
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Approval, Body, Kind, Notice, Progress, Record, Refusal
from remit.protocol.remit import Remit
from remit.runtime.run_tree import Tree
from remit_server.delegation_detail import held_back, note_kinds_held_back
from remit_server.delegation_views import HeldBackBy
from remit_server.documents.delegation_table import covered, short_path, table_of
from remit_server.documents.spend import Pricing
from remit_server.documents.verdicts import RecordedCase, guard_name, recorded_verdicts, refusing_guard
from remit_server.model_prices import Price

REMIT = Remit(user="ada", depth=0, max_depth=5, time_ms=60_000, tokens=10_000)


def tree_of(*events: tuple[int, Body]) -> Tree:
    tree = Tree()
    for seq, (at_ms, body) in enumerate(events, start=1):
        kind = Kind.RESULT if isinstance(body, Response) else Kind.DELEGATION
        tree.feed(Record(seq=seq, kind=kind, at_ms=at_ms, run="run", session="run", body=body))
    return tree


def a_delegation(path: str, agent: str, parent: str | None = "run") -> Request:
    origin = "user" if parent is None else "boss"
    return Request(version=VERSION, id=path, origin=origin, target=agent, remit=REMIT, run="run", parent=parent)


def a_result(path: str, agent: str, took: int, tokens: int, model: str = "") -> Response:
    return Response(
        version=VERSION,
        id=path,
        target=agent,
        status=Status.SUCCESS,
        run="run",
        duration_ms=took,
        usage=Usage(prompt=tokens),
        metadata={MODEL: {"name": model, "cached": 0}} if model else {},
    )


def test_time_and_tokens_are_told_with_and_without_those_below() -> None:
    """Two that are at work at once are waited for once."""
    tree = tree_of(
        (1_000, a_delegation("run", "boss", None)),
        (1_010, a_delegation("run.1", "clerk")),
        (1_020, a_delegation("run.2", "reader")),
        (1_050, a_result("run.1", "clerk", 40, 100, "m:small")),
        (1_060, a_result("run.2", "reader", 40, 300)),
        (1_100, a_result("run", "boss", 100, 1_000, "m:large")),
    )
    prices = {"m:large": Price(input=10, output=0), "m:small": Price(input=1, output=0)}
    pricing = Pricing(price=prices.get, models={"reader": "m:small"})
    table = table_of(tree, tree.nodes_in_order(), 2_000, pricing.cost)
    assert table.path == ("", "1", "2")
    assert [table.names[each] for each in table.agent] == ["boss", "clerk", "reader"]
    assert (table.started, table.took, table.own) == ((0, 10, 20), (100, 40, 40), (50, 40, 40))
    assert (table.tokens, table.own_tokens) == ((1_000, 100, 300), (600, 100, 300))
    assert table.own_cost == (0.006, 0.0001, 0.0003)
    assert table.cost == (0.0064, 0.0001, 0.0003)
    assert table_of(tree, tree.nodes_in_order(), 2_000, Pricing().cost).cost == ()


def test_a_recorded_cost_counts_and_not_what_tokens_cost_now() -> None:
    ended = replace(a_result("run.1", "clerk", 40, 100, "m:small"), usage=Usage(prompt=100, cost=7, priced=100))
    asked = Progress(delegation="run", agent="boss", text="", usage=Usage(prompt=120, cost=10, priced=110))
    tree = tree_of(
        (1_000, a_delegation("run", "boss", None)),
        (1_010, a_delegation("run.1", "clerk")),
        (1_050, ended),
        (1_060, asked),
    )
    table = table_of(tree, tree.nodes_in_order(), 2_000, Pricing(price=lambda _: Price(input=9, output=9)).cost)
    assert table.own_cost == (0.000003, 0.000007)
    assert table.cost == pytest.approx((0.00001, 0.000007))


def test_one_that_has_not_ended_is_told_so_far() -> None:
    tree = tree_of((1_000, a_delegation("run", "boss", None)), (1_200, a_delegation("run.1", "clerk")))
    table = table_of(tree, tree.nodes_in_order(), 1_500)
    assert [table.names[each] for each in table.state] == ["waiting", "running"]
    assert (table.took, table.own) == ((500, 300), (200, 300))


def test_a_path_of_another_run_is_told_apart() -> None:
    assert [short_path(path, "run") for path in ("run", "run.2.1", "runner.1")] == ["", "2.1", "/runner.1"]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12))
def test_what_intervals_cover_is_counted_once(spans: list[tuple[int, int]]) -> None:
    points = {point for start, end in spans for point in range(start, end)}
    assert covered(spans) == len(points)


NOW_MS = 1_000_000
SAID = [
    Message(role="user", text="book a room", seq=1, tokens=3, at_ms=0),
    Message(role="assistant", text="which room?", seq=2, tokens=3, at_ms=NOW_MS - 2_000),
    Message(role="user", text="the blue Room", seq=3, tokens=3, at_ms=NOW_MS - 1_000),
]


def request(context: ContextFilter | None, view: View | None = None) -> Request:
    remit = Remit(user="anna", depth=1, max_depth=5, time_ms=1_000, tokens=100, context_tokens=40)
    return Request(version="1.0", id="r.1", origin="a", target="b", run="r", remit=remit, context=context, view=view)


def reasons(context: ContextFilter | None, view: View | None = None) -> list[tuple[int, HeldBackBy]]:
    return [(each.message.seq, each.by) for each in held_back(SAID, request(context, view), NOW_MS)]


def shown(*seqs: int, seen: tuple[int, ...] = ()) -> View:
    return View(messages=tuple(Message(role="user", text="", seq=seq) for seq in seqs), seen=seen)


@pytest.mark.parametrize(
    ("context", "view", "expected"),
    [
        (None, None, [(1, HeldBackBy.NO_FILTER), (2, HeldBackBy.NO_FILTER), (3, HeldBackBy.NO_FILTER)]),
        (ContextFilter(last_messages=0), None, [(each, HeldBackBy.NONE_WANTED) for each in (1, 2, 3)]),
        (ContextFilter(max_age_seconds=60), shown(2, 3), [(1, HeldBackBy.AGE)]),
        (ContextFilter(roles=frozenset({"user"})), shown(1, 3), [(2, HeldBackBy.ROLE)]),
        (ContextFilter(roles=frozenset()), shown(), [(each, HeldBackBy.ROLE) for each in (1, 2, 3)]),
        (ContextFilter(keywords=("blue",)), shown(3), [(1, HeldBackBy.KEYWORD), (2, HeldBackBy.KEYWORD)]),
        (ContextFilter(keywords=()), shown(), [(each, HeldBackBy.KEYWORD) for each in (1, 2, 3)]),
        (ContextFilter(last_messages=2), shown(2, 3), [(1, HeldBackBy.COUNT)]),
        (ContextFilter(), shown(3), [(1, HeldBackBy.TOKENS), (2, HeldBackBy.TOKENS)]),
        (ContextFilter(), shown(3, seen=(2,)), [(1, HeldBackBy.TOKENS), (2, HeldBackBy.SEEN_BEFORE)]),
        (ContextFilter(), shown(1, 2, 3), []),
    ],
)
def test_each_message_that_was_not_shown_has_its_reason(
    context: ContextFilter | None, view: View | None, expected: list[tuple[int, HeldBackBy]]
) -> None:
    assert reasons(context, view) == expected


def test_a_reason_names_the_setting_and_its_value() -> None:
    (first, *_) = held_back(SAID, request(ContextFilter(), shown(3)), NOW_MS)
    assert first.why == "did not fit into the 40 tokens of context (`context_tokens`)"
    (first, *_) = held_back(SAID, request(ContextFilter(roles=frozenset({"assistant"})), shown(2)), NOW_MS)
    assert first.why == "its role is user; `roles` has only assistant"


EVERY = frozenset({"fact", "decision", "constraint", "answer"})


@pytest.mark.parametrize(
    ("callers", "kinds", "first"),
    [
        ([None], frozenset[str](), -1),
        ([ContextFilter(known="all"), None], frozenset[str](), -1),
        ([ContextFilter(known="decisions"), None], frozenset({"fact", "answer"}), 0),
        ([ContextFilter(), None], EVERY, 0),
        ([None, None], EVERY, 0),
        ([ContextFilter(known="all"), ContextFilter(known="none")], EVERY, 1),
    ],
)
def test_the_first_filter_that_excludes_notes_is_the_one_that_counts(
    callers: list[ContextFilter | None], kinds: frozenset[str], first: int
) -> None:
    assert note_kinds_held_back(callers) == (kinds, first)


GRANTED = Remit(user="anna", depth=1, max_depth=5, time_ms=1_000, tokens=100, chain=("boss@here",))
CARD = AgentCard(name="clerk", capabilities=(Capability(code="FILE"),), tools=frozenset({"stamp"}))
BOSS = AgentCard(name="boss", may_call=frozenset({"clerk"}))
FACTS = Facts(target=CARD, address="clerk@here", caller=BOSS, held=GRANTED)
REQUEST = Request(version="1.0", id="r.1", origin="boss", target="clerk", run="r", parent="r", remit=GRANTED)
FOREIGN = Handoff(references=(Source(owner_scope="bob", source_id="x"),))


@pytest.mark.parametrize(
    ("guard", "request_", "facts"),
    [
        (guards.version, replace(REQUEST, version="0.1"), FACTS),
        (guards.known_target, REQUEST, replace(FACTS, target=None)),
        (guards.known_target, replace(REQUEST, capability="SING"), FACTS),
        (guards.permission, REQUEST, replace(FACTS, caller=AgentCard(name="boss"))),
        (guards.permission, REQUEST, replace(FACTS, caller=replace(BOSS, allow_sub_agent_calls=False))),
        (guards.permission, REQUEST, replace(FACTS, held=replace(GRANTED, targets=frozenset({"x"})))),
        (guards.user, REQUEST, replace(FACTS, session_user="bob")),
        (guards.user, REQUEST, replace(FACTS, session_agent="bob")),
        (guards.user, replace(REQUEST, handoff=FOREIGN), FACTS),
        (guards.depth, REQUEST, replace(FACTS, limits=Limits(max_depth=0))),
        (guards.chain, REQUEST, replace(FACTS, limits=Limits(max_chain=0))),
        (guards.loop, REQUEST, replace(FACTS, address="boss@here")),
        (guards.cycle, REQUEST, replace(FACTS, repeated=True)),
        (guards.nesting, REQUEST, replace(FACTS, held=replace(GRANTED, may_delegate=False))),
        (guards.fan_out, REQUEST, replace(FACTS, at_once=9)),
        (guards.delegations, REQUEST, replace(FACTS, delegations=9_999)),
        (guards.record, REQUEST, replace(FACTS, record_bytes=10**9)),
        (guards.deadline, replace(REQUEST, remit=replace(GRANTED, time_ms=0)), FACTS),
        (guards.tools, REQUEST, replace(FACTS, asked_tools=frozenset({"sign"}))),
        (guards.tokens, replace(REQUEST, remit=replace(GRANTED, tokens=0)), FACTS),
        (guards.rate, REQUEST, replace(FACTS, rate_wait_ms=9)),
        (guards.breaker, REQUEST, replace(FACTS, breaker_wait_ms=9)),
    ],
)
def test_the_guard_that_refused_is_found_from_its_fault(guard: Guard, request_: Request, facts: Facts) -> None:
    verdict = guard(request_, facts)
    assert isinstance(verdict, Refuse)
    assert refusing_guard(verdict.fault, ["team_rules"]) == guard_name(guard)


def test_what_a_rule_or_a_person_refused_is_put_down_to_the_team() -> None:
    assert refusing_guard(fault(Code.PERMISSION_DENIED, "not for mallory"), ["team_rules"]) == "team_rules"
    assert refusing_guard(fault(Code.APPROVAL_DECLINED, "declined"), ["team_rules"]) == "team_rules"
    assert refusing_guard(fault(Code.APPROVAL_DECLINED, "declined"), []) is None
    assert refusing_guard(fault(Code.OVERLOADED, "its queue is full"), []) is None


def record(seq: int, body: Request | Response | Refusal | Approval | Notice) -> Record:
    return Record(seq=seq, kind=Kind.NOTICE, at_ms=seq, run="r", session="r", body=body)


def answer(path: str, used: int) -> Response:
    return Response(version="1.0", id=path, target="clerk", status=Status.SUCCESS, run="r", usage=Usage(prompt=used))


ROOT = replace(REQUEST, id="from-outside", origin="user", target="boss", parent=None)


def call(number: int) -> Request:
    return replace(REQUEST, id=f"r.{number}")


def tree_with(*bodies: Request | Response | Refusal | Approval | Notice) -> Tree:
    tree = Tree()
    for seq, body in enumerate(bodies, start=1):
        tree.feed(record(seq, body))
    return tree


def test_a_tree_knows_what_was_asked_and_open_when_a_record_was_written() -> None:
    refused = replace(answer("r.3", 0), status=Status.REFUSED, fault=fault(Code.FAN_OUT_EXCEEDED, "too many"))
    tree = tree_with(
        *(ROOT, call(1), call(2), answer("r.1", 30)),
        Approval(delegation="r.3", agent="clerk", id="r.3-x", question="May it?"),
        *(Refusal(request=call(3), response=refused), call(4), answer("from-outside", 31)),
    )
    first, third, fourth = (tree.nodes[f"r.{number}"] for number in (1, 3, 4))
    assert [each.path for each in fourth.asked_before(fourth.first_seq)] == ["r.1", "r.2", "r.3"]
    assert [each.path for each in fourth.asked_before(7) if each.is_open_at(fourth.first_seq)] == ["r.2"]
    assert (first.usage.total, third.is_refused, third.seqs, third.first_seq) == (30, True, [5, 6], 6)
    assert [each.path for each in fourth.lineage()] == ["r.4", "r"]
    assert (tree.nodes["r"].state, tree.seq) == (Status.SUCCESS, 8)
    says = {each.guard: each.says for each in recorded_verdicts(case_of(tree, 4))}
    assert says["delegations"].startswith("call 4 of 3,000 of the run, 4 of 1,000 of boss")
    assert says["fan_out"].startswith("2 of ")


def test_a_refusal_by_no_guard_leaves_their_verdicts_open() -> None:
    case = case_of(tree_with(ROOT, call(1)), 1)._replace(fault=fault(Code.OVERLOADED, "its queue is full"))
    assert {each.verdict for each in recorded_verdicts(case)} == {"unknown"}


def case_of(tree: Tree, number: int) -> RecordedCase:
    node = tree.nodes[f"r.{number}"]
    return RecordedCase(
        request=call(number),
        node=node,
        seq=node.first_seq,
        tree=tree,
        limits=Limits(),
        guards=GUARDS,
        card=CARD,
        caller=BOSS,
        parent=ROOT,
    )
