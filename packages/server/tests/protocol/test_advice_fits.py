"""Advice fits the fault that it comes with: it names fields only if there are some, and repeats nothing."""

import pytest

from remit.policy.guards import depth, fan_out, rate, version
from remit.policy.limits import Limits
from remit.policy.reception import Sender, receive
from remit.policy.verdict import Facts, Refuse
from remit.protocol.envelope import VERSION, Response
from remit.protocol.errors import TABLE, Code, Fault, Problem, fault, to_retry_after
from remit.protocol.lifecycle import Status
from remit.protocol.submission import Submission
from remit_server.dialects.exchange import ForeignMessage, fault_of, in_time
from samples import a_card, a_remit, a_request


@pytest.mark.parametrize("code", [Code.MALFORMED_ENVELOPE, Code.INPUT_VALIDATION_FAILED])
def test_fields_are_spoken_of_only_if_some_are_named(code: Code) -> None:
    assert "fields" not in fault(code, "invalid HTTP request").suggestion
    assert fault(code, "wrong", problems=(Problem("$.a", "is required"),)).suggestion == TABLE[code].suggestion


def test_a_time_that_is_known_later_comes_into_the_advice() -> None:
    assert to_retry_after(fault(Code.RATE_LIMITED, "no"), 3_000) == fault(Code.RATE_LIMITED, "no", retry_after_ms=3_000)
    own = fault(Code.RATE_LIMITED, "no", suggestion="Pay more.")
    assert to_retry_after(own, 3_000).suggestion == "Pay more."


def test_a_time_that_a_server_says_in_a_header_comes_into_the_advice() -> None:
    refused = Response(
        version=VERSION, id="r", target="tag", status=Status.REFUSED, fault=fault(Code.OVERLOADED, "full")
    )
    delayed = in_time(refused, ForeignMessage(headers={"retry-after": "7"}, body=b"", status=503))
    assert delayed.fault == fault(Code.OVERLOADED, "full", retry_after_ms=7_000)


@pytest.mark.parametrize(
    ("verdict", "suggestion"),
    [
        (
            depth(a_request(remit=a_remit(depth=6, max_depth=9)), Facts(target=a_card())),
            "If calls have to go deeper, have the team raise `max_depth`.",
        ),
        (
            fan_out(a_request(), Facts(target=a_card(), held=a_remit(), at_once=4)),
            "Ask the others after these have answered.",
        ),
        (rate(a_request(), Facts(target=a_card(), rate_wait_ms=1_500)), "Wait 2 s and try again."),
        (
            version(a_request(version="0.1"), Facts(target=a_card())),
            "Send one of the versions named in the message.",
        ),
    ],
)
def test_what_a_sentence_says_is_not_advised_once_more(verdict: Refuse, suggestion: str) -> None:
    assert verdict.fault.suggestion == suggestion
    assert "ms" not in verdict.fault.message.split()
    assert "send" not in verdict.fault.message


@pytest.mark.parametrize(
    "sentence",
    [
        "Delegation depth limit reached (2/2). Cannot delegate further. Return results to parent.",
        "Too many concurrent delegates (4/3). Choose top 3 most relevant employees.",
        "Estimated tokens (900) exceeds budget (100). Simplify task or increase budget.",
    ],
)
def test_a_sentence_of_the_employees_that_ends_with_advice_gets_no_more(sentence: str) -> None:
    assert fault_of(sentence).suggestion == ""


@pytest.mark.parametrize(
    ("sent", "users", "advice"),
    [
        (
            Submission(target="tag", user="u-2"),
            {"u-1"},
            "Ask for a user of app: its `users` in the team file name them.",
        ),
        (
            Submission(target="tag", user="u-2", remit=a_remit(user="u-1")),
            {"u-1", "u-2"},
            "Name one user: `user` and the user of the remit have to be the same.",
        ),
    ],
)
def test_who_asks_for_the_wrong_user_is_told_for_whom_to_ask(sent: Submission, users: set[str], advice: str) -> None:
    sender = Sender(name="app", is_hub=True, users=frozenset(users))
    refused = receive(sent, sender, exposed=frozenset({"tag"}), run="r", created_ms=0, limits=Limits())
    assert isinstance(refused, Fault)
    assert (refused.code, refused.suggestion) == (Code.USER_MISMATCH, advice)
