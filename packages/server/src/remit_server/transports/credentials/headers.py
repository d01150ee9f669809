"""The headers by which senders authenticate, with bearer tokens or proofs, and that describe the body."""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest

CREDENTIAL = "Remit-Credential"
PROOF = "Remit-Proof"
REPLY_PROOF = "Remit-Reply-Proof"
BEARER = "Authorization"
CONTENT_DIGEST = "Content-Digest"

EMPTY = sha256(b"").digest()
"""The digest of a request without a body."""

# RFC 9530 defines a dictionary here; other algorithms may be listed, too.
_SHA_256 = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")


def content_digest(body: bytes) -> str:
    """Return the header `Content-Digest` of a body (RFC 9530)."""
    return f"sha-256=:{b64encode(sha256(body).digest()).decode()}:"


def digest_in(header: str) -> bytes | None:
    """Return the SHA-256 digest in a `Content-Digest` header; None if it holds none, or two."""
    found = [match for each in header.split(",") if (match := _SHA_256.fullmatch(each.strip())) is not None]
    return b64decode(found[0][1]) if len(found) == 1 else None


# ── bearer tokens: secrets that identify a sender ─────────────────────────────────────────────────────────────────────

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
