"""Sending: messages are held until the other side has them, and their encrypted pieces wait in the outbox."""

import secrets
from collections.abc import Callable

from msgspec import Struct, structs

from remit.protocol.errors import Code, RemitError, fault
from remit_relay.device.identity import PreKey
from remit_relay.device.peers import PeerDevice
from remit_relay.device.state import DecryptedCache, DeviceFile
from remit_relay.e2e.ratchet_sessions import Live, OlmSessions
from remit_relay.e2e.streams import (
    FORMER,
    AckOutcome,
    Content,
    Kind,
    MessagePart,
    Outgoing,
    Piece,
    RejectedMessageError,
    RejectionReason,
    StreamAck,
    StreamPair,
    chained,
    cut,
    encode_piece,
    hear,
    is_numbered,
    misses,
    pack,
    seen_size,
)

# The limit of held messages for one device. Half of what a receiver remembers, so that it recognises all of them when
# they are sent again.
MAX_HELD = 2_000
MAX_HELD_BYTES = 64 * 1024 * 1024
# All held messages are encrypted again if the other side misses some, but not more often than this.
REPEATED_MS = 30_000
# This much is encrypted in about 20 ms. More than this is encrypted again at most `MOST_RESTARTS` times within
# `REPEATED_MS`: otherwise a peer could keep this device busy with each message. A restored device needs it twice.
LITTLE_HELD = 100
LITTLE_HELD_BYTES = 1024 * 1024
MOST_RESTARTS = 4


class HeldMessage(Struct, frozen=True):
    """A message that its receiver has not acknowledged."""

    message: bytes
    content: Content
    requester: str
    body: bytes


