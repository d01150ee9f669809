"""What passes between two devices: the encrypted frame, and inside it the streams of pieces. Pure.

Each direction between two devices is a stream of numbered pieces. A message is one piece or several in a row. The
sender holds each message until the receiver acknowledges it inside the encryption. When a session is renewed, the
sender starts a new stream with everything it still holds, and the receiver drops the messages it knows.

Each side also says how many messages it believes to be settled. If one of them was restored to an earlier state (a
backup), these counts differ, and both learn how many messages are lost.
"""

import os
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from msgspec import Meta, Struct, structs

from remit.protocol.errors import Code, RemitError, fault
from remit_relay.device.identity import DeviceId

if TYPE_CHECKING:
    from vodozemac import Session

# ── the frame of an encrypted message ─────────────────────────────────────────────────────────────────────────────────

#     1 byte: kind │ 2 bytes: length │ ratchet message with the key │ ciphertext: the padded plaintext
#
# Each ciphertext has a random key that is used once. So the ratchet encrypts the same few bytes however long the text
# is, and a ratchet that was restored to an earlier state reveals nothing when it reuses one of its own keys. The
# ciphertext authenticates everything before it: neither part can be replaced without the other.

_KEY = 32
# A key is used for one ciphertext, so the nonce can be constant.
_NONCE = bytes(12)
_LENGTH = 4

# All shorter plaintexts have the same size: an acknowledgement, a `yes`, a `no`.
_SMALLEST = 512
_DOUBLING = 4_096


class SealedFrame(Struct, frozen=True):
    """A received frame, split into its parts but not decrypted."""

    kind: int
    """The kind of ratchet message: 0 opens a session, 1 does not."""
    ratchet: bytes
    head: bytes
    ciphertext: bytes

    def opened(self, decrypted: bytes) -> bytes | None:
        """Return the plaintext, given the content of the ratchet message; None if the ciphertext does not match it."""
        if len(decrypted) != _KEY:
            return None
        try:
            padded = ChaCha20Poly1305(decrypted).decrypt(_NONCE, self.ciphertext, self.head)
        except InvalidTag:
            return None
        end = _LENGTH + int.from_bytes(padded[:_LENGTH])
        return padded[_LENGTH:end] if end <= len(padded) else None


def pack(session: "Session", plain: bytes, size: int) -> bytes:
    """Return *plain* encrypted and padded to *size* bytes, or unpadded if it is longer."""
    key = os.urandom(_KEY)
    kind, ratchet = session.encrypt(key).to_parts()
    head = bytes((kind,)) + len(ratchet).to_bytes(2) + ratchet
    padded = len(plain).to_bytes(_LENGTH) + plain + bytes(max(0, size - _LENGTH - len(plain)))
    return head + ChaCha20Poly1305(key).encrypt(_NONCE, padded, head)


def split_frame(sealed: bytes) -> SealedFrame | None:
    """Return the parts of a frame, or None if no device would send such bytes."""
    kind, end = sealed[0], 3 + int.from_bytes(sealed[1:3])
    if kind > 1 or end >= len(sealed):
        return None
    return SealedFrame(kind, sealed[3:end], sealed[:end], sealed[end:])


