"""What is inside the encryption, and which of it is taken: pure, and the same for every session that carries it.

Each direction between two devices is a stream of pieces with numbers. A message is one piece or several in a row. The
sender holds each message until the receiver said, inside the encryption, that it has it. When a session is renewed
the sender begins a new stream with everything it still holds, and the receiver leaves out the messages it knows.

Each side also says how many messages it thinks are settled. If one of them was put back to an earlier state (a
restored backup), those counts no longer meet, and both learn how many messages are lost.
"""

from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, structs

from remit.protocol.errors import Code, RemitError, fault
from remit.relay.device.identity import DeviceId
from remit.relay.e2e.frame import bucket

# A frame of the gateway has 256 KiB; the rest is for what stands around the text (2 KiB at most) and the encryption
# (under 300 bytes).
PIECE_BYTES = 224 * 1024
MAX_SEALED = 256 * 1024
MAX_MESSAGE = 16 * 1024 * 1024
MAX_PIECES = -(-MAX_MESSAGE // PIECE_BYTES)
MAX_REQUESTER = 256
# A piece without its text and without the name of who asks, at its longest, with the length that the box notes.
AROUND = 416
# The ratchet keeps the keys of 40 messages that were overtaken; some of those may be notes, which have no number.
WINDOW = 32
# Streams that ended are remembered so long that what is still on its way does not look like something new.
FORMER = 8
START = bytes(16)
"""What stands for no messages, before the first one of a stream."""

Count = Annotated[int, Meta(ge=0, le=2**53)]
Token = Annotated[bytes, Meta(min_length=16, max_length=16)]
Kind = Literal["open", "part", "note", "ask"]
Content = Literal["message", "loss"]


class StreamAck(Struct, frozen=True, array_like=True):
    """How far the sender of this has got with the other's stream."""

    gen: Count
    stream: bytes
    next: Count
    """The number of the first piece that is missing."""
    got: Count
    """How many messages it had from the other, in all, with those pieces."""
    chain: bytes
    """What those messages of the stream were; empty if it forgot some of them."""


class MessagePart(Struct, frozen=True, array_like=True):
    """One piece of a message; all but the last field is the same in each of them."""

    message: Token
    before: Token
    """What the messages of the stream before this one were: none is taken after others than it was sent after."""
    content: Content
    requester: Annotated[str, Meta(max_length=MAX_REQUESTER)]
    size: Annotated[int, Meta(ge=0, le=MAX_MESSAGE)]
    count: Annotated[int, Meta(ge=1, le=MAX_PIECES)]
    index: Count
    body: Annotated[bytes, Meta(max_length=PIECE_BYTES)]


class Piece(Struct, frozen=True, array_like=True):
    """What is encrypted: who says it to whom, where it belongs, and what it is."""

    version: Literal[1]
    sender: DeviceId
    receiver: DeviceId
    kind: Kind
    """`open` begins a stream, `part` carries a message. The others have no place in the stream: `note` only
    acknowledges, and `ask` wants all that is missing behind what it acknowledges."""
    gen: Count
    """Which of the sender's streams this is: later ones have larger numbers."""
    stream: Token
    seq: Count
    floor: Count
    """The number of the first piece that the sender still holds."""
    settled: Count
    """How many messages it knows to be with the receiver, in all: those before `floor`."""
    held: Count
    """With how many earlier messages the stream began."""
    renew: bool
    """Whether the sender could not read the receiver's stream, and asks it to begin a new one."""
    former: Annotated[tuple[Token, ...], Meta(max_length=FORMER)]
    """The sender's streams before this one, which the receiver may never have seen."""
    ack: StreamAck
    part: MessagePart | None = None


class Outgoing(Struct, frozen=True):
    """A direction, as its sender knows it."""

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
    """A direction, as its receiver knows it."""

    gen: int = 0
    stream: bytes = b""
    next: int = 0
    got: int = 0
    repeats: int = 0
    """How many of the messages it had are still to come again in this stream, if the sender remembers them."""
    left: int = 0
    """How many of the messages with which the stream began are still to come."""
    former: tuple[bytes, ...] = ()
    chain: bytes = START

    def ack(self) -> StreamAck:
        got = self.got - self.repeats
        return StreamAck(gen=self.gen, stream=self.stream, next=self.next, got=got, chain=self.chain)


class StreamPair(Struct, frozen=True):
    """Both directions between this device and another."""

    session: int = 0
    """The session that is used to send; 0: there is none."""
    out: Outgoing = Outgoing()
    inc: Incoming = Incoming()
    owed: int = 0
    """How many pieces came since this device last said how far it is."""
    renewed_ms: int = 0
    """When this device last asked for the streams to begin anew."""
    asked_ms: int = 0
    """When it last asked for what is missing."""
    repeated_ms: int = 0
    """When it last began anew because it was asked for what is missing."""
    long_since_ms: int = 0
    """Since when it is counted how often it began anew with much that had to be sealed again."""
    long_count: int = 0


class RejectionReason(StrEnum):
    """Why something sealed was not opened. Nothing changed by it."""

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


# One row for each reason. What to do with the sealed bytes: `drop` them; have them come again `later`, by leaving them
# where they are or by `Sealer.renew`, for their sender holds what is in them; or drop them after `Sealer.renew` or
# `Sealer.acknowledge` has told the other side where this one is.
REASONS: dict[RejectionReason, _Row] = {
    RejectionReason.UNKNOWN_DEVICE: _Row(
        Code.PERMISSION_DENIED, "drop", "it comes from a device that is not known here"
    ),
    RejectionReason.NOT_ALLOWED: _Row(Code.PERMISSION_DENIED, "drop", "its sender may not reach this device"),
    RejectionReason.GARBAGE: _Row(Code.MALFORMED_ENVELOPE, "drop", "it is nothing that a device would send"),
    RejectionReason.KEY_SWAP: _Row(
        Code.CREDENTIAL_INVALID, "drop", "its session belongs to another identity than its sender's"
    ),
    RejectionReason.MISDIRECTED: _Row(Code.CREDENTIAL_INVALID, "drop", "it was sealed by or for another device"),
    RejectionReason.REPLAY: _Row(Code.DUPLICATE_REQUEST, "drop", "it was opened before"),
    RejectionReason.REORDERED: _Row(Code.STATE_CONFLICT, "later", f"it came more than {WINDOW} pieces too early"),
    RejectionReason.SPLICED: _Row(Code.CREDENTIAL_INVALID, "renew", "it mixes pieces of different messages"),
    RejectionReason.UNREADABLE: _Row(
        Code.STATE_CONFLICT, "renew", "no session can read it: one of the two devices lost state"
    ),
    RejectionReason.SUPERSEDED: _Row(Code.STATE_CONFLICT, "acknowledge", "it belongs to a stream that ended"),
    RejectionReason.ROLLED_BACK: _Row(Code.STATE_CONFLICT, "renew", "its sender was put back to an earlier state"),
    RejectionReason.FULL: _Row(Code.OVERLOADED, "later", "more is waiting to be taken from its sender than is kept"),
    RejectionReason.HURRIED: _Row(
        Code.RATE_LIMITED, "later", "it wants all that is held for its sender sealed again too soon"
    ),
}


class RejectedMessageError(RemitError):
    """Something sealed that was not opened, and changed nothing."""

    def __init__(self, reason: RejectionReason, device: str, detail: str = "") -> None:
        row = REASONS[reason]
        more = f" ({detail})" if detail else ""
        super().__init__(fault(row.code, f"a sealed message from {device[:64]} is refused: {row.meaning}{more}"))
        self.reason = reason
        self.device = device
        self.remedy: Remedy = row.remedy


def chained(before: bytes, message: bytes) -> bytes:
    """Return what stands for the messages up to this one."""
    return sha256(before + message).digest()[:16]


def cut(message: bytes, before: bytes, content: Content, requester: str, body: bytes) -> list[MessagePart]:
    """Return the pieces of a message."""
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
    """Say whether *part* goes on where the unfinished message stopped, or begins one if none is unfinished."""
    if part.count != max(1, -(-part.size // PIECE_BYTES)):
        return False
    whole = part.index < part.count - 1
    if len(part.body) != (PIECE_BYTES if whole else part.size - PIECE_BYTES * (part.count - 1)):
        return False
    if before is None or before.index == before.count - 1:
        return part.index == 0
    return part == structs.replace(before, index=before.index + 1, body=part.body)


class AcceptedPiece(Struct, frozen=True):
    """A piece that is taken."""

    incoming: Incoming
    fresh: bool = False
    """Whether it begins a stream, so that what was unfinished of the one before is void."""
    lost: int = 0
    """How many messages this device once had, said so, and no longer knows."""


def enter(now: Incoming, piece: Piece) -> AcceptedPiece | RejectionReason:
    """Return what a piece does to the direction it belongs to, or why it is not taken."""
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
    # A sender lets go of a piece when the receiver said that it has it. If it no longer holds what is expected here,
    # it was this device that said so, and forgot.
    if piece.floor > now.next or (fresh and piece.settled > now.got):
        lost = max(0, piece.settled - now.got)
        now = structs.replace(now, next=max(now.next, piece.floor), got=max(now.got, piece.settled), repeats=0, left=0)
        now = structs.replace(now, chain=b"")
    if is_numbered(piece):
        if piece.seq < now.next:
            # The same bytes again are known before they are read, and a sender uses a number once. These are others:
            # it does not remember that it used this number.
            return RejectionReason.ROLLED_BACK
        if piece.seq - now.next >= WINDOW:
            return RejectionReason.REORDERED
    return AcceptedPiece(incoming=now, fresh=fresh, lost=lost)


def draw(now: Incoming, part: MessagePart, *, known: bool) -> tuple[Incoming, int]:
    """Return the direction after one more whole message, and how many its sender turns out to have forgotten."""
    left = max(0, now.left - 1)
    now = structs.replace(now, chain=chained(part.before, part.message))
    if known:
        now = structs.replace(now, repeats=max(0, now.repeats - 1), left=left)
        return forgotten(now)
    lost = now.repeats
    return structs.replace(now, got=now.got + 1, repeats=0, left=left), lost


def forgotten(now: Incoming) -> tuple[Incoming, int]:
    """Return how many messages the sender has forgotten, once all that it still held at the beginning has come."""
    if now.left or not now.repeats:
        return now, 0
    return structs.replace(now, repeats=0), now.repeats


class AckOutcome(StrEnum):
    """What an acknowledgement says to the sender it is for."""

    STALE = "stale"
    SETTLES = "settles"
    AHEAD = "ahead"
    """The other side had more from this device than it remembers to have sent."""


def misses(now: Outgoing, ack: StreamAck) -> bool:
    """Say whether who acknowledges so much has not got all that was sealed for it."""
    return now.gen > 0 and (ack.gen < now.gen or (ack.gen == now.gen and ack.next < now.next))


def hear(now: Outgoing, ack: StreamAck, chain: bytes | None) -> AckOutcome:
    """Return what an acknowledgement says about the direction that it is about.

    *chain* stands for the messages up to the last one that would be let go by it; None if there is none.
    """
    if ack.gen == 0 or ack.gen < now.gen:
        return AckOutcome.STALE
    if ack.gen > now.gen or ack.stream != now.stream or ack.next > now.next:
        return AckOutcome.AHEAD
    if chain is not None and ack.chain and ack.chain != chain:
        return AckOutcome.AHEAD
    return AckOutcome.SETTLES


def is_numbered(piece: Piece) -> bool:
    """Say whether a piece has a place in its stream."""
    return piece.kind in ("open", "part")


def last_of(piece: Piece) -> int:
    """Return the number of the piece with which the message is whole that this one belongs to."""
    return piece.seq if piece.part is None else piece.seq + piece.part.count - 1 - piece.part.index


def seen_size(piece: Piece) -> int:
    """Return how long a piece is made to look.

    That depends on the text's bucket, on how many full pieces there are before, and on whether the name of who asks is
    longer than usual; not on the numbers in the piece, nor on what kind of piece a short one is.
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
    """Return the piece in what was decrypted, or None if it is none."""
    try:
        piece = _piece.decode(plain)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return piece if (piece.part is None) == (piece.kind != "part") else None
