"""What a hostile gateway, a hostile device or a restored backup can do: be refused by name, or be found out."""

import random
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from vodozemac import Session

from remit.protocol.errors import RemitError
from remit_relay.device.identity import choose_prekey
from remit_relay.e2e.channel import Loss, MessageCipher, RejectedMessageError, RejectionReason
from remit_relay.e2e.outbox import MOST_RESTARTS
from remit_relay.e2e.streams import (
    MAX_SEALED,
    PIECE_BYTES,
    REASONS,
    START,
    MessagePart,
    Piece,
    StreamAck,
    cut,
    decode_piece,
    encode_piece,
    fits,
    pack,
)
from sealed_devices import (
    Ticks,
    World,
    carry,
    close,
    copy_of,
    open_device,
    pair,
    prekey_of,
    put_back,
    settle,
    take,
    waiting,
)


class Four:
    """Two devices that talk, and two more; all on one clock."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ticks = Ticks()
        self.ada, self.bob, self.eve = (open_device(home / name, self.ticks) for name in ("ada", "bob", "eve"))
        for one, other in ((self.ada, self.bob), (self.ada, self.eve), (self.eve, self.bob)):
            pair(one, other)
        self.ada.begin(self.bob.device.id, prekey_of(self.bob))
        settle(self.ada, self.bob)
        self.say(self.bob, self.ada, b"welcome")
        take(self.ada)

    def say(self, sender: MessageCipher, receiver: MessageCipher, *bodies: bytes) -> None:
        for body in bodies:
            sender.seal(receiver.device.id, body)
        settle(sender, receiver)

    def put_back(self, name: str, kept: Path) -> MessageCipher:
        """Put a device back to the state it had when the copy was made."""
        close(getattr(self, name))
        put_back(self.home / name, kept)
        setattr(self, name, open_device(self.home / name, self.ticks))
        return getattr(self, name)

    def copy(self, name: str) -> Path:
        close(getattr(self, name))
        kept = copy_of(self.home / name, f"{name}-kept-{self.ticks()}")
        setattr(self, name, open_device(self.home / name, self.ticks))
        return kept


@pytest.fixture
def four(tmp_path: Path) -> Iterator[Four]:
    devices = Four(tmp_path)
    yield devices
    for each in (devices.ada, devices.bob, devices.eve):
        close(each)


def everything_in(sealer: MessageCipher) -> list[list[tuple[Any, ...]]]:
    """Return all that a device's file holds."""
    state = sealer.device.state
    tables = [name for (name,) in state.rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    return [state.rows(f"SELECT * FROM {name}") for name in tables]


def refusal(receiver: MessageCipher, sender: str, sealed: bytes) -> RejectionReason:
    """Return why something is refused; nothing in the device's file may have changed by it."""
    before = everything_in(receiver)
    with pytest.raises(RejectedMessageError) as caught:
        receiver.open(sender, sealed)
    assert everything_in(receiver) == before
    assert caught.value.fault.code == REASONS[caught.value.reason].code
    return caught.value.reason


# ── a hostile gateway ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_replay_is_refused(four: Four):
    four.ada.seal(four.bob.device.id, b"pay 10")
    (row,) = waiting(four.ada)
    four.bob.open(four.ada.device.id, row.sealed)
    for _ in range(3):
        assert refusal(four.bob, four.ada.device.id, row.sealed) == RejectionReason.REPLAY
    assert take(four.bob) == [b"pay 10"]


def test_a_replay_is_refused_after_the_message_was_taken_and_the_session_renewed_and_dropped(four: Four):
    """With a fallback key the first message could open its session again, were it not remembered."""
    card, published = four.eve.device.card, four.eve.device.publish(6)
    four.ada.seal(four.eve.device.id, b"pay 10")
    four.ada.begin(four.eve.device.id, choose_prekey(card, published.bundle, None))
    (first,) = waiting(four.ada)
    settle(four.ada, four.eve)
    for each in published.one_time:
        four.ada.renew(four.eve.device.id, choose_prekey(card, published.bundle, each))
        settle(four.ada, four.eve)
    assert take(four.eve) == [b"pay 10"]
    assert refusal(four.eve, four.ada.device.id, first.sealed) == RejectionReason.REPLAY
    with four.eve.device.state.writing():
        four.eve.device.state.execute("DELETE FROM marks")
    assert refusal(four.eve, four.ada.device.id, first.sealed) == RejectionReason.UNREADABLE


def test_a_message_for_another_device_is_refused(four: Four):
    four.ada.begin(four.eve.device.id, prekey_of(four.eve))
    settle(four.ada, four.eve)
    four.ada.seal(four.eve.device.id, b"for eve")
    (row,) = waiting(four.ada)
    assert refusal(four.bob, four.ada.device.id, row.sealed) == RejectionReason.UNREADABLE


def test_a_message_that_is_said_to_come_from_another_device_is_refused(four: Four):
    """A gateway writes the sender on the outside; the encryption knows better."""
    four.eve.seal(four.bob.device.id, b"I am ada")
    four.eve.begin(four.bob.device.id, prekey_of(four.bob))
    (row,) = waiting(four.eve)
    assert refusal(four.bob, four.ada.device.id, row.sealed) == RejectionReason.KEY_SWAP
    four.bob.open(four.eve.device.id, row.sealed)
    four.bob.acknowledge(four.eve.device.id)
    settle(four.eve, four.bob)
    four.eve.seal(four.bob.device.id, b"I am ada")
    (row,) = waiting(four.eve)
    assert refusal(four.bob, four.ada.device.id, row.sealed) == RejectionReason.UNREADABLE


def test_a_message_sent_back_to_its_sender_is_refused(four: Four):
    four.ada.seal(four.bob.device.id, b"mirror")
    (row,) = waiting(four.ada)
    assert refusal(four.ada, four.bob.device.id, row.sealed) == RejectionReason.UNREADABLE


@given(noise=st.binary(max_size=200))
def test_garbage_is_refused(talk: Four, noise: bytes):
    assert refusal(talk.bob, talk.ada.device.id, noise) in (RejectionReason.GARBAGE, RejectionReason.UNREADABLE)


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Four:
    return Four(tmp_path_factory.mktemp("four"))


def test_no_bit_of_a_message_can_be_changed(four: Four):
    for opening in (True, False):
        if opening:
            four.ada.renew(four.bob.device.id, prekey_of(four.bob))
        else:
            settle(four.ada, four.bob)
            four.ada.seal(four.bob.device.id, b"pay 10")
        (row,) = waiting(four.ada)
        for place in range(0, len(row.sealed), 3):
            bent = bytearray(row.sealed)
            bent[place] ^= 1 << place % 8
            reason = refusal(four.bob, four.ada.device.id, bytes(bent))
            assert reason in (RejectionReason.GARBAGE, RejectionReason.UNREADABLE, RejectionReason.KEY_SWAP)
        for length in range(0, len(row.sealed), 7):
            refusal(four.bob, four.ada.device.id, row.sealed[:length])
    settle(four.ada, four.bob)
    assert take(four.bob) == [b"pay 10"]


def test_what_is_larger_than_a_frame_is_not_looked_at(four: Four):
    assert refusal(four.bob, four.ada.device.id, bytes(MAX_SEALED + 1)) == RejectionReason.GARBAGE


def test_who_is_not_known_or_not_allowed_is_refused_whatever_it_sends(four: Four, tmp_path: Path):
    mallory = open_device(tmp_path / "mallory", four.ticks)
    assert refusal(four.bob, mallory.device.id, b"x") == RejectionReason.UNKNOWN_DEVICE
    four.ada.seal(four.bob.device.id, b"hello")
    (row,) = waiting(four.ada)
    four.bob.peers.allow(four.ada.device.id, allowed=False)
    assert refusal(four.bob, four.ada.device.id, row.sealed) == RejectionReason.NOT_ALLOWED
    four.bob.peers.revoke(four.ada.device.id)
    assert refusal(four.bob, four.ada.device.id, row.sealed) == RejectionReason.NOT_ALLOWED


def test_a_gateway_that_sends_what_nobody_can_read_does_not_stop_the_two(four: Four):
    for number in range(5):
        four.ada.seal(four.bob.device.id, b"%d" % number)
        row = waiting(four.ada)[-1]
        forged = row.sealed[:-1] + bytes([row.sealed[-1] ^ 1])
        assert refusal(four.bob, four.ada.device.id, forged) == RejectionReason.UNREADABLE
        four.bob.renew(four.ada.device.id, prekey_of(four.ada))
    settle(four.ada, four.bob)
    assert take(four.bob) == [b"0", b"1", b"2", b"3", b"4"]


def test_nothing_that_leaves_or_is_kept_shows_what_is_said(four: Four, tmp_path: Path):
    """S1: everything that the gateway gets, and every file of both devices, is searched."""
    secret, who = b"CANARY-" + random.Random(7).randbytes(12).hex().encode(), "CANARY-REQUESTER"
    left: list[bytes] = []
    for turn in range(3):
        for sender, receiver in ((four.ada, four.bob), (four.bob, four.ada)):
            for size in (1, 40_000):
                sender.seal(receiver.device.id, secret * size, requester=who)
            left += [each.sealed for each in waiting(sender)]
            settle(sender, receiver)
        if turn == 1:
            four.ada.renew(four.bob.device.id, prekey_of(four.bob))
            left += [each.sealed for each in waiting(four.ada)]
    files = [each.read_bytes() for each in tmp_path.rglob("device.db*")]
    assert len(files) >= 3
    assert len(four.bob.inbox()) == len(four.ada.inbox()) == 6
    needles = (b"CANARY", four.ada.device.id.encode(), b"relay.example")
    assert [needle for needle in needles for each in left + files if needle in each] == []


# ── a hostile device ──────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def session_of_ada(four: Four) -> Generator[Session]:
    """Use ada's true session with bob, and store its new state."""
    state, sessions = four.ada.device.state, four.ada._sessions  # pyright: ignore[reportPrivateUsage]
    with state.writing():
        row, _ = four.ada.peers.row(four.bob.device.id)
        live = sessions.load(four.ada._sender.streams(row).session)  # pyright: ignore[reportPrivateUsage]
        assert live is not None
        yield live.session
        sessions.keep(row, live)


def forge(four: Four, piece: Piece | bytes) -> bytes:
    """Seal anything at all in ada's true session with bob."""
    with session_of_ada(four) as session:
        return pack(session, piece if isinstance(piece, bytes) else encode_piece(piece), 0)


def head_with(four: Four, key: bytes) -> bytes:
    """Return the head of a frame whose ratchet message holds any *key*."""
    with session_of_ada(four) as session:
        kind, message = session.encrypt(key).to_parts()
    return bytes([kind]) + len(message).to_bytes(2) + message


def honest(four: Four) -> Piece:
    """Return the piece that ada would seal next for bob."""
    row, _ = four.ada.peers.row(four.bob.device.id)
    line = four.ada._sender.streams(row)  # pyright: ignore[reportPrivateUsage]
    (part,) = cut(b"m" * 16, line.out.chain, "message", "", b"body")
    return Piece(
        version=1,
        sender=four.ada.device.id,
        receiver=four.bob.device.id,
        kind="part",
        gen=line.out.gen,
        stream=line.out.stream,
        seq=line.out.next,
        floor=line.out.floor,
        settled=line.out.settled,
        held=line.out.held,
        renew=False,
        former=(),
        ack=line.inc.ack(),
        part=part,
    )


def chain_of(four: Four) -> bytes:
    part = honest(four).part
    assert part is not None
    return part.before


def test_what_the_forger_makes_is_opened_if_it_is_honest(four: Four):
    """Else the refusals below would prove nothing."""
    (opened,) = four.bob.open(four.ada.device.id, forge(four, honest(four)))
    assert opened.body == b"body"


@pytest.mark.parametrize("noise", [b"", b"k" * 31, b"k" * 33, b"k" * 32])
def test_a_key_that_does_not_open_the_ciphertext_is_refused(four: Four, noise: bytes):
    real = forge(four, honest(four))
    ciphertext = real[3 + int.from_bytes(real[1:3]) :]
    assert refusal(four.bob, four.ada.device.id, head_with(four, noise) + ciphertext) == RejectionReason.UNREADABLE
    four.bob.open(four.ada.device.id, real)


def test_a_ciphertext_that_promises_more_than_it_holds_is_refused(four: Four):
    piece, key = honest(four), b"k" * 32
    head = head_with(four, key)
    for padded in (b"", b"\0\0\0", (2**32 - 1).to_bytes(4) + encode_piece(piece)):
        ciphertext = ChaCha20Poly1305(key).encrypt(bytes(12), padded, head)
        assert refusal(four.bob, four.ada.device.id, head + ciphertext) in (
            RejectionReason.UNREADABLE,
            RejectionReason.GARBAGE,
        )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sender": "b" * 26}, RejectionReason.MISDIRECTED),
        ({"receiver": "b" * 26}, RejectionReason.MISDIRECTED),
        ({"version": 2}, RejectionReason.GARBAGE),
        ({"kind": "other"}, RejectionReason.GARBAGE),
        ({"kind": "note"}, RejectionReason.GARBAGE),
        ({"part": None}, RejectionReason.GARBAGE),
        ({"seq": -1}, RejectionReason.GARBAGE),
        ({"seq": 2**60}, RejectionReason.GARBAGE),
        ({"stream": b"short"}, RejectionReason.GARBAGE),
        ({"seq": 1_000}, RejectionReason.REORDERED),
        ({"seq": 0}, RejectionReason.ROLLED_BACK),
        ({"gen": 1}, RejectionReason.SPLICED),
        ({"gen": 1, "stream": b"s" * 16}, RejectionReason.ROLLED_BACK),
    ],
)
def test_a_device_that_lies_is_refused(four: Four, change: dict[str, Any], reason: RejectionReason):
    assert refusal(four.bob, four.ada.device.id, forge(four, structs.replace(honest(four), **change))) == reason
    four.bob.open(four.ada.device.id, forge(four, honest(four)))


