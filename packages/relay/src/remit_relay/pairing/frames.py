"""The frames between a device that pairs and the gateway's rendezvous, and between the two devices.

    gateway                       device that shows the code      device that types it
    RendezvousGreeting  ───────▶                                  (each begins with this: the gateway's name)
                        ◀───────  OpenMailbox
    MailboxOpened       ───────▶                                  its number, the first part of the code
                        ◀────────────────────────────────────────  JoinMailbox
    MailboxJoined       ────────────────────────────────────────▶
    MailboxNote         ◀──────▶  ◀─────────────────────────────▶  what the two devices tell each other
    MailboxEnded        ───────▶  ─────────────────────────────▶  why it is over

Pure: no clock, socket or task.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from remit_relay.wire import Malformed

PATH = "/v1/pair"
VERSION = 1

# A sealed card takes 1.5 KiB at most, and its frame a third more.
MAX_NOTE = 4_096
MAX_FRAME = 8_192
MAX_NOTES = 8
"""Notes of each side: two more than a pairing takes."""

EndCode = Literal["unknown", "left", "expired", "full", "busy", "malformed", "closing", "version"]
"""`unknown`: no mailbox waits under this number; wrong, used and expired codes are not told apart. `left`: the other
device has gone."""

NoteBody = Annotated[bytes, Meta(min_length=1, max_length=MAX_NOTE)]


class RendezvousGreeting(Struct, frozen=True, kw_only=True, tag_field="type", tag="rendezvous"):
    """The gateway names itself."""

    gateway: str
    version: int = VERSION


class MailboxOpened(Struct, frozen=True, kw_only=True, tag_field="type", tag="opened"):
    """A mailbox waits for one visitor."""

    mailbox: int
    seconds: int
    """How long it waits."""


class MailboxJoined(Struct, frozen=True, tag_field="type", tag="joined"):
    """The device is the one visitor of the mailbox."""


class MailboxNote(Struct, frozen=True, kw_only=True, tag_field="type", tag="note"):
    """Some bytes of the other device, or for it."""

    body: NoteBody


class MailboxEnded(Struct, frozen=True, kw_only=True, tag_field="type", tag="ended"):
    """The mailbox is gone, and its code is dead."""

    code: EndCode
    reason: str = ""


class OpenMailbox(Struct, frozen=True, kw_only=True, tag_field="type", tag="open"):
    """A device asks for a mailbox."""

    version: int = VERSION


class JoinMailbox(Struct, frozen=True, kw_only=True, tag_field="type", tag="join"):
    """A device wants to be the visitor of a mailbox."""

    mailbox: int
    version: int = VERSION


FromRendezvous = RendezvousGreeting | MailboxOpened | MailboxJoined | MailboxNote | MailboxEnded
FromPairing = OpenMailbox | JoinMailbox | MailboxNote

_from_rendezvous = msgspec.json.Decoder(FromRendezvous)
_from_pairing = msgspec.json.Decoder(FromPairing)
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)


def read_from_rendezvous(text: bytes | str) -> FromRendezvous:
    """Return the frame that a gateway sent, or raise `Malformed`."""
    try:
        return _from_rendezvous.decode(text)
    except _UNREADABLE as error:
        raise Malformed(f"rendezvous: {error}") from error


def read_from_pairing(text: bytes | bytearray | str) -> FromPairing:
    """Return the frame that a device sent, or raise `Malformed`."""
    try:
        return _from_pairing.decode(text)
    except _UNREADABLE as error:
        raise Malformed(f"rendezvous: {error}") from error
