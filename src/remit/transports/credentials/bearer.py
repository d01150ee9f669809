"""Bearer tokens: secrets that identify a sender; only their digests are kept."""

import re
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest

# Shorter tokens can be guessed; `openssl rand -hex 32` makes 64 characters.
LEAST_CHARS = 20
MAX_CHARS = 8_192

# RFC 6750: what may follow `Bearer`.
_BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)


def bearer_of(header: str) -> str | None:
    """Return the token in an `Authorization` header; None if it holds none."""
    found = _BEARER.fullmatch(header) if len(header) <= MAX_CHARS else None
    return None if found is None else found[1]


def unfit(token: str) -> str | None:
    """Return why a text is not a valid token; None if it is."""
    if len(token) < LEAST_CHARS:
        return (
            f"it has fewer than {LEAST_CHARS} characters and could be guessed; `openssl rand -hex 32` makes a good one"
        )
    if bearer_of(f"Bearer {token}") != token:
        return "it holds characters that are not allowed in a header; `openssl rand -hex 32` makes a good one"
    return None


class Bearers:
    """The tokens of all clients and peers."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """Take the tokens by the name of their owner."""
        self._digests = {name: sha256(token.encode()).digest() for name, token in tokens.items()}

    def who(self, token: str) -> str | None:
        """Return the owner of a token, in a time that reveals nothing about any token."""
        given = sha256(token.encode("utf-8", "surrogatepass")).digest()
        found = None
        for name, digest in self._digests.items():
            if compare_digest(digest, given):
                found = name
        return found

    def digest(self, name: str) -> bytes | None:
        """Return the digest of an owner's token; None if it has none."""
        return self._digests.get(name)
