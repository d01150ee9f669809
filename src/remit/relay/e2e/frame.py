"""What goes over the wire: a key that the ratchet encrypts, and a box that this key opens.

    1 byte: kind │ 2 bytes: length │ ratchet message with the key │ box: what is said, padded

Each box has a key of its own, drawn at random and used once, so the ratchet has the same little to encrypt however long
the text is, and a ratchet that was put back to an earlier state tells nobody anything when it uses a key of its own
again. The box is bound to all that stands before it: neither can be exchanged without the other.

Before there were boxes the ratchet encrypted what is said itself, unpadded. That is still opened.
"""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from msgspec import Struct

from remit.relay.e2e.olm import OlmSession

_KEY = 32
# A key is used for one box, so there is nothing that a nonce would have to tell apart.
_NONCE = bytes(12)
_BOXED = 2
_LENGTH = 4

# Below this, what is short looks like everything else that is short: an acknowledgement, a `yes`, a `no`.
_SMALLEST = 512
_DOUBLING = 4_096


class Parcel(Struct, frozen=True):
    """What came, taken apart and not opened."""

    kind: int
    """The ratchet's own: 0 opens a session, 1 does not."""
    ratchet: bytes
    head: bytes = b""
    box: bytes | None = None
    """None: what is said is in the ratchet's message."""

    def unpacked(self, decrypted: bytes) -> bytes | None:
        """Return what was said, given what the ratchet's message held; None if the box does not belong to it."""
        if self.box is None:
            return decrypted
        if len(decrypted) != _KEY:
            return None
        try:
            padded = ChaCha20Poly1305(decrypted).decrypt(_NONCE, self.box, self.head)
        except InvalidTag:
            return None
        end = _LENGTH + int.from_bytes(padded[:_LENGTH])
        return padded[_LENGTH:end] if end <= len(padded) else None


def pack(session: OlmSession, plain: bytes, size: int) -> bytes:
    """Return *plain* sealed, so that it is seen to be *size* bytes long, or longer if it is."""
    key = os.urandom(_KEY)
    kind, ratchet = session.encrypt(key).to_parts()
    head = bytes((kind + _BOXED,)) + len(ratchet).to_bytes(2) + ratchet
    padded = len(plain).to_bytes(_LENGTH) + plain + bytes(max(0, size - _LENGTH - len(plain)))
    return head + ChaCha20Poly1305(key).encrypt(_NONCE, padded, head)


def parcel(sealed: bytes) -> Parcel | None:
    """Return sealed bytes taken apart, or None if they are nothing that a device would send."""
    kind = sealed[0]
    if kind < _BOXED:
        return Parcel(kind, sealed[1:])
    end = 3 + int.from_bytes(sealed[1:3])
    if kind > _BOXED + 1 or end >= len(sealed):
        return None
    return Parcel(kind - _BOXED, sealed[3:end], sealed[:end], sealed[end:])


def bucket(size: int) -> int:
    """Return what a size is rounded up to: 512, doubled up to 4 KiB, then in eight steps to the next doubling.

    More than 4 KiB grow by an eighth at most, and between 4 KiB and 16 MiB there are less than a hundred sizes.
    """
    if size <= _SMALLEST:
        return _SMALLEST
    above = (size - 1).bit_length()
    step = 1 << (above if size <= _DOUBLING else above - 4)
    return -(-size // step) * step
