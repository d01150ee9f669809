"""The librarian dialect to the letter: context, time, spans and messages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dialect_laws import CONTEXT, QUERY, TRACEPARENT, Plain, a_message, body_of
from remit.policy.limits import Limits
from remit.policy.reception import Sender, receive
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.trace import place_of
from remit_server.dialects.librarian import DIALECT as LIBRARIAN
from remit_server.dialects.librarian import below_span, span_above
from samples import a_request, a_response

NOW: int = QUERY["timestamp"]


def query(**context: Any) -> Plain:
    first = {"delegationChain": ["a"], "delegationDepth": 1, "startTime": NOW, "parentSpanId": ""}
    return QUERY | {"context": CONTEXT | first | context}


def to_expert(body: Any, **headers: str) -> Any:
    return replace(a_message(body, **headers), target="expert")


# ── context ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_other_fields_of_the_context_are_taken_along() -> None:
    """C3: `DelegationContext extends Context`, which may hold anything."""
    more = {"user": {"id": "anna", "teams": ["x"]}, "sessionId": "s-7", "metadata": {"a": [1.5]}, "more": 1}
    submission = LIBRARIAN.submission(to_expert(query(**more)))
    assert submission.handoff is not None
    assert submission.handoff.data == more
    assert (submission.user, submission.parent_session) == ("anna", "s-7")
    onward = a_request(handoff=submission.handoff, target="next")
    context = body_of(LIBRARIAN.request(onward))["context"]
    assert {name: context[name] for name in more} == more
    assert LIBRARIAN.submission(LIBRARIAN.request(onward)).handoff == onward.handoff


@pytest.mark.parametrize(("user", "named"), [("anna", "anna"), ({"id": 7}, None), ("a\nb", None), (None, None)])
def test_a_user_is_one_that_can_be_named(user: Any, named: str | None) -> None:
    """C3: what cannot is data like all the rest."""
    submission = LIBRARIAN.submission(to_expert(query(user=user)))
    assert submission.user == named
    assert submission.handoff is not None
    assert submission.handoff.data == {"user": user}


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("timeout", "ago", "left"),
    [(1_000, 800, 200), (1_000, 2_000, 0), (60_000, 800, 29_500), (1_000, 0, 1_000), (1_000, -50, 1_000)],
)
def test_a_request_that_began_earlier_has_that_less(timeout: int, ago: int, left: int) -> None:
    """C7: the document's test, `timeout: 1000, startTime: Date.now() - 800`."""
    submission = LIBRARIAN.submission(to_expert(query(timeout=timeout, startTime=NOW - ago)))
    assert submission.deadline_ms == left


def test_without_a_time_for_the_whole_what_remains_is_left() -> None:
    """C7: the sender has taken off what had passed."""
    assert LIBRARIAN.submission(to_expert(query(startTime=NOW - 800))).deadline_ms == 29_500
    assert LIBRARIAN.submission(to_expert(query(startTime=0, timeout=9_000))).deadline_ms == 9_000


# ── spans ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def received(**context: Any) -> Request:
    traceparent = context.pop("traceparent", None)
    sent = LIBRARIAN.submission(to_expert(query(**context), **({"traceparent": traceparent} if traceparent else {})))
    hub = Sender(name="north", is_hub=True, users=frozenset({"anna"}))
    request = receive(sent, hub, exposed=frozenset({"expert"}), run="r", created_ms=1, limits=Limits())
    assert isinstance(request, Request), request
    return request


def test_the_parent_span_is_the_parent() -> None:
    """C9: in the trace of the header; alone, one trace for all that has the same parent."""
    span = "00f067aa0ba902b8"
    place = place_of(received(parentSpanId=span, traceparent=TRACEPARENT).traceparent)
    assert place is not None
    assert (place.trace, place.span) == (TRACEPARENT.split("-")[1], span)
    alone = [place_of(received(parentSpanId=each).traceparent) for each in (span, span, "span-7", "")]
    assert alone[0] == alone[1] != alone[2]
    assert alone[0] is not None
    assert alone[0].span == span
    assert alone[2] is not None
    assert alone[3] is None
    assert received(parentSpanId="span-7", traceparent=TRACEPARENT).traceparent == TRACEPARENT


def test_what_is_sent_names_the_span_that_asks() -> None:
    """C3."""
    sent = body_of(LIBRARIAN.request(a_request(traceparent=TRACEPARENT, parent="run-1")))
    assert sent["context"]["parentSpanId"] == TRACEPARENT.split("-")[2]


@given(span=st.text("0123456789abcdef-x", max_size=20), traceparent=st.sampled_from([None, TRACEPARENT, "none"]))
def test_a_parent_span_and_its_place_say_the_same(span: str, traceparent: str | None) -> None:
    place = below_span(span, traceparent)
    assert below_span(span_above(span, place), place) == place


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "ours", "theirs"),
    [
        (
            Code.MAX_DEPTH_EXCEEDED,
            "Delegation depth limit reached (5/5). Cannot delegate further. Return results to parent.",
            "Maximum delegation depth exceeded",
        ),
        (Code.CHAIN_TOO_LONG, "Delegation chain too long (11/10): a -> b", "Delegation chain too long"),
        (Code.LOOP_DETECTED, "b is already in the chain: a -> b -> b@hub", "Delegation loop detected: a -> b -> b@hub"),
    ],
)
def test_the_messages_of_depth_and_chain_are_the_documents(code: Code, ours: str, theirs: str) -> None:
    """C6."""
    response = a_response(status=Status.REFUSED, result=None, fault=fault(code, ours))
    error = body_of(LIBRARIAN.reply(response, to_expert(query())))["error"]
    assert (error["code"], error["message"]) == (code, theirs)
