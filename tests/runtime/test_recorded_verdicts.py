"""Verdicts read from the record: which guard refused, and the index of a run that they are read from."""

import pytest
from msgspec.structs import replace

from remit.policy import breaker, budget, lineage, permission
from remit.policy.limits import Limits
from remit.policy.verdict import Facts, Guard, Refuse
from remit.protocol.card import AgentCard, Capability
from remit.protocol.envelope import Handoff, Request, Response, Source, Usage
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Approval, Kind, Notice, Record, Refusal
from remit.protocol.remit import Remit
from remit.runtime.delegation.guards import GUARDS
from remit.runtime.recorded_verdicts import RecordedCase, guard_name, recorded_verdicts, refusing_guard
from remit.runtime.run_index import RunIndex

REMIT = Remit(user="anna", depth=1, max_depth=5, time_ms=1_000, tokens=100, chain=("boss@here",))
CARD = AgentCard(name="clerk", capabilities=(Capability(code="FILE"),), tools=frozenset({"stamp"}))
BOSS = AgentCard(name="boss", may_call=frozenset({"clerk"}))
FACTS = Facts(target=CARD, address="clerk@here", caller=BOSS, held=REMIT)
REQUEST = Request(version="1.0", id="r.1", origin="boss", target="clerk", run="r", parent="r", remit=REMIT)
FOREIGN = Handoff(references=(Source(owner_scope="bob", source_id="x"),))


@pytest.mark.parametrize(
    ("guard", "request_", "facts"),
    [
        (lineage.version, replace(REQUEST, version="0.1"), FACTS),
        (permission.known_target, REQUEST, replace(FACTS, target=None)),
        (permission.known_target, replace(REQUEST, capability="SING"), FACTS),
        (permission.permission, REQUEST, replace(FACTS, caller=AgentCard(name="boss"))),
        (permission.permission, REQUEST, replace(FACTS, caller=replace(BOSS, allow_sub_agent_calls=False))),
        (permission.permission, REQUEST, replace(FACTS, held=replace(REMIT, targets=frozenset({"x"})))),
        (permission.user, REQUEST, replace(FACTS, session_user="bob")),
        (permission.user, REQUEST, replace(FACTS, session_agent="bob")),
        (permission.user, replace(REQUEST, handoff=FOREIGN), FACTS),
        (lineage.depth, REQUEST, replace(FACTS, limits=Limits(max_depth=0))),
        (lineage.chain, REQUEST, replace(FACTS, limits=Limits(max_chain=0))),
        (lineage.loop, REQUEST, replace(FACTS, address="boss@here")),
        (lineage.cycle, REQUEST, replace(FACTS, repeated=True)),
        (lineage.nesting, REQUEST, replace(FACTS, held=replace(REMIT, may_delegate=False))),
        (lineage.fan_out, REQUEST, replace(FACTS, at_once=9)),
        (lineage.delegations, REQUEST, replace(FACTS, delegations=9_999)),
        (budget.record, REQUEST, replace(FACTS, record_bytes=10**9)),
        (budget.deadline, replace(REQUEST, remit=replace(REMIT, time_ms=0)), FACTS),
        (permission.tools, REQUEST, replace(FACTS, asked_tools=frozenset({"sign"}))),
        (budget.tokens, replace(REQUEST, remit=replace(REMIT, tokens=0)), FACTS),
        (budget.rate, REQUEST, replace(FACTS, rate_wait_ms=9)),
        (breaker.breaker, REQUEST, replace(FACTS, breaker_wait_ms=9)),
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


def test_an_index_grows_with_the_record_and_knows_what_was_open_when() -> None:
    index = RunIndex()
    index.add([record(1, ROOT), record(2, call(1)), record(3, call(2)), record(4, answer("r.1", 30))])
    index.add([record(5, Approval(delegation="r.3", agent="clerk", id="r.3-x", question="May it?"))])
    third = replace(answer("r.3", 0), status=Status.REFUSED, fault=fault(Code.FAN_OUT_EXCEEDED, "too many"))
    index.add([record(6, Refusal(request=call(3), response=third)), record(7, call(4)), record(8, answer("other", 1))])
    index.add([record(9, answer("from-outside", 31))])
    assert [(each.path, each.number, each.number_of_caller) for each in index.of.values()] == [
        ("r", 0, 0),
        ("r.1", 1, 1),
        ("r.2", 2, 2),
        ("r.3", 3, 3),
        ("r.4", 4, 4),
    ]
    fourth = index.of["r.4"]
    assert [each.path for each in index.beside(fourth) if each.is_open_at(fourth.first_seq)] == ["r.2"]
    assert (index.of["r.1"].used, index.of["r.3"].refused, index.of["r.3"].seqs) == (30, Code.FAN_OUT_EXCEEDED, [5, 6])
    assert [each.path for each in index.above(fourth)] == ["r"]
    assert (index.of["r"].status, index.last_seq) == (Status.SUCCESS, 9)


def test_a_refusal_by_no_guard_leaves_their_verdicts_open() -> None:
    index = RunIndex()
    index.add([record(1, ROOT), record(2, call(1))])
    case = RecordedCase(
        request=call(1),
        entry=index.of["r.1"],
        run=index,
        limits=Limits(),
        guards=GUARDS,
        card=CARD,
        caller=BOSS,
        parent=ROOT,
        fault=fault(Code.OVERLOADED, "its queue is full"),
    )
    assert {each.verdict for each in recorded_verdicts(case)} == {"unknown"}
