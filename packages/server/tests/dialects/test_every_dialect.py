"""What holds for every dialect: nothing is lost between two hubs, nothing a stranger writes does harm."""

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from dialect_laws import (
    Plain,
    a_message,
    a_request_comes_back_as_it_was,
    body_of,
    ended_responses,
    outcome,
    refusal,
    sent_requests,
    wild_claims,
)
from remit.protocol.codec import decode, encode
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.errors import TABLE, Code, Fault, fault
from remit.protocol.lifecycle import Status
from remit.protocol.submission import Submission
from remit_server.dialects import NAMES, find
from remit_server.dialects.exchange import Dialect, ForeignMessage
from samples import a_request, a_response
from strategies import json_values


class Case(NamedTuple):
    """A dialect, a request in it, and where it keeps what only another hub understands."""

    name: str
    dialect: Dialect
    example: ForeignMessage
    claims: tuple[str, ...]
    """The way to the object in which `remit` stands."""

    def body(self) -> Plain:
        return body_of(self.example)

    def with_body(self, body: Any) -> ForeignMessage:
        return replace(self.example, body=body if isinstance(body, bytes) else json.dumps(body).encode())


def case_of(name: str) -> Case:
    dialect = find(name)
    example = dialect.request(a_request(capability="TAG", input={"n": 1}))
    claims = {"employee": ("handoff_data", "intermediate_results"), "subagent": ()}.get(name, ("context",))
    return Case(name, dialect, example, claims)


CASES = {name: case_of(name) for name in NAMES}
each_dialect = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def put(body: Plain, way: tuple[str, ...], name: str, value: Any) -> Plain:
    """Return a body with a field, in the object to which a way leads."""
    if not way:
        return body | {name: value}
    inner = cast("object", body.get(way[0]))
    return body | {way[0]: put(cast("Plain", inner) if isinstance(inner, dict) else {}, way[1:], name, value)}


def sayable(case: Case, request: Request) -> Request:
    """Return a request as far as the document of a dialect can say it."""
    match case.name:
        case "librarian":
            # Nobody can be named twice in a row; an empty set of targets is the word that nobody may be asked.
            assume(request.target not in (*request.remit.chain, request.origin))
            return replace(request, remit=replace(request.remit, targets=request.remit.targets or None))
        case "contract":
            return replace(request, capability=request.capability or "TAG")
        case "subagent":
            return replace(request, remit=replace(request.remit, time_ms=min(request.remit.time_ms, 300_000)))
        case _:
            return request


# ── between two hubs ──────────────────────────────────────────────────────────────────────────────────────────────────


@each_dialect
@given(request=sent_requests)
def test_a_request_comes_back_as_it_was(case: Case, request: Request) -> None:
    a_request_comes_back_as_it_was(case.dialect, sayable(case, request))


@each_dialect
@given(request=sent_requests, response=ended_responses)
def test_a_response_comes_back_as_it_was(case: Case, request: Request, response: Response) -> None:
    request = sayable(case, request) if case.name == "contract" else request
    response = replace(response, id=request.id, target=request.target)
    assert case.dialect.response(case.dialect.reply(response, case.dialect.request(request)), request) == response


# ── what a stranger sends ─────────────────────────────────────────────────────────────────────────────────────────────


def is_refused_or_valid(dialect: Dialect, foreign: ForeignMessage) -> None:
    submission = outcome(lambda: dialect.submission(foreign))
    if not isinstance(submission, Fault):
        assert decode(encode(submission), Submission, max_bytes=10**8) == submission


@each_dialect
@given(value=json_values, data=st.data())
def test_whatever_stands_in_a_field_is_refused_or_valid(case: Case, value: Json, data: st.DataObject) -> None:
    body = case.body()
    ways = [(), *((name,) for name, inner in body.items() if isinstance(inner, dict))]
    way = data.draw(st.sampled_from(ways))
    fields = cast("Plain", body[way[0]]) if way else body
    is_refused_or_valid(
        case.dialect, case.with_body(put(body, way, data.draw(st.sampled_from([*fields, "remit"])), value))
    )


@each_dialect
@given(value=json_values | st.binary(max_size=30))
def test_whatever_is_sent_is_refused_or_valid_and_has_a_reply(case: Case, value: Any) -> None:
    is_refused_or_valid(case.dialect, case.with_body(value))
    assert case.dialect.reply(a_response(), case.with_body(value)).status == 200


@each_dialect
@given(claims=wild_claims)
def test_nothing_that_is_claimed_allows_more_than_the_envelope(case: Case, claims: Plain) -> None:
    """X9, O6: a claim is no authority. Nothing under `remit` is other than what the document's own fields say."""
    plain = put(case.body(), case.claims, "remit", None)
    place = plain
    for name in case.claims:
        place = cast("Plain", place[name])
    del place["remit"]
    says: Callable[[Submission], object] = import_module(f"remit_server.dialects.{case.name}")._write_request
    without = case.dialect.submission(case.with_body(plain))
    claimed = outcome(lambda: case.dialect.submission(case.with_body(put(plain, case.claims, "remit", claims))))
    if isinstance(claimed, Fault):
        assert claimed.code is Code.MALFORMED_ENVELOPE
        return
    assert says(claimed) == says(without)
    assert claimed.target == without.target
    assert claimed.remit is None
    assert claimed.depth >= without.depth
    for name in ("max_tokens", "deadline_ms", "max_depth", "context_tokens", "tools", "targets"):
        most, claim = getattr(without, name), getattr(claimed, name)
        assert most is None or claim <= most
    assert without.may_delegate or not claimed.may_delegate


