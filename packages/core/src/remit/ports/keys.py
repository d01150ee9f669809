"""The keys derived from a hub's secret, and encryption with them."""

import os
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

_NONCE = 12


class HubKeys:
    """The keys with which a hub encrypts and identifies. Each purpose has its own key, derived from *secret*."""

    def __init__(self, secret: bytes) -> None:
        if not secret:
            raise ValueError("there is no secret to derive keys from")
        # BLAKE2 takes no longer key; a longer secret is hashed, so all of it counts.
        self._secret = secret if len(secret) <= blake2b.MAX_KEY_SIZE else blake2b(secret).digest()
        self.hub = self._derive(b"remit hub")
        self._tokens = self._derive(b"remit tokens")
        self._digests = self._derive(b"remit digests")

    def of_scope(self, scope: str) -> bytes:
        """Return the key of a conversation's tokens: a value has one token throughout it, and another elsewhere."""
        return blake2b(scope.encode(), key=self._tokens, digest_size=32).digest()

    def digest(self, content: bytes) -> bytes:
        """Return a digest that cannot be checked against guesses without the secret."""
        return blake2b(content, key=self._digests, digest_size=32).digest()

    def question_digest(self, question: str) -> str:
        """Return the digest by which hubs of a team know a question that a person has approved."""
        return self.digest(question.encode(errors="replace")).hex()

    def lock(self, value: bytes, bound_to: str) -> bytes:
        """Return *value* encrypted; it can be decrypted only for the same place."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, value, bound_to.encode())

    def unlock(self, locked: bytes, bound_to: str) -> bytes | None:
        """Return the decrypted value, or None if the secret or the place is another one, or it was changed."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(locked[:_NONCE], locked[_NONCE:], bound_to.encode())
        except (InvalidTag, ValueError):
            return None

    @cached_property
    def _cipher(self) -> "ChaCha20Poly1305":
        # Imported late: most hubs never encrypt anything.
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        return ChaCha20Poly1305(self._derive(b"remit vault"))

    def _derive(self, purpose: bytes) -> bytes:
        return blake2b(key=self._secret, person=purpose, digest_size=32).digest()
