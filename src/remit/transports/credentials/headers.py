"""The headers by which senders authenticate, and that describe the body."""

import re
from base64 import b64decode, b64encode
from hashlib import sha256

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
