"""What envelopes say of themselves."""

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.protocol.card import Capability
from remit.protocol.envelope import (
    Assignment,
    AssignmentOptions,
    BoundedAssignment,
    Level,
    Request,
    Usage,
    level_of,
    share_of,
)
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.lifecycle import MOVES, DelegationState, Status
from remit.protocol.submission import Submission
from remit.protocol.trace import PASSED, TraceContext, is_sampled, passed_on, place_of, span_id, trace_id
from samples import a_card, a_request, a_response
from strategies import usages


def test_every_part_of_an_assignment_is_an_option_of_those_who_ask() -> None:
    assert AssignmentOptions.__optional_keys__ | {"objective"} == set(BoundedAssignment.__struct_fields__)


def test_a_submission_has_the_fields_of_a_request() -> None:
    """A `Struct` has one base, so these are written twice; what only a hub of the same team says is not sent.

    `handover` is a name in a submission, and a list in a request.
    """
    own = {"version", "id", "origin", "target", "remit", "approved", "act", "handover", *Assignment.__struct_fields__}
    request, submission = ({each.name: each for each in msgspec.structs.fields(kind)} for kind in (Request, Submission))
    assert {name: submission.get(name) for name in request if name not in own} == {
        name: each for name, each in request.items() if name not in own
    }


def test_usage_adds_up_and_an_estimate_stays_one() -> None:
    """X2: token_usage has prompt, completion and total."""
    total = Usage(prompt=10, completion=5) + Usage(prompt=1, completion=2, overrun=3, estimated=True)
    assert total == Usage(prompt=11, completion=7, overrun=3, estimated=True)
    assert total.total == 18


def test_usage_says_how_many_tokens_have_no_price() -> None:
    assert Usage(prompt=10, completion=5, priced=12).unpriced == 3
    assert Usage(prompt=10, completion=5, priced=15).unpriced == 0


def test_usage_besides_a_part_is_never_negative() -> None:
    whole = Usage(prompt=10, completion=5, overrun=4, estimated=True, cache_write=3, cache_read=2, cost=9, priced=15)
    part = Usage(prompt=4, completion=6, cache_write=1, cache_read=2, cost=7, priced=10)
    assert whole.beyond(part) == Usage(prompt=6, estimated=True, cache_write=2, cost=2, priced=5)


@given(usages, usages, usages)
def test_usage_adds_up_in_any_order(one: Usage, two: Usage, three: Usage) -> None:
    assert (one + two) + three == three + (two + one)


def test_a_root_stands_where_its_run_does_whatever_id_its_sender_chose() -> None:
    assert a_request(id="r-1", run="run-1").path == "run-1"
    assert a_request(id="run-1.2", run="run-1", parent="run-1").path == "run-1.2"


@pytest.mark.parametrize("status", [Status.SUCCESS, Status.PARTIAL])
def test_a_response_with_something_to_use_unwraps_to_its_result(status: Status) -> None:
    response = a_response(status=status, result={"npv": 24156.72})
    assert (response.ok, response.unwrap()) == (True, {"npv": 24156.72})


@pytest.mark.parametrize("status", [Status.FAILED, Status.TIMEOUT, Status.REFUSED, Status.CANCELLED])
def test_a_response_without_a_result_unwraps_to_its_fault(status: Status) -> None:
    why = fault(Code.TIMEOUT, "tag took more than 5000 ms")
    response = a_response(status=status, result=None, fault=why)
    with pytest.raises(RemitError) as raised:
        response.unwrap()
    assert (response.ok, raised.value.fault) == (False, why)


def test_a_failure_that_gives_no_reason_is_still_a_fault() -> None:
    with pytest.raises(RemitError) as raised:
        a_response(status=Status.FAILED).unwrap()
    assert raised.value.fault == fault(Code.DELEGATION_FAILED, "tag gave no reason")


# ── confidence ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("confidence", "level"),
    [
        *((1.0, "HIGH"), (0.8, "HIGH"), (0.79, "MEDIUM"), (0.5, "MEDIUM"), (0.49, "LOW"), (0.2, "LOW")),
        *((0.19, "SPECULATIVE"), (0.0, "SPECULATIVE")),
    ],
)
def test_a_confidence_has_a_word(confidence: float, level: str) -> None:
    """K2, K9: a confidence for each component."""
    assert level_of(confidence) == level


def test_a_word_stands_for_the_middle_of_what_it_covers() -> None:
    assert {level.value: share_of(level) for level in Level} == {
        "HIGH": 0.9,
        "MEDIUM": 0.65,
        "LOW": 0.35,
        "SPECULATIVE": 0.1,
    }


# ── cards ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("card", "may"),
    [
        ({}, False),
        ({"may_call": frozenset({"byte"})}, True),
        ({"may_call": frozenset({"byte"}), "allow_sub_agent_calls": True}, True),
        ({"may_call": frozenset({"byte"}), "allow_sub_agent_calls": False}, False),
        ({"may_call": frozenset({"*"})}, True),
        ({"may_call": frozenset({"*"}), "allow_sub_agent_calls": False}, False),
        ({"may_call": frozenset({"ledger"})}, False),
        ({"allow_sub_agent_calls": True}, True),
        ({"allow_sub_agent_calls": True, "may_call": frozenset({"prime"})}, False),
    ],
)
def test_an_agent_reaches_whom_its_team_names_unless_it_may_call_nobody(card: dict[str, Any], may: bool) -> None:
    """O5: only an agent with allow_sub_agent_calls may call."""
    assert a_card(**card).may_reach("byte") is may


