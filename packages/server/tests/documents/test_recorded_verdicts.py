"""Verdicts read from the record: which guard refused, and what was open when."""

import pytest
from msgspec.structs import replace

from remit.policy import guards
from remit.policy.guards import GUARDS
from remit.policy.limits import Limits
from remit.policy.verdict import Facts, Guard, Refuse
from remit.protocol.card import AgentCard, Capability
from remit.protocol.envelope import Handoff, Request, Response, Source, Usage
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Approval, Kind, Notice, Record, Refusal
from remit.protocol.remit import Remit
from remit.runtime.run_tree import Tree
from remit_server.documents.verdicts import RecordedCase, guard_name, recorded_verdicts, refusing_guard

REMIT = Remit(user="anna", depth=1, max_depth=5, time_ms=1_000, tokens=100, chain=("boss@here",))
CARD = AgentCard(name="clerk", capabilities=(Capability(code="FILE"),), tools=frozenset({"stamp"}))
BOSS = AgentCard(name="boss", may_call=frozenset({"clerk"}))
FACTS = Facts(target=CARD, address="clerk@here", caller=BOSS, held=REMIT)
REQUEST = Request(version="1.0", id="r.1", origin="boss", target="clerk", run="r", parent="r", remit=REMIT)
FOREIGN = Handoff(references=(Source(owner_scope="bob", source_id="x"),))


@pytest.mark.parametrize(
    ("guard", "request_", "facts"),
    [
        (guards.version, replace(REQUEST, version="0.1"), FACTS),
        (guards.known_target, REQUEST, replace(FACTS, target=None)),
        (guards.known_target, replace(REQUEST, capability="SING"), FACTS),
        (guards.permission, REQUEST, replace(FACTS, caller=AgentCard(name="boss"))),
        (guards.permission, REQUEST, replace(FACTS, caller=replace(BOSS, allow_sub_agent_calls=False))),
        (guards.permission, REQUEST, replace(FACTS, held=replace(REMIT, targets=frozenset({"x"})))),
        (guards.user, REQUEST, replace(FACTS, session_user="bob")),
        (guards.user, REQUEST, replace(FACTS, session_agent="bob")),
        (guards.user, replace(REQUEST, handoff=FOREIGN), FACTS),
        (guards.depth, REQUEST, replace(FACTS, limits=Limits(max_depth=0))),
        (guards.chain, REQUEST, replace(FACTS, limits=Limits(max_chain=0))),
        (guards.loop, REQUEST, replace(FACTS, address="boss@here")),
        (guards.cycle, REQUEST, replace(FACTS, repeated=True)),
        (guards.nesting, REQUEST, replace(FACTS, held=replace(REMIT, may_delegate=False))),
        (guards.fan_out, REQUEST, replace(FACTS, at_once=9)),
        (guards.delegations, REQUEST, replace(FACTS, delegations=9_999)),
        (guards.record, REQUEST, replace(FACTS, record_bytes=10**9)),
        (guards.deadline, replace(REQUEST, remit=replace(REMIT, time_ms=0)), FACTS),
        (guards.tools, REQUEST, replace(FACTS, asked_tools=frozenset({"sign"}))),
        (guards.tokens, replace(REQUEST, remit=replace(REMIT, tokens=0)), FACTS),
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


def tree_of(*bodies: Request | Response | Refusal | Approval | Notice) -> Tree:
    tree = Tree()
    for seq, body in enumerate(bodies, start=1):
        tree.feed(record(seq, body))
    return tree


def test_a_tree_knows_what_was_asked_and_open_when_a_record_was_written() -> None:
    refused = replace(answer("r.3", 0), status=Status.REFUSED, fault=fault(Code.FAN_OUT_EXCEEDED, "too many"))
    tree = tree_of(
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
    case = case_of(tree_of(ROOT, call(1)), 1)._replace(fault=fault(Code.OVERLOADED, "its queue is full"))
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
