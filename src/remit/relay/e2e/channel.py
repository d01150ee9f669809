"""Messages between two devices through a gateway that can read none of them, each delivered once and in order.

    sender                                        receiver
    seal      held and in the outbox: one commit
    outbox    ─────────── sealed bytes ─────────▶ open      decrypted, in the inbox: one commit
    sent      the gateway has it                  inbox, taken
              ◀─ inside what comes back: "I have all up to here"
    the message is let go

What is sealed has changed the ratchet, durably, before anyone can send it; what is opened is durable before anyone can
acknowledge it. So the same bytes may be sent again at any time, and come again at any time.

What its caller does, besides: for each device that is `wanting`, fetch a key and `begin`. Of what `open` refuses, do
what the refusal's `remedy` says. When nothing more is on its way, `acknowledge` who sent something, and `renew` with
whom it is `stuck`, or from whom something was to come `later`: each as soon as this device `may_renew`. After a start,
when what waited has come, `ask`: this device may not be as it was.

All of it is synchronous: call it through one thread or `asyncio.to_thread`.
"""

import re
import secrets
import time
from collections.abc import Callable

from msgspec import Struct

from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.relay.device.identity import PreKey
from remit.relay.device.peers import PeerDevice, Peers
from remit.relay.e2e.account import Device
from remit.relay.e2e.inbox import Loss, Opened, Receiver
from remit.relay.e2e.outbox import HeldMessage, OutboxWriter
from remit.relay.e2e.ratchet_sessions import OlmSessions
from remit.relay.e2e.streams import MAX_MESSAGE, MAX_REQUESTER, RejectedMessageError, RejectionReason, Remedy

__all__ = ["Loss", "Opened", "OutboundMessage", "RejectedMessageError", "RejectionReason", "Remedy", "Sealer"]

# A device that asked to begin anew waits so long for an answer before it asks again: else a gateway that sends what
# nobody can read could have both of them do nothing else.
RENEWAL_MS = 30_000
# What is asked waits at the gateway for whoever is away: a device that is started often does not ask each time.
ASKED_MS = 600_000
_MESSAGE = re.compile(r"[0-9a-f]{32}\Z")


class OutboundMessage(Struct, frozen=True, kw_only=True):
    """Sealed bytes that wait to be sent. Ids only grow, also over restarts and restored backups."""

    id: int
    to: str
    sealed: bytes