def test_a_message_is_not_taken_after_others_than_it_was_sent_after(four: Four):
    piece = honest(four)
    assert piece.part is not None
    wrong = structs.replace(piece, part=structs.replace(piece.part, before=b"x" * 16))
    assert refusal(four.bob, four.ada.device.id, forge(four, wrong)) == RejectionReason.ROLLED_BACK


def test_what_was_encrypted_and_is_no_piece_is_refused(four: Four):
    for noise in (b"", b"\xc1", b"hello", encode_piece({"version": 1})):
        assert refusal(four.bob, four.ada.device.id, forge(four, noise)) == RejectionReason.GARBAGE


def test_what_is_nested_without_end_where_nobody_looks_is_refused_like_other_garbage(four: Four):
    """What a later version may add is passed over, and that must not go deeper than the reader can."""
    deep = b"\x91" * 100_000 + b"\x00"
    fields = encode_piece(honest(four))
    assert fields[0] == 0x90 + 14
    nested = b"\xdc" + (15).to_bytes(2) + fields[1:] + deep
    assert refusal(four.bob, four.ada.device.id, forge(four, nested)) == RejectionReason.GARBAGE
    loss = b"\x84" + encode_piece({"forgot": "here", "direction": "in", "count": 1})[1:] + b"\xa1z" + deep
    (part,) = cut(b"l" * 16, chain_of(four), "loss", "", loss)
    assert four.bob.open(four.ada.device.id, forge(four, structs.replace(honest(four), part=part))) == []
    assert four.bob.losses(four.ada.device.id) == []
    with pytest.raises(RemitError, match="invalid keys of a device: "):
        choose_prekey(four.bob.device.card, b"\x83" + b"\xa1z" + deep, None)


