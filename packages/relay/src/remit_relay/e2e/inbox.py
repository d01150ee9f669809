"""Receiving: encrypted pieces become complete messages in the inbox, each once and in order."""

import secrets
from typing import Literal

import msgspec
from msgspec import Struct, structs

from remit_relay.device.peers import PeerDevice
from remit_relay.device.state import DeviceFile
from remit_relay.e2e.outbox import HeldMessage, OutboxWriter
from remit_relay.e2e.ratchet_sessions import Live, OlmSessions, Read, digest_of
from remit_relay.e2e.streams import (
    Incoming,
    MessagePart,
    Piece,
    RejectedMessageError,
    RejectionReason,
    StreamPair,
    decode_piece,
    draw,
    enter,
    fits,
    forgotten,
    is_numbered,
    last_of,
)

# A receiver that sends nothing else acknowledges after this many pieces (7 MB at most).
ACK_EVERY = 32
# The inbox limit for one sender; beyond that, its messages stay at the gateway.
MAX_INBOX = 1_000
MAX_INBOX_BYTES = 64 * 1024 * 1024
KEPT_LOSSES = 100

Side = Literal["here", "there"]


class Opened(Struct, frozen=True, kw_only=True):
    """A complete message in the inbox."""

    id: int
    sender: str
    message: str
    """The id its sender gave it."""
    requester: str
    """On whose behalf the sender says it acts; only as trustworthy as the sender."""
    body: bytes


class Loss(Struct, frozen=True, kw_only=True):
    """Messages that were delivered, and then forgotten by one of the two devices: both are notified."""

    peer: str
    forgot: Side
    """Which device was restored to an earlier state."""
    direction: Literal["in", "out"]
    """Whether the messages came to this device or left it."""
    count: int


class _Loss(Struct, frozen=True):
    forgot: Side
    direction: Literal["in", "out"]
    count: int


class _Entry(Struct, frozen=True):
    message: str
    requester: str
    body: bytes


class _Laid(Struct, frozen=True):
    part: MessagePart | None


