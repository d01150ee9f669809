"""What holds for every dialect: each law is asked of each of them."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.protocol.codec import decode, encode
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import TABLE, Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.remit import MAX_INTEGER
from remit.protocol.submission import Submission
from remit_server.dialects.claims import flat
from remit_server.dialects.exchange import Dialect, ForeignMessage
from samples import a_request, a_response
from strategies import (
    context_filters,
    counts,
    faults,
    handoffs,
    json_objects,
    json_values,
    name_sets,
    names,
    optional,
    priorities,
    requests,
    responses,
    several,
    texts,
    views,
)

T = TypeVar("T")

Plain = dict[str, Any]
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def _sent(request: Request, max_depth: int, traceparent: str | None) -> Request:
    return replace(request, remit=replace(request.remit, max_depth=max_depth), traceparent=traceparent)


def _ended(response: Response, why: Fault) -> Response:
    return replace(response, fault=None if response.ok else why)


# A depth of 2**53 - 1 cannot be counted on by one.
sent_requests = st.builds(_sent, requests, st.integers(0, MAX_INTEGER - 1), optional(st.just(TRACEPARENT) | texts))

# A response has a fault if and only if it is no success.
ended_responses = st.builds(_ended, responses, faults)

# What a stranger may write under `remit`.
wild_claims = st.fixed_dictionaries(
    {"version": st.just("1.0")},
    optional={
        "id": names,
        "origin": names,
        "user": names,
        "depth": counts,
        "chain": several(names).map(list),
        "max_tokens": optional(counts),
        "deadline_ms": optional(counts),
        "max_depth": optional(counts),
        "context_tokens": optional(counts),
        "tools": optional(name_sets.map(list)),
        "targets": optional(name_sets.map(list)),
        "may_delegate": st.booleans(),
        "priority": optional(priorities.map(str)),
        "objective": texts,
        "input": json_values,
        "capability": optional(names),
        "session": optional(names),
        "parent_session": optional(names),
        "handoff": optional(handoffs.map(lambda each: json.loads(encode(each)))),
        "context": optional(context_filters.map(lambda each: json.loads(encode(each)))),
        "view": optional(views.map(lambda each: json.loads(encode(each)))),
        "json": st.lists(st.sampled_from(["input", "objective", "target", "user", "nothing"]), max_size=2),
        "target": names,
        "remit": json_objects,
    },
)


def asked(body: Any, target: str = "", **headers: str) -> ForeignMessage:
    """A message of a foreign client; `x_agent_depth` is the header `x-agent-depth`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ForeignMessage(
        headers=named, body=body if isinstance(body, bytes) else json.dumps(body).encode(), target=target
    )


def refusal(call: Callable[[], object]) -> dict[str, str]:
    """Return what was refused, by field, and under the empty name the code."""
    with pytest.raises(RemitError) as refused:
        call()
    why = refused.value.fault
    return {"": why.code.value} | {problem.path: problem.message for problem in why.problems}


def outcome(call: Callable[[], T]) -> T | Fault:
    """Return what a call returns, or why it was refused."""
    try:
        return call()
    except RemitError as error:
        return error.fault


def body_of(foreign: ForeignMessage) -> Plain:
    return json.loads(foreign.body)


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def a_request_comes_back_as_it_was(dialect: Dialect, request: Request) -> None:
    """Between two hubs nothing is lost, whichever dialect they speak."""
    assert dialect.submission(dialect.request(request)) == flat(request)


def a_response_comes_back_as_it_was(dialect: Dialect, request: Request, response: Response) -> None:
    response = replace(response, id=request.id, target=request.target)
    assert dialect.response(dialect.reply(response, dialect.request(request)), request) == response


def what_is_submitted_can_be_sent_on(dialect: Dialect, foreign: ForeignMessage) -> None:
    """Whatever a stranger sends is refused as a fault, or is a valid submission."""
    submission = outcome(lambda: dialect.submission(foreign))
    if isinstance(submission, Fault):
        return
    assert decode(encode(submission), Submission, max_bytes=10**8) == submission


def whatever_a_server_says_is_a_response_or_refused(dialect: Dialect, given: ForeignMessage, request: Request) -> None:
    response = outcome(lambda: dialect.response(given, request))
    if isinstance(response, Fault):
        assert response.code is Code.RESULT_VALIDATION_FAILED
        return
    assert decode(encode(response), Response, max_bytes=10**8) == response
    assert (response.id, response.target) == (request.id, request.target)
    assert response.ok is (response.fault is None)