@each_dialect
def test_an_address_that_names_someone_else_is_refused(case: Case) -> None:
    """The librarian's request does not say who is asked: there the address alone does."""
    parsed = outcome(lambda: case.dialect.submission(replace(case.example, target="admin")))
    if case.name == "librarian":
        assert isinstance(parsed, Submission)
        assert parsed.target == "admin"
        return
    field = {"employee": "$.target_employee", "contract": "$.target_agent", "subagent": "$.agent_name"}[case.name]
    assert isinstance(parsed, Fault)
    assert [problem.path for problem in parsed.problems] == [field]


# What no envelope may hold, wherever it is put into its text in the place of `"HERE"`.
BROKEN_JSON = {
    "NaN": b"NaN",
    "infinity": b"1e999",
    "an integer that not everyone can read": b"9007199254740993",
    "a key that stands twice": b'{"a": 1, "a": 2}',
    "deep nesting": b"[" * 100 + b"]" * 100,
    "a control character": b'"a\nb"',
    "half a character": b'"\xff"',
}


@each_dialect
def test_broken_json_is_refused(case: Case) -> None:
    text = case.with_body(put(case.body(), (*case.claims, "remit"), "input", "HERE")).body
    for what, broken in BROKEN_JSON.items():
        refused = outcome(lambda: case.dialect.submission(case.with_body(text.replace(b'"HERE"', broken))))  # noqa: B023
        assert isinstance(refused, Fault), what
        assert refused.code in (Code.MALFORMED_ENVELOPE, Code.TOO_LARGE), what
    huge = outcome(lambda: case.dialect.submission(a_message(b" " * (4 * 1024 * 1024 + 1))))
    assert isinstance(huge, Fault)
    assert huge.code is Code.TOO_LARGE


# ── what a server says ────────────────────────────────────────────────────────────────────────────────────────────────


@each_dialect
@given(value=json_values, data=st.data())
def test_whatever_a_server_says_is_a_response_or_refused(case: Case, value: Json, data: st.DataObject) -> None:
    request = a_request(capability="TAG")
    words = body_of(case.dialect.reply(a_response(), case.example))
    name = data.draw(
        st.sampled_from([*words, "error", "errors", "warnings", "error_code", "error_message", "delegate"])
    )
    success = {"contract": {"status": data.draw(st.sampled_from(["SUCCESS", "ERROR", "TIMEOUT"]))}}.get(case.name, {})
    given = ForeignMessage(
        body=json.dumps(words | success | {name: value}).encode(), status=data.draw(st.sampled_from([200, 500]))
    )
    response = outcome(lambda: case.dialect.response(given, request))
    if isinstance(response, Fault):
        assert response.code is Code.RESULT_VALIDATION_FAILED
        return
    assert decode(encode(response), Response, max_bytes=10**8) == response
    assert (response.id, response.target) == (request.id, request.target)
    assert response.ok is (response.fault is None)


@each_dialect
@pytest.mark.parametrize("is_readable", [True, False])
def test_every_end_has_a_reply(case: Case, is_readable: bool) -> None:
    """Also one that no agent gave, of every status and code, and also if what was asked could not be read."""
    foreign = case.example if is_readable else case.with_body(b"\xff")
    for code in Code:
        for status in Status:
            why = fault(code, f"because of {code}", retry_after_ms=1_500)
            response = a_response(status=status, fault=None if status in ("success", "partial") else why)
            reply = case.dialect.reply(response, foreign)
            assert reply.status == (200 if response.ok else TABLE[code].status)
            assert reply.headers.get("retry-after") == (None if response.ok else "2")
            assert reply.headers["content-type"] == "application/json"
            assert body_of(reply)
            assert (response.fault is None) is (f"because of {code}" not in reply.body.decode())


@each_dialect
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (301, Code.DELEGATION_FAILED),
        (401, Code.PERMISSION_DENIED),
        (404, Code.AGENT_NOT_FOUND),
        (413, Code.TOO_LARGE),
        (500, Code.DELEGATION_FAILED),
        (502, Code.DELEGATION_FAILED),
        (503, Code.DELEGATION_UNAVAILABLE),
        (504, Code.TIMEOUT),
    ],
)
def test_a_server_that_speaks_something_else_has_failed(case: Case, status: int, code: Code) -> None:
    """A proxy answers in its own way, and says with HTTP's status what is the matter."""
    page = ForeignMessage(status=status, body=b"<html>Bad gateway</html>", headers={"retry-after": "3"})
    why = case.dialect.response(page, a_request(capability="TAG")).fault
    assert why is not None
    assert (why.code, why.retry_after_ms) == (code, 3_000 if status == 503 else why.retry_after_ms)


@each_dialect
def test_a_time_to_come_back_that_is_a_date_is_not_read_and_a_page_is_no_success(case: Case) -> None:
    request, page = a_request(capability="TAG"), b"<html>Bad gateway</html>"
    dated = {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}
    why = case.dialect.response(ForeignMessage(status=429, body=page, headers=dated), request).fault
    assert why is not None
    assert (why.code, why.retry_after_ms) == (Code.RATE_LIMITED, None)
    assert refusal(lambda: case.dialect.response(ForeignMessage(body=page), request))[""] == "RESULT_VALIDATION_FAILED"


@each_dialect
def test_a_success_with_the_status_of_a_failure_is_refused(case: Case) -> None:
    request = a_request(capability="TAG")
    given = replace(case.dialect.reply(a_response(), case.dialect.request(request)), status=500)
    assert refusal(lambda: case.dialect.response(given, request))[""] == "RESULT_VALIDATION_FAILED"