def test_pieces_of_two_messages_are_not_put_together(four: Four):
    body = bytes(PIECE_BYTES + 5)
    chain = chain_of(four)
    mine, other = cut(b"1" * 16, chain, "message", "ada", body), cut(b"2" * 16, chain, "message", "ada", body)
    first = structs.replace(honest(four), part=mine[0])
    four.bob.open(four.ada.device.id, forge(four, first))
    wrong: list[MessagePart] = [
        other[1],
        structs.replace(mine[1], requester="eve"),
        structs.replace(mine[1], content="loss"),
        structs.replace(mine[1], size=PIECE_BYTES + 4),
        structs.replace(mine[1], count=3),
        structs.replace(mine[1], body=b"1234"),
        mine[0],
        other[0],
        cut(b"3" * 16, chain, "message", "", b"whole")[0],
    ]
    for part in wrong:
        spliced = structs.replace(first, seq=first.seq + 1, part=part)
        assert refusal(four.bob, four.ada.device.id, forge(four, spliced)) == RejectionReason.SPLICED
    (opened,) = four.bob.open(four.ada.device.id, forge(four, structs.replace(first, seq=first.seq + 1, part=mine[1])))
    assert opened.body == body


def test_no_ciphertext_can_be_exchanged_cut_or_left_out(four: Four):
    """Neither between two messages nor between the pieces of one."""
    four.ada.seal(four.bob.device.id, b"first")
    four.ada.seal(four.bob.device.id, b"x" * (2 * PIECE_BYTES))
    rows = waiting(four.ada)
    ends = [3 + int.from_bytes(each.sealed[1:3]) for each in rows]
    heads = [each.sealed[:end] for each, end in zip(rows, ends, strict=True)]
    ciphertexts = [each.sealed[end:] for each, end in zip(rows, ends, strict=True)]
    for place, head in enumerate(heads):
        for other, ciphertext in enumerate(ciphertexts):
            if other != place:
                assert refusal(four.bob, four.ada.device.id, head + ciphertext) == RejectionReason.UNREADABLE
        assert refusal(four.bob, four.ada.device.id, head) == RejectionReason.GARBAGE
        assert refusal(four.bob, four.ada.device.id, head + ciphertexts[place][:-1]) == RejectionReason.UNREADABLE
        assert refusal(four.bob, four.ada.device.id, head + ciphertexts[place] + b"\0") == RejectionReason.UNREADABLE
    assert carry(four.ada, four.bob) == []
    assert take(four.bob) == [b"first", b"x" * (2 * PIECE_BYTES)]


