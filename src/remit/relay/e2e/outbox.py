"""What leaves a device: messages held until the other side has them, and the sealed pieces in the outbox."""

import secrets
from collections.abc import Callable

from msgspec import Struct, structs

from remit.protocol.errors import Code, RemitError, fault
from remit.relay.device.identity import PreKey
from remit.relay.device.peers import PeerDevice
from remit.relay.device.state import DeviceFile, Recall
from remit.relay.e2e.frame import pack
from remit.relay.e2e.ratchet_sessions import Live, OlmSessions
from remit.relay.e2e.streams import (
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
    seen_size,
)

# What one device may have waiting for another that does not answer. Half of what a receiver remembers of messages, so
# that it knows all of them again when they are sent anew.
MAX_HELD = 2_000
MAX_HELD_BYTES = 64 * 1024 * 1024
# All of that is sealed once more if the other side asks for what it misses, and not sooner again than after so long.
REPEATED_MS = 30_000
# So much is sealed in some 20 ms. More is not sealed again oftener within that time, for whatever reason: who could
# have that done with each message would have this device do nothing else. A device that was put back needs it twice.
LITTLE_HELD = 100
LITTLE_HELD_BYTES = 1024 * 1024
MOST_RESTARTS = 4


class HeldMessage(Struct, frozen=True):
    """A message that its receiver is not known to have."""

    message: bytes
    content: Content
    requester: str
    body: bytes


