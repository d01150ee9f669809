"""Fan-out and cycle of agents that live elsewhere, as decisions over what they have under way."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.policy.limits import Limits
from remit.policy.peer_calls import (
    MOST_CALLS,
    PeerCall,
    call_of,
    content_of,
    current,
    ended,
    group_of,
    objection,
    with_call,
)
from remit.protocol.envelope import Request
from remit.protocol.errors import Code
from samples import a_request

LIMITS = Limits()
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def asked(**changes: Any) -> Request:
    fixed: dict[str, Any] = {"origin": "prime@north", "via": "north", "parent_session": "s@north", "target": "byte"}
    return a_request(**fixed | changes)


def a_call(id: str, key: str = "", **changes: Any) -> PeerCall:
    given: dict[str, Any] = {"id": id, "key": key or id, "until_ms": 1_000}
    return PeerCall(**given | changes)


def test_calls_are_grouped_by_agent_user_and_session() -> None:
    first = group_of(asked())
    assert group_of(asked(id="other", objective="other", traceparent=TRACE)) == first
    remit = asked().remit
    for change in ({"origin": "tag@north"}, {"parent_session": "t@north"}, {"remit": replace(remit, user="u-9")}):
        assert group_of(asked(**change)) != first


def test_target_capability_objective_and_input_make_a_call_another() -> None:
    """X5: white space and case alone do not."""
    first = content_of(asked(objective="Read it", input=1))
    assert content_of(asked(objective=" read  IT ", input=1)) == first
    for change in ({"target": "tag"}, {"capability": "TAG"}, {"objective": "Sort it"}, {"input": 2}):
        assert content_of(asked(**{"objective": "Read it", "input": 1} | change)) != first


def test_a_call_counts_as_long_as_it_may_take() -> None:
    request = asked(traceparent=TRACE)
    call = call_of(request, "k", 5, LIMITS)
    lasts = request.remit.time_ms + LIMITS.approval_timeout_ms + LIMITS.grace_ms
    assert call == PeerCall(id=request.id, key="k", trace=TRACE.split("-")[1], until_ms=5 + lasts)
    assert call_of(asked(), "k", 5, LIMITS).trace == ""
    assert current([call], call.until_ms - 1) == (call,)
    assert current([call], call.until_ms) == ()


def test_the_same_is_refused_in_progress_and_done_but_not_in_another_trace() -> None:
    """X5."""
    for done in (False, True):
        why = objection([a_call("1", "k", done=done)], a_call("2", "k"), asked(), LIMITS)
        assert why is not None
        assert (why.code, why.message.split(":")[1][:15]) == (Code.CYCLE_DETECTED, " prime -> byte ")
    assert objection([a_call("1", "k", trace="a")], a_call("2", "k", trace="b"), asked(), LIMITS) is None


@given(under_way=st.integers(0, 6), done=st.integers(0, 6), limit=st.integers(1, 5))
def test_no_more_than_the_limit_are_under_way(under_way: int, done: int, limit: int) -> None:
    """X4."""
    calls = [a_call(f"u{n}") for n in range(under_way)] + [a_call(f"d{n}", done=True) for n in range(done)]
    why = objection(calls, a_call("new"), asked(), Limits(max_fan_out=limit))
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
    assert ended(calls, "1", succeeded=False, until_ms=9) == (a_call("2"),)
    assert ended(calls, "1", succeeded=True, until_ms=9) == (a_call("1", done=True, until_ms=9), a_call("2"))