def bucket(size: int) -> int:
    """Return the padded size: 512 bytes, doubled up to 4 KiB, then in eight steps to each next doubling.

    Above 4 KiB padding adds an eighth at most, and between 4 KiB and 16 MiB there are fewer than a hundred sizes.
    """
    if size <= _SMALLEST:
        return _SMALLEST
    above = (size - 1).bit_length()
    step = 1 << (above if size <= _DOUBLING else above - 4)
    return -(-size // step) * step


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────


# A frame of the gateway has 256 KiB; the rest is for the other fields (2 KiB at most) and the encryption (under 300
# bytes).
PIECE_BYTES = 224 * 1024
MAX_SEALED = 256 * 1024
MAX_MESSAGE = 16 * 1024 * 1024
MAX_PIECES = -(-MAX_MESSAGE // PIECE_BYTES)
MAX_REQUESTER = 256
# The longest piece without its text and requester, with the length field of the ciphertext.
AROUND = 416
# The ratchet keeps the keys of 40 skipped messages; some may be notes, which have no number.
WINDOW = 32
# Ended streams that are remembered, so that pieces still in transit do not look new.
FORMER = 8
START = bytes(16)
"""The chain value before the first message of a stream."""

Count = Annotated[int, Meta(ge=0, le=2**53)]
Token = Annotated[bytes, Meta(min_length=16, max_length=16)]
Kind = Literal["open", "part", "note", "ask"]
Content = Literal["message", "loss"]


class StreamAck(Struct, frozen=True, array_like=True):
    """What the sender has received of the other's stream."""

    gen: Count
    stream: bytes
    next: Count
    """The number of the first piece that is missing."""
    got: Count
    """How many messages it has received from the other in total, with those pieces."""
    chain: bytes
    """The chain value of those messages; empty if it forgot some of them."""


class MessagePart(Struct, frozen=True, array_like=True):
    """One part of a message; all fields but `index` and `body` are the same in each part."""

    message: Token
    before: Token
    """The chain value before this message: it is accepted only after the messages it was sent after."""
    content: Content
    requester: Annotated[str, Meta(max_length=MAX_REQUESTER)]
    size: Annotated[int, Meta(ge=0, le=MAX_MESSAGE)]
    count: Annotated[int, Meta(ge=1, le=MAX_PIECES)]
    index: Count
    body: Annotated[bytes, Meta(max_length=PIECE_BYTES)]


class Piece(Struct, frozen=True, array_like=True):
    """The plaintext of a frame: sender, receiver, position in the stream, and content."""

    version: Literal[1]
    sender: DeviceId
    receiver: DeviceId
    kind: Kind
    """`open` starts a stream, `part` carries a message. The others have no place in the stream: `note` only
    acknowledges, and `ask` requests everything after what it acknowledges."""
    gen: Count
    """The generation of the sender's stream: later streams have larger numbers."""
    stream: Token
    seq: Count
    floor: Count
    """The number of the first piece that the sender still holds."""
    settled: Count
    """How many messages were acknowledged in total: those before `floor`."""
    held: Count
    """How many held messages the stream started with."""
    renew: bool
    """Whether the sender could not decrypt the receiver's stream, and asks for a new one."""
    former: Annotated[tuple[Token, ...], Meta(max_length=FORMER)]
    """The sender's streams before this one, which the receiver may never have seen."""
    ack: StreamAck
    part: MessagePart | None = None


class Outgoing(Struct, frozen=True):
    """A stream, as its sender knows it."""

    gen: int = 0
    stream: bytes = b""
    next: int = 0
    floor: int = 0
    settled: int = 0
    held: int = 0
    renew: bool = False
    former: tuple[bytes, ...] = ()
    chain: bytes = START


class Incoming(Struct, frozen=True):
    """A stream, as its receiver knows it."""

    gen: int = 0
    stream: bytes = b""
    next: int = 0
    got: int = 0
    repeats: int = 0
    """How many received messages will be repeated in this stream, if the sender remembers them."""
    left: int = 0
    """How many of the messages that the stream started with are still to come."""
    former: tuple[bytes, ...] = ()
    chain: bytes = START

    def ack(self) -> StreamAck:
        got = self.got - self.repeats
        return StreamAck(gen=self.gen, stream=self.stream, next=self.next, got=got, chain=self.chain)


class StreamPair(Struct, frozen=True):
    """Both streams between this device and another."""

    session: int = 0
    """The session that is used to send; 0: none."""
    out: Outgoing = Outgoing()
    inc: Incoming = Incoming()
    owed: int = 0
    """How many pieces were received since the last acknowledgement."""
    renewed_ms: int = 0
    """When this device last renewed the session."""
    asked_ms: int = 0
    """When it last asked for missing messages."""
    repeated_ms: int = 0
    """When it last started a new stream because it was asked for missing messages."""
    long_since_ms: int = 0
    """Since when restarts with much to encrypt again are counted (`long_count`)."""
    long_count: int = 0


class RejectionReason(StrEnum):
    """Why an encrypted message was rejected. Nothing was changed."""

    UNKNOWN_DEVICE = "unknown_device"
    NOT_ALLOWED = "not_allowed"
    GARBAGE = "garbage"
    KEY_SWAP = "key_swap"
    MISDIRECTED = "misdirected"
    REPLAY = "replay"
    REORDERED = "reordered"
    SPLICED = "spliced"
    UNREADABLE = "unreadable"
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled_back"
    FULL = "full"
    HURRIED = "hurried"


Remedy = Literal["drop", "later", "renew", "acknowledge"]


class _Row(Struct, frozen=True):
    code: Code
    remedy: Remedy
    meaning: str


# One row for each reason. What to do with the encrypted bytes: `drop` them; have them sent again `later`, by leaving
# them at the gateway or by `MessageCipher.renew`, because their sender still holds the message; or drop them after
# `MessageCipher.renew` or `MessageCipher.acknowledge` has told the other side the state of this one.
REASONS: dict[RejectionReason, _Row] = {
    RejectionReason.UNKNOWN_DEVICE: _Row(Code.PERMISSION_DENIED, "drop", "the device is unknown"),
    RejectionReason.NOT_ALLOWED: _Row(Code.PERMISSION_DENIED, "drop", "its sender may not contact this device"),
    RejectionReason.GARBAGE: _Row(Code.MALFORMED_ENVELOPE, "drop", "invalid format"),
    RejectionReason.KEY_SWAP: _Row(
        Code.CREDENTIAL_INVALID, "drop", "its session belongs to another identity than its sender"
    ),
    RejectionReason.MISDIRECTED: _Row(Code.CREDENTIAL_INVALID, "drop", "it was encrypted by or for another device"),
    RejectionReason.REPLAY: _Row(Code.DUPLICATE_REQUEST, "drop", "it was received before"),
    RejectionReason.REORDERED: _Row(Code.STATE_CONFLICT, "later", f"it is more than {WINDOW} pieces ahead"),
    RejectionReason.SPLICED: _Row(Code.CREDENTIAL_INVALID, "renew", "it mixes pieces of different messages"),
    RejectionReason.UNREADABLE: _Row(
        Code.STATE_CONFLICT, "renew", "no session can decrypt it: one of the two devices lost state"
    ),
    RejectionReason.SUPERSEDED: _Row(Code.STATE_CONFLICT, "acknowledge", "it belongs to a stream that ended"),
    RejectionReason.ROLLED_BACK: _Row(Code.STATE_CONFLICT, "renew", "its sender was restored to an earlier state"),
    RejectionReason.FULL: _Row(Code.OVERLOADED, "later", "the inbox for its sender is full"),
    RejectionReason.HURRIED: _Row(Code.RATE_LIMITED, "later", "its sender asks too often for all held messages"),
}


class RejectedMessageError(RemitError):
    """An encrypted message was rejected, and nothing was changed."""

    def __init__(self, reason: RejectionReason, device: str, detail: str = "") -> None:
        row = REASONS[reason]
        more = f" ({detail})" if detail else ""
        super().__init__(fault(row.code, f"rejected message from {device[:64]}: {row.meaning}{more}"))
        self.reason = reason
        self.device = device
        self.remedy: Remedy = row.remedy


def chained(before: bytes, message: bytes) -> bytes:
    """Return the chain value of the messages up to this one."""
    return sha256(before + message).digest()[:16]


def cut(message: bytes, before: bytes, content: Content, requester: str, body: bytes) -> list[MessagePart]:
    """Return the parts of a message."""
    count = max(1, -(-len(body) // PIECE_BYTES))
    return [
        MessagePart(
            message=message,
            before=before,
            content=content,
            requester=requester,
            size=len(body),
            count=count,
            index=index,
            body=body[index * PIECE_BYTES : (index + 1) * PIECE_BYTES],
        )
        for index in range(count)
    ]


def fits(part: MessagePart, before: MessagePart | None) -> bool:
    """Return whether *part* continues the unfinished message, or starts one if none is unfinished."""
    if part.count != max(1, -(-part.size // PIECE_BYTES)):
        return False
    whole = part.index < part.count - 1
    if len(part.body) != (PIECE_BYTES if whole else part.size - PIECE_BYTES * (part.count - 1)):
        return False
    if before is None or before.index == before.count - 1:
        return part.index == 0
    return part == structs.replace(before, index=before.index + 1, body=part.body)


class AcceptedPiece(Struct, frozen=True):
    """The effect of an accepted piece."""

    incoming: Incoming
    fresh: bool = False
    """Whether it starts a stream, so that unfinished messages of the previous one are dropped."""
    lost: int = 0
    """How many messages this device once acknowledged and no longer knows."""


def enter(now: Incoming, piece: Piece) -> AcceptedPiece | RejectionReason:
    """Return the effect of a piece on its stream, or why it is rejected."""
    fresh = piece.stream != now.stream
    if fresh and piece.stream in now.former:
        return RejectionReason.SUPERSEDED
    if fresh and piece.gen <= now.gen:
        return RejectionReason.ROLLED_BACK
    if not fresh and piece.gen != now.gen:
        return RejectionReason.SPLICED
    if fresh:
        ended = (*now.former, *((now.stream,) if now.stream else ()), *piece.former)
        former = tuple(dict.fromkeys(ended))[-2 * FORMER :]
        now = Incoming(
            gen=piece.gen,
            stream=piece.stream,
            got=now.got,
            repeats=max(0, now.got - piece.settled),
            left=piece.held,
            former=former,
        )
    lost = 0
    # A sender drops a piece when the receiver acknowledged it. If it no longer holds what is expected here, this device
    # acknowledged it and then forgot it.
    if piece.floor > now.next or (fresh and piece.settled > now.got):
        lost = max(0, piece.settled - now.got)
        now = structs.replace(now, next=max(now.next, piece.floor), got=max(now.got, piece.settled), repeats=0, left=0)
        now = structs.replace(now, chain=b"")
    if is_numbered(piece):
        if piece.seq < now.next:
            # Repeated bytes are detected before decryption, and a sender uses a number once. These bytes are new, so
            # the sender forgot that it used this number.
            return RejectionReason.ROLLED_BACK
        if piece.seq - now.next >= WINDOW:
            return RejectionReason.REORDERED
    return AcceptedPiece(incoming=now, fresh=fresh, lost=lost)


def draw(now: Incoming, part: MessagePart, *, known: bool) -> tuple[Incoming, int]:
    """Return the stream after one more complete message, and how many messages its sender has forgotten."""
    left = max(0, now.left - 1)
    now = structs.replace(now, chain=chained(part.before, part.message))
    if known:
        now = structs.replace(now, repeats=max(0, now.repeats - 1), left=left)
        return forgotten(now)
    lost = now.repeats
    return structs.replace(now, got=now.got + 1, repeats=0, left=left), lost


def forgotten(now: Incoming) -> tuple[Incoming, int]:
    """Return how many messages the sender forgot, once all that it held at the start have arrived."""
    if now.left or not now.repeats:
        return now, 0
    return structs.replace(now, repeats=0), now.repeats


class AckOutcome(StrEnum):
    """The meaning of an acknowledgement for the sender of the stream."""

    STALE = "stale"
    SETTLES = "settles"
    AHEAD = "ahead"
    """The other side received more from this device than it remembers sending."""


def misses(now: Outgoing, ack: StreamAck) -> bool:
    """Return whether the acknowledging side misses something that was sent."""
    return now.gen > 0 and (ack.gen < now.gen or (ack.gen == now.gen and ack.next < now.next))


def hear(now: Outgoing, ack: StreamAck, chain: bytes | None) -> AckOutcome:
    """Return the meaning of an acknowledgement for a stream.

    *chain* is the chain value of the messages up to the last one that it settles; None if there is none.
    """
    if ack.gen == 0 or ack.gen < now.gen:
        return AckOutcome.STALE
    if ack.gen > now.gen or ack.stream != now.stream or ack.next > now.next:
        return AckOutcome.AHEAD
    if chain is not None and ack.chain and ack.chain != chain:
        return AckOutcome.AHEAD
    return AckOutcome.SETTLES


def is_numbered(piece: Piece) -> bool:
    """Return whether a piece has a place in its stream."""
    return piece.kind in ("open", "part")


def last_of(piece: Piece) -> int:
    """Return the number of the last piece of the message that this piece belongs to."""
    return piece.seq if piece.part is None else piece.seq + piece.part.count - 1 - piece.part.index


def seen_size(piece: Piece) -> int:
    """Return the padded size of a piece.

    It depends on the bucket of the text, on the number of full pieces before it, and on whether the requester is longer
    than usual; not on the numbers in the piece, nor on the kind of a short piece.
    """
    part = piece.part
    if part is None:
        return bucket(AROUND) + bucket(0)
    before = PIECE_BYTES * part.index
    whole = min(bucket(part.size), PIECE_BYTES * part.count)
    return bucket(AROUND + len(part.requester.encode())) + min(whole - before, PIECE_BYTES)


_piece = msgspec.msgpack.Decoder(Piece)
encode_piece = msgspec.msgpack.Encoder().encode


def decode_piece(plain: bytes) -> Piece | None:
    """Return the decoded piece, or None if it is invalid."""
    try:
        piece = _piece.decode(plain)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return piece if (piece.part is None) == (piece.kind != "part") else None
