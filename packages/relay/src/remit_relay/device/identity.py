"""The identity of a device: its keys, its signed card, and the code that two people compare when they pair.

A device is identified by its Ed25519 key. Everything else about it (Olm key, name, gateway, keys that open sessions) is
signed with that key, so nobody who forwards it can forge or replace any of it.
"""

import re
from base64 import b32encode, urlsafe_b64decode, urlsafe_b64encode
from hashlib import pbkdf2_hmac, sha256
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from remit.protocol.codec import encode
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit_server.transports.credentials.keys import Pair, is_signed, raw

DeviceId = Annotated[str, Meta(pattern=r"^[a-z2-7]{26}\Z")]
"""The id of a device; see `device_id`."""

MAX_NAME = 64
# Enough for the longest card: a name of four-byte characters and an address of 512, as JSON and then as base64.
MAX_LINK = 4_096

SCHEME = "remit:pair#"
_LINK = re.compile(r"(?:remit:pair|https://[^\s#]+)#(?P<card>[A-Za-z0-9_-]+)\Z")
_KEY_BYTES = 32
_SIGNATURE_BYTES = 64

# Two people compare 40 digits: 132 bits. A man in the middle makes up a key for each device and needs equal codes, so
# it can search on both sides at once: 2**66 tries each. A try costs 4,096 rounds (2**12) of SHA-512, together 2**78,
# and is specific to these two devices. Half as many digits would leave 2**45.
CODE_GROUPS = 8
_GROUP_DIGITS = 5
_CODE_ROUNDS = 4_096


def device_id(public: str) -> str:
    """Return the id of the device with this Ed25519 key: 26 letters and digits, 130 bits of the key's SHA-256.

    It is infeasible to find another key with the same id, and no id is trusted without its key.
    """
    digest = sha256(b"remit device id\n" + raw(public)).digest()
    return b32encode(digest).decode().lower()[:26]


class Card(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="remit-card/1"):
    """The signed card of a device: what others need to recognise and reach it."""

    device: DeviceId
    key: Annotated[str, Meta(pattern=r"^ed25519/[0-9a-f]{64}\Z")]
    olm: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
    gateway: Annotated[str, Meta(max_length=512)] = ""
    signature: Annotated[str, Meta(pattern=r"^[0-9a-f]{128}\Z")]

    def signed_bytes(self) -> bytes:
        """Return the signed bytes: all fields but the signature."""
        return _card_bytes(self.device, self.key, self.olm, self.name, self.gateway)

    def checked(self) -> "Card":
        """Return this card if its device signed it, or raise a `RemitError` that says what is wrong."""
        if self.device != device_id(self.key):
            raise _forged("device", "this is not the id of the card's key")
        if not is_signed(self.key, bytes.fromhex(self.signature), self.signed_bytes()):
            raise _forged("signature", "invalid signature")
        check_name(self.name)
        _reachable(self.gateway)
        return self

    def link(self, page: str = "") -> str:
        """Return the card as a link: `remit:pair#…`, or in the fragment of an https *page*, which never gets it."""
        packed = urlsafe_b64encode(encode(self)).decode().rstrip("=")
        return f"{page}#{packed}" if page else SCHEME + packed


def _card_bytes(device: str, key: str, olm: str, name: str, gateway: str) -> bytes:
    return b"remit device card\n" + encode((device, key, olm, name, gateway))


def make_card(pair: Pair, olm_key: bytes, *, name: str, gateway: str = "") -> Card:
    """Return the card of the device that signs with *pair*, or raise a `RemitError` if a value is unusable."""
    check_name(name)
    _reachable(gateway)
    device, key, olm = device_id(pair.public), pair.public, olm_key.hex()
    signature = pair.sign(_card_bytes(device, key, olm, name, gateway)).hex()
    return Card(device=device, key=key, olm=olm, name=name, gateway=gateway, signature=signature)


def read_link(link: str) -> Card:
    """Return the card in a link, its signature checked, or raise a `RemitError` that says what is wrong with it."""
    match = _LINK.match(link.strip()) if len(link) <= MAX_LINK else None
    if match is None:
        raise _unreadable("not a pairing link", "Copy the whole link, from `remit:pair#` or `https://` to the end.")
    packed = match["card"]
    try:
        content = urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
    except ValueError:
        raise _unreadable("the link is incomplete", "Copy the whole link.") from None
    return read_card(content)


def read_card(content: bytes) -> Card:
    """Return the card in these bytes, its signature checked, or raise a `RemitError` that says what is wrong."""
    try:
        card = msgspec.json.decode(content, type=Card)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(f"invalid card: {error}", "Ask for the card again and copy all of it.") from None
    return card.checked()


def comparable_code(one: Card, other: Card) -> str:
    """Return the code that is equal on both devices only if each has the other's true card (in either order).

    It covers all four keys: both Ed25519 keys and both Olm keys. A change of name or gateway does not change it.
    """
    both = sorted(raw(card.key) + bytes.fromhex(card.olm) for card in (one, other))
    digits = _GROUP_DIGITS * CODE_GROUPS
    # 64 bytes for 132 bits: the bias of the remainder is below 2**-370.
    stretched = pbkdf2_hmac("sha512", b"".join(both), b"remit comparable code", _CODE_ROUNDS, 64)
    text = str(int.from_bytes(stretched) % 10**digits).zfill(digits)
    return " ".join(text[start : start + _GROUP_DIGITS] for start in range(0, digits, _GROUP_DIGITS))


