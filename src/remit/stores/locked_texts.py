"""What people decide and why they send commands, encrypted in the store."""

from collections.abc import Callable

import msgspec

from remit.protocol.codec import encode
from remit.runtime.keys import HubKeys
from remit.runtime.ports import Decision

_read_decision = msgspec.json.Decoder(Decision).decode


class LockedTexts:
    """Encrypts under the secret of a store: people wrote these texts, and they are not redacted.

    Each can be decrypted only for its own question or run.
    """

    def __init__(self, secret: Callable[[], bytes]) -> None:
        self._secret = secret

    def lock_decision(self, question: str, decision: Decision) -> bytes:
        return self._keys().lock(encode(decision), f"decision {question}")

    def open_decision(self, question: str, locked: bytes | None) -> Decision | None:
        """Return a decision; None if there is none, or if it was changed or moved."""
        opened = None if locked is None else self._keys().unlock(locked, f"decision {question}")
        return None if opened is None else _read_decision(opened)

    def lock_reason(self, run: str, reason: str) -> bytes:
        return self._keys().lock(reason.encode(), f"control {run}")

    def open_reason(self, run: str, locked: bytes) -> str:
        """Return the reason of a command; empty if it was changed or moved."""
        return (self._keys().unlock(locked, f"control {run}") or b"").decode()

    def _keys(self) -> HubKeys:
        return HubKeys(self._secret())
