"""One secret, many keys: what is locked opens only with the same secret, at the same place, and unchanged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.ports.keys import HubKeys

SECRET = b"s" * 32
OTHER = b"o" * 32

contents = st.binary(max_size=100)
places = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(contents, places)
def test_what_is_locked_opens_with_the_same_secret_at_the_same_place(value: bytes, place: str) -> None:
    """X12: the vault survives a restart, since nothing but the secret is needed."""
    assert HubKeys(SECRET).unlock(HubKeys(SECRET).lock(value, place), place) == value


@given(contents, places, places)
def test_what_is_locked_opens_nowhere_else(value: bytes, place: str, elsewhere: str) -> None:
    """X12: a value that is moved to another run or token of the vault cannot be read there."""
    keys = HubKeys(SECRET)
    opened = keys.unlock(keys.lock(value, place), elsewhere)
    assert opened == (value if place == elsewhere else None)


@given(contents, places)
def test_another_secret_opens_nothing(value: bytes, place: str) -> None:
    assert HubKeys(OTHER).unlock(HubKeys(SECRET).lock(value, place), place) is None


@given(contents, st.data())
def test_what_was_changed_does_not_open(value: bytes, data: st.DataObject) -> None:
    keys = HubKeys(SECRET)
    locked = bytearray(keys.lock(value, "here"))
    at = data.draw(st.integers(0, len(locked) - 1))
    locked[at] ^= data.draw(st.integers(1, 255))
    assert keys.unlock(bytes(locked), "here") is None


@pytest.mark.parametrize("length", [0, 1, 11, 12, 13, 27])
def test_what_was_cut_short_does_not_open(length: int) -> None:
    keys = HubKeys(SECRET)
    assert keys.unlock(keys.lock(b"something", "here")[:length], "here") is None


@given(st.binary(min_size=8, max_size=100), places)
def test_what_is_locked_shows_nothing_and_never_looks_the_same_twice(value: bytes, place: str) -> None:
    keys = HubKeys(SECRET)
    one, other = keys.lock(value, place), keys.lock(value, place)
    assert value not in one
    assert one != other


@given(st.text(max_size=20), st.text(max_size=20))
def test_each_run_has_a_key_of_its_own_and_always_the_same(one: str, other: str) -> None:
    """X12: tokens are deterministic within a run, and differ between runs."""
    same = HubKeys(SECRET).of_scope(one.encode(errors="replace").decode()) == HubKeys(SECRET).of_scope(
        other.encode(errors="replace").decode()
    )
    assert same == (one.encode(errors="replace") == other.encode(errors="replace"))


def test_no_key_or_digest_follows_from_another_secret() -> None:
    mine, theirs = HubKeys(SECRET), HubKeys(OTHER)
    assert len({mine.hub, theirs.hub, mine.of_scope("r"), theirs.of_scope("r")}) == 4
    assert mine.digest(b"x") != theirs.digest(b"x")
    assert mine.digest(b"x") == HubKeys(SECRET).digest(b"x")


def test_each_purpose_has_a_key_of_its_own() -> None:
    """The same bytes as a run's name and as a content to digest have nothing in common."""
    keys = HubKeys(SECRET)
    assert len({keys.hub, keys.of_scope("x"), keys.digest(b"x"), SECRET}) == 4


@pytest.mark.parametrize("length", [1, 16, 32, 64, 65, 1_000])
def test_a_secret_may_have_any_length(length: int) -> None:
    """X12: a team's own vault key may be a long passphrase."""
    keys = HubKeys(b"x" * length)
    assert keys.unlock(keys.lock(b"value", "here"), "here") == b"value"
    assert keys.hub != HubKeys(b"x" * (length + 1)).hub


def test_there_are_no_keys_without_a_secret() -> None:
    """X12: a vault that is locked with nothing would open for everyone."""
    with pytest.raises(ValueError, match="secret"):
        HubKeys(b"")
