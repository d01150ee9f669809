"""Who of several is asked first, and who instead if that fails."""

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy.routing import (
    EJECTED_S,
    HALF_LIFE_S,
    Candidate,
    TrackRecord,
    aged,
    begun,
    explain,
    may_try_another,
    mean,
    overtaken,
    rank,
    track_after_call,
)
from remit.protocol.errors import TABLE, Blame, Code, fault

NEW = TrackRecord()
GOOD = TrackRecord(successes=40, failures=1, latency_s=1.0)


def after(
    outcomes: Iterable[bool | None], track: TrackRecord = NEW, *, now: float = 0.0, seconds: float = 1.0
) -> TrackRecord:
    for failed in outcomes:
        track = track_after_call(begun(track), failed, seconds, 0, now)
    return track


def order(now: float = 0.0, **tracks: TrackRecord) -> list[str]:
    candidates = [Candidate(name=name, track=track) for name, track in tracks.items()]
    return [each.name for each in rank(candidates, now, mean)]


def test_who_succeeds_more_often_comes_first_however_slow() -> None:
    """C12: routing by past performance, quality first."""
    slow = TrackRecord(successes=40, failures=1, latency_s=9.0)
    fast = TrackRecord(successes=20, failures=20, latency_s=0.1)
    assert order(fast=fast, slow=slow) == ["slow", "fast"]


@pytest.mark.parametrize(
    "worse",
    [
        pytest.param(TrackRecord(successes=40, failures=1, latency_s=1.5), id="slower"),
        pytest.param(TrackRecord(successes=40, failures=1, latency_s=0.9, in_flight=1), id="busier"),
        pytest.param(TrackRecord(successes=40, failures=1, latency_s=0.9, tokens=500), id="dearer"),
    ],
)
def test_of_those_as_good_as_each_other_the_slower_busier_and_dearer_come_later(worse: TrackRecord) -> None:
    assert order(worse=worse, good=GOOD) == ["good", "worse"]


def test_a_thousand_tokens_weigh_as_much_as_a_second() -> None:
    """The slower one is a little less than a second slower than the dearer one is dear."""
    dear, slow = (TrackRecord(successes=40, failures=1, latency_s=s, tokens=t) for s, t in ((1.0, 1_000), (1.9, 0)))
    assert order(dear=dear, slow=slow) == ["slow", "dear"]


def test_who_is_not_known_is_tried_before_long() -> None:
    random = Random(1)
    candidates = [Candidate(name="known", track=GOOD), Candidate(name="new")]
    firsts = [rank(candidates, 0.0, random.betavariate)[0].name for _ in range(200)]
    assert 10 < firsts.count("new") < 60


def test_a_long_good_past_does_not_hide_that_it_is_over() -> None:
    broken = after([True, True, True, False] * 5, after([False] * 1_000))
    assert order(broken=broken, other=TrackRecord(successes=20, failures=0, latency_s=5)) == ["other", "broken"]


def test_what_went_before_counts_half_after_its_half_life_and_no_clock_that_goes_back_makes_it_count_more() -> None:
    track = TrackRecord(successes=8, failures=4, latency_s=2, at=10.0)
    assert aged(track, 10.0 + HALF_LIFE_S) == TrackRecord(successes=4, failures=2, latency_s=1, at=10.0 + HALF_LIFE_S)
    assert aged(track, 5.0).successes == 8


def test_latency_goes_up_at_once_and_down_slowly() -> None:
    track = after([False], seconds=1.0)
    slow = after([False], track, seconds=4.0)
    assert (track.latency_s, slow.latency_s) == (1.0, 4.0)
    assert after([False], slow, seconds=1.0).latency_s == 2.5


def test_failing_fast_is_not_being_fast_and_hanging_is_being_slow() -> None:
    track = after([False], seconds=2.0)
    assert after([True], track, seconds=0.01).latency_s == 2.0
    assert after([True], track, seconds=30.0).latency_s == 30.0


def test_tokens_are_those_of_successes() -> None:
    track = track_after_call(begun(TrackRecord()), False, 1.0, 100, 0.0)
    assert (track.tokens, track_after_call(begun(track), False, 1.0, 300, 0.0).tokens) == (100, 200)
    assert track_after_call(begun(track), True, 1.0, 9_000, 0.0).tokens == 100


def test_an_end_that_says_nothing_about_the_callee_only_ends() -> None:
    assert track_after_call(begun(GOOD), None, 30.0, 9_000, 50.0) == GOOD


def test_who_was_overtaken_takes_at_least_as_long_and_has_not_failed() -> None:
    track = TrackRecord(successes=4, failures=1, latency_s=2.0, at=10.0)
    assert overtaken(begun(track), 5.0, 10.0) == TrackRecord(successes=4, failures=1, latency_s=5.0, at=10.0)
    assert overtaken(begun(track), 0.5, 10.0) == track
    assert order(slow=overtaken(begun(NEW), 0.5, 0.0), new=NEW) == ["new", "slow"]


