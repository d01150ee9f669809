"""What two devices prove and tell each other over a code: SPAKE2, key confirmation, then their sealed cards.

    host (shows the code)                          guest (types it)
    1 its element            ───────────────▶
                             ◀───────────────      2 its element, and a proof that it has the key
    3 its proof, its card    ───────────────▶        the guest checks both
                             ◀───────────────      4 its card, or why it refuses
      it records the guest
    5 recorded               ───────────────▶        it records the host
                             ◀───────────────      6 recorded

An element commits its sender to one code, and the key follows from both elements and the code. So who stands between
can try one code at each side, and learns nothing else about it. Each side gives up after a wrong proof.

Pure: no clock, socket or task. Each call makes the next note from the last one.
"""

from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac
from typing import Annotated, Any, Literal

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Meta, Struct

from remit.ports.keys import HubKeys
from remit.protocol.codec import encode
from remit.protocol.errors import Code, RemitError, fault
from remit_relay.device.identity import Card, read_card
from remit_relay.pairing.code import PairingCode
from remit_relay.wire import Malformed

# ── frames ────────────────────────────────────────────────────────────────────────────────────────────────────────────


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


_ELEMENT_BYTES = 33
_PROOF_BYTES = 32

Element = Annotated[bytes, Meta(min_length=_ELEMENT_BYTES, max_length=_ELEMENT_BYTES)]
Proof = Annotated[bytes, Meta(min_length=_PROOF_BYTES, max_length=_PROOF_BYTES)]
Side = Literal["host", "guest"]


class _First(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="note", tag="1"):
    element: Element


class _Second(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="note", tag="2"):
    element: Element
    proof: Proof


class _Third(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="note", tag="3"):
    proof: Proof
    sealed: bytes


class _Sealed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="note", tag="sealed"):
    sealed: bytes


class _Failed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="note", tag="failed"):
    """The code was wrong. It is not sealed: anyone between can end a pairing anyway."""


class _SentCard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="what", tag="card"):
    card: Card


class _Recorded(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="what", tag="recorded"):
    """The other device is paired and verified here, durably."""


class _Declined(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="what", tag="declined"):
    """The other device is not paired here; its owner is told why, this side only that."""


_Notes = _First | _Second | _Third | _Sealed | _Failed
_SealedNote = _SentCard | _Recorded | _Declined
_notes = msgspec.msgpack.Decoder(_Notes)
_sealed_notes = msgspec.msgpack.Decoder(_SealedNote)

FAILED = msgspec.msgpack.encode(_Failed())
"""The note after a wrong proof."""


class WrongCode(RemitError):
    """The other side has another code, or somebody guessed. The code is dead."""

    def __init__(self) -> None:
        super().__init__(
            fault(
                Code.CREDENTIAL_INVALID,
                "wrong code: nothing was paired, and the code is used up. It was mistyped, or somebody else tried it",
                suggestion="Get a new code with `remit pair`, and type it on the other side.",
            )
        )


class PairingBroken(RemitError):
    """The notes of the other side make no sense: somebody between changed them, or it is another program."""

    def __init__(self, why: str) -> None:
        super().__init__(
            fault(
                Code.CREDENTIAL_INVALID,
                f"the pairing was disturbed, so nothing was paired: {why}",
                suggestion="Try again with a new code, or use the long link: remit devices show --link",
            )
        )


class PairingDeclined(RemitError):
    """The other device does not pair with this one."""

    def __init__(self) -> None:
        super().__init__(
            fault(
                Code.PERMISSION_DENIED,
                "the other device refused this one; its owner sees why",
                suggestion="Usually it knows this device's name under another key, or has revoked this device.",
            )
        )


