"""Encrypts texts under a key per user: whoever destroys that key destroys the texts, wherever copies of them are."""

import secrets
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from remit.protocol.envelope import Request
from remit.protocol.errors import Code, fault
from remit.protocol.records import Body, ChainBreak, Refusal, Removal, SharedStep
from remit.runtime.keys import HubKeys
from remit.runtime.ports import StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

# No JSON text begins with it, so encrypted and plain values stand side by side.
MARK = b"\x01"
_ID, _NONCE = 8, 12
_HEAD = len(MARK) + _ID + _NONCE

# Texts that belong to no user.
NOBODY = ""


class UserKey(NamedTuple):
    """The key of a user, as it is stored: encrypted under the store's own key."""

    id: int
    """Random, so that it is never given to another user."""
    wrapped: bytes


def make_user_key(store_keys: HubKeys) -> UserKey:
    """Return a new key."""
    id = secrets.randbits(62)
    return UserKey(id, store_keys.lock(secrets.token_bytes(32), _place(id)))


def _place(id: int) -> str:
    return f"user key {id}"


class UserCipher:
    """Encrypts and decrypts the texts of one user."""

    def __init__(self, key: UserKey, store_keys: HubKeys) -> None:
        opened = store_keys.unlock(key.wrapped, _place(key.id))
        if opened is None:
            message = "the texts of users cannot be read: their keys were encrypted under another key of the store"
            advice = "Put the store's key back from a backup."
            raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))
        self._prefix = key_prefix(key.id)
        self._key = opened

    @cached_property
    def _cipher(self) -> "ChaCha20Poly1305":
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        return ChaCha20Poly1305(self._key)

    def encrypt(self, text: bytes) -> bytes:
        """Return the text encrypted; the same text gives the same bytes, so that it can be stored only once."""
        # A nonce made from key and text is used for no other text.
        nonce = blake2b(text, key=self._key, digest_size=_NONCE, person=b"remit text").digest()
        return self._prefix + nonce + self._cipher.encrypt(nonce, text, self._prefix)

    def decrypt(self, stored: bytes) -> bytes:
        return self._cipher.decrypt(stored[_HEAD - _NONCE : _HEAD], stored[_HEAD:], self._prefix)


def key_prefix(id: int) -> bytes:
    """Return how everything begins that is encrypted under a key."""
    return MARK + id.to_bytes(_ID)


def destroyed_key() -> StoreError:
    """Return the error for texts whose key is not there."""
    message = "the key of these texts is gone: their user was erased, or the keys were left out of a backup"
    advice = "Restore the backup with the file of its keys."
    return StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))


def key_id_of(stored: object) -> int | None:
    """Return the id of the key under which a stored value is encrypted; None if it is plain."""
    if isinstance(stored, bytes) and stored.startswith(MARK):
        return int.from_bytes(stored[len(MARK) : len(MARK) + _ID])
    return None


def user_of(body: Body) -> str | None:
    """Return the user whose text a record is, as far as its body says; None if the run has to be asked."""
    match body:
        case Request():
            return body.remit.user
        case Refusal():
            return body.request.remit.user
        case _:
            return None


def is_encrypted_kind(body: Body) -> bool:
    """Return whether a record's body is encrypted: not what verification has to read, nor steps without content."""
    return not isinstance(body, ChainBreak | Removal | SharedStep)
