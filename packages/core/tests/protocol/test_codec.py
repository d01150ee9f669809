"""What is written can be read, and equal values are written alike."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.protocol.card import AgentCard
from remit.protocol.codec import (
    checked,
    decode,
    decode_request,
    decode_submission,
    digest,
    encode,
    text_of,
)
from remit.protocol.envelope import Answer, Call, ContextFilter, Handoff, Json, Request, Response
from remit.protocol.errors import Code, Problem, RemitError
from remit.protocol.generous import decode_response
from remit.protocol.remit import Priority
from samples import a_remit, a_request, a_response
from strategies import answers, calls, cards, json_values, requests, responses


@given(requests)
def test_a_request_is_read_as_it_was_written(request: Request) -> None:
    """X1: every field of the request survives the wire."""
    assert decode_request(encode(request)) == request


@given(responses)
def test_a_response_is_read_as_it_was_written(response: Response) -> None:
    """X2: every field of the response survives the wire."""
    assert decode_response(encode(response)) == response


@given(calls)
def test_a_call_is_read_as_it_was_written(call: Call) -> None:
    """O1: every argument of a call survives the wire."""
    assert decode(encode(call), Call) == call


@given(answers)
def test_an_answer_is_read_as_it_was_written(answer: Answer) -> None:
    assert decode(encode(answer), Answer) == answer


@given(cards)
def test_a_card_is_read_as_it_was_written(card: AgentCard) -> None:
    assert decode(encode(card), AgentCard) == card


@pytest.mark.parametrize("number", [0.1 + 0.2, 1 / 3, 2 / 3 * 1e-7, 1e16, 1.2345678901234567e300, -5e-324])
def test_a_number_with_many_digits_after_its_point_is_no_huge_integer(number: float) -> None:
    assert decode_response(encode(a_response(result=number))).result == number


@pytest.mark.parametrize("written", [b"1e+00000000000000000002", b"1E00000000000000000002", b"100.00000000000000000"])
def test_long_exponents_and_fractions_are_no_huge_integers(written: bytes) -> None:
    assert decode(b'{"result":' + written + b"}", Answer) == Answer(100.0)


@pytest.mark.parametrize("integer", [2**53 - 1, 1 - 2**53])
def test_the_largest_integers_that_all_readers_agree_on_are_read(integer: int) -> None:
    assert decode(encode(Answer([integer])), Answer) == Answer([integer])


# ── what code gives, before it is written ─────────────────────────────────────────────────────────────────────────────


@given(requests | responses | calls | answers | cards)
def test_what_is_right_passes_the_check_unchanged(value: Any) -> None:
    assert checked(value) == value


# What agents' code may hand over, and JSON cannot say or other readers would not read.
odd_values = st.recursive(
    json_values | st.integers() | st.floats() | st.text(st.characters(codec=None)) | st.binary() | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(st.integers() | st.text(max_size=2), inner, max_size=2)
        | st.integers(60, 70).flatmap(lambda levels: inner.map(lambda value: nested(value, levels)))
    ),
    max_leaves=4,
)


def nested(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


@given(odd_values)
def test_what_passes_the_check_survives_the_wire(value: Any) -> None:
    try:
        answer = checked(Answer(value))
    except RemitError:
        return
    assert decode(encode(answer), Answer) == answer


def test_what_passes_the_check_shares_nothing_with_what_was_checked() -> None:
    shared = {"rows": [1]}
    copy = checked(Answer(shared))
    shared["rows"].append(2)
    assert copy == Answer({"rows": [1]})


def test_tuples_and_numbered_keys_are_taken_as_json_writes_them() -> None:
    assert checked(Answer({1: ("a", "b")})) == Answer({"1": ["a", "b"]})


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Answer(float("nan")), Problem("$.result", "NaN and infinity cannot be written as JSON")),
        (Answer([float("inf")]), Problem("$.result[0]", "NaN and infinity cannot be written as JSON")),
        (
            Answer(object()),
            Problem("$.result", "cannot be written as JSON: Encoding objects of type object is unsupported"),
        ),
        (Answer([0, 2**53]), Problem("$.result[1]", "the integer is past ±(2**53 - 1); send it as text")),
        (Answer("x", confidence=1.5), Problem("$.confidence", "Expected `float` <= 1.0")),
        (Answer(calls=(Call(max_tokens=-1),)), Problem("$.calls[0].max_tokens", "Expected `int` >= 0")),
        (a_request(target="a\nb"), Problem("$.target", "control characters are not allowed in a name")),
        (a_response(target="a\nb"), Problem("$.target", "control characters are not allowed in a name")),
    ],
)
def test_what_cannot_be_said_is_refused_where_it_stands(value: Any, problem: Problem) -> None:
    with pytest.raises(RemitError) as raised:
        checked(value)
    assert (raised.value.fault.code, raised.value.fault.problems) == (Code.MALFORMED_ENVELOPE, (problem,))


@pytest.mark.parametrize("value", ["\ud800", 10**5_000, nested(0, 10_000)], ids=["surrogate", "integer", "nesting"])
def test_what_cannot_be_written_at_all_is_refused_where_it_stands(value: Any) -> None:
    with pytest.raises(RemitError) as raised:
        checked(Answer(value))
    assert [problem.path for problem in raised.value.fault.problems] == ["$.result"]


def test_nothing_is_too_deep_to_be_refused_with_a_reason() -> None:
    for levels in range(500, 1_100):
        with pytest.raises(RemitError) as raised:
            checked(Answer(nested(0, levels)))
        assert raised.value.fault.problems or raised.value.fault.code is Code.TOO_LARGE


@pytest.mark.parametrize("value", [nested(0, 100), "x" * 5_000_000], ids=["deep", "large"])
def test_what_is_too_deep_or_too_large_to_be_sent_is_refused(value: Any) -> None:
    with pytest.raises(RemitError) as raised:
        checked(Answer(value))
    assert raised.value.fault.code is Code.TOO_LARGE


# ── canonical form ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_equal_requests_are_written_alike_however_they_came_about() -> None:
    letters = [chr(code) for code in range(97, 123)]
    one = a_request(input={"a": 1, "b": 2}, remit=a_remit(tools=frozenset(letters)))
    other = a_request(input={"b": 2, "a": 1}, remit=a_remit(tools=frozenset(reversed(letters))))
    assert encode(one) == encode(other)


def test_what_is_left_at_its_default_is_not_written() -> None:
    assert encode(a_request(remit=a_remit(chain=()), objective="", run="")) == (
        b'{"version":"1.0","id":"r-1","origin":"prime","target":"tag",'
        b'"remit":{"user":"u-1","depth":1,"max_depth":5,"time_ms":10000,"tokens":1000}}'
    )


def test_space_around_an_envelope_and_the_order_of_its_keys_mean_nothing() -> None:
    raw = b' \r\n{"status" : "success" ,\t"target":"tag", "version" :"1.0","id":"r-1", "result":"3 categories"}\n'
    assert decode_response(raw) == a_response()


def test_text_is_shown_as_it_is_and_structure_as_json() -> None:
    assert [text_of(value) for value in (None, "as it is", "", {"b": [1, None], "a": True}, 0)] == [
        "",
        "as it is",
        "",
        '{"a":true,"b":[1,null]}',
        "0",
    ]


@given(json_values)
def test_anything_that_can_be_said_can_be_shown(value: Json) -> None:
    assert isinstance(text_of(value), str)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "r-2"},
        {"run": "run-2"},
        {"parent": "p-1"},
        {"created_ms": 5},
        {"correlation": "c-1"},
        {"retry_of": "r-0"},
        {"remit": a_remit(tokens=5)},
        {"remit": a_remit(time_ms=5)},
        {"remit": a_remit(priority=Priority.LOW)},
    ],
)
def test_a_request_has_the_same_digest_whatever_its_id_budget_time_and_trace(changes: dict[str, Any]) -> None:
    assert digest(a_request(**changes)) == digest(a_request())


@pytest.mark.parametrize(
    "changes",
    [
        {"origin": "byte"},
        {"target": "byte"},
        {"objective": "Extract"},
        {"input": "x"},
        {"input": {"a": 1}},
        {"capability": "TAG"},
        {"session": "s-1"},
        {"parent_session": "s-0"},
        {"handoff": Handoff(facts=("lives in Canada",))},
        {"context": ContextFilter(last_messages=3)},
        {"hints": ("tax",)},
        {"remit": a_remit(tools=frozenset({"read"}))},
        {"remit": a_remit(tools=frozenset[str]())},
        {"remit": a_remit(targets=frozenset({"byte"}))},
        {"remit": a_remit(may_delegate=False)},
    ],
)
def test_a_request_that_asks_for_something_else_has_another_digest(changes: dict[str, Any]) -> None:
    assert digest(a_request(**changes)) != digest(a_request())


def test_a_session_that_is_only_named_after_the_run_is_not_part_of_the_digest() -> None:
    assert digest(a_request(run="run-2", session="run-2")) == digest(a_request(run="run-3", session="run-3"))


@given(requests)
def test_a_digest_outlives_the_wire(request: Request) -> None:
    assert digest(decode_request(encode(replace(request, id="another")))) == digest(request)


def test_every_request_reads_as_what_somebody_elsewhere_sends() -> None:
    sent = decode_submission(encode(a_request(via="north")))
    assert (sent.target, sent.remit, sent.via) == ("tag", a_request().remit, "north")
