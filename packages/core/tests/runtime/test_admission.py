"""Which guards there are, and in which order they judge."""

import inspect
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.policy.guards import GUARDS, LAST, explain, judge, passes_again
from remit.policy.verdict import ALLOW, Facts, Guard, Refuse, Rewrite
from remit.protocol.envelope import Request
from remit.protocol.errors import Code
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
    explanation = explain(WRONG, WRONG_FACTS)
    assert [name for name, _ in explanation] == [*ORDER, "redaction"]
    assert [(name, verdict.fault.code) for name, verdict in explanation if isinstance(verdict, Refuse)] == CODES


def test_of_many_objections_the_first_in_order_is_the_one_that_is_given() -> None:
    verdict = judge(WRONG, WRONG_FACTS, GUARDS)
    assert isinstance(verdict, Refuse)
    assert verdict.fault.code is Code.VERSION_UNSUPPORTED


def test_a_guard_without_a_name_is_explained_as_what_it_is() -> None:
    guard = partial(GUARDS[0])
    assert explain(a_request(), FACTS, [guard]) == [(repr(guard), ALLOW)]


# Each field of a request, its remit and its facts, as most have it and as a guard could object to it.
REQUESTS = st.builds(
    a_request,
    version=st.sampled_from(["1.0", "0.9"]),
    target=st.sampled_from(["tag", "other"]),
    capability=st.sampled_from([None, "TAG", "NOT_OFFERED"]),
    objective=st.sampled_from(["x", "x" * 5_000]),
    input=st.sampled_from([None, "text", "x" * 5_000, {"a": 1}]),
    remit=st.builds(
        a_remit,
        depth=st.sampled_from([1, 2, 6]),
        time_ms=st.sampled_from([0, 19, 20, 1_000]),
        tokens=st.sampled_from([0, 1, 1_200]),
        chain=st.sampled_from([(), ("prime@hub",), ("tag@hub",), tuple(f"a{number}@hub" for number in range(11))]),
    ),
)
FACTS_OF_ALL_KINDS = st.builds(
    Facts,
    target=st.sampled_from([a_card(), None]),
    address=st.just("tag@hub"),
    caller=st.sampled_from([None, a_card(name="prime"), a_card(name="prime", may_call=frozenset({"tag"}))]),
    held=st.sampled_from([None, a_remit(), a_remit(may_delegate=False), a_remit(targets=frozenset({"other"}))]),
    session_user=st.sampled_from([None, "u-1", "u-2"]),
    session_agent=st.sampled_from([None, "tag", "other"]),
    asked_tools=st.sampled_from([None, frozenset[str](), frozenset({"shell"})]),
    at_once=st.sampled_from([1, 3, 4]),
    delegations=st.sampled_from([1, 3_001]),
    agent_delegations=st.sampled_from([1, 100_001]),
    record_bytes=st.sampled_from([0, 64 * 1_048_576]),
    repeated=st.booleans(),
    overrun=st.booleans(),
    rate_wait_ms=st.sampled_from([0, 1]),
    breaker_wait_ms=st.sampled_from([0, 1]),
)


# What differs between two short texts of one caller to one callee.
OTHER_TEXTS = st.fixed_dictionaries(
    {"id": st.just("run-1.2"), "session": st.just("run-1.2"), "objective": st.sampled_from(["y", "y" * 5_000])}
)
OTHER_FACTS = st.fixed_dictionaries(
    {
        "at_once": st.sampled_from([1, 3, 4]),
        "delegations": st.sampled_from([2, 3_001]),
        "agent_delegations": st.sampled_from([2, 100_001]),
        "record_bytes": st.sampled_from([0, 64 * 1_048_576]),
        "repeated": st.booleans(),
        "overrun": st.booleans(),
        "rate_wait_ms": st.sampled_from([0, 1]),
        "breaker_wait_ms": st.sampled_from([0, 1]),
    }
)
EACH_TIME = {"cycle", "fan_out", "delegations", "record", "deadline", "tokens", "rate", "breaker"}


@settings(max_examples=100)
@given(REQUESTS, FACTS_OF_ALL_KINDS, OTHER_TEXTS, OTHER_FACTS, st.sampled_from([0, 19, 1_000]))
def test_the_guards_that_the_one_look_leaves_out_decide_the_same_about_another_text(
    request: Request, facts: Facts, text: dict[str, Any], later: dict[str, Any], time_ms: int
) -> None:
    other = replace(request, **text, remit=replace(request.remit, time_ms=time_ms))
    for guard in GUARDS:
        if name_of(guard) not in EACH_TIME:
            assert (guard(request, facts) == ALLOW) == (guard(other, replace(facts, **later)) == ALLOW), guard


@settings(max_examples=100)
@given(REQUESTS, FACTS_OF_ALL_KINDS)
def test_what_passes_in_one_look_passes_the_guards_that_it_stands_for(request: Request, facts: Facts) -> None:
    request = replace(request, input=None)
    if passes_again(request, facts):
        assert [guard(request, facts) for guard in GUARDS if name_of(guard) in EACH_TIME] == [ALLOW] * len(EACH_TIME)


@pytest.mark.parametrize("guard", range(len(GUARDS)), ids=[name_of(guard) for guard in GUARDS])
def test_the_one_look_sees_what_each_guard_that_it_stands_for_objects_to(guard: int) -> None:
    """All else is in order, so that a condition that is missing in the one look shows."""
    request, facts = ALONE[name_of(GUARDS[guard])]
    assert [each(request, facts) == ALLOW for each in GUARDS] == [number != guard for number in range(len(GUARDS))]
    assert passes_again(request, facts) == (name_of(GUARDS[guard]) not in EACH_TIME)


ALONE: dict[str, tuple[Request, Facts]] = {
    "version": (a_request(version="0.9"), FACTS),
    "known_target": (a_request(capability="NOT_OFFERED"), FACTS),
    "permission": (a_request(), replace(FACTS, caller=a_card(name="prime"))),
    "user": (a_request(), replace(FACTS, session_user="u-2")),
    "depth": (a_request(remit=a_remit(depth=6)), FACTS),
    "chain": (a_request(remit=a_remit(chain=tuple(f"a{number}@hub" for number in range(11)))), FACTS),
    "loop": (a_request(remit=a_remit(chain=("tag@hub",))), FACTS),
    "cycle": (a_request(), replace(FACTS, repeated=True)),
    "nesting": (a_request(), replace(FACTS, held=a_remit(may_delegate=False))),
    "fan_out": (a_request(), replace(FACTS, held=a_remit(), at_once=4)),
    "delegations": (a_request(), replace(FACTS, delegations=1_000_000)),
    "record": (a_request(), replace(FACTS, record_bytes=1_000_000_000)),
    "deadline": (a_request(remit=a_remit(time_ms=19)), FACTS),
    "tools": (a_request(), replace(FACTS, asked_tools=frozenset({"shell"}))),
    "tokens": (a_request(remit=a_remit(tokens=0)), FACTS),
    "rate": (a_request(), replace(FACTS, rate_wait_ms=1)),
    "breaker": (a_request(), replace(FACTS, breaker_wait_ms=1)),
}
