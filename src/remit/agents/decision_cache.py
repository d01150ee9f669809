"""A cache of recent routing decisions, so that equal words are classified once."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from secrets import token_bytes
from unicodedata import normalize

from remit.protocol.codec import encode
from remit.text.intent import Decision

# A decision takes about a kilobyte.
MOST = 1_000
_LONG_TEXT = 4_096


class DecisionCache:
    """Routing decisions by user, words and offered capabilities; the least recently used is evicted first.

    No decision is shared between users (C10), though it names nothing but capabilities: how quickly an answer comes
    would tell one user what another has said. Nor between conversations, if the words hold what was redacted: the
    tokens that stand for it are others in each. The words themselves are not kept, only a digest with a key.
    """

    def __init__(self, now: Callable[[], float], keep_ms: int, most: int = MOST) -> None:
        self._now = now
        self._keep_s = keep_ms / 1_000
        self._most = most
        self._secret = token_bytes(16)
        self._kept: OrderedDict[bytes, tuple[Decision, float]] = OrderedDict()
        self._cleared = 0
        """How often the cache was cleared: part of the key, so a decision under way then is not found later."""

    def key(self, user: str, text: str, codes: Iterable[str]) -> bytes:
        """Return the cache key of a decision; case and spacing of the words are ignored."""
        # Long texts are costly to normalise, so they must match exactly.
        said = " ".join(normalize("NFC", text).casefold().split()) if len(text) <= _LONG_TEXT else text
        content = encode((self._cleared, user, sorted(codes))) + said.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(content, key=self._secret, digest_size=16).digest()

    def get(self, key: bytes) -> Decision | None:
        """Return the cached decision, unless it has expired."""
        decision, until = self._kept.get(key, (None, 0.0))
        if decision is None:
            return None
        if self._now() >= until:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return decision

    def put(self, key: bytes, decision: Decision) -> None:
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
