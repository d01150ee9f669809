"""How much of a text's length can be seen from outside: its bucket."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit_relay.e2e.channel import MessageCipher
from remit_relay.e2e.streams import (
    AROUND,
    FORMER,
    MAX_MESSAGE,
    MAX_PIECES,
    MAX_REQUESTER,
    MAX_SEALED,
    PIECE_BYTES,
    MessagePart,
    Piece,
    StreamAck,
    bucket,
    cut,
    encode_piece,
    seen_size,
)
from sealed_devices import Ticks, close, open_device, pair, prekey_of, settle, take, waiting

LARGEST = 2**53


@pytest.fixture
def talking(tmp_path: Path) -> Iterator[tuple[MessageCipher, MessageCipher]]:
    ticks = Ticks()
    ada, bob = open_device(tmp_path / "ada", ticks), open_device(tmp_path / "bob", ticks)
    pair(ada, bob)
    ada.begin(bob.device.id, prekey_of(bob))
    settle(ada, bob)
    bob.acknowledge(ada.device.id)
    settle(ada, bob)
    yield ada, bob
    close(ada)
    close(bob)


def piece_of(part: MessagePart | None) -> Piece:
    """A piece with the longest of everything but its part."""
    token, numbers = b"t" * 16, LARGEST
    return Piece(
        version=1,
        sender="a" * 26,
        receiver="b" * 26,
        kind="part" if part else "note",
        gen=numbers,
        stream=token,
        seq=numbers,
        floor=numbers,
        settled=numbers,
        held=numbers,
        renew=True,
        former=(token,) * FORMER,
        ack=StreamAck(gen=numbers, stream=token, next=numbers, got=numbers, chain=token),
        part=part,
    )


def sizes_of(sender: MessageCipher, receiver: MessageCipher, body: bytes, requester: str = "") -> list[int]:
    """How long the sealed pieces of a message are."""
    sender.seal(receiver.device.id, body, requester=requester)
    sizes = [len(each.sealed) for each in waiting(sender)]
    settle(sender, receiver)
    assert take(receiver) == [body]
    return sizes


@pytest.mark.parametrize(
    ("shortest", "longest"),
    [(0, 512), (513, 1_024), (2_049, 4_096), (4_097, 4_608), (57_345, 61_440), (PIECE_BYTES + 1, 245_760)],
)
def test_texts_of_one_bucket_look_the_same(
    talking: tuple[MessageCipher, MessageCipher], shortest: int, longest: int
) -> None:
    """S1: whatever else is told with them, and however many came before."""
    ada, bob = talking
    lengths = sorted({shortest, shortest + 1, (shortest + longest) // 2, longest - 1, longest})
    seen = [sizes_of(ada, bob, bytes(length), name) for length in lengths for name in ("", "anna@example.org")]
    assert len({tuple(each) for each in seen}) == 1
    assert sizes_of(ada, bob, bytes(longest + 1)) != seen[0]


def test_an_acknowledgement_looks_like_a_short_text(talking: tuple[MessageCipher, MessageCipher]) -> None:
    ada, bob = talking
    (text,) = sizes_of(ada, bob, b"yes")
    for tell in (lambda: bob.acknowledge(ada.device.id), bob.ask):
        assert tell()
        (acknowledgement,) = waiting(bob)
        assert len(acknowledgement.sealed) == text
        settle(ada, bob)


def test_over_all_lengths_little_is_wasted_and_few_sizes_are_seen() -> None:
    """Each bucket is walked from its shortest to its longest text, so this is true of every length."""
    shortest, longest, buckets = 0, 0, 0
    while shortest <= MAX_MESSAGE:
        longest = bucket(shortest)
        assert bucket(longest) == longest
        assert {bucket(length) for length in (shortest, (shortest + longest) // 2, longest)} == {longest}
        assert longest <= (512 if shortest <= 512 else 2 * shortest if shortest <= 4_096 else shortest * 9 / 8)
        shortest, buckets = longest + 1, buckets + 1
    assert longest == MAX_MESSAGE
    assert buckets <= 100


def test_a_longer_text_never_looks_shorter() -> None:
    seen = [bucket(length) for length in range(300_000)]
    assert seen == sorted(seen)
    assert all(length <= size for length, size in enumerate(seen))
    assert [size for size, _ in groupby(seen)][:8] == [512, 1_024, 2_048, 4_096, 4_608, 5_120, 5_632, 6_144]


@given(size=st.integers(0, MAX_MESSAGE))
def test_all_pieces_of_a_message_together_waste_little_and_each_fits_a_frame(size: int) -> None:
    parts = cut(b"m" * 16, b"b" * 16, "message", "", bytes(size))
    seen = [seen_size(piece_of(part)) for part in parts]
    assert len(set(seen[:-1])) <= 1
    assert max(seen) + 400 <= MAX_SEALED
    around = bucket(AROUND) * len(parts)
    assert size <= sum(seen) - around <= max(512, 2 * size if size <= 4_096 else size * 9 / 8)


def test_what_stands_around_a_text_fits_into_what_is_left_for_it() -> None:
    """Else numbers that grow would show, and a frame could be too long."""
    part = MessagePart(
        message=b"m" * 16,
        before=b"b" * 16,
        content="message",
        requester="𝄞" * MAX_REQUESTER,
        size=MAX_MESSAGE,
        count=MAX_PIECES,
        index=MAX_PIECES - 1,
        body=bytes(PIECE_BYTES),
    )
    longest = encode_piece(piece_of(part))
    assert 4 + len(longest) - len(part.body) - len(part.requester.encode()) <= AROUND
    assert 4 + len(encode_piece(piece_of(None))) <= AROUND
    assert bucket(AROUND + len(part.requester.encode())) + PIECE_BYTES + 400 <= MAX_SEALED