def test_a_device_that_was_put_back_shows_nothing_when_its_ratchet_uses_a_key_again(four: Four):
    """The ratchet encrypts the same way twice; what it encrypts is a key that nobody draws twice."""
    kept = four.copy("ada")
    sealed: list[bytes] = []
    for _ in range(2):
        four.ada.seal(four.bob.device.id, b"the same words")
        sealed += [each.sealed for each in waiting(four.ada)]
        four.put_back("ada", kept)
    one, other = sealed
    assert len(one) == len(other)
    end = 3 + int.from_bytes(one[1:3])
    same = sum(a == b for a, b in zip(one[end:], other[end:], strict=True))
    assert same < len(one[end:]) / 20


def test_a_message_cannot_begin_in_its_middle_or_promise_more_than_it_may(four: Four):
    parts = cut(b"1" * 16, chain_of(four), "message", "", bytes(2 * PIECE_BYTES))
    assert refusal(four.bob, four.ada.device.id, forge(four, structs.replace(honest(four), part=parts[1]))) == (
        RejectionReason.SPLICED
    )
    for change in ({"count": 10_000}, {"size": 2**30}, {"size": -1}, {"count": 0}, {"requester": "x" * 257}):
        piece = structs.replace(honest(four), part=structs.replace(parts[0], **change))
        assert refusal(four.bob, four.ada.device.id, forge(four, piece)) == RejectionReason.GARBAGE