def test_a_ranking_says_when_each_was_last_heard_of() -> None:
    ranking = explain(
        [
            Candidate(name="heard", track=after([False], now=100.0)),
            Candidate(name="slow", track=overtaken(begun(NEW), 3.0, 90.0)),
            Candidate(name="busy", track=begun(NEW)),
            Candidate(name="ahead", track=after([True], now=200.0)),
        ],
        101.5,
    )
    assert {each.name: each.ago_ms for each in ranking} == {"heard": 1_500, "busy": None, "slow": 11_500, "ahead": 0}


def test_five_failures_in_a_row_put_it_last_for_thirty_seconds_and_then_for_longer() -> None:
    """As Envoy ejects: 30 s times the number of ejections so far."""
    four = after([True] * 4, GOOD)
    assert four.ejected_until < 0
    once = after([True], four)
    assert (once.ejections, once.ejected_until) == (1, EJECTED_S)
    assert order(once=once, bad=TrackRecord(failures=100)) == ["bad", "once"]
    assert order(EJECTED_S, once=once, bad=TrackRecord(failures=100, at=EJECTED_S)) == ["once", "bad"]
    twice = after([True] * 5, once, now=100.0)
    assert twice.ejected_until == 100.0 + 2 * EJECTED_S
    assert after([True] * 500, once).ejected_until == 10 * EJECTED_S
    assert after([False, False], twice, now=200.0).ejections == 0


def test_a_success_starts_the_count_anew() -> None:
    assert after([True, True, True, True, False] * 3).ejections == 0


def test_who_is_left_alone_is_skipped_unless_everyone_is() -> None:
    """C8: an open breaker stops routing."""
    open_, longer = Candidate(name="open", track=GOOD, wait_ms=10), Candidate(name="longer", wait_ms=20)
    assert [each.name for each in rank([open_, Candidate(name="bad")], 0.0, mean)] == ["bad"]
    assert [each.name for each in rank([longer, open_], 0.0, mean)] == ["open", "longer"]
    assert rank([], 0.0, mean) == ()


def test_one_whose_time_to_be_probed_has_come_is_asked_first() -> None:
    probed = Candidate(name="probed", track=TrackRecord(failures=9, ejected_until=99.0), probe=True)
    assert [each.name for each in rank([Candidate(name="good", track=GOOD), probed], 0.0, mean)] == ["probed", "good"]


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50), st.floats(0, 9), st.integers(0, 3)), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_everyone_who_may_be_asked_is_ranked_once(known: list[tuple[float, float, float, int]], random: Random) -> None:
    candidates = [
        Candidate(name=str(place), track=TrackRecord(successes=good, failures=bad, latency_s=slow, in_flight=load))
        for place, (good, bad, slow, load) in enumerate(known)
    ]
    ranked = rank(candidates, 0.0, random.betavariate)
    assert sorted(each.name for each in ranked) == sorted(each.name for each in candidates)


def test_a_ranking_says_why_each_stands_where_it_does() -> None:
    ranking = explain(
        [
            Candidate(name="left", track=GOOD, wait_ms=500),
            Candidate(name="ejected", track=TrackRecord(failures=5, ejected_until=30.0)),
            Candidate(name="new"),
            Candidate(name="good", track=GOOD),
            Candidate(name="dear", track=TrackRecord(successes=40, failures=1, latency_s=1, tokens=700, in_flight=2)),
            Candidate(name="probed", track=TrackRecord(failures=9), probe=True),
        ],
        0.0,
    )
    assert [(each.name, each.why) for each in ranking] == [
        ("probed", "asked next, to see whether it has recovered"),
        ("good", "95% success, 1000 ms, 0 in progress"),
        ("dear", "95% success, 1000 ms, 2 in progress, 700 tokens"),
        ("new", "little is known of it, so it is tried now and then"),
        ("ejected", "asked last for 30000 ms: it failed 5 times in a row"),
        ("left", "not called for 500 ms: it failed too often, or was asked too often"),
    ]
    assert (ranking[2].latency_ms, ranking[2].tokens, ranking[2].in_flight) == (1_000, 700, 2)


UNAVAILABLE = {Code.DELEGATION_UNAVAILABLE, Code.OVERLOADED, Code.RATE_LIMITED}


@pytest.mark.parametrize("code", Code)
def test_another_is_asked_where_nothing_was_begun_or_where_it_may_be_done_twice(code: Code) -> None:
    why, row = fault(code, ""), TABLE[code]
    assert may_try_another(why, begun=False, read_only=False) == (code in UNAVAILABLE)
    assert not may_try_another(why, begun=True, read_only=False)
    again = code in UNAVAILABLE or (row.recoverable and row.blame is Blame.PEER)
    assert may_try_another(why, begun=True, read_only=True) == again


def test_what_the_callee_says_cannot_be_repaired_is_not_tried_elsewhere() -> None:
    final = fault(Code.DELEGATION_FAILED, "")
    final = type(final)(code=final.code, message="", recoverable=False)
    assert not may_try_another(final, begun=True, read_only=True)