class OutboxWriter:
    """Fills the outbox. Everything runs in the caller's transaction, so ratchet and outbox always agree."""

    def __init__(self, state: DeviceFile, sessions: OlmSessions, me: str, now_us: Callable[[], int]) -> None:
        self._state = state
        self._sessions = sessions
        self._me = me
        self._now_us = now_us
        self._known = DecryptedCache(state, StreamPair)

    def streams(self, peer: int) -> StreamPair:
        """Return both streams with a device."""
        row = self._state.one("SELECT content FROM lines WHERE peer = ?", peer)
        return StreamPair() if row is None else self._known.unlock(row[0], f"lines/{peer}")

    def keep(self, peer: int, streams: StreamPair) -> None:
        """Store both streams with a device."""
        content = self._known.lock(streams, f"lines/{peer}")
        self._state.execute("INSERT OR REPLACE INTO lines VALUES (?, ?)", peer, content)

    def add(self, row: int, peer: PeerDevice, streams: StreamPair, held: HeldMessage) -> StreamPair:
        """Hold a message, and encrypt it if there is a session; adding the same message again changes nothing."""
        tag = self._state.tag(held.message.hex())
        if self._state.one("SELECT 1 FROM held WHERE peer = ? AND tag = ?", row, tag):
            return streams
        if held.content == "message":
            self._room(row, peer, len(held.body))
        content = self._state.lock(held, f"held/{row}")
        ((number,),) = self._state.execute(
            "INSERT INTO held (peer, tag, size, content) VALUES (?, ?, ?, ?) RETURNING id",
            row,
            tag,
            len(held.body),
            content,
        ).fetchall()
        live = self._sessions.load(streams.session)
        return streams if live is None else self._seal_held(row, peer, streams, live, number, held)

    def begin(self, row: int, peer: PeerDevice, streams: StreamPair, prekey: PreKey, *, renew: bool) -> StreamPair:
        """Open a new session and start a new stream in it."""
        try:
            live = self._sessions.begin(peer.card, prekey.key)
        except ValueError as error:
            why = f"invalid session key of {peer.device}: {error}"
            raise RemitError(fault(Code.CREDENTIAL_INVALID, why)) from error
        streams = structs.replace(streams, session=self._sessions.keep(row, live), renewed_ms=self._now_us() // 1_000)
        return self.restart(row, peer, streams, renew=renew)

    def restart(
        self, row: int, peer: PeerDevice, streams: StreamPair, *, renew: bool = False, above: int = 0
    ) -> StreamPair:
        """Start a new stream with all held messages in the current session; its generation is above *above*."""
        live = self._sessions.load(streams.session)
        if live is None:
            return streams
        was = streams.out
        self._state.execute("DELETE FROM outbox WHERE peer = ?", row)
        numbers: list[int] = [
            each[0] for each in self._state.rows("SELECT id FROM held WHERE peer = ? ORDER BY id", row)
        ]
        # From the clock, so that a device that was restored to an earlier state does not reuse a number.
        out = Outgoing(
            gen=max(was.gen + 1, above + 1, self._now_us() // 1_000),
            stream=secrets.token_bytes(16),
            settled=was.settled,
            held=len(numbers),
            renew=renew,
            former=(*was.former, was.stream)[-FORMER:] if was.stream else was.former,
        )
        streams = structs.replace(self._counted(row, streams), out=out)
        return (
            self._seal_all(row, peer, streams, live, numbers)
            if numbers
            else self._put(row, peer, streams, live, "open")
        )

    def may_restart(self, row: int, streams: StreamPair) -> bool:
        """Return whether a new stream may start now: there is little to encrypt, or it was not done too often."""
        since_ms = self._now_us() // 1_000 - streams.long_since_ms
        return streams.long_count < MOST_RESTARTS or not 0 <= since_ms < REPEATED_MS or not self._is_long(row)

    def _counted(self, row: int, streams: StreamPair) -> StreamPair:
        """Return the streams with one more restart counted, if there is much to encrypt for it."""
        now_ms = self._now_us() // 1_000
        if not self._is_long(row):
            return streams
        if 0 <= now_ms - streams.long_since_ms < REPEATED_MS:
            return structs.replace(streams, long_count=streams.long_count + 1)
        return structs.replace(streams, long_since_ms=now_ms, long_count=1)

    def _is_long(self, row: int) -> bool:
        count, total = self._count_held(row)
        return count > LITTLE_HELD or total > LITTLE_HELD_BYTES

    def catch_up(self, row: int, peer: PeerDevice, streams: StreamPair) -> StreamPair:
        """Encrypt messages that were held without a session, now that the other side may have opened one."""
        rows = self._state.rows("SELECT id FROM held WHERE peer = ? AND last IS NULL ORDER BY id", row)
        live = self._sessions.load(streams.session) if rows else None
        return streams if live is None else self._seal_all(row, peer, streams, live, [number for (number,) in rows])

    def note(self, row: int, peer: PeerDevice, streams: StreamPair) -> StreamPair:
        """Send an acknowledgement, if there is a session."""
        live = self._sessions.load(streams.session)
        return streams if live is None else self._put(row, peer, self._started(streams), live, "note")

    def ask(self, row: int, peer: PeerDevice, streams: StreamPair) -> StreamPair:
        """Ask for missing messages, if there is a session."""
        live = self._sessions.load(streams.session)
        if live is None:
            return streams
        updated = structs.replace(streams, asked_ms=self._now_us() // 1_000)
        return self._put(row, peer, self._started(updated), live, "ask")

    def repeat(self, row: int, peer: PeerDevice, streams: StreamPair, ack: StreamAck) -> StreamPair:
        """Start a new stream if the other side misses something, else acknowledge."""
        now_ms = self._now_us() // 1_000
        if not misses(streams.out, ack) or 0 <= now_ms - streams.repeated_ms < REPEATED_MS:
            return self.note(row, peer, self.catch_up(row, peer, streams))
        return self.restart(row, peer, structs.replace(streams, repeated_ms=now_ms))

    def settle(self, row: int, peer: PeerDevice, streams: StreamPair, ack: StreamAck) -> StreamPair:
        """Drop what the other side has, or start a new stream if it is ahead of what this device remembers."""
        settled = self._state.one(
            "SELECT last, chain FROM held WHERE peer = ? AND last < ? ORDER BY last DESC LIMIT 1", row, ack.next
        )
        last, chain = settled or (None, None)
        match hear(streams.out, ack, chain):
            case AckOutcome.STALE:
                return streams
            case AckOutcome.AHEAD:
                if not self.may_restart(row, streams):
                    raise RejectedMessageError(RejectionReason.HURRIED, peer.device)
                return self.restart(row, peer, streams, above=ack.gen)
            case AckOutcome.SETTLES:
                if last is not None:
                    self._state.execute("DELETE FROM held WHERE peer = ? AND last <= ?", row, last)
                self._state.execute("DELETE FROM outbox WHERE peer = ? AND seq < ?", row, ack.next)
                floor = streams.out.floor if last is None else last + 1
                out = structs.replace(streams.out, floor=floor, settled=max(streams.out.settled, ack.got))
                return structs.replace(streams, out=out)

    def _started(self, streams: StreamPair) -> StreamPair:
        if streams.out.gen:
            return streams
        out = Outgoing(gen=self._now_us() // 1_000, stream=secrets.token_bytes(16))
        return structs.replace(streams, out=out)

    def _seal_all(self, row: int, peer: PeerDevice, streams: StreamPair, live: Live, numbers: list[int]) -> StreamPair:
        # One at a time: together they may not fit into memory.
        for number in numbers:
            (content,) = self._state.rows("SELECT content FROM held WHERE id = ?", number)[0]
            streams = self._seal_held(
                row, peer, streams, live, number, self._state.unlock(content, f"held/{row}", HeldMessage)
            )
        return streams

    def _seal_held(
        self, row: int, peer: PeerDevice, streams: StreamPair, live: Live, number: int, held: HeldMessage
    ) -> StreamPair:
        streams = self._started(streams)
        chain = chained(streams.out.chain, held.message)
        for part in cut(held.message, streams.out.chain, held.content, held.requester, held.body):
            streams = self._put(row, peer, streams, live, "part", part, keep=part.index == part.count - 1)
        self._state.execute("UPDATE held SET last = ?, chain = ? WHERE id = ?", streams.out.next - 1, chain, number)
        return structs.replace(streams, out=structs.replace(streams.out, chain=chain))

    def _put(
        self,
        row: int,
        peer: PeerDevice,
        streams: StreamPair,
        live: Live,
        kind: Kind,
        part: MessagePart | None = None,
        *,
        keep: bool = True,
    ) -> StreamPair:
        out = streams.out
        piece = Piece(
            version=1,
            sender=self._me,
            receiver=peer.device,
            kind=kind,
            gen=out.gen,
            stream=out.stream,
            seq=out.next,
            floor=out.floor,
            settled=out.settled,
            held=out.held,
            renew=out.renew,
            former=out.former,
            ack=streams.inc.ack(),
            part=part,
        )
        sealed = pack(live.session, encode_piece(piece), seen_size(piece))
        seq = out.next if is_numbered(piece) else None
        self._state.execute(
            "INSERT INTO outbox (id, peer, seq, sealed) VALUES (?, ?, ?, ?)",
            self._next_id(),
            row,
            seq,
            sealed,
        )
        if keep:
            self._sessions.keep(row, live)
        after = structs.replace(out, next=out.next + 1) if is_numbered(piece) else out
        return structs.replace(streams, out=after, owed=0)

    def _next_id(self) -> int:
        # From the clock as well: the gateway accepts each number of a sender once.
        sequence = self._state.one("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'")
        return max(self._now_us(), sequence[0] + 1 if sequence else 1)

    def _count_held(self, row: int) -> tuple[int, float]:
        ((count, total),) = self._state.rows("SELECT count(*), total(size) FROM held WHERE peer = ?", row)
        return count, total

    def _room(self, row: int, peer: PeerDevice, size: int) -> None:
        count, total = self._count_held(row)
        if count >= MAX_HELD or total + size > MAX_HELD_BYTES:
            why = f"{count} messages wait for {peer.card.name!r}, which has not received them"
            todo = "Wait until the device connects again, or revoke it."
            raise RemitError(fault(Code.OVERLOADED, why, suggestion=todo))
