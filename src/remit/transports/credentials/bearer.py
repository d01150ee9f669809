"""Tokens that prove who sends a request by being known to nobody else; only their digests are kept."""

import re
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest

# Shorter ones can be guessed; `openssl rand -hex 32` makes 64 characters.
LEAST_CHARS = 20
MAX_CHARS = 8_192

# RFC 6750: what may stand behind `Bearer`.
_BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)


def bearer_of(header: str) -> str | None:
    """Return the token in an `Authorization` header, None if it holds none."""
    found = _BEARER.fullmatch(header) if len(header) <= MAX_CHARS else None
    return None if found is None else found[1]


def unfit(token: str) -> str | None:
    """Return why a text should not be, or cannot be, a token; None if it can."""
    if len(token) < LEAST_CHARS:
        return (
            f"it has fewer than {LEAST_CHARS} characters and could be guessed; `openssl rand -hex 32` makes a good one"
        )
    if bearer_of(f"Bearer {token}") != token:
        return "it holds characters that are not allowed in a header; `openssl rand -hex 32` makes a good one"
    return None


class Bearers:
    """Whose token is whose."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """Take the token of each by name."""
        self._digests = {name: sha256(token.encode()).digest() for name, token in tokens.items()}

    def who(self, token: str) -> str | None:
        """Return whose token it is; how long that takes says nothing about any token."""
        given = sha256(token.encode("utf-8", "surrogatepass")).digest()
        found = None
        for name, digest in self._digests.items():
            if compare_digest(digest, given):
                found = name
        return found