def test_a_loss_that_makes_no_sense_is_not_noted(four: Four):
    (part,) = cut(b"l" * 16, chain_of(four), "loss", "", b"nonsense")
    assert four.bob.open(four.ada.device.id, forge(four, structs.replace(honest(four), part=part))) == []
    assert four.bob.losses(four.ada.device.id) == []


def large(sealer: MessageCipher) -> set[bytes]:
    return {each.sealed for each in waiting(sealer) if len(each.sealed) > 50_000}


@pytest.mark.parametrize("how", ["ahead", "renew"])
def test_nobody_has_all_that_is_held_for_them_sealed_with_each_word(four: Four, how: str):
    """It takes a second for what may be held, and nobody else is served meanwhile."""
    body = bytes(2 * 1024 * 1024)
    four.bob.seal(four.ada.device.id, body)
    piece, sealed, refused = honest(four), large(four.bob), list[str]()
    pieces = len(sealed)
    words: list[bytes] = []
    for number in range(10):
        nonsense = StreamAck(gen=2**50 + number, stream=b"x" * 16, next=0, got=0, chain=b"")
        fresh = {"gen": piece.gen + 1 + number, "stream": b"%016d" % number, "seq": 0, "renew": True, "kind": "open"}
        change = {"kind": "note", "ack": nonsense} if how == "ahead" else fresh
        words.append(forge(four, structs.replace(piece, part=None, **change)))
        try:
            four.bob.open(four.ada.device.id, words[-1])
        except RejectedMessageError as error:
            refused.append(error.reason)
        sealed |= large(four.bob)
    assert len(sealed) == pieces * (1 + MOST_RESTARTS)
    assert refused == [RejectionReason.HURRIED] * (10 - MOST_RESTARTS)
    assert not four.bob.may_renew(four.ada.device.id)
    four.ticks.skip(30)
    assert four.bob.may_renew(four.ada.device.id)
    four.bob.open(four.ada.device.id, words[-1])


