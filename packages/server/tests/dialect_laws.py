"""What tests of dialects share: messages of strangers, what is drawn at random, and what was refused."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.protocol.codec import encode
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Fault, RemitError
from remit.protocol.remit import MAX_INTEGER
from remit_server.dialects.claims import flat
from remit_server.dialects.exchange import Dialect, ForeignMessage
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
# The employee's document, "Mode 1: Simple Delegation" with the values that it computes, and "Request Headers (HTTP)".
SIMPLE: Plain = {
    "request_id": "550e8400-e29b-41d4-a716-446655440000",
    "origin_employee": "prime-boss",
    "target_employee": "byte-doc",
    "user_id": "user-456",
    "parent_session_id": "uuid-of-prime-session",
    "objective": "Extract receipt data",
    "input": "User uploaded receipt.jpg - extract all fields",
    "constraints": {"max_tokens": 1200, "max_depth": 2, "deadline_ms": 15000},
    "context_hints": ["receipt", "ocr"],
    "handoff_data": {},
}
HEADERS = {
    "x_agent_request_id": "550e8400-e29b-41d4-a716-446655440000",
    "x_agent_origin": "prime-boss",
    "x_agent_depth": "1",
    "x_agent_parent_session": "uuid-of-prime-session",
}
# The contract's "REQUEST FORMAT EXAMPLE".
CAPABILITY_REQUEST: Plain = {
    "source_agent": "CST",
    "target_agent": "ANL",
    "capability_code": "ANL_NPV",
    "request_id": "sess-789-20250118-143022",
    "priority": "NORMAL",
    "timeout_ms": 15000,
    "inputs_json": {
        "cash_flows": [-100000, 25000, 35000, 45000, 55000],
        "discount_rate": 0.12,
        "periods": "annual",
    },
    "context": {"session_id": "sess-789", "user_id": "user-456", "engagement_type": "business_case"},
}
# The librarian's `DelegationRequest` and `DelegationContext`, with every field that they require.
CONTEXT: Plain = {
    "originalQuery": "What is known of it?",
    "delegationChain": ["a", "b", "c"],
    "delegationDepth": 3,
    "remainingTimeout": 29_500,
    "startTime": 1_760_000_000_000,
    "parentSpanId": "span-7",
}
QUERY: Plain = {
    "query": "Which papers mention it?",
    "context": CONTEXT,
    "version": "1.0",
    "requestId": "req-1",
    "timestamp": 1_760_000_000_500,
}
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


def a_message(body: Any, target: str = "", **headers: str) -> ForeignMessage:
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


def a_request_comes_back_as_it_was(dialect: Dialect, request: Request) -> None:
    """Between two hubs nothing is lost, whichever dialect they speak."""
    assert dialect.submission(dialect.request(request)) == flat(request)
