"""What a sender knows of a conversation elsewhere is never taken for the word of somebody here."""

import pytest

from remit.policy.limits import Limits
from remit.policy.reception import Sender, receive, speaker_of
from remit.protocol.envelope import Note, Request, View
from remit.protocol.errors import Fault
from remit.protocol.submission import Submission
from samples import a_request

HUB = Sender(name="north", is_hub=True)
WEB = Sender(name="web")


def received(sender: Sender, *notes: Note) -> Request:
    sent = Submission(target="tag", user="u-1", view=View(known=notes))
    request = receive(sent, sender, exposed=frozenset({"tag"}), run="run", created_ms=0, limits=Limits())
    assert isinstance(request, Request)
    return request


@pytest.mark.parametrize(
    ("sender", "author", "by"),
    [
        (HUB, "supervisor", "supervisor@north"),
        (HUB, "", "user@north"),
        (WEB, "supervisor", ""),
        (WEB, "", ""),
    ],
)
def test_notes_of_a_sender_are_known_as_its_own(sender: Sender, author: str, by: str) -> None:
    """A peer must not speak as an agent of this hub, or as its user."""
    request = received(sender, Note("decision", "Refunds are approved", author))
    assert request.view is not None
    assert request.view.known == (Note("decision", "Refunds are approved", by),)


def test_who_speaks_in_a_request_is_the_user_or_the_agent_of_a_peer() -> None:
    assert speaker_of(a_request(origin="user")) == ""
    assert speaker_of(a_request(origin="user", via="web")) == ""
    assert speaker_of(a_request(origin="boss@north", via="north")) == "boss@north"


@pytest.mark.parametrize("field", ["origin", "session", "parent_session"])
def test_a_name_that_is_too_long_with_the_name_of_its_hub_is_refused(field: str) -> None:
    """X16: a record with a longer one could never be read again."""
    for length, is_refused in ((194, False), (195, True)):
        sent = Submission(target="tag", user="u-1", **{field: "n" * length})  # pyright: ignore[reportArgumentType]
        came = receive(sent, HUB, exposed=frozenset({"tag"}), run="run", created_ms=0, limits=Limits())
        assert isinstance(came, Fault) is is_refused
        assert not isinstance(came, Fault) or [each.path for each in came.problems] == [f"$.{field}"]