@given(size=st.integers(0, 5 * PIECE_BYTES))
def test_the_pieces_of_a_message_fit_each_other_and_make_up_the_whole(size: int):
    parts = cut(b"1" * 16, START, "message", "", bytes(size))
    before: MessagePart | None = None
    for part in parts:
        assert fits(part, before)
        assert part is parts[0] or not fits(part, None)
        before = part
    assert sum(len(part.body) for part in parts) == size


@given(noise=st.binary(max_size=100))
def test_any_bytes_can_be_asked_whether_they_are_a_piece(noise: bytes):
    decode_piece(noise)


# ── a device that is put back to an earlier state ─────────────────────────────────────────────────────────────────────


def both_say(four: Four) -> tuple[list[Loss], list[Loss]]:
    """Return what each side says is lost; the two accounts have to agree."""
    ada, bob = four.ada.losses(four.bob.device.id), four.bob.losses(four.ada.device.id)
    assert agree(ada, bob)
    return ada, bob


def agree(one: list[Loss], other: list[Loss]) -> bool:
    turned = {"in": "out", "out": "in", "here": "there", "there": "here"}
    mirrored = [(turned[each.forgot], turned[each.direction], each.count) for each in other]
    return sorted((each.forgot, each.direction, each.count) for each in one) == sorted(mirrored)


def test_a_sender_that_was_put_back_is_found_out_and_both_say_what_it_forgot(four: Four):
    kept = four.copy("ada")
    four.say(four.ada, four.bob, b"1", b"2", b"3")
    four.say(four.bob, four.ada, b"answer")
    take(four.ada)
    four.put_back("ada", kept)
    four.say(four.ada, four.bob, b"new")
    four.say(four.bob, four.ada, b"again")
    assert take(four.bob) == [b"1", b"2", b"3", b"new"]
    assert take(four.ada)[-1] == b"again"
    ada, _ = both_say(four)
    assert [(each.forgot, each.count) for each in ada if each.direction == "out"] == [("here", 3)]