# ── the keys that open sessions ───────────────────────────────────────────────────────────────────────────────────────

Use = Literal["once", "fallback"]


class PreKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed key with which others open a session with a device.

    A gateway stores them and hands out each `once` key once; the `fallback` is used when there are no others.
    """

    device: DeviceId
    use: Use
    key: Annotated[bytes, Meta(min_length=_KEY_BYTES, max_length=_KEY_BYTES)]
    signature: Annotated[bytes, Meta(min_length=_SIGNATURE_BYTES, max_length=_SIGNATURE_BYTES)]

    def is_of(self, card: Card) -> bool:
        """Return whether the device of *card* signed this key for sessions with the Olm key of that card."""
        signed = _prekey_bytes(card.device, card.olm, self.use, self.key)
        return self.device == card.device and is_signed(card.key, self.signature, signed)


def _prekey_bytes(device: str, olm: str, use: Use, key: bytes) -> bytes:
    return b"remit session key\n" + encode((device, olm, use, key.hex()))


def make_prekey(pair: Pair, olm_key: bytes, *, use: Use, key: bytes) -> PreKey:
    """Return a signed key for sessions."""
    device = device_id(pair.public)
    signature = pair.sign(_prekey_bytes(device, olm_key.hex(), use, key))
    return PreKey(device=device, use=use, key=key, signature=signature)


class DeviceBundle(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a gateway hands out to everyone who asks for the keys of a device."""

    card: Card
    fallback: PreKey


class Published(Struct, frozen=True, kw_only=True):
    """What a device publishes: the bundle for everyone, and keys that are handed out once each."""

    bundle: bytes
    one_time: tuple[bytes, ...]


def read_bundle(bundle: bytes) -> DeviceBundle:
    """Decode a bundle and check its signatures, or raise a `RemitError` that says what is wrong."""
    try:
        device_bundle = msgspec.msgpack.decode(bundle, type=DeviceBundle)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _swapped(f"invalid keys of a device: {error}") from None
    if not device_bundle.fallback.is_of(device_bundle.card.checked()) or device_bundle.fallback.use != "fallback":
        raise _swapped(f"invalid signature of the keys of {device_bundle.card.device}")
    return device_bundle


def choose_prekey(card: Card, bundle: bytes, one_time: bytes | None) -> PreKey:
    """Return the key to open a session with the known device of *card*, from what a gateway handed out.

    Raises a `RemitError` if the device did not sign it, or signed it for another Olm key than the known one.
    """
    fallback = read_bundle(bundle).fallback
    if one_time is None:
        chosen = fallback
    else:
        try:
            chosen = msgspec.msgpack.decode(one_time, type=PreKey)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _swapped(f"invalid one-time key of {card.device}: {error}") from None
    if not chosen.is_of(card):
        raise _swapped(f"the gateway handed out other keys for {card.device} than those known here")
    return chosen


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_name(name: str, what: str = "device") -> None:
    """Raise a `RemitError` if a device or a group cannot have this name."""
    if not (0 < len(name) <= MAX_NAME and name == name.strip() and name.isprintable()):
        why = f"must have 1 to {MAX_NAME} printable characters and no spaces at either end"
        raise _wrong("name", f"{why}, not {name[:MAX_NAME]!r}", f"Choose another name for the {what}.")


def _reachable(gateway: str) -> None:
    if not gateway:
        return
    try:
        parts = urlsplit(gateway)
        good = parts.scheme in ("ws", "wss", "http", "https") and bool(parts.hostname) and gateway.isprintable()
    except ValueError:
        good = False
    if not good:
        why = f"{gateway[:100]!r} is not a valid gateway address"
        raise _wrong("gateway", why, "Write it as wss://host or wss://host:port.")


def _wrong(field: str, why: str, suggestion: str) -> RemitError:
    problems = (Problem(path=field, message=why),)
    message = f"invalid {field} of the device"
    return RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, problems=problems, suggestion=suggestion))


def _forged(field: str, why: str) -> RemitError:
    return RemitError(
        fault(
            Code.CREDENTIAL_INVALID,
            "invalid device card: it was changed, or made by another device",
            problems=(Problem(path=field, message=why),),
            suggestion="Do not pair. Ask its owner for the card over another channel.",
        )
    )


def _swapped(why: str) -> RemitError:
    advice = "Nothing was sent. The gateway changed the keys, or the device was set up again: compare codes."
    return RemitError(fault(Code.CREDENTIAL_INVALID, why, suggestion=advice))


def _unreadable(why: str, suggestion: str) -> RemitError:
    return RemitError(fault(Code.INPUT_VALIDATION_FAILED, f"cannot pair: {why}", suggestion=suggestion))
