"""What is written can be read, and equal values are written alike."""

from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from remit.protocol.card import AgentCard
from remit.protocol.codec import decode, decode_request, decode_response, digest, encode, text_of
from remit.protocol.envelope import Answer, Call, ContextFilter, Handoff, Json, Request, Response
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