class Receiver:
    """Decrypts messages. Everything runs in the caller's transaction, so an error changes nothing."""

    def __init__(self, state: DeviceFile, sessions: OlmSessions, sender: OutboxWriter, me: str) -> None:
        self._state = state
        self._sessions = sessions
        self._sender = sender
        self._me = me

    def open(self, row: int, peer: PeerDevice, sealed: bytes) -> list[Opened]:
        """Return the messages that are complete now, or raise `RejectedMessageError`."""
        device = peer.device
        if not peer.may_talk:
            raise RejectedMessageError(RejectionReason.NOT_ALLOWED, device)
        streams = self._sender.streams(row)
        read = self._sessions.read(row, peer, sealed, streams.session)
        if not isinstance(read, Read):
            raise RejectedMessageError(read, device)
        piece = decode_piece(read.plain)
        if piece is None:
            raise RejectedMessageError(RejectionReason.GARBAGE, device, "invalid plaintext")
        if (piece.sender, piece.receiver) != (device, self._me):
            raise RejectedMessageError(RejectionReason.MISDIRECTED, device)
        entered = enter(streams.inc, piece)
        if isinstance(entered, RejectionReason):
            raise RejectedMessageError(entered, device)
        if piece.part is not None and self._is_full(row):
            raise RejectedMessageError(RejectionReason.FULL, device)

        streams = self._use(row, streams, read, renewed=entered.fresh and piece.renew)
        self._sessions.mark(row, "sealed", digest_of(sealed))
        streams = structs.replace(streams, inc=entered.incoming, owed=streams.owed + is_numbered(piece))
        if entered.fresh:
            self._state.execute("DELETE FROM pieces WHERE peer = ?", row)
        opened, streams = self._advance(row, peer, streams, piece, lost=entered.lost)
        gen = streams.out.gen
        streams = self._sender.settle(row, peer, streams, piece.ack)
        if entered.fresh and piece.renew:
            if streams.out.gen == gen:
                if not self._sender.may_restart(row, streams):
                    raise RejectedMessageError(RejectionReason.HURRIED, device)
                streams = self._sender.restart(row, peer, streams)
        elif piece.kind == "ask" and streams.out.gen == gen:
            streams = self._sender.repeat(row, peer, streams, piece.ack)
        else:
            streams = self._sender.catch_up(row, peer, streams)
        if streams.owed >= ACK_EVERY:
            streams = self._sender.note(row, peer, streams)
        self._sender.keep(row, streams)
        return opened

    def _use(self, row: int, streams: StreamPair, read: Read, *, renewed: bool) -> StreamPair:
        """Store the session that decrypted this, and choose the one to send with."""
        if read.account is not None:
            self._sessions.keep_account(read.account)
        came_by = self._sessions.keep(row, read.live)
        if came_by == streams.session:
            return streams
        current = self._sessions.load(streams.session)
        if renewed or current is None or (read.account is not None and not _stays(current, read.live)):
            return structs.replace(streams, session=came_by)
        return streams

    def _store_piece(self, row: int, piece: Piece) -> None:
        """Store a piece that waits for an earlier one."""
        content = self._state.lock(_Laid(piece.part), f"pieces/{row}/{piece.gen}/{piece.seq}")
        self._state.execute("INSERT INTO pieces VALUES (?, ?, ?)", row, piece.seq, content)

    def _advance(
        self, row: int, peer: PeerDevice, streams: StreamPair, came: Piece, *, lost: int
    ) -> tuple[list[Opened], StreamPair]:
        """Advance over all consecutive pieces, and deliver the messages that are complete."""
        inc, opened, drawn = streams.inc, list[Opened](), None
        losses = [_Loss(forgot="here", direction="in", count=lost)] if lost else []
        inc, missing = forgotten(inc)
        losses += [_Loss(forgot="there", direction="in", count=missing)] if missing else []
        if lost:
            self._state.execute("DELETE FROM pieces WHERE peer = ? AND seq < ?", row, inc.next)
        if is_numbered(came) and self._state.one("SELECT 1 FROM pieces WHERE peer = ? AND seq = ?", row, came.seq):
            raise RejectedMessageError(RejectionReason.ROLLED_BACK, peer.device)
        while (laid := self._find_piece(row, came, inc.next)) is not None:
            part, before = laid.part, drawn or self._part(row, came, inc.next - 1)
            inc, drawn = structs.replace(inc, next=inc.next + 1), part
            if part is None:
                self._state.execute("DELETE FROM pieces WHERE peer = ? AND seq < ?", row, inc.next)
                continue
            if not fits(part, before):
                raise RejectedMessageError(RejectionReason.SPLICED, peer.device)
            if inc.chain and part.before != inc.chain:
                raise RejectedMessageError(RejectionReason.ROLLED_BACK, peer.device)
            if part.index < part.count - 1:
                continue
            body = self._whole(row, came, inc, part)
            self._state.execute("DELETE FROM pieces WHERE peer = ? AND seq < ?", row, inc.next)
            tag = self._state.tag(part.message.hex())
            known = self._sessions.is_marked(row, "message", tag)
            inc, missing = draw(inc, part, known=known)
            losses += [_Loss(forgot="there", direction="in", count=missing)] if missing else []
            if known:
                continue
            self._sessions.mark(row, "message", tag)
            match part.content:
                case "message":
                    opened.append(self._deliver(row, peer, part, body))
                case "loss":
                    self._record_reported_loss(row, body)
        if is_numbered(came) and last_of(came) >= inc.next:
            self._store_piece(row, came)
        streams = structs.replace(streams, inc=inc)
        for loss in losses:
            streams = self._report_loss(row, peer, streams, loss)
        return opened, streams

    def _find_piece(self, row: int, came: Piece, seq: int) -> _Laid | None:
        """Return a piece: the one that just *came*, or a stored one."""
        if is_numbered(came) and came.seq == seq:
            return _Laid(came.part)
        row_found = self._state.one("SELECT content FROM pieces WHERE peer = ? AND seq = ?", row, seq)
        return None if row_found is None else self._state.unlock(row_found[0], f"pieces/{row}/{came.gen}/{seq}", _Laid)

    def _part(self, row: int, came: Piece, seq: int) -> MessagePart | None:
        laid = self._find_piece(row, came, seq)
        return None if laid is None else laid.part

    def _whole(self, row: int, came: Piece, inc: Incoming, last: MessagePart) -> bytes:
        if last.count == 1:
            return last.body
        body = bytearray()
        for seq in range(inc.next - last.count, inc.next - 1):
            part = self._part(row, came, seq)
            assert part is not None, "each piece was checked to continue the previous one"
            body += part.body
        body += last.body
        return bytes(body)

    def _deliver(self, row: int, peer: PeerDevice, part: MessagePart, body: bytes) -> Opened:
        entry = _Entry(message=part.message.hex(), requester=part.requester, body=body)
        content = self._state.lock(entry, f"inbox/{row}")
        ((number,),) = self._state.execute(
            "INSERT INTO inbox (peer, size, content) VALUES (?, ?, ?) RETURNING id", row, len(body), content
        ).fetchall()
        return _opened(number, peer.device, entry)

    def inbox(self, row: int, device: str, number: int) -> Opened:
        """Return the message of the inbox with this number."""
        (content,) = self._state.rows("SELECT content FROM inbox WHERE id = ?", number)[0]
        return _opened(number, device, self._state.unlock(content, f"inbox/{row}", _Entry))

    def has_gap(self, row: int) -> bool:
        """Return whether pieces wait for an earlier one."""
        ((last,),) = self._state.rows("SELECT max(seq) FROM pieces WHERE peer = ?", row)
        return last is not None and last >= self._sender.streams(row).inc.next

    def has_room(self, row: int) -> bool:
        """Return whether the inbox has enough room to have the rest sent again."""
        return not self._is_full(row, 0.5)

    def _is_full(self, row: int, share: float = 1) -> bool:
        ((count, total),) = self._state.rows("SELECT count(*), total(size) FROM inbox WHERE peer = ?", row)
        return count >= share * MAX_INBOX or total >= share * MAX_INBOX_BYTES

    # ── losses ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def losses(self, row: int, device: str) -> list[Loss]:
        """Return the losses between this device and another."""
        rows = self._state.rows("SELECT content FROM losses WHERE peer = ? ORDER BY id", row)
        kept = [self._state.unlock(content, f"losses/{row}", _Loss) for (content,) in rows]
        return [Loss(peer=device, forgot=each.forgot, direction=each.direction, count=each.count) for each in kept]

    def _report_loss(self, row: int, peer: PeerDevice, streams: StreamPair, loss: _Loss) -> StreamPair:
        """Record a loss and report it to the other device."""
        self._record_loss(row, loss)
        held = HeldMessage(
            message=secrets.token_bytes(16), content="loss", requester="", body=msgspec.msgpack.encode(loss)
        )
        return self._sender.add(row, peer, streams, held)

    def _record_reported_loss(self, row: int, body: bytes) -> None:
        """Record a loss that the other device reported, from this side's view."""
        try:
            loss = msgspec.msgpack.decode(body, type=_Loss)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        mirrored: dict[Side, Side] = {"here": "there", "there": "here"}
        self._record_loss(row, _Loss(forgot=mirrored[loss.forgot], direction="out", count=loss.count))

    def _record_loss(self, row: int, loss: _Loss) -> None:
        self._state.execute(
            "INSERT INTO losses (peer, content) VALUES (?, ?)", row, self._state.lock(loss, f"losses/{row}")
        )
        self._state.execute(
            "DELETE FROM losses WHERE id IN (SELECT id FROM losses WHERE peer = ? ORDER BY id DESC LIMIT -1 OFFSET ?)",
            row,
            KEPT_LOSSES,
        )


def _stays(current: Live, opened: Live) -> bool:
    """Return whether to keep sending in this side's session, although the other side has just opened one.

    If both opened one at once, both keep the session with the smaller id.
    """
    return current.mine and not current.answered and current.session.session_id < opened.session.session_id


def _opened(number: int, device: str, entry: _Entry) -> Opened:
    return Opened(id=number, sender=device, message=entry.message, requester=entry.requester, body=entry.body)
