"""Which guards there are, and in which order they judge."""

import inspect
from functools import partial

import pytest

from remit.policy.verdict import ALLOW, Facts, Guard, Refuse, Rewrite, judge
from remit.protocol.errors import Code
from remit.runtime.delegation.guards import GUARDS, LAST, explain
from samples import a_card, a_remit, a_request

FACTS = Facts(target=a_card(), address="tag@hub", caller=a_card(name="prime", may_call=frozenset({"tag"})))

# Structural first, rewriting last. A change here is a change of which refusal a caller sees.
ORDER = [
    "version",
    "known_target",
    "permission",
    "user",
    "depth",
    "chain",
    "loop",
    "cycle",
    "nesting",
    "fan_out",
    "delegations",
    "record",
    "deadline",
    "tools",
    "tokens",
    "rate",
    "breaker",
]


def name_of(guard: Guard) -> str:
    return getattr(guard, "__name__", "")


def test_the_guards_judge_in_this_order() -> None:
    assert [name_of(guard) for guard in (*GUARDS, LAST)] == [*ORDER, "redaction"]


@pytest.mark.parametrize("guard", [*GUARDS, LAST], ids=name_of)
def test_every_guard_says_in_one_sentence_what_it_makes_sure_of(guard: Guard) -> None:
    sentence = inspect.getdoc(guard) or ""
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize("guard", GUARDS, ids=name_of)
def test_no_guard_objects_to_an_ordinary_request(guard: Guard) -> None:
    assert guard(a_request(), FACTS) == ALLOW


def test_an_ordinary_request_passes_them_all_unchanged() -> None:
    assert judge(a_request(), FACTS, GUARDS) == Rewrite(a_request())


# A request that everything is wrong with, so that each guard would refuse it.
WRONG = a_request(
    version="0.9",
    remit=a_remit(depth=6, time_ms=0, tokens=0, chain=("tag@hub", *(f"a{number}@hub" for number in range(10)))),
)
WRONG_FACTS = Facts(
    target=a_card(),
    address="tag@hub",
    caller=a_card(name="prime"),
    held=a_remit(may_delegate=False),
    session_user="u-2",
    asked_tools=frozenset({"shell"}),
    at_once=4,
    delegations=3_001,
    record_bytes=64 * 1_048_576,
    repeated=True,
    rate_wait_ms=1,
    breaker_wait_ms=1,
)
CODES = [
    ("version", Code.VERSION_UNSUPPORTED),
    ("permission", Code.PERMISSION_DENIED),
    ("user", Code.USER_MISMATCH),
    ("depth", Code.MAX_DEPTH_EXCEEDED),
    ("chain", Code.CHAIN_TOO_LONG),
    ("loop", Code.LOOP_DETECTED),
    ("cycle", Code.CYCLE_DETECTED),
    ("nesting", Code.NESTED_CALLS_FORBIDDEN),
    ("fan_out", Code.FAN_OUT_EXCEEDED),
    ("delegations", Code.MAX_DELEGATIONS_EXCEEDED),
    ("record", Code.RECORD_LIMIT_EXCEEDED),
    ("deadline", Code.TIMEOUT),
    ("tools", Code.TOOL_NOT_ALLOWED),
    ("tokens", Code.TOKEN_BUDGET_EXCEEDED),
    ("rate", Code.RATE_LIMITED),
    ("breaker", Code.DELEGATION_UNAVAILABLE),
]


def test_each_guard_explains_itself_also_after_an_objection() -> None:
    told = explain(WRONG, WRONG_FACTS)
    assert [name for name, _ in told] == [*ORDER, "redaction"]
    assert [(name, verdict.fault.code) for name, verdict in told if isinstance(verdict, Refuse)] == CODES


def test_of_many_objections_the_first_in_order_is_the_one_that_is_given() -> None:
    verdict = judge(WRONG, WRONG_FACTS, GUARDS)
    assert isinstance(verdict, Refuse)
    assert verdict.fault.code is Code.VERSION_UNSUPPORTED


def test_a_guard_without_a_name_is_explained_as_what_it_is() -> None:
    guard = partial(GUARDS[0])
    assert explain(a_request(), FACTS, [guard]) == [(repr(guard), ALLOW)]