class OutboxWriter:
    """Fills the outbox. All within the caller's transaction, so that the ratchet and the outbox never differ."""

    def __init__(self, state: DeviceFile, sessions: OlmSessions, me: str, now_us: Callable[[], int]) -> None:
        self._state = state
        self._sessions = sessions
        self._me = me
        self._now_us = now_us
        self._lines = Recall(state, StreamPair)

    def line(self, peer: int) -> StreamPair:
        """Return where both directions with a device are."""
        found = self._state.one("SELECT content FROM lines WHERE peer = ?", peer)
        return StreamPair() if found is None else self._lines.unlock(found[0], f"lines/{peer}")

    def keep(self, peer: int, line: StreamPair) -> None:
        """Keep where both directions are."""
        content = self._lines.lock(line, f"lines/{peer}")
        self._state.execute("INSERT OR REPLACE INTO lines VALUES (?, ?)", peer, content)

    def add(self, row: int, peer: PeerDevice, line: StreamPair, held: HeldMessage) -> StreamPair:
        """Hold a message, and seal it if there is a session to seal it for; the same message again changes nothing."""
        tag = self._state.tag(held.message.hex())
        if self._state.one("SELECT 1 FROM held WHERE peer = ? AND tag = ?", row, tag):
            return line
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
        live = self._sessions.load(line.session)
        return line if live is None else self._seal_held(row, peer, line, live, number, held)

    def begin(self, row: int, peer: PeerDevice, line: StreamPair, prekey: PreKey, *, renew: bool) -> StreamPair:
        """Open a new session, and begin a new stream in it."""
        try:
            live = self._sessions.begin(peer.card, prekey.key)
        except ValueError as error:
            raise RemitError(
                fault(Code.CREDENTIAL_INVALID, f"the key for a session with {peer.device} is unusable: {error}")
            ) from error
        line = structs.replace(line, session=self._sessions.keep(row, live), renewed_ms=self._now_us() // 1_000)
        return self.restart(row, peer, line, renew=renew)

    def restart(
        self, row: int, peer: PeerDevice, line: StreamPair, *, renew: bool = False, above: int = 0
    ) -> StreamPair:
        """Begin a new stream with all that is held, in the current session; its generation is larger than *above*."""
        live = self._sessions.load(line.session)
        if live is None:
            return line
        was = line.out
        self._state.execute("DELETE FROM outbox WHERE peer = ?", row)
        numbers: list[int] = [
            each[0] for each in self._state.rows("SELECT id FROM held WHERE peer = ? ORDER BY id", row)
        ]
        # From the clock, so that a device which was put back to an earlier state does not use a number again.
        out = Outgoing(
            gen=max(was.gen + 1, above + 1, self._now_us() // 1_000),
            stream=secrets.token_bytes(16),
            settled=was.settled,
            held=len(numbers),
            renew=renew,
            former=(*was.former, was.stream)[-FORMER:] if was.stream else was.former,
        )
        line = structs.replace(self._counted(row, line), out=out)
        return self._seal_all(row, peer, line, live, numbers) if numbers else self._put(row, peer, line, live, "open")

    def may_restart(self, row: int, line: StreamPair) -> bool:
        """Say whether a new stream may begin now: there is little to seal for it, or that was not done too often."""
        since_ms = self._now_us() // 1_000 - line.long_since_ms
        return line.long_count < MOST_RESTARTS or not 0 <= since_ms < REPEATED_MS or not self._is_long(row)

    def _counted(self, row: int, line: StreamPair) -> StreamPair:
        """Return the line with one more stream that begins, if there is much to seal for it."""
        now_ms = self._now_us() // 1_000
        if not self._is_long(row):
            return line
        if 0 <= now_ms - line.long_since_ms < REPEATED_MS:
            return structs.replace(line, long_count=line.long_count + 1)
        return structs.replace(line, long_since_ms=now_ms, long_count=1)

    def _is_long(self, row: int) -> bool:
        count, total = self._held(row)
        return count > LITTLE_HELD or total > LITTLE_HELD_BYTES

    def catch_up(self, row: int, peer: PeerDevice, line: StreamPair) -> StreamPair:
        """Seal what was held because there was no session, now that the other side may have opened one."""
        rows = self._state.rows("SELECT id FROM held WHERE peer = ? AND last IS NULL ORDER BY id", row)
        live = self._sessions.load(line.session) if rows else None
        return line if live is None else self._seal_all(row, peer, line, live, [number for (number,) in rows])

    def note(self, row: int, peer: PeerDevice, line: StreamPair) -> StreamPair:
        """Say how far this device is; nothing if there is no session to say it in."""
        live = self._sessions.load(line.session)
        return line if live is None else self._put(row, peer, self._started(line), live, "note")

    def ask(self, row: int, peer: PeerDevice, line: StreamPair) -> StreamPair:
        """Ask for what is missing here; nothing if there is no session to do it in."""
        live = self._sessions.load(line.session)
        if live is None:
            return line
        asked = structs.replace(line, asked_ms=self._now_us() // 1_000)
        return self._put(row, peer, self._started(asked), live, "ask")

    def asked(self, row: int, peer: PeerDevice, line: StreamPair, ack: StreamAck) -> StreamPair:
        """Begin anew if the other side misses something, else tell it that there is nothing more."""
        now_ms = self._now_us() // 1_000
        if not misses(line.out, ack) or 0 <= now_ms - line.repeated_ms < REPEATED_MS:
            return self.note(row, peer, self.catch_up(row, peer, line))
        return self.restart(row, peer, structs.replace(line, repeated_ms=now_ms))

    def heard(self, row: int, peer: PeerDevice, line: StreamPair, ack: StreamAck) -> StreamPair:
        """Let go of what the other side has, or begin anew if it is ahead of what this device remembers."""
        found = self._state.one(
            "SELECT last, chain FROM held WHERE peer = ? AND last < ? ORDER BY last DESC LIMIT 1", row, ack.next
        )
        last, chain = found or (None, None)
        match hear(line.out, ack, chain):
            case AckOutcome.STALE:
                return line
            case AckOutcome.AHEAD:
                if not self.may_restart(row, line):
                    raise RejectedMessageError(RejectionReason.HURRIED, peer.device)
                return self.restart(row, peer, line, above=ack.gen)
            case AckOutcome.SETTLES:
                if last is not None:
                    self._state.execute("DELETE FROM held WHERE peer = ? AND last <= ?", row, last)
                self._state.execute("DELETE FROM outbox WHERE peer = ? AND seq < ?", row, ack.next)
                floor = line.out.floor if last is None else last + 1
                out = structs.replace(line.out, floor=floor, settled=max(line.out.settled, ack.got))
                return structs.replace(line, out=out)

    def _started(self, line: StreamPair) -> StreamPair:
        if line.out.gen:
            return line
        out = Outgoing(gen=self._now_us() // 1_000, stream=secrets.token_bytes(16))
        return structs.replace(line, out=out)

    def _seal_all(self, row: int, peer: PeerDevice, line: StreamPair, live: Live, numbers: list[int]) -> StreamPair:
        # One at a time: together they may be more than fits into memory.
        for number in numbers:
            (content,) = self._state.rows("SELECT content FROM held WHERE id = ?", number)[0]
            line = self._seal_held(
                row, peer, line, live, number, self._state.unlock(content, f"held/{row}", HeldMessage)
            )
        return line

    def _seal_held(
        self, row: int, peer: PeerDevice, line: StreamPair, live: Live, number: int, held: HeldMessage
    ) -> StreamPair:
        line = self._started(line)
        chain = chained(line.out.chain, held.message)
        for part in cut(held.message, line.out.chain, held.content, held.requester, held.body):
            line = self._put(row, peer, line, live, "part", part, keep=part.index == part.count - 1)
        self._state.execute("UPDATE held SET last = ?, chain = ? WHERE id = ?", line.out.next - 1, chain, number)
        return structs.replace(line, out=structs.replace(line.out, chain=chain))

    def _put(
        self,
        row: int,
        peer: PeerDevice,
        line: StreamPair,
        live: Live,
        kind: Kind,
        part: MessagePart | None = None,
        *,
        keep: bool = True,
    ) -> StreamPair:
        out = line.out
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
            ack=line.inc.ack(),
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
        return structs.replace(line, out=after, owed=0)

    def _next_id(self) -> int:
        # From the clock as well: the gateway takes a number from a sender once.
        found = self._state.one("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'")
        return max(self._now_us(), found[0] + 1 if found else 1)

    def _held(self, row: int) -> tuple[int, float]:
        ((count, total),) = self._state.rows("SELECT count(*), total(size) FROM held WHERE peer = ?", row)
        return count, total

    def _room(self, row: int, peer: PeerDevice, size: int) -> None:
        count, total = self._held(row)
        if count >= MAX_HELD or total + size > MAX_HELD_BYTES:
            raise RemitError(
                fault(
                    Code.OVERLOADED,
                    f"{count} messages are waiting for {peer.card.name!r}, which has not taken them",
                    suggestion="Wait until that device is connected again, or revoke it.",
                )
            )
