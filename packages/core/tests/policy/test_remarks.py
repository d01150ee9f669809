"""What whoever sends a request is told of it besides its outcome."""

from typing import Any

import pytest

from remit.policy.limits import Limits
from remit.policy.reception import Sender, receive, remarks
from remit.protocol.envelope import ContextFilter, Request, View
from remit.protocol.submission import Submission
from samples import a_remit

CUT = "At most 4,000 tokens of context are passed on here, not 6,000"
NO_CONVERSATION = "The filter chose nothing, because the request names no conversation."


def said(limits: Limits | None = None, **fields: Any) -> list[str]:
    given: dict[str, Any] = {"target": "coder", "user": "u-1", **fields}
    sent = Submission(**given)
    request = receive(
        sent,
        Sender(name="web", is_hub=True),
        exposed=frozenset({"coder"}),
        run="r-1",
        created_ms=0,
        limits=limits or Limits(),
    )
    assert isinstance(request, Request)
    return [each.partition(" (")[0] for each in remarks(sent, request)]


def test_more_context_than_is_allowed_is_told() -> None:
    assert [each.startswith(CUT) for each in said(context_tokens=6_000)] == [True]
    assert said(context_tokens=4_000) == []
    assert said(Limits(context_tokens=8_000), context_tokens=6_000) == []
    assert said(Limits(context_tokens=2_000), context_tokens=4_000) == []


@pytest.mark.parametrize(
    "wanted",
    [
        {"last_messages": 3},
        {"roles": frozenset({"user"})},
        {"keywords": ("tea",)},
        {"max_age_seconds": 60},
        {"include_summary": True},
    ],
)
def test_a_filter_without_a_conversation_is_told(wanted: dict[str, Any]) -> None:
    context = ContextFilter(**wanted)
    assert [each.startswith(NO_CONVERSATION) for each in said(context=context)] == [True]
    assert said(context=context, session="s-1") == []
    assert said(context=context, view=View()) == []
    assert said(context=context, user=None, remit=a_remit()) == []


@pytest.mark.parametrize("wanted", [{}, {"last_messages": 0}, {"include_workspace": True}, {"known": "none"}])
def test_a_filter_that_needs_no_conversation_is_not_told(wanted: dict[str, Any]) -> None:
    assert said(context=ContextFilter(**wanted)) == []
