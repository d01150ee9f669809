"""Names of sessions between a peer and this hub: there and back, and nobody else's."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.policy.reception import (
    Sender,
    here,
    is_new,
    named_by_peer,
    of_agent,
    peer_name,
    peer_of,
    there,
    with_session_of_peer,
)
from remit.protocol.envelope import USER, Request
from samples import a_request, a_response

NAMES = st.text("ab@", min_size=1, max_size=5)


def from_north(**changes: Any) -> Request:
    return a_request(**{"id": "r-1", "origin": "prime@north", "via": "north", "run": "run-1"} | changes)


@given(session=NAMES, peer=NAMES)
def test_what_a_peer_is_told_names_the_same_session_when_it_sends_it_back(session: str, peer: str) -> None:
    """X16."""
    inside = here(session, peer)
    assert here(there(inside, peer), peer) == inside == here(inside, peer)


@given(one=NAMES, other=NAMES)
def test_no_peer_can_name_a_session_of_another(one: str, other: str) -> None:
    """X10."""
    if one != other and not one.endswith(f"@{other}") and not other.endswith(f"@{one}"):
        assert here("s", one) != here("s", other)


def test_only_a_hub_has_names_of_its_own() -> None:
    assert peer_of(from_north()) == "north"
    assert peer_of(from_north(origin=USER)) is None
    assert peer_of(from_north(via=None)) is None


def test_a_hub_is_told_its_own_names_and_a_client_has_none() -> None:
    assert peer_name(Sender(name="north", is_hub=True)) == "north"
    assert peer_name(Sender(name="web")) is None


def test_a_session_named_after_its_request_is_new() -> None:
    assert is_new(from_north(session="r-1@north"))
    assert not is_new(from_north(session="r-0@north"))
    assert not is_new(from_north(session="r-1@north", via=None))


def test_what_a_peer_names_is_looked_up_unless_it_is_new() -> None:
    assert named_by_peer(from_north(session="run-0@north")) == "run-0"
    for session in (None, "run-1", "r-1@north", "run-0"):
        assert named_by_peer(from_north(session=session)) is None
    assert named_by_peer(from_north(session="run-0@north", via=None)) is None


def test_a_peer_is_told_its_own_names_and_others_what_there_is() -> None:
    response = replace(a_response(), session="s@north")
    assert with_session_of_peer(response, "north").session == "s"
    assert with_session_of_peer(response, "south") is response
    assert with_session_of_peer(response, None) is response
    assert with_session_of_peer(replace(response, session=None), "north").session is None


def test_a_part_of_a_shared_session_is_named_once_however_often_it_is_asked_for() -> None:
    own = of_agent("sess-789", "ANL")
    assert own == "sess-789/ANL" == of_agent(own, "ANL")
    assert of_agent("sess-789", "DOC") != own