class Sealer:
    """Seals and opens for one device."""

    def __init__(self, device: Device, *, now_us: Callable[[], int] = lambda: time.time_ns() // 1_000) -> None:
        self.device = device
        self.peers = Peers(device.state)
        self._state = device.state
        self._now_us = now_us
        sessions = OlmSessions(device.state)
        self._sender = OutboxWriter(device.state, sessions, device.id, now_us)
        self._receiver = Receiver(device.state, sessions, self._sender, device.id)
        self._sessions = sessions

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def seal(self, to: str, plaintext: bytes, *, requester: str = "", message: str = "") -> str:
        """Put a message into the outbox, after those before it, and return its id. It is durable when this returns.

        With the id of a *message* that is on its way already nothing happens, so a caller that does not know whether
        it was killed before or after may do it again. Without a session yet the message is held until `begin`.
        Raises a `RemitError` if the device is not known, not allowed or overloaded, or the message is too large.
        """
        if len(plaintext) > MAX_MESSAGE:
            raise RemitError(
                fault(
                    Code.TOO_LARGE,
                    f"a message of {len(plaintext)} bytes cannot be sealed; the most is {MAX_MESSAGE}",
                    suggestion="Send it in parts, or send where it can be found.",
                )
            )
        if len(requester) > MAX_REQUESTER:
            raise _wrong("requester", f"at most {MAX_REQUESTER} characters")
        if message and not _MESSAGE.match(message):
            raise _wrong("message", "32 hexadecimal digits, small letters; leave it out to have one made")
        token = bytes.fromhex(message) if message else secrets.token_bytes(16)
        held = HeldMessage(message=token, content="message", requester=requester, body=plaintext)
        with self._state.writing():
            row, peer = self._talking(to)
            streams = self._sender.streams(row)
            self._sender.keep(row, self._sender.add(row, peer, streams, held))
        return token.hex()

    def wanting(self) -> list[str]:
        """Return the devices for which messages are held that no session exists for: fetch a key, then `begin`."""
        rows = self._state.rows("SELECT DISTINCT peer FROM held INDEXED BY held_unsealed WHERE last IS NULL")
        return [self.peers.named(row) for (row,) in sorted(rows)]

    def begin(self, to: str, prekey: PreKey) -> None:
        """Open a session with a device, if there is none; what is held for it goes into the outbox."""
        with self._state.writing():
            row, peer = self._talking(to)
            streams = self._sender.streams(row)
            if self._sessions.load(streams.session) is None:
                self._sender.keep(row, self._sender.begin(row, peer, streams, _owned(prekey, peer), renew=False))

    def renew(self, to: str, prekey: PreKey) -> bool:
        """Open a new session in place of one that broke, and ask the other side to begin its stream anew in it.

        What is held goes into the outbox again, and what the other side has of it, it leaves out. Returns False, and
        does nothing, while an earlier renewal is still unanswered (30 s).
        """
        with self._state.writing():
            row, peer = self._talking(to)
            streams = self._sender.streams(row)
            current = self._sessions.load(streams.session)
            waiting = current is not None and current.mine and not current.answered and streams.out.renew
            if waiting and 0 <= self._now_us() // 1_000 - streams.renewed_ms < RENEWAL_MS:
                return False
            self._sender.keep(row, self._sender.begin(row, peer, streams, _owned(prekey, peer), renew=True))
            return True

    def ask(self) -> bool:
        """Ask each device with which there is a session to send again what is missing here, and say if all were asked.

        A device that was put back to an earlier state does not know it, and whoever sent to it believes that it has
        everything; the same goes for what a gateway has lost. Nobody is asked twice within ten minutes.
        """
        all_asked = True
        with self._state.writing():
            for (row,) in self._state.rows("SELECT peer FROM lines ORDER BY peer"):
                peer, streams = self.peers.at(row), self._sender.streams(row)
                if not (peer.may_talk and streams.session):
                    continue
                if 0 <= self._now_us() // 1_000 - streams.asked_ms < ASKED_MS:
                    all_asked = False
                else:
                    self._sender.keep(row, self._sender.ask(row, peer, streams))
        return all_asked

    def acknowledge(self, to: str, *, always: bool = False) -> bool:
        """Tell a device how far this one is, if anything came since it last did (or *always*).

        Each message to it says so anyway, and so does every 32nd piece from it; this is for when nothing else goes out.
        """
        with self._state.writing():
            row, peer = self._talking(to)
            streams = self._sender.streams(row)
            if not (streams.owed or always):
                return False
            self._sender.keep(row, self._sender.note(row, peer, streams))
            return True

    def outbox(self, after: int = 0, limit: int = 100) -> list[OutboundMessage]:
        """Return what waits to be sent, in order, beginning after that id."""
        rows = self._state.rows("SELECT id, peer, sealed FROM outbox WHERE id > ? ORDER BY id LIMIT ?", after, limit)
        names = {row: self.peers.named(row) for row in {row for _, row, _ in rows}}
        return [OutboundMessage(id=number, to=names[row], sealed=sealed) for number, row, sealed in rows]

    def sent(self, *ids: int) -> None:
        """Take what the gateway has durably out of the outbox. Its message is held until the other side has it."""
        with self._state.writing():
            for number in ids:
                self._state.execute("DELETE FROM outbox WHERE id = ?", number)

    def unsettled(self, to: str) -> int:
        """Return how many messages a device is not known to have."""
        row, _ = self.peers.row(to)
        return self._state.rows("SELECT count(*) FROM held WHERE peer = ?", row)[0][0]

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, sender: str, sealed: bytes) -> list[Opened]:
        """Return the messages that are whole by this, in order; they also wait in the inbox, until they are taken.

        All is durable when this returns, and the sealed bytes may be acknowledged to the gateway. Raises
        `RejectedMessageError`, with nothing changed, if they are not taken; its `remedy` says what to do with them.
        """
        with self._state.writing():
            found = self.peers.find(sender)
            if found is None:
                raise RejectedMessageError(RejectionReason.UNKNOWN_DEVICE, sender)
            return self._receiver.open(*found, sealed)

    def inbox(self, after: int = 0, limit: int = 100) -> list[Opened]:
        """Return the messages that were not taken yet, in order, beginning after that id."""
        rows = self._state.rows("SELECT id, peer FROM inbox WHERE id > ? ORDER BY id LIMIT ?", after, limit)
        names = {row: self.peers.named(row) for row in {row for _, row in rows}}
        return [self._receiver.inbox(row, names[row], number) for number, row in rows]

    def taken(self, *ids: int) -> None:
        """Forget messages of the inbox: whoever took them has kept what they need."""
        with self._state.writing():
            for number in ids:
                self._state.execute("DELETE FROM inbox WHERE id = ?", number)

    def stuck(self) -> list[str]:
        """Return the devices of which later pieces are here and an earlier one is missing.

        With nothing more on its way, the missing one will not come by itself (this device was put back to an earlier
        state, or a gateway lost it): `renew` has the other side send again what it still holds.
        """
        rows = self._state.rows("SELECT DISTINCT peer FROM pieces ORDER BY peer")
        return [self.peers.named(row) for (row,) in rows if self._receiver.has_gap(row)]

    def may_renew(self, device: str) -> bool:
        """Say whether there is room for what a device would send again after `renew`, and it was not just done."""
        row, _ = self.peers.row(device)
        return self._receiver.has_room(row) and self._sender.may_restart(row, self._sender.streams(row))

    def losses(self, device: str) -> list[Loss]:
        """Return what was lost between this device and another because one of them was put back; both say the same."""
        row, _ = self.peers.row(device)
        return self._receiver.losses(row, device)

    def session(self, device: str) -> str:
        """Return the name of the session in which this device sends to another; empty if there is none."""
        row, _ = self.peers.row(device)
        live = self._sessions.load(self._sender.streams(row).session)
        return "" if live is None else live.session.session_id

    def _talking(self, device: str) -> tuple[int, PeerDevice]:
        row, peer = self.peers.row(device)
        if not peer.may_talk:
            raise RemitError(
                fault(
                    Code.PERMISSION_DENIED,
                    f"{peer.card.name!r} ({device}) {'was revoked' if peer.revoked else 'is known, but not allowed'}",
                    suggestion=f"Allow it: remit devices allow {device}" if not peer.revoked else None,
                )
            )
        return row, peer


def _owned(prekey: PreKey, peer: PeerDevice) -> PreKey:
    if not prekey.is_of(peer.card):
        raise RemitError(
            fault(Code.CREDENTIAL_INVALID, f"the key for a session with {peer.device} was not signed by that device")
        )
    return prekey


def _wrong(field: str, why: str) -> RemitError:
    problems = (Problem(path=field, message=why),)
    return RemitError(fault(Code.INPUT_VALIDATION_FAILED, "this cannot be sealed", problems=problems))