class PairingExchange:
    """One side of a pairing. *gateway* is the name of the gateway that this side means."""

    def __init__(self, side: Side, code: PairingCode, card: Card, *, gateway: str) -> None:
        self._side: Side = side
        self._other: Side = "guest" if side == "host" else "host"
        self._card = card
        # Both ends of the exchange are bound to this gateway and mailbox: no element is of use elsewhere.
        place = encode((gateway, code.mailbox))
        self._pake = _spake2(side, code.secret, b"remit pair host " + place, b"remit pair guest " + place)
        self._element: bytes = self._pake.start()
        self._keys: HubKeys | None = None
        self._proofs: dict[Side, bytes] = {}

    # ── the notes of the host ─────────────────────────────────────────────────────────────────────────────────────────

    def first(self) -> bytes:
        """Return note 1."""
        return msgspec.msgpack.encode(_First(element=self._element))

    def third(self, second: bytes) -> bytes:
        """Return note 3; raise `WrongCode` if the guest has another code."""
        note = self._decode_note(second, _Second)
        self._agree(note.element)
        self._check(note.proof)
        return msgspec.msgpack.encode(
            _Third(proof=self._proofs[self._side], sealed=self._seal(_SentCard(card=self._card), "card"))
        )

    def guest_card(self, fourth: bytes) -> Card:
        """Return the card in note 4, or raise `PairingDeclined`."""
        return self._card_in(self._decode_note(fourth, _Sealed).sealed)

    # ── the notes of the guest ────────────────────────────────────────────────────────────────────────────────────────

    def second(self, first: bytes) -> bytes:
        """Return note 2."""
        self._agree(self._decode_note(first, _First).element)
        return msgspec.msgpack.encode(_Second(element=self._element, proof=self._proofs[self._side]))

    def host_card(self, third: bytes) -> Card:
        """Return the card in note 3; raise `WrongCode` if the host has another code."""
        note = self._decode_note(third, _Third)
        self._check(note.proof)
        return self._card_in(note.sealed)

    def fourth(self) -> bytes:
        """Return note 4."""
        return self._sealed(_SentCard(card=self._card), "card")

    # ── the notes of both ─────────────────────────────────────────────────────────────────────────────────────────────

    def recorded(self) -> bytes:
        """Return note 5 or 6: the other device is paired here."""
        return self._sealed(_Recorded(), "end")

    def declined(self, *, instead_of_card: bool) -> bytes:
        """Return the note that this device refuses the other one."""
        return self._sealed(_Declined(), "card" if instead_of_card else "end")

    def check_recorded(self, note: bytes) -> None:
        """Raise a `RemitError` unless the other device says that this one is paired there."""
        content = self._open(self._decode_note(note, _Sealed).sealed, "end")
        if isinstance(content, _Declined):
            raise PairingDeclined
        if not isinstance(content, _Recorded):
            raise PairingBroken("an unexpected note")

    # ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _agree(self, element: bytes) -> None:
        """Derive the keys from both elements and the code."""
        host, guest = (self._element, element) if self._side == "host" else (element, self._element)
        try:
            agreed = self._pake.finish(element)
        except _unusable() as error:
            raise PairingBroken("an invalid element") from error

        def derive(purpose: bytes) -> bytes:
            salt = sha256(b"remit pairing\n" + host + guest).digest()
            return HKDF(algorithm=SHA256(), length=32, salt=salt, info=b"remit pairing " + purpose).derive(agreed)

        self._proofs = {side: hmac(derive(b"proof"), side.encode(), "sha256") for side in ("host", "guest")}
        self._keys = HubKeys(derive(b"seal"))

    def _check(self, proof: bytes) -> None:
        if not compare_digest(proof, self._proofs[self._other]):
            raise WrongCode

    def _seal(self, content: _SealedNote, purpose: str) -> bytes:
        assert self._keys is not None, "the keys are agreed before anything is sealed"
        return self._keys.lock(msgspec.msgpack.encode(content), f"pairing/{self._side}/{purpose}")

    def _sealed(self, content: _SealedNote, purpose: str) -> bytes:
        return msgspec.msgpack.encode(_Sealed(sealed=self._seal(content, purpose)))

    def _open(self, sealed: bytes, purpose: str) -> _SealedNote:
        assert self._keys is not None, "the keys are agreed before anything is opened"
        plain = self._keys.unlock(sealed, f"pairing/{self._other}/{purpose}")
        if plain is None:
            raise PairingBroken("a note was changed on the way")
        try:
            return _sealed_notes.decode(plain)
        except _UNREADABLE as error:
            raise PairingBroken("an unreadable note") from error

    def _card_in(self, sealed: bytes) -> Card:
        content = self._open(sealed, "card")
        if isinstance(content, _Declined):
            raise PairingDeclined
        if not isinstance(content, _SentCard):
            raise PairingBroken("an unexpected note")
        return read_card(encode(content.card))

    def _decode_note(self, note: bytes, kind: type[Any]) -> Any:
        try:
            decoded = _notes.decode(note)
        except _UNREADABLE as error:
            raise PairingBroken("an unreadable note") from error
        if isinstance(decoded, _Failed):
            raise WrongCode
        if not isinstance(decoded, kind):
            raise PairingBroken("a note out of turn")
        return decoded


def _spake2(side: Side, secret: bytes, host: bytes, guest: bytes) -> Any:
    import spake2  # pyright: ignore[reportMissingTypeStubs] - imported late: it takes 60 ms

    kind = spake2.SPAKE2_A if side == "host" else spake2.SPAKE2_B
    return kind(secret, idA=host, idB=guest)


def _unusable() -> tuple[type[Exception], ...]:
    """What the library raises about an element that is no point, of the wrong group, reflected or of the wrong side."""
    from spake2.ed25519_basic import NotOnCurve  # pyright: ignore[reportMissingTypeStubs]
    from spake2.spake2 import SPAKEError  # pyright: ignore[reportMissingTypeStubs]

    return (NotOnCurve, SPAKEError, ValueError)
