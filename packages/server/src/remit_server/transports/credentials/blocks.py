"""The bytes of a credential, and the signatures of a block that was added to a known one.

A hub that passes on several requests of one run sends credentials that differ only in their last block. The blocks
before it were verified with the first of them; the two signatures of the last block are checked here. Only what this
hub itself would write is accepted, byte for byte: everything else is left to the library, which checks all signatures.

The library can only check a credential whole. At five hops that takes 4.5 times as long as the last block alone
(`bench/credentials.py`), which is why this module reads the format itself. `tests/fuzz/targets.py` compares it with the
library: the two must say the same about any bytes.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator

from msgspec import Struct

from remit_server.transports.credentials.keys import Pair, is_signed, written

# The fields of a biscuit (https://github.com/eclipse-biscuit/biscuit/blob/main/schema.proto), by number.
_ROOT, _AUTHORITY, _BLOCK, _PROOF = 1, 2, 3, 4
# Of the signed payloads, only the first version with an external signature over the previous one, and only Ed25519.
_VERSION, _ED25519 = 1, 0
_DATALOG = 5
# The first symbol of a block's own: those before belong to the language.
_OWN_SYMBOL = 1_024


class ChainEnd(Struct, frozen=True, kw_only=True):
    """Where a block can be added: the key that signs it, and the signature that it is bound to."""

    key: bytes
    signature: bytes


class Block(Struct, frozen=True, kw_only=True):
    """A block that a hub added: its content, the key that signs the next block, and both signatures."""

    payload: bytes
    next_key: bytes
    signature: bytes
    """Made with the key that the previous block names."""
    hub_signature: bytes
    hub_key: bytes

    @property
    def signer(self) -> str:
        """The public key of the hub that added it."""
        return written(self.hub_key)

    def follows(self, end: ChainEnd) -> bool:
        """Return whether both signatures are valid, and made for this place."""
        by_hub = hub_signs(self.payload, end)
        by_key = key_signs(self.payload, self.next_key, self.hub_signature, end)
        return (
            # A holder of the credential has the key of the place, and could sign in any hub's name without this check.
            is_signed(self.signer, self.hub_signature, by_hub)
            # Without this check, a block that the hub made for another credential could be placed here.
            and is_signed(written(end.key), self.signature, by_key)
        )

    @property
    def raw(self) -> bytes:
        """The block in the one encoding that is accepted."""
        by_hub = _field(1, self.hub_signature) + _field(2, _key(self.hub_key))
        return _field(
            _BLOCK,
            _field(1, self.payload)
            + _field(2, _key(self.next_key))
            + _field(3, self.signature)
            + _field(4, by_hub)
            + _number(5, _VERSION),
        )


def hub_signs(payload: bytes, end: ChainEnd) -> bytes:
    """Return the bytes that a hub signs when it adds a block."""
    return b"\0EXTERNAL\0" + _versioned(payload) + b"\0PREVSIG\0" + end.signature


def key_signs(payload: bytes, next_key: bytes, hub_signature: bytes, end: ChainEnd) -> bytes:
    """Return the bytes that are signed with the key that the previous block names."""
    return b"".join(
        (
            b"\0BLOCK\0" + _versioned(payload),
            b"\0ALGORITHM\0" + _ED25519.to_bytes(4, "little"),
            b"\0NEXTKEY\0" + next_key,
            b"\0PREVSIG\0" + end.signature,
            b"\0EXTERNALSIG\0" + hub_signature,
        )
    )


class ParsedCredential(Struct, frozen=True, kw_only=True):
    """A parsed credential: everything before its proof, and where each block begins."""

    signed: bytes
    starts: tuple[int, ...]
    secret: bytes

    @property
    def above(self) -> bytes:
        """Everything before the last block."""
        return self.signed[: self.starts[-1]]

    def block(self, number: int) -> Block | None:
        """Return a block that a hub added; None if there is none, or it has another encoding."""
        written_so = self._bytes(number)
        try:
            ((_, raw),) = _fields(written_so)
            (_, payload), (_, key), (_, signature), (_, by_hub), *_ = _fields(raw)
            (_, hub_signature), (_, hub_key) = _fields(by_hub)
            block = Block(
                payload=payload,
                next_key=key[-32:],
                signature=signature,
                hub_signature=hub_signature,
                hub_key=hub_key[-32:],
            )
        except (ValueError, IndexError):
            return None
        return block if block.raw == written_so else None

    def end(self, number: int) -> ChainEnd | None:
        """Return the place for the next block; None if the block has another encoding."""
        if number:
            block = self.block(number)
            return None if block is None else ChainEnd(key=block.next_key, signature=block.signature)
        written_so = self._bytes(0)
        try:
            ((_, raw),) = _fields(written_so)
            (_, payload), (_, key), (_, signature) = _fields(raw)
        except (ValueError, IndexError):
            return None
        first = _field(1, payload) + _field(2, _key(key[-32:])) + _field(3, signature)
        return ChainEnd(key=key[-32:], signature=signature) if _field(_AUTHORITY, first) == written_so else None

    def _bytes(self, number: int) -> bytes:
        end = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.signed)
        return self.signed[self.starts[number] : end]

    def is_held(self, key: bytes) -> bool:
        """Return whether the sender has the secret key with which the next block may be added."""
        return Pair(self.secret).public == written(key)


def apart(token: str) -> ParsedCredential | None:
    """Return a parsed credential; None if it is invalid, or encoded in another way than a hub does it."""
    try:
        raw = urlsafe_b64decode(token)
        if urlsafe_b64encode(raw).decode() != token:
            return None
        starts, at, secret = list[int](), 0, b""
        for number, value in _fields(raw):
            if number not in ((_BLOCK, _PROOF) if starts else (_ROOT, _AUTHORITY)):
                return None
            if number in (_AUTHORITY, _BLOCK):
                starts.append(at)
                at += len(_field(number, value))
            elif number == _PROOF:
                ((_, secret),) = _fields(value)
                if value != _field(1, secret) or len(secret) != 32:
                    return None
            else:
                at = len(_number(number, int.from_bytes(value, "little")))
    except (ValueError, IndexError):
        return None
    # If a field were repeated, reordered or longer than needed, the proof would not be at this place.
    if not secret or raw[at:] != _field(_PROOF, _field(1, secret)):
        return None
    return ParsedCredential(signed=raw[:at], starts=tuple(starts), secret=secret)


def payload_of(number: int, content: bytes) -> bytes:
    """Return the block `hop(number, content)` as it is signed."""
    terms = _field(2, _number(2, number)) + _field(2, _field(5, content))
    fact = _field(1, _number(1, _OWN_SYMBOL) + terms)
    return _field(1, b"hop") + _number(3, _DATALOG) + _field(4, fact)


def content_of(payload: bytes, number: int) -> bytes | None:
    """Return the content of a block that holds exactly one fact in one encoding; None for any other block."""
    try:
        (_, fact) = _fields(payload)[-1]
        ((_, predicate),) = _fields(fact)
        (_, term) = _fields(predicate)[-1]
        ((_, content),) = _fields(term)
    except (ValueError, IndexError):
        return None
    return content if payload_of(number, content) == payload else None


# ── Protocol Buffers, as little as is needed ──────────────────────────────────────────────────────────────────────────


def _key(key: bytes) -> bytes:
    return _number(1, _ED25519) + _field(2, key)


def _versioned(payload: bytes) -> bytes:
    return b"\0VERSION\0" + _VERSION.to_bytes(4, "little") + b"\0PAYLOAD\0" + payload


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _fields(raw: bytes) -> list[tuple[int, bytes]]:
    """Return the fields of a message, numbers as eight bytes; raise a ValueError or IndexError if it is invalid."""
    return list(_each(raw))


def _each(raw: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(raw):
        tag, at = _read(raw, at)
        value, at = _read(raw, at)
        if tag & 7 == 2:
            if at + value > len(raw):
                raise ValueError("it ends in the middle of a field")
            yield tag >> 3, raw[at : at + value]
            at += value
        elif tag & 7 == 0:
            yield tag >> 3, value.to_bytes(8, "little")
        else:
            raise ValueError("it holds a field of an unexpected type")


def _read(raw: bytes, at: int) -> tuple[int, int]:
    value = raw[at] & 0x7F
    shift = 7
    while raw[at] > 0x7F:
        at += 1
        if shift >= 63:
            raise ValueError("it holds a number that is too large")
        value |= (raw[at] & 0x7F) << shift
        shift += 7
    return value, at + 1
