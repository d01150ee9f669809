"""Encrypted messages between two devices over an untrusted gateway, each delivered once and in order.

    sender                                        receiver
    seal      held and in the outbox: one commit
    outbox    ─────────── sealed bytes ─────────▶ open      decrypted, in the inbox: one commit
    sent      the gateway has it                  inbox, taken
              ◀─ inside what comes back: "I have all up to here"
    the message is let go

The change of the ratchet is durable before a sealed message can be sent, and an opened message is durable before it can
be acknowledged. So the same bytes may be sent and received again at any time.

The caller also does this: for each device in `wanting`, fetch a key and `begin`. After a rejection by `open`, follow
its `remedy`. When nothing more arrives, `acknowledge` the senders, and `renew` with devices that are `stuck` or whose
messages were to come `later`: each as soon as `may_renew` allows it. After a start, when all waiting messages have
arrived, `ask`: this device may have been restored to an earlier state.

Everything is synchronous: call it through one thread or `asyncio.to_thread`.
"""

import re
import secrets
import time
from collections.abc import Callable, Collection
from typing import Literal

from msgspec import Struct

from remit.protocol.errors import Code, Problem, RemitError, fault
from remit_relay.device.identity import PreKey
from remit_relay.device.peers import PeerDevice, Peers
from remit_relay.e2e.account import Device
from remit_relay.e2e.inbox import Loss, Opened, Receiver
from remit_relay.e2e.outbox import HeldMessage, OutboxWriter
from remit_relay.e2e.ratchet_sessions import OlmSessions
from remit_relay.e2e.streams import MAX_MESSAGE, MAX_REQUESTER, RejectedMessageError, RejectionReason, Remedy

__all__ = ["Loss", "MessageCipher", "Opened", "OutboundMessage", "RejectedMessageError", "RejectionReason", "Remedy"]

# A device that renewed a session waits this long for an answer before it renews again. Otherwise a gateway that sends
# unreadable bytes could keep both devices busy.
RENEWAL_MS = 30_000
# An `ask` waits at the gateway for absent devices, so a device that starts often does not ask each time.
ASKED_MS = 600_000

SealedProgress = Literal["waiting", "taken", "delivered"]
_MESSAGE = re.compile(r"[0-9a-f]{32}\Z")


class OutboundMessage(Struct, frozen=True, kw_only=True):
    """Encrypted bytes that wait to be sent. Ids only grow, also across restarts and restored backups."""

    id: int
    to: str
    sealed: bytes
    is_farewell: bool = False
    """Whether it tells a device that it was revoked: nobody waits for it, so it is tried once."""