def test_a_receiver_that_was_put_back_is_found_out_and_both_say_what_it_lost(four: Four):
    kept = four.copy("bob")
    four.say(four.ada, four.bob, b"1", b"2", b"3")
    four.bob.acknowledge(four.ada.device.id)
    settle(four.ada, four.bob)
    four.put_back("bob", kept)
    four.say(four.ada, four.bob, b"4")
    assert take(four.bob) == [b"4"]
    ada, bob = both_say(four)
    assert bob == [Loss(peer=four.ada.device.id, forgot="here", direction="in", count=3)]
    assert ada == [Loss(peer=four.bob.device.id, forgot="there", direction="out", count=3)]


def test_what_a_sender_still_holds_comes_again_to_a_receiver_that_was_put_back(four: Four):
    """Nothing was acknowledged, so nothing is lost: but who waits has to ask."""
    kept = four.copy("bob")
    four.say(four.ada, four.bob, b"1", b"2", b"3")
    four.put_back("bob", kept)
    four.say(four.ada, four.bob, b"4")
    assert (take(four.bob), four.bob.stuck()) == ([], [four.ada.device.id])
    four.bob.renew(four.ada.device.id, prekey_of(four.ada))
    settle(four.ada, four.bob)
    assert (take(four.bob), four.bob.stuck()) == ([b"1", b"2", b"3", b"4"], [])
    assert both_say(four) == ([], [])


@pytest.mark.parametrize("spoke", [False, True])
def test_a_receiver_that_was_put_back_asks_and_its_sender_need_not_speak(four: Four, spoke: bool):
    """What the sender still holds comes again, be the receiver's own ratchet put back or not."""
    kept = four.copy("bob")
    if spoke:  # so that the state that is put back seals what was sealed before
        four.say(four.bob, four.ada, b"I am here")
    four.say(four.ada, four.bob, b"1", b"2", b"3")
    take(four.bob)
    four.put_back("bob", kept)
    assert four.bob.ask()
    settle(four.ada, four.bob)
    assert take(four.bob) == [b"1", b"2", b"3"]
    four.say(four.ada, four.bob, b"4")
    assert take(four.bob) == [b"4"]
    assert [each.count for each in both_say(four)[0] if each.direction == "out"] == []


def test_a_receiver_that_was_put_back_and_asks_learns_what_is_lost_though_its_sender_is_silent(four: Four):
    kept = four.copy("bob")
    four.say(four.ada, four.bob, b"1", b"2")
    four.bob.acknowledge(four.ada.device.id)
    settle(four.ada, four.bob)
    four.put_back("bob", kept)
    four.bob.ask()
    settle(four.ada, four.bob)
    assert take(four.bob) == []
    _, bob = both_say(four)
    assert Loss(peer=four.ada.device.id, forgot="here", direction="in", count=2) in bob


@pytest.mark.parametrize("rounds", [1, 2, 3, 8])
@pytest.mark.parametrize("who", ["ada", "bob"])
def test_the_two_go_on_after_either_was_put_back_over_any_number_of_turns(four: Four, who: str, rounds: int):
    kept = four.copy(who)
    for number in range(rounds):
        four.say(four.ada, four.bob, b"a%d" % number)
        four.say(four.bob, four.ada, b"b%d" % number)
    take(four.ada)
    take(four.bob)
    four.put_back(who, kept)
    for number in range(3):
        four.say(four.ada, four.bob, b"new a%d" % number)
        four.say(four.bob, four.ada, b"new b%d" % number)
    for each in (four.ada, four.bob):
        for other in each.stuck():
            assert other in (four.ada.device.id, four.bob.device.id)
            each.renew(other, prekey_of(four.bob if each is four.ada else four.ada))
    settle(four.ada, four.bob)
    assert [each for each in take(four.ada) if each.startswith(b"new")] == [b"new b0", b"new b1", b"new b2"]
    assert [each for each in take(four.bob) if each.startswith(b"new")] == [b"new a0", b"new a1", b"new a2"]
    losses, _ = both_say(four)
    assert sum(each.count for each in losses) > 0