def test_a_capability_is_found_by_its_code() -> None:
    """K1: capability_code must be registered."""
    npv, projection = Capability(code="ANL_NPV"), Capability(code="ANL_PROJECTION", version="2.0")
    card = a_card(capabilities=(npv, projection))
    assert [card.capability(code) for code in ("ANL_PROJECTION", "ANL_NPV", "DOC_GENERATE")] == [projection, npv, None]


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({}, []),
        ({"read_only": True, "hedge_ms": 0, "cache_ms": 0, "cache_similar": True}, []),
        ({"hedge_ms": 500}, ["hedge_ms"]),
        ({"cache_ms": 500}, []),
        ({"cache_ms": 500, "cache_similar": True}, ["cache_similar"]),
        ({"read_only": True, "cache_similar": True}, ["cache_similar"]),
        ({"hedge_ms": 0, "cache_similar": True}, ["cache_similar", "hedge_ms"]),
    ],
)
def test_only_what_changes_nothing_is_asked_of_two_or_answered_from_similar_requests(
    fields: dict[str, Any], wrong: list[str]
) -> None:
    assert list(Capability(code="LOOK", **fields).contradictions()) == wrong


# ── traces ────────────────────────────────────────────────────────────────────────────────────────────────────────────


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@given(st.integers(1, 2**128 - 1).map("{:032x}".format), st.integers(1, 2**64 - 1).map("{:016x}".format), st.booleans())
def test_a_place_that_is_written_is_read_as_the_same(trace: str, span: str, sampled: bool) -> None:
    place = TraceContext(trace, span, sampled)
    assert place_of(str(place)) == place


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "",
        f"01-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-1",
    ],
)
def test_what_is_not_written_as_w3c_does_names_no_place(wrong: str | None) -> None:
    assert place_of(wrong) is None
    assert trace_id(TRACE, wrong) == TRACE


def test_a_run_is_part_of_the_trace_that_it_came_with_else_one_of_its_own() -> None:
    own = "f" * 32
    assert trace_id(own) == own
    assert trace_id(own, PARENT) == TRACE
    by_hand = trace_id("my run")
    assert (len(by_hand), by_hand == trace_id("my run"), by_hand == trace_id("another")) == (32, True, False)
    assert place_of(f"00-{trace_id('0' * 32)}-{span_id('x')}-01") is not None


def test_spans_are_told_apart_by_their_place_in_the_run() -> None:
    paths = [f"{TRACE}.{number}" for number in range(100)]
    assert len({span_id(path) for path in paths}) == 100
    assert all(place_of(f"00-{TRACE}-{span_id(path)}-01") for path in paths)


def test_whoever_sent_a_run_decides_whether_it_is_sampled() -> None:
    for ratio in (0.0, 0.5, 1.0):
        assert is_sampled(TRACE, PARENT, ratio)
        assert not is_sampled(TRACE, PARENT[:-2] + "00", ratio)
    assert is_sampled(TRACE, PARENT[:-2] + "03", 0.0)


@given(st.integers(0, 2**128 - 1).map("{:032x}".format), st.floats(0, 1), st.floats(0, 1))
def test_who_is_sampled_at_a_ratio_is_sampled_at_every_higher_one(run: str, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert is_sampled(run, None, high) or not is_sampled(run, None, low)
    assert (is_sampled(run, None, 1.0), is_sampled(run, None, 0.0)) == (True, False)


def test_what_others_wrote_for_others_goes_along_unchanged_within_bounds() -> None:
    beside = {"baggage": "user=7;p=1, x=%20y", "tracestate": "a=1,b=2", "traceparent": PARENT, "cookie": "no"}
    assert passed_on(beside) == {"baggage": "user=7;p=1, x=%20y", "tracestate": "a=1,b=2"}
    assert passed_on({"baggage": "a=1", "tracestate": "a=1"}) == {"baggage": "a=1"}
    for name, most in PASSED.items():
        assert passed_on({name: "x" * most, "traceparent": PARENT}) == {name: "x" * most}
        for wrong in ("x" * (most + 1), "a=1\r\nx-evil: 1", "a=é", ""):
            assert passed_on({name: wrong, "traceparent": PARENT}) == {}


# ── states ────────────────────────────────────────────────────────────────────────────────────────────────────────────


EVERY: tuple[DelegationState | Status, ...] = (*DelegationState, *Status)

# Said once more, and differently from the table: the life as a person would tell it.
WAYS_ON: dict[DelegationState, set[DelegationState | Status]] = {
    DelegationState.REQUESTED: {DelegationState.ASKING, DelegationState.QUEUED, Status.REFUSED},
    DelegationState.ASKING: {DelegationState.REQUESTED, Status.REFUSED},
    DelegationState.QUEUED: {DelegationState.RUNNING, Status.REFUSED},
    DelegationState.RUNNING: {Status.SUCCESS, Status.PARTIAL, Status.REFUSED},
}
STOPPED = {Status.FAILED, Status.TIMEOUT, Status.CANCELLED}


def allowed(state: DelegationState | Status, to: DelegationState | Status) -> bool:
    return isinstance(state, DelegationState) and (to in STOPPED or to in WAYS_ON[state])


def test_the_table_has_these_moves_and_no_others() -> None:
    assert set(MOVES) == set(EVERY)
    moves = {(state, to) for state, possible in MOVES.items() for to in possible}
    assert moves == {pair for pair in product(EVERY, EVERY) if allowed(*pair)}


@pytest.mark.parametrize("status", Status)
def test_what_has_ended_stays_ended(status: Status) -> None:
    assert MOVES[status] == frozenset()


@pytest.mark.parametrize("status", Status)
def test_every_end_can_be_reached_from_the_start(status: Status) -> None:
    reached: list[DelegationState | Status] = [DelegationState.REQUESTED]
    for state in reached:
        reached.extend(MOVES[state].difference(reached))
    assert status in reached
