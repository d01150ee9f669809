"""How often an agent may be asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy.budget import Window, count, wait_ms
from remit.policy.guards import rate
from remit.policy.verdict import ALLOW, Facts, refuse
from remit.protocol.card import Rate
from remit.protocol.errors import Code
from samples import a_card, a_request

limits = st.builds(Rate, st.integers(1, 10), st.integers(1, 60).map(float))
moments = st.lists(st.integers(0, 300), max_size=50).map(sorted)


def let_through(limit: Rate, times: list[int]) -> list[int]:
    """Return the times at which a call passes, if one is made at each of *times*."""
    window, passed = Window(), list[int]()
    for now in times:
        if wait_ms(window, limit, now) == 0:
            window = count(window, limit, now)
            passed.append(now)
    return passed


@given(limits, st.integers(0, 1_000), st.integers(0, 20))
def test_a_window_lets_exactly_its_number_through(limit: Rate, now: int, more: int) -> None:
    assert let_through(limit, [now] * (limit.calls + more)) == [now] * limit.calls


@given(limits, st.integers(0, 1_000))
def test_the_next_window_lets_as_many_through_again(limit: Rate, now: int) -> None:
    later = now + int(limit.seconds)
    asked = [now] * limit.calls * 2 + [later - 1] + [later] * limit.calls * 2
    assert let_through(limit, asked) == [now] * limit.calls + [later] * limit.calls


@given(limits, moments)
def test_windows_follow_each_other_and_none_lets_more_through(limit: Rate, times: list[int]) -> None:
    expected, start, calls = list[int](), float("-inf"), 0
    for now in times:
        if now - start >= limit.seconds:
            start, calls = float(now), 0
        if calls < limit.calls:
            calls += 1
            expected.append(now)
    assert let_through(limit, times) == expected


@given(limits, st.integers(0, 1_000), st.integers(0, 60))
def test_a_call_that_has_to_wait_is_told_when_the_window_ends(limit: Rate, start: int, passed: int) -> None:
    now = start + passed % int(limit.seconds)
    left_ms = round((start + limit.seconds - now) * 1_000)
    assert wait_ms(Window(start, limit.calls), limit, now) == left_ms


def test_a_wait_that_rounds_to_nothing_is_still_a_wait() -> None:
    assert wait_ms(Window(0, 1), Rate(1, 1.0), 0.9999) == 1


def test_a_call_that_is_not_counted_in_the_window_starts_one() -> None:
    assert [count(Window(), Rate(2, 10.0), 5), count(Window(5, 1), Rate(2, 10.0), 14)] == [Window(5, 1), Window(5, 2)]
    assert count(Window(5, 2), Rate(2, 10.0), 15) == Window(15, 1)


@pytest.mark.parametrize(
    ("waiting", "verdict"),
    [
        (0, ALLOW),
        (1_500, refuse(Code.RATE_LIMITED, "tag is asked too often", retry_after_ms=1_500)),
    ],
)
def test_an_agent_that_is_asked_too_often_says_when_to_come_back(waiting: int, verdict: object) -> None:
    assert rate(a_request(), Facts(target=a_card(), rate_wait_ms=waiting)) == verdict
