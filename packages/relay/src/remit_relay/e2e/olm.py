"""The part of vodozemac (the Olm double ratchet) that is used here, loaded when first needed."""

from functools import cache
from importlib import import_module
from typing import Protocol, cast

from remit.protocol.errors import Code, RemitError, fault


class PublicKey(Protocol):
    """A Curve25519 public key."""

    def to_bytes(self) -> bytes: ...


class PreKeyMessage(Protocol):
    """A message that also opens a session."""

    def session_id(self) -> str: ...


class OlmMessage(Protocol):
    """An encrypted message; its kind is 0 if it also opens a session, else 1."""

    def to_pre_key(self) -> PreKeyMessage | None: ...

    def to_parts(self) -> tuple[int, bytes]: ...


class OlmSession(Protocol):
    """One double ratchet between two accounts."""

    @property
    def session_id(self) -> str: ...

    def pickle(self, pickle_key: bytes) -> str: ...

    def encrypt(self, plaintext: bytes) -> OlmMessage: ...

    def decrypt(self, message: OlmMessage) -> bytes: ...


class OlmAccount(Protocol):
    """The Olm keys of a device: the identity key, and those with which others open sessions."""

    @property
    def curve25519_key(self) -> PublicKey: ...

    @property
    def one_time_keys(self) -> dict[str, PublicKey]: ...

    @property
    def fallback_key(self) -> dict[str, PublicKey]: ...

    def pickle(self, pickle_key: bytes) -> str: ...

    def generate_one_time_keys(self, count: int) -> object: ...

    def generate_fallback_key(self) -> object: ...

    def mark_keys_as_published(self) -> None: ...

    def create_outbound_session(self, identity_key: PublicKey, one_time_key: PublicKey) -> OlmSession: ...

    def create_inbound_session(self, sender_key: PublicKey, message: PreKeyMessage) -> tuple[OlmSession, bytes]: ...


class _Accounts(Protocol):
    def __call__(self) -> OlmAccount: ...

    def from_pickle(self, pickle: str, pickle_key: bytes) -> OlmAccount: ...


class _Sessions(Protocol):
    def from_pickle(self, pickle: str, pickle_key: bytes) -> OlmSession: ...


class _Messages(Protocol):
    def from_parts(self, message_type: int, ciphertext: bytes) -> OlmMessage: ...


class _Keys(Protocol):
    def from_bytes(self, raw: bytes, /) -> PublicKey: ...


class Olm(Protocol):
    """The library. All its errors are `ValueError`s."""

    Account: _Accounts
    Session: _Sessions
    AnyOlmMessage: _Messages
    Curve25519PublicKey: _Keys


@cache
def olm() -> Olm:
    """Return the library, or raise a `RemitError` that says how to install it."""
    try:
        return cast(Olm, import_module("vodozemac"))
    except ImportError as error:
        raise RemitError(
            fault(
                Code.TEAM_INVALID,
                "sharing agents between devices needs the extra `relay`, which is not installed",
                suggestion="Install it: pip install 'remit[relay]'",
            )
        ) from error
