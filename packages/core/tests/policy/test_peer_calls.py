"""Fan-out and cycle of agents that live elsewhere, as decisions over what they have under way."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.policy.limits import Limits
from remit.policy.peer_calls import (
    CELL_DIGITS,
    MOST_CALLS,
    PeerCall,
    call_of,
    calls_after_end,
    cell_of,
    content_of,
    current,
    group_of,
    in_doubt,
    objection,
    with_call,
)
from remit.protocol.envelope import Request
from remit.protocol.errors import Code
from samples import a_request

LIMITS = Limits()
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def a_request_from_north(**changes: Any) -> Request:
    fixed: dict[str, Any] = {"origin": "prime@north", "via": "north", "parent_session": "s@north", "target": "byte"}
    return a_request(**fixed | changes)


def a_call(id: str, key: str = "", **changes: Any) -> PeerCall:
    given: dict[str, Any] = {"group": "g", "id": id, "run": f"run-{id}", "key": key or id, "until_ms": 1_000}
    return PeerCall(**given | changes)


def test_calls_are_grouped_by_agent_user_and_session() -> None:
    first = group_of(a_request_from_north())
    assert group_of(a_request_from_north(id="other", objective="other", traceparent=TRACE)) == first
    remit = a_request_from_north().remit
    for change in ({"origin": "tag@north"}, {"parent_session": "t@north"}, {"remit": replace(remit, user="u-9")}):
        assert group_of(a_request_from_north(**change)) != first


def test_target_capability_objective_and_input_make_a_call_another() -> None:
    """X5: white space and case alone do not."""
    first = content_of(a_request_from_north(objective="Read it", input=1))
    assert content_of(a_request_from_north(objective=" read  IT ", input=1)) == first
    for change in ({"target": "tag"}, {"capability": "TAG"}, {"objective": "Sort it"}, {"input": 2}):
        assert content_of(a_request_from_north(**{"objective": "Read it", "input": 1} | change)) != first


def test_a_call_counts_as_long_as_it_may_take() -> None:
    request = a_request_from_north(traceparent=TRACE)
    group = "ab" * 32
    call = call_of(request, group, "k", 5, LIMITS)
    lasts = request.remit.time_ms + LIMITS.approval_timeout_ms + LIMITS.grace_ms
    assert call == PeerCall(
        group=group[:32], id=request.id, run=request.run, key="k", trace=TRACE.split("-")[1], until_ms=5 + lasts
    )
    assert call_of(a_request_from_north(), group, "k", 5, LIMITS).trace == ""
    assert current([call], call.until_ms - 1) == (call,)
    assert current([call], call.until_ms) == ()


def test_the_same_is_refused_in_progress_and_done_but_not_in_another_trace() -> None:
    """X5."""
    for done in (False, True):
        why = objection([a_call("1", "k", done=done)], a_call("2", "k"), a_request_from_north(), LIMITS)
        assert why is not None
        assert (why.code, why.message.split(":")[1][:15]) == (Code.CYCLE_DETECTED, " prime -> byte ")
    assert objection([a_call("1", "k", trace="a")], a_call("2", "k", trace="b"), a_request_from_north(), LIMITS) is None


@given(under_way=st.integers(0, 6), done=st.integers(0, 6), limit=st.integers(1, 5))
def test_no_more_than_the_limit_are_under_way(under_way: int, done: int, limit: int) -> None:
    """X4."""
    calls = [a_call(f"u{n}") for n in range(under_way)] + [a_call(f"d{n}", done=True) for n in range(done)]
    why = objection(calls, a_call("new"), a_request_from_north(), Limits(max_fan_out=limit))
    assert (why is None) is (under_way < limit)
    assert why is None or why.code is Code.FAN_OUT_EXCEEDED


def test_the_oldest_that_are_done_make_room_and_none_that_is_under_way() -> None:
    calls = [a_call("under way"), *(a_call(str(n), done=True) for n in range(MOST_CALLS - 1))]
    kept = with_call(calls, a_call("new"))
    assert len(kept) == MOST_CALLS
    assert [call.id for call in kept[:2]] == ["under way", "1"]
    assert kept[-1].id == "new"
    assert with_call([], a_call("new")) == (a_call("new"),)


def test_one_that_did_not_succeed_may_be_made_again() -> None:
    calls = (a_call("1"), a_call("2"))
    assert calls_after_end(calls, {"run-1": False}, until_ms=9) == (a_call("2"),)
    assert calls_after_end(calls, {"run-1": True}, until_ms=9) == (a_call("1", done=True, until_ms=9), a_call("2"))


def test_what_another_run_came_to_ends_no_call_of_the_same_id() -> None:
    calls = (a_call("1"),)
    assert calls_after_end(calls, {"run-1-again": False}, until_ms=9) == calls


@pytest.mark.parametrize("origin", ["Prime@north", " prime@NORTH ", "ｐｒｉｍｅ@north", "prime @north"])
def test_an_agent_that_writes_its_name_otherwise_is_no_other(origin: str) -> None:
    assert group_of(a_request_from_north(origin=origin)) == group_of(a_request_from_north())


def test_groups_are_kept_in_a_fixed_number_of_cells() -> None:
    """However many agents and sessions a peer makes up, the store does not grow for them."""
    assert cell_of("abcdef") == cell_of("abc999") == "calls abc"
    assert 16**CELL_DIGITS == 4_096


def test_calls_of_other_groups_in_a_cell_count_for_nothing() -> None:
    others = [a_call(f"o{n}", "k", group="other") for n in range(9)]
    assert objection(others, a_call("1", "k"), a_request_from_north(), LIMITS) is None
    full = [*others, *(a_call(str(n), done=True) for n in range(MOST_CALLS))]
    assert [call.id for call in with_call(full, a_call("new"))[:10]] == [*(f"o{n}" for n in range(9)), "1"]


def test_traces_that_a_peer_makes_up_have_a_limit_together() -> None:
    under_way = [a_call(str(n), trace=str(n)) for n in range(MOST_CALLS)]
    assert objection(under_way[1:], a_call("new", trace="new"), a_request_from_north(), LIMITS) is None
    why = objection(under_way, a_call("new", trace="new"), a_request_from_north(), LIMITS)
    assert why is not None
    assert why.code is Code.FAN_OUT_EXCEEDED


def test_runs_that_this_process_does_not_carry_out_are_in_doubt() -> None:
    calls = [a_call("1"), a_call("2"), a_call("3", done=True), a_call("4", group="other"), a_call("5", trace="t")]
    assert in_doubt(calls, a_call("new"), {"run-2"}) == ["run-1"]
