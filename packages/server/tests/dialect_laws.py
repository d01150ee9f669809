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


def a_request_comes_back_as_it_was(dialect: Dialect, request: Request) -> None:
    """Between two hubs nothing is lost, whichever dialect they speak."""
    assert dialect.submission(dialect.request(request)) == flat(request)