class MessageCipher:
    """Encrypts and decrypts the messages of one device."""

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
        """Add a message to the outbox, after earlier ones, and return its id. It is durable when this returns.

        Repeating the id of a *message* that is not delivered yet does nothing, so a caller may repeat the call after a
        crash. Without a session the message is held until `begin`. Raises a `RemitError` if the device is unknown, not
        allowed or overloaded, or the message is too large.
        """
        if len(plaintext) > MAX_MESSAGE:
            why = f"the message has {len(plaintext)} bytes; the limit is {MAX_MESSAGE}"
            todo = "Send it in parts, or send a link to it."
            raise RemitError(fault(Code.TOO_LARGE, why, suggestion=todo))
        if len(requester) > MAX_REQUESTER:
            raise _wrong("requester", f"must have at most {MAX_REQUESTER} characters")
        if message and not _MESSAGE.match(message):
            raise _wrong("message", "must be 32 lower-case hexadecimal digits; omit it to have one generated")
        token = bytes.fromhex(message) if message else secrets.token_bytes(16)
        held = HeldMessage(message=token, content="message", requester=requester, body=plaintext)
        with self._state.writing():
            row, peer = self.talking(to)
            streams = self._sender.streams(row)
            self._sender.keep(row, self._sender.add(row, peer, streams, held))
        return token.hex()

    def revoke(self, device: str, farewell: bytes) -> PeerDevice:
        """Revoke a device for good: delete its sessions and all messages for it, and send it only the *farewell*.

        Without a session it is not told: nothing of this device has ever reached it.
        """
        with self._state.writing():
            row, peer = self.peers.row(device)
            if peer.may_talk:
                self._state.execute("DELETE FROM held WHERE peer = ?", row)
                self.seal(device, farewell)
                # In a new stream, so that its receiver waits for none of the deleted messages.
                self._sender.restart(row, peer, self._sender.streams(row))
            last = self._state.rows("SELECT id, peer, seq, sealed FROM outbox WHERE peer = ?", row)
            revoked = self.peers.revoke(device)
            for each in last if peer.may_talk else ():
                self._state.execute("INSERT INTO outbox (id, peer, seq, sealed) VALUES (?, ?, ?, ?)", *each)
            return revoked

    def wanting(self) -> list[str]:
        """Return the devices that have held messages but no session: fetch a key, then `begin`."""
        rows = self._state.rows("SELECT DISTINCT peer FROM held INDEXED BY held_unsealed WHERE last IS NULL")
        return [self.peers.named(row) for (row,) in sorted(rows)]

    def begin(self, to: str, prekey: PreKey) -> None:
        """Open a session with a device, if there is none, and add its held messages to the outbox."""
        with self._state.writing():
            row, peer = self.talking(to)
            streams = self._sender.streams(row)
            if self._sessions.load(streams.session) is None:
                self._sender.keep(row, self._sender.begin(row, peer, streams, _owned(prekey, peer), renew=False))

    def renew(self, to: str, prekey: PreKey) -> bool:
        """Replace a broken session, and ask the other side to start a new stream in the new one.

        Held messages go into the outbox again, and the other side drops those it has. Returns False, and does nothing,
        while an earlier renewal is unanswered (30 s).
        """
        with self._state.writing():
            row, peer = self.talking(to)
            streams = self._sender.streams(row)
            current = self._sessions.load(streams.session)
            waiting = current is not None and current.mine and not current.answered and streams.out.renew
            if waiting and 0 <= self._now_us() // 1_000 - streams.renewed_ms < RENEWAL_MS:
                return False
            self._sender.keep(row, self._sender.begin(row, peer, streams, _owned(prekey, peer), renew=True))
            return True

    def ask(self) -> bool:
        """Ask each device with a session to send missing messages again; return whether all were asked.

        A device that was restored to an earlier state does not know it, and its senders believe that it has everything;
        the same holds for messages that a gateway lost. No device is asked twice within ten minutes.
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
        """Acknowledge to a device what was received since the last acknowledgement (or *always*).

        Each message to it acknowledges too, and so does every 32nd piece from it; call this when nothing else is sent.
        """
        with self._state.writing():
            row, peer = self.talking(to)
            streams = self._sender.streams(row)
            if not (streams.owed or always):
                return False
            self._sender.keep(row, self._sender.note(row, peer, streams))
            return True

    def outbox(self, after: int = 0, limit: int = 100) -> list[OutboundMessage]:
        """Return the outbox in order, beginning after an id."""
        rows = self._state.rows("SELECT id, peer, sealed FROM outbox WHERE id > ? ORDER BY id LIMIT ?", after, limit)
        peers = {row: self.peers.at(row) for row in {row for _, row, _ in rows}}
        return [
            OutboundMessage(id=number, to=peers[row].device, sealed=sealed, is_farewell=peers[row].revoked)
            for number, row, sealed in rows
        ]

    def unsent(self, ids: Collection[int]) -> set[int]:
        """Return those of *ids* that are still in the outbox."""
        return {number for number in ids if self._state.one("SELECT 1 FROM outbox WHERE id = ?", number)}

    def sent(self, *ids: int) -> None:
        """Remove what the gateway has stored from the outbox. The message is held until the other side has it."""
        with self._state.writing():
            for number in ids:
                self._state.execute("DELETE FROM outbox WHERE id = ?", number)

    def progress(self, to: str, message: str) -> SealedProgress:
        """Return how far a message that was sealed has come.

        All pieces of a `taken` message were stored by the gateway, and a `delivered` one is durable at its receiver. A
        message that is sealed again, in a new stream, is `waiting` again.
        """
        row, _ = self.peers.row(to)
        held = self._state.one(
            "SELECT last FROM held WHERE peer = ? AND tag = ?", row, self._state.tag(bytes.fromhex(message).hex())
        )
        if held is None:
            return "delivered"
        unsent = "SELECT 1 FROM outbox WHERE peer = ? AND seq <= ?"
        return "waiting" if held[0] is None or self._state.one(unsent, row, held[0]) else "taken"

    def unsettled(self, to: str) -> int:
        """Return how many messages a device has not acknowledged."""
        row, _ = self.peers.row(to)
        return self._state.rows("SELECT count(*) FROM held WHERE peer = ?", row)[0][0]

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, sender: str, sealed: bytes) -> list[Opened]:
        """Return the messages that are complete now, in order; they also stay in the inbox until they are taken.

        Everything is durable when this returns, and the bytes may be acknowledged to the gateway. Raises
        `RejectedMessageError`, with nothing changed, if they are rejected; its `remedy` says what to do.
        """
        with self._state.writing():
            known = self.peers.find(sender)
            if known is None:
                raise RejectedMessageError(RejectionReason.UNKNOWN_DEVICE, sender)
            return self._receiver.open(*known, sealed)

    def inbox(self, after: int = 0, limit: int = 100) -> list[Opened]:
        """Return the messages of the inbox in order, beginning after an id."""
        rows = self._state.rows("SELECT id, peer FROM inbox WHERE id > ? ORDER BY id LIMIT ?", after, limit)
        names = {row: self.peers.named(row) for row in {row for _, row in rows}}
        return [self._receiver.inbox(row, names[row], number) for number, row in rows]

    def taken(self, *ids: int) -> None:
        """Delete messages from the inbox after they were handled."""
        with self._state.writing():
            for number in ids:
                self._state.execute("DELETE FROM inbox WHERE id = ?", number)

    def stuck(self) -> list[str]:
        """Return the devices from which an earlier piece is missing while later ones are here.

        If nothing more arrives, the missing piece will not come by itself (this device was restored to an earlier
        state, or a gateway lost it): `renew` makes the other side send everything again that it holds.
        """
        rows = self._state.rows("SELECT DISTINCT peer FROM pieces ORDER BY peer")
        return [self.peers.named(row) for (row,) in rows if self._receiver.has_gap(row)]

    def may_renew(self, device: str) -> bool:
        """Return whether there is room for what a device would send after `renew`, and it was not done recently."""
        row, _ = self.peers.row(device)
        return self._receiver.has_room(row) and self._sender.may_restart(row, self._sender.streams(row))

    def losses(self, device: str) -> list[Loss]:
        """Return the messages lost because one of the devices was restored to an earlier state; both say the same."""
        row, _ = self.peers.row(device)
        return self._receiver.losses(row, device)

    def session(self, device: str) -> str:
        """Return the id of the session that is used to send to a device; empty if there is none."""
        row, _ = self.peers.row(device)
        live = self._sessions.load(self._sender.streams(row).session)
        return "" if live is None else live.session.session_id

    def talking(self, device: str) -> tuple[int, PeerDevice]:
        """Return a device that messages may be exchanged with, and its row; or raise a `RemitError`."""
        row, peer = self.peers.row(device)
        if not peer.may_talk:
            why = peer.revocation or f"the device {peer.card.name!r} ({device}) is known but not allowed"
            todo = None if peer.revocation else f"Allow it: remit devices allow {device}"
            raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=todo))
        return row, peer


def _owned(prekey: PreKey, peer: PeerDevice) -> PreKey:
    if not prekey.is_of(peer.card):
        raise RemitError(fault(Code.CREDENTIAL_INVALID, f"invalid signature of the session key of {peer.device}"))
    return prekey


def _wrong(field: str, why: str) -> RemitError:
    problems = (Problem(path=field, message=why),)
    return RemitError(fault(Code.INPUT_VALIDATION_FAILED, "the message cannot be sent", problems=problems))
