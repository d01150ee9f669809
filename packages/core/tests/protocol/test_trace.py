"""Places in a trace as W3C writes them, and what goes along with a request unread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.protocol.trace import PASSED, TraceContext, is_sampled, passed_on, place_of, span_id, trace_id

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