def claims_allow_nothing(
    dialect: Dialect, plain: ForeignMessage, claiming: ForeignMessage, says: Callable[[Submission], object]
) -> None:
    """Nothing under `remit` is other than what the document's own fields say, or more than they allow."""
    without = dialect.submission(plain)
    claimed = outcome(lambda: dialect.submission(claiming))
    if isinstance(claimed, Fault):
        assert claimed.code is Code.MALFORMED_ENVELOPE
        return
    assert says(claimed) == says(without)
    assert claimed.target == without.target
    assert claimed.remit is None
    assert claimed.depth >= without.depth
    for name in ("max_tokens", "deadline_ms", "max_depth", "context_tokens"):
        most, claims = getattr(without, name), getattr(claimed, name)
        assert most is None or claims <= most
    for name in ("tools", "targets"):
        most, claims = getattr(without, name), getattr(claimed, name)
        assert most is None or claims <= most
    assert without.may_delegate or not claimed.may_delegate


def every_end_has_a_reply(dialect: Dialect, foreign: ForeignMessage) -> None:
    """Also one that no agent gave, of every status and code, and also if what was asked could not be read."""
    for code in Code:
        for status in Status:
            why = fault(code, f"because of {code}", retry_after_ms=1_500)
            response = a_response(status=status, fault=None if status in ("success", "partial") else why)
            reply = dialect.reply(response, foreign)
            assert reply.status == (200 if response.ok else TABLE[code].status)
            assert reply.headers.get("retry-after") == (None if response.ok else "2")
            assert reply.headers["content-type"] == "application/json"
            assert body_of(reply)
            assert (response.fault is None) is (f"because of {code}" not in reply.body.decode())


def a_server_that_speaks_something_else_has_failed(dialect: Dialect) -> None:
    """A proxy answers in its own way, and says with HTTP's status what is the matter."""
    request = a_request(capability="TAG")
    page, waiting = b"<html>Bad gateway</html>", {"retry-after": "3"}
    codes = {
        status: dialect.response(ForeignMessage(status=status, body=page), request).fault
        for status in (301, 401, 404, 413, 500, 502, 504)
    }
    assert {status: why.code for status, why in codes.items() if why} == {
        301: Code.DELEGATION_FAILED,
        401: Code.PERMISSION_DENIED,
        404: Code.AGENT_NOT_FOUND,
        413: Code.TOO_LARGE,
        500: Code.DELEGATION_FAILED,
        502: Code.DELEGATION_FAILED,
        504: Code.TIMEOUT,
    }
    busy = dialect.response(ForeignMessage(status=503, body=page, headers=waiting), request)
    assert busy.fault is not None
    assert (busy.fault.code, busy.fault.retry_after_ms) == (Code.DELEGATION_UNAVAILABLE, 3_000)
    dated = dialect.response(
        ForeignMessage(status=429, body=page, headers={"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}), request
    )
    assert dated.fault is not None
    assert (dated.fault.code, dated.fault.retry_after_ms) == (Code.RATE_LIMITED, None)
    assert refusal(lambda: dialect.response(ForeignMessage(body=page), request))[""] == "RESULT_VALIDATION_FAILED"


def a_success_with_the_status_of_a_failure_is_refused(dialect: Dialect) -> None:
    request = a_request(capability="TAG")
    given = replace(dialect.reply(a_response(), dialect.request(request)), status=500)
    assert refusal(lambda: dialect.response(given, request))[""] == "RESULT_VALIDATION_FAILED"


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


def broken_json_is_refused(dialect: Dialect, text: str) -> None:
    """*text* is an envelope in which `"HERE"` stands for anything."""
    assert '"HERE"' in text
    for what, broken in BROKEN_JSON.items():
        with pytest.raises(RemitError) as refused:
            dialect.submission(asked(text.encode().replace(b'"HERE"', broken)))
        assert refused.value.fault.code in (Code.MALFORMED_ENVELOPE, Code.TOO_LARGE), what
    with pytest.raises(RemitError) as refused:
        dialect.submission(asked(b" " * (4 * 1024 * 1024 + 1)))
    assert refused.value.fault.code is Code.TOO_LARGE
