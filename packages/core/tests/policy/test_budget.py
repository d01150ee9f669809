"""How time and tokens are carved, and what cannot be afforded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy.budget import (
    FLOOR_MS,
    RESERVE_MS,
    Window,
    amounts,
    count,
    estimate,
    fair_share,
    grant_time_ms,
    grant_tokens,
    settle,
    share_of_day,
    tokens_wanted,
    wait_ms,
)
from remit.policy.guards import deadline, delegations, rate, record, tokens
from remit.policy.limits import Limits
from remit.policy.verdict import ALLOW, Facts, refuse
from remit.protocol.card import AgentCard, Capability, Rate
from remit.protocol.codec import encode
from remit.protocol.envelope import Call
from remit.protocol.errors import Code
from samples import a_card, a_remit, a_request, code_of
from strategies import counts, json_values

FACTS = Facts(target=a_card())


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(counts, st.integers())
def test_a_callee_never_gets_more_time_than_was_asked_for_or_is_left(wanted: int, left: int) -> None:
    """C7: remaining time shrinks at each hop."""
    granted = grant_time_ms(wanted, left)
    assert 0 <= granted <= wanted
    assert granted <= max(left, 0)


@given(counts)
def test_a_caller_keeps_half_a_second_or_a_tenth_to_use_the_answer(left: int) -> None:
    """C7: with a reserve for the answer (500 ms)."""
    kept = left - grant_time_ms(left, left)
    assert kept == min(RESERVE_MS, left // 10)


@pytest.mark.parametrize(
    ("wanted", "left", "granted"),
    [
        (30_000, 300_000, 30_000),
        (30_000, 30_000, 29_500),
        (30_000, 1_000, 900),
        (100, 1_000, 100),
        (30_000, 0, 0),
        (30_000, -50, 0),
        (-5, 1_000, 0),
    ],
)
def test_time_is_granted_as_the_design_says(wanted: int, left: int, granted: int) -> None:
    """C7: a child gets min(asked, left - reserve)."""
    assert grant_time_ms(wanted, left) == granted


def test_a_delegation_with_too_little_time_is_not_started() -> None:
    """C7: with a floor."""
    assert deadline(a_request(remit=a_remit(time_ms=FLOOR_MS)), FACTS) == ALLOW
    assert code_of(deadline(a_request(remit=a_remit(time_ms=FLOOR_MS - 1)), FACTS)) is Code.TIMEOUT


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(counts, st.integers())
def test_a_callee_never_gets_more_tokens_than_were_asked_for_or_are_left(wanted: int, left: int) -> None:
    assert grant_tokens(wanted, left) == max(0, min(wanted, left))


@given(counts, counts)
def test_what_was_reserved_is_settled_or_released(granted: int, used: int) -> None:
    settled, released, _ = settle(granted, used)
    assert granted == settled + released
    assert min(settled, released) >= 0


@given(counts, counts)
def test_what_was_spent_is_settled_or_overrun(granted: int, used: int) -> None:
    settled, released, overrun = settle(granted, used)
    assert used == settled + overrun
    assert 0 in (released, overrun)


def test_an_estimate_over_budget_is_refused_before_the_delegate_runs() -> None:
    """X7: an estimate over budget is refused, with both numbers."""
    request = a_request(input="Which of these are deductible? " * 100, remit=a_remit(tokens=100))
    estimated = estimate(request.objective) + estimate(request.input)
    assert estimated > 100
    assert code_of(tokens(request, FACTS)) is Code.TOKEN_BUDGET_EXCEEDED


def test_a_short_request_needs_no_counting() -> None:
    assert tokens(a_request(objective="Tag it", input="a receipt"), FACTS) == ALLOW


def test_a_request_without_any_budget_is_refused() -> None:
    """X7: each delegation has a token budget."""
    assert code_of(tokens(a_request(remit=a_remit(tokens=0)), FACTS)) is Code.TOKEN_BUDGET_EXCEEDED


def test_a_request_without_any_money_left_is_refused() -> None:
    """A grant of money is a limit like one of tokens; None is no limit."""
    assert code_of(tokens(a_request(remit=a_remit(cost=0)), FACTS)) is Code.TOKEN_BUDGET_EXCEEDED
    assert tokens(a_request(remit=a_remit(cost=1)), FACTS) == ALLOW


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (Call(target="tag", objective="go", max_tokens=1, capability="sort"), 1),
        (Call(target="tag", objective="go", capability="sort"), 2),
        (Call(target="tag", objective="go", capability="read"), 3),
        (Call(target="tag", objective="go", capability="unknown"), 3),
        (Call(target="tag", objective="go"), 3),
    ],
)
def test_the_call_says_its_tokens_before_the_capability_and_the_agent(call: Call, wanted: int) -> None:
    card = a_card(tokens=3, capabilities=(Capability(code="sort", tokens=2), Capability(code="read")))
    assert tokens_wanted(call, card, Limits(delegation_tokens=4)) == wanted


@pytest.mark.parametrize("card", [None, a_card()])
def test_the_limits_say_the_tokens_of_a_call_for_which_nobody_else_does(card: AgentCard | None) -> None:
    call = Call(target="tag", objective="go")
    assert tokens_wanted(call, card, Limits(delegation_tokens=4)) == 4
    assert tokens_wanted(call, card, Limits()) is None


def test_amounts_have_as_many_digits_as_tell_them_apart() -> None:
    assert amounts(420_000, 400_000) == ("0.42", "0.40")
    assert amounts(400_300, 400_000, 0) == ("0.4003", "0.4000", "0.0000")
    assert amounts(7, 400_000) == ("0.000007", "0.400000")
    assert amounts(400_000, 400_000) == ("0.40", "0.40")


def test_nothing_more_is_started_in_a_run_that_overran() -> None:
    """X7: real use is metered."""
    assert code_of(tokens(a_request(), Facts(target=a_card(), overrun=True))) is Code.TOKEN_BUDGET_EXCEEDED


@given(st.text(max_size=100), json_values | st.text(max_size=100), st.integers(1, 200))
def test_the_short_cut_for_short_requests_says_what_counting_would_say(objective: str, body: Any, budget: int) -> None:
    """X7: the estimate alone decides."""
    request = a_request(objective=objective, input=body, remit=a_remit(tokens=budget))
    assert (tokens(request, FACTS) == ALLOW) == (estimate(objective) + estimate(body) <= budget)


@given(json_values)
def test_nothing_is_estimated_at_more_tokens_than_it_has_bytes(value: Any) -> None:
    assert 0 <= estimate(value) <= len(encode(value))


def test_a_text_of_every_kind_is_estimated_near_what_tokenizers_count() -> None:
    """X7: an estimate that is right for one language only would refuse the others."""
    assert estimate(None) == 0
    assert 9 <= estimate("The quick brown fox jumps over the lazy dog.") <= 11
    assert 8 <= estimate("敏捷的棕色狐狸跳过了懒狗") <= 14
    assert estimate({"total": 12.5}) == estimate('{"total":12.5}')


def test_a_text_that_cannot_be_encoded_can_still_be_estimated() -> None:
    assert estimate("a\ud800b") == estimate("a?b")


@given(left=st.integers(-5, 10**6), above=st.integers(0, 10**6), slots=st.integers(-2, 20))
def test_a_fair_share_leaves_as_much_for_each_other_call_and_for_the_caller(left: int, above: int, slots: int) -> None:
    """Decision 12: nobody knows how many calls will come."""
    reach = max(left, 0) + above
    share = fair_share(left, reach, slots=slots)
    assert share >= 0
    assert share * (max(slots, 1) + 1) <= reach


@pytest.mark.parametrize(
    ("left", "reach", "slots", "share"),
    [
        (1_000_000, 1_000_000, 3, 250_000),  # three calls and the caller
        (750_000, 750_000, 2, 250_000),
        (24_000, 24_000, 3, 6_000),
        (24_000, 1_000_000, 3, 8_000),  # those above can spare what one call of a model takes
        (24_000, 28_000, 3, 7_000),
        (40_000, 40_000, 1, 20_000),
        (40_000, 40_000, 0, 20_000),  # it will be refused, and not for its tokens
        (-10, -10, 3, 0),
    ],
)
def test_a_fair_share_is_an_equal_part_and_no_less_than_a_call_takes(
    left: int, reach: int, slots: int, share: int
) -> None:
    assert fair_share(left, reach, slots=slots) == share


# ── rates ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


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
    calls = [now] * limit.calls * 2 + [later - 1] + [later] * limit.calls * 2
    assert let_through(limit, calls) == [now] * limit.calls + [later] * limit.calls


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


def test_a_tool_is_used_no_oftener_than_its_rate() -> None:
    use = a_request(act="tool", target="pay")
    assert rate(use, Facts(target=None)) == ALLOW
    too_often = refuse(Code.RATE_LIMITED, "tool pay is used too often", retry_after_ms=1_500)
    assert rate(use, Facts(target=None, rate_wait_ms=1_500)) == too_often


# ── the size of a run ─────────────────────────────────────────────────────────────────────────────────────────────────


LIMITS = Limits(max_delegations=10, max_agent_delegations=4, max_record_bytes=1_000)


def facts(**changes: Any) -> Facts:
    return Facts(target=a_card(), limits=LIMITS, **changes)


@pytest.mark.parametrize(("of_run", "of_agent"), [(0, 0), (1, 1), (10, 4)])
def test_as_many_delegations_as_are_allowed_pass(of_run: int, of_agent: int) -> None:
    assert delegations(a_request(), facts(delegations=of_run, agent_delegations=of_agent)) == ALLOW


def test_one_more_is_refused() -> None:
    assert (
        code_of(delegations(a_request(), facts(delegations=11, agent_delegations=1))) is Code.MAX_DELEGATIONS_EXCEEDED
    )
    assert (
        code_of(delegations(a_request(), facts(delegations=11, agent_delegations=5))) is Code.MAX_DELEGATIONS_EXCEEDED
    )


def test_records_may_take_as_much_room_as_is_allowed_and_no_more() -> None:
    assert record(a_request(), facts(record_bytes=999)) == ALLOW
    assert code_of(record(a_request(), facts(record_bytes=12_345))) is Code.RECORD_LIMIT_EXCEEDED


def test_the_defaults_follow_from_the_time_of_a_run_and_the_fan_out() -> None:
    """A model that answers in 0.3 s, asked one after another for all the time of a run, and three at once."""
    limits = Limits()
    assert limits.max_agent_delegations == limits.root_time_ms // 300
    assert limits.max_delegations == limits.max_agent_delegations * limits.max_fan_out
    assert limits.max_record_bytes > limits.max_delegations * 2 * 10_000


# ── a user's day ──────────────────────────────────────────────────────────────────────────────────────────────────────


@given(counts, counts, counts, st.integers(1, 20))
def test_a_share_of_a_day_is_never_more_than_is_left_or_wanted(left: int, wanted: int, least: int, slots: int) -> None:
    share = share_of_day(left, wanted, least, slots=slots)
    assert 0 <= share <= min(left, wanted)
    assert share >= min(left, wanted, least)


def test_a_share_of_a_day_leaves_as_much_for_each_run_that_may_come() -> None:
    assert share_of_day(400_000, 1_000_000, 8_000, slots=3) == 100_000
    assert share_of_day(400_000, 50_000, 8_000, slots=3) == 50_000
    assert share_of_day(-1, 50_000, 8_000, slots=3) == 0