@pytest.mark.parametrize("lost", range(4))
def test_a_sender_that_was_put_back_amid_a_long_message_does_not_mix_it_with_another(four: Four, lost: int):
    kept = four.copy("ada")
    four.ada.seal(four.bob.device.id, b"o" * (3 * PIECE_BYTES))
    for each in waiting(four.ada)[:lost]:
        four.bob.open(four.ada.device.id, each.sealed)
    four.put_back("ada", kept)
    bodies = [b"n" * (3 * PIECE_BYTES), b"x" * (2 * PIECE_BYTES)]
    four.say(four.ada, four.bob, *bodies)
    assert take(four.bob)[-2:] == bodies


def test_both_put_back_at_once_go_on(four: Four):
    kept = four.copy("ada"), four.copy("bob")
    four.say(four.ada, four.bob, b"1")
    four.say(four.bob, four.ada, b"2")
    four.put_back("ada", kept[0])
    four.put_back("bob", kept[1])
    four.say(four.ada, four.bob, b"new 1")
    four.say(four.bob, four.ada, b"new 2")
    assert (take(four.bob), take(four.ada)) == ([b"new 1"], [b"new 2"])


def test_a_device_put_back_to_before_it_knew_the_session_goes_on(four: Four):
    """The one-time key that opened the session may be one that it no longer knows."""
    kept = four.copy("eve")
    four.ada.seal(four.eve.device.id, b"1")
    four.ada.begin(four.eve.device.id, prekey_of(four.eve))
    settle(four.ada, four.eve)
    four.say(four.eve, four.ada, b"2")
    take(four.ada)
    four.put_back("eve", kept)
    four.ada.seal(four.eve.device.id, b"3")
    assert carry(four.ada, four.eve) == [RejectionReason.UNREADABLE]
    settle(four.ada, four.eve)
    four.say(four.eve, four.ada, b"4")
    assert take(four.eve) == [b"3"]
    assert take(four.ada) == [b"4"]
    assert [(each.forgot, each.count) for each in four.eve.losses(four.ada.device.id) if each.direction == "in"] == [
        ("here", 1)
    ]


def test_numbers_that_others_remember_are_not_used_again_after_a_device_was_put_back(four: Four):
    """A gateway takes a number from a sender once: what came under a used one would vanish."""
    kept = four.copy("ada")
    four.ada.seal(four.bob.device.id, b"1")
    (row,) = waiting(four.ada)
    four.put_back("ada", kept)
    four.ada.seal(four.bob.device.id, b"2")
    (again,) = waiting(four.ada)
    assert again.id > row.id


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_before_and_after_what_is_said_by_a_device_that_was_put_back_arrives_once(
    tmp_path: Path, seed: int
):
    """And both sides say the same of what is lost, and who forgot it."""
    chance = random.Random(seed)

    def anything(count: int) -> None:
        for _ in range(count):
            side, index = chance.randrange(2), chance.choice([0, chance.randrange(60)])
            size = chance.choice([0, 10, PIECE_BYTES])
            deeds: list[tuple[Any, ...]] = [("seal", side, size), ("connect", side)]
            deeds.append(("deliver", index, chance.random() < 0.7))
            deeds += [("lose", index), ("reopen", side), ("take", side), ("acknowledge", side), ("renew", side)]
            deeds.append(("ask", side))
            (deed,) = chance.choices(deeds, [4, 4, 8, 2, 1, 1, 1, 0.3, 0.5])
            world.act(*deed)

    for name in ("ada", "bob"):
        close(open_device(tmp_path / name))
    world = World(tmp_path)
    pair(*world.devices)
    who = chance.randrange(2)
    anything(30)
    kept = world.copy(who, "kept")
    anything(30)
    world.put_back(who, kept)
    before = [len(each) for each in world.sealed]
    anything(20)
    for side in (0, 1):
        world.seal(side, 0)
    world.finish()
    for side in (0, 1):
        new = world.sealed[1 - side][before[1 - side] :]
        assert [body for body in world.taken[side] if body in new] == new
    ada, bob = (each.losses(world.ids[1 - side]) for side, each in enumerate(world.devices))
    assert agree(ada, bob)
    assert {each.forgot for each in ada} <= {"here" if who == 0 else "there"}
    world.close()


def test_every_reason_has_its_row():
    assert set(REASONS) == set(RejectionReason)
