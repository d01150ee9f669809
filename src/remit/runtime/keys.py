"""The keys that follow from a hub's one secret, and what is locked with them."""

import os
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

_NONCE = 12


class HubKeys:
    """What a hub encrypts and identifies with. Each purpose has a key of its own, derived from *secret*."""

    def __init__(self, secret: bytes) -> None:
        if not secret:
            raise ValueError("there is no secret to derive keys from")
        # BLAKE2 takes no longer key; of a longer secret everything counts all the same.
        self._secret = secret if len(secret) <= blake2b.MAX_KEY_SIZE else blake2b(secret).digest()
        self.hub = self._derive(b"remit hub")
        self._tokens = self._derive(b"remit tokens")
        self._digests = self._derive(b"remit digests")

    def of_scope(self, scope: str) -> bytes:
        """Return the key of a conversation's tokens: there a value always has the same one, and elsewhere another."""
        return blake2b(scope.encode(), key=self._tokens, digest_size=32).digest()

    def digest(self, content: bytes) -> bytes:
        """Return a digest that nobody without the secret can compare guesses with."""
        return blake2b(content, key=self._digests, digest_size=32).digest()

    def lock(self, value: bytes, bound_to: str) -> bytes:
        """Return *value* encrypted; it opens only where it was locked for."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, value, bound_to.encode())

    def unlock(self, locked: bytes, bound_to: str) -> bytes | None:
        """Return what was locked, or None if it was locked with another secret, for another place, or changed since."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(locked[:_NONCE], locked[_NONCE:], bound_to.encode())
        except (InvalidTag, ValueError):
            return None

    @cached_property
    def _cipher(self) -> "ChaCha20Poly1305":
        # Imported late: most hubs never have anything to lock.
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        return ChaCha20Poly1305(self._derive(b"remit vault"))

    def _derive(self, purpose: bytes) -> bytes:
        return blake2b(key=self._secret, person=purpose, digest_size=32).digest()
