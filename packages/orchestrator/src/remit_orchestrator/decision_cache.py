"""Keeps what was read in users' texts for a while, so that a repeated text need not be read again."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from secrets import token_bytes
from typing import Any
from unicodedata import normalize

from remit.protocol.codec import encode

# A reading takes a few kilobytes.
MOST = 1_000
_LONG_TEXT = 4_096


def folded(text: str) -> str:
    """Return a text in small letters, with single spaces; its lines stay lines."""
    lines = (" ".join(line.split()) for line in normalize("NFC", text).casefold().splitlines())
    return "\n".join(line for line in lines if line)


class DecisionCache:
    """Routing decisions by user, words and offered capabilities; the least recently used is evicted first.

    No decision is shared between users (C10), although it names only capabilities: the response time would tell one
    user what another has asked. Words with redacted values are not shared between conversations either, because each
    conversation has its own tokens. The words themselves are not stored, only a keyed digest.
    """

    def __init__(self, now: Callable[[], float], keep_ms: int, most: int = MOST) -> None:
        self._now = now
        self._keep_s = keep_ms / 1_000
        self._most = most
        self._secret = token_bytes(16)
        self._kept: OrderedDict[bytes, tuple[Any, float]] = OrderedDict()
        self._cleared = 0
        """How often the cache was cleared. It is part of the key, so a decision in progress at that time is not
        found later.
        """

    def key(self, user: str, text: str, codes: Iterable[str]) -> bytes:
        """Return the cache key of a decision; case and spaces within a line are ignored.

        A line break is not: it parts what is asked for.
        """
        # Long texts are costly to normalise, so they must match exactly.
        key_text = folded(text) if len(text) <= _LONG_TEXT else text
        content = encode((self._cleared, user, sorted(codes))) + key_text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(content, key=self._secret, digest_size=16).digest()

    def get(self, key: bytes) -> Any:
        """Return the cached decision, unless it has expired."""
        decision, until = self._kept.get(key, (None, 0.0))
        if decision is None:
            return None
        if self._now() >= until:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return decision

    def put(self, key: bytes, decision: object) -> None:
        """Keep a decision for a while."""
        if self._keep_s <= 0:
            return
        self._kept[key] = (decision, self._now() + self._keep_s)
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Drop all decisions, because the offered capabilities have changed."""
        self._cleared += 1
        self._kept.clear()
