"""The frame of an encrypted message: a key encrypted by the ratchet, and a ciphertext that this key decrypts.

    1 byte: kind │ 2 bytes: length │ ratchet message with the key │ ciphertext: the padded plaintext

Each ciphertext has a random key that is used once. So the ratchet encrypts the same few bytes however long the text is,
and a ratchet that was restored to an earlier state reveals nothing when it reuses one of its own keys. The ciphertext
authenticates everything before it: neither part can be replaced without the other.

In an older format the ratchet encrypted the plaintext itself, unpadded. Such frames can still be opened.
"""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from msgspec import Struct

from remit.relay.e2e.olm import OlmSession

_KEY = 32
# A key is used for one ciphertext, so the nonce can be constant.
_NONCE = bytes(12)
_ENCRYPTED = 2
_LENGTH = 4

# All shorter plaintexts have the same size: an acknowledgement, a `yes`, a `no`.
_SMALLEST = 512
_DOUBLING = 4_096


class SealedFrame(Struct, frozen=True):
    """A received frame, split into its parts but not decrypted."""

    kind: int
    """The kind of ratchet message: 0 opens a session, 1 does not."""
    ratchet: bytes
    head: bytes = b""
    ciphertext: bytes | None = None
    """None: the plaintext is in the ratchet message (older format)."""

    def opened(self, decrypted: bytes) -> bytes | None:
        """Return the plaintext, given the content of the ratchet message; None if the ciphertext does not match it."""
        if self.ciphertext is None:
            return decrypted
        if len(decrypted) != _KEY:
            return None
        try:
            padded = ChaCha20Poly1305(decrypted).decrypt(_NONCE, self.ciphertext, self.head)
        except InvalidTag:
            return None
        end = _LENGTH + int.from_bytes(padded[:_LENGTH])
        return padded[_LENGTH:end] if end <= len(padded) else None


def pack(session: OlmSession, plain: bytes, size: int) -> bytes:
    """Return *plain* encrypted and padded to *size* bytes, or unpadded if it is longer."""
    key = os.urandom(_KEY)
    kind, ratchet = session.encrypt(key).to_parts()
    head = bytes((kind + _ENCRYPTED,)) + len(ratchet).to_bytes(2) + ratchet
    padded = len(plain).to_bytes(_LENGTH) + plain + bytes(max(0, size - _LENGTH - len(plain)))
    return head + ChaCha20Poly1305(key).encrypt(_NONCE, padded, head)


def split_frame(sealed: bytes) -> SealedFrame | None:
    """Return the parts of a frame, or None if no device would send such bytes."""
    kind = sealed[0]
    if kind < _ENCRYPTED:
        return SealedFrame(kind, sealed[1:])
    end = 3 + int.from_bytes(sealed[1:3])
    if kind > _ENCRYPTED + 1 or end >= len(sealed):
        return None
    return SealedFrame(kind - _ENCRYPTED, sealed[3:end], sealed[:end], sealed[end:])


def bucket(size: int) -> int:
    """Return the padded size: 512 bytes, doubled up to 4 KiB, then in eight steps to each next doubling.

    Above 4 KiB padding adds an eighth at most, and between 4 KiB and 16 MiB there are fewer than a hundred sizes.
    """
    if size <= _SMALLEST:
        return _SMALLEST
    above = (size - 1).bit_length()
    step = 1 << (above if size <= _DOUBLING else above - 4)
    return -(-size // step) * step
