"""The proof of one HTTP request: that the hub that sends it holds its key, and sent exactly this request.

It covers the method, the path, the body, the called hub and the credential, so that none of them can be changed in
transit.
"""

import re
import secrets
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Any
from urllib.parse import quote, unquote_to_bytes

import msgspec
from msgspec import Meta, Struct

from remit.ports import USED, OutgoingRequest, SingleUseProof
from remit.protocol.errors import Code, Fault, fault
from remit.protocol.remit import Count, Grant, Name, Names, Tools
from remit_server.transports.credentials.keys import Pair, is_signed, raw, written

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
    matches = [match for each in header.split(",") if (match := _SHA_256.fullmatch(each.strip())) is not None]
    return b64decode(matches[0][1]) if len(matches) == 1 else None


# How far the clocks of two hubs may differ, and how long a proof is valid.
WINDOW_MS = 30_000
# The number of proofs remembered within one window, about 100 bytes each: at 8,000 requests a second it is full.
REMEMBERED = 250_000
MAX_CHARS = 1_024

_DOMAIN = b"remit proof 2\n"
_SIGNATURE = 64
_NONCE = 16
# Most requests go to one path.
_PATHS = 64

Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]


class Statement(Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Who sends what to whom, under which credential, and when."""

    by: Digest
    to: Digest
    at_ms: Count
    nonce: Annotated[bytes, Meta(min_length=_NONCE, max_length=_NONCE)]
    request: Digest
    credential: Digest
    method: Annotated[str, Meta(max_length=20)]
    path: Digest
    body: Digest

    @property
    def signer(self) -> str:
        """The public key of the sender."""
        return written(self.by)


def digest_of(text: str) -> bytes:
    """Return a digest that replaces a request's id or a credential where others may read it."""
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


@lru_cache(_PATHS)
def path_digest(path: str) -> bytes:
    """Return the digest of a path and its query, whatever its percent-encoding: proxies may change that."""
    place, mark, query = path.partition("?")
    # Each segment by itself: an id that holds a slash is not two segments.
    parts = (quote(unquote_to_bytes(part), safe="") for part in place.split("/"))
    return digest_of("/".join(parts) + mark + query)


def prove(pair: Pair, sending: OutgoingRequest, *, to: str, request_id: str, now_ms: int, credential: str = "") -> str:
    """Return the header that proves to the hub *to* that the owner of *pair* sends this; each request needs its own."""
    statement = msgspec.msgpack.encode(
        Statement(
            by=raw(pair.public),
            to=raw(to),
            at_ms=now_ms,
            nonce=secrets.token_bytes(_NONCE),
            request=digest_of(request_id),
            credential=digest_of(credential),
            method=sending.method,
            path=path_digest(sending.path),
            body=sha256(sending.body).digest(),
        )
    )
    return urlsafe_b64encode(pair.sign(_DOMAIN + statement) + statement).decode()


class Proofs:
    """Checks proofs, and accepts each only once in this process; `once_of` is for all processes that share a store."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._taken: dict[int, set[bytes]] = {}

    def take(
        self,
        header: str,
        *,
        known: Collection[str],
        me: Collection[str],
        now_ms: int,
        method: str,
        path: str,
        body: bytes = EMPTY,
        credential: str = "",
    ) -> Statement | Fault:
        """Return the statement of a *known* hub to this one, or why it is not proven.

        *me* are the keys of this hub. *method*, *path*, *body* (its digest) and *credential* are those of the request.
        """
        read = _parse_header(header)
        if read is None:
            return _unproven("its proof is malformed, or made by another version of Remit")
        signature, signed, statement = read
        if statement.signer not in known:
            return _unproven(f"the key {statement.signer} does not belong to any peer")
        if not is_signed(statement.signer, signature, _DOMAIN + signed):
            return _unproven("its proof is not signed with the key that it names")
        if written(statement.to) not in me:
            return _unproven("its proof is for another hub")
        if abs(now_ms - statement.at_ms) > WINDOW_MS:
            when = "ago" if statement.at_ms < now_ms else "ahead of this clock"
            return _unproven(
                f"its proof was made {abs(now_ms - statement.at_ms) // 1_000} seconds {when}; "
                f"clocks may differ by {WINDOW_MS // 1_000} seconds"
            )
        if statement.credential != digest_of(credential):
            return _unproven("its proof is for another credential")
        if statement.method != method:
            return _unproven(f"its proof is for another method than {method[:20]}")
        if statement.path != path_digest(path):
            return _unproven("its proof is for another path")
        if statement.body != body:
            return _unproven("its proof is for another body")
        return self._remember(signed, statement, now_ms) or statement

    def taken(self, header: str) -> Statement | None:
        """Return the statement of a proof that was just accepted; None if it was not."""
        read = _parse_header(header)
        if read is None or _mark(read[1]) not in self._taken.get(read[2].at_ms // WINDOW_MS, ()):
            return None
        return read[2]

    def _remember(self, signed: bytes, statement: Statement, now_ms: int) -> Fault | None:
        for age in [age for age in self._taken if age < (now_ms - WINDOW_MS) // WINDOW_MS]:
            del self._taken[age]
        taken = self._taken.setdefault(statement.at_ms // WINDOW_MS, set())
        if _mark(signed) in taken:
            return USED
        if len(taken) >= self._remembered:
            return fault(Code.OVERLOADED, "too many requests from hubs in a short time", retry_after_ms=WINDOW_MS)
        taken.add(_mark(signed))
        return None


def addressee_of(header: str) -> str:
    """Return the public key of the hub that a proof is for; empty if it is malformed."""
    read = _parse_header(header)
    return "" if read is None else written(read[2].to)


def once_of(header: str) -> SingleUseProof:
    """Return the key under which a store remembers an accepted proof, and until when it could be used again."""
    read = _parse_header(header)
    assert read is not None, "it was taken"
    # As far as the clock may be off in either direction.
    return SingleUseProof(f"proof:{_mark(read[1]).hex()}", read[2].at_ms + 2 * WINDOW_MS)


def _mark(signed: bytes) -> bytes:
    return sha256(signed).digest()[:16]


def _parse_header(header: str) -> tuple[bytes, bytes, Statement] | None:
    if len(header) > MAX_CHARS:
        return None
    try:
        content = urlsafe_b64decode(header)
        signature, signed = content[:_SIGNATURE], content[_SIGNATURE:]
        return signature, signed, msgspec.msgpack.decode(signed, type=Statement)
    except ValueError:  # not Base64, not MessagePack, or not a statement
        return None


def _unproven(why: str) -> Fault:
    return fault(
        Code.UNAUTHENTICATED,
        f"hub authentication failed: {why}",
        suggestion="Compare the keys of both hubs with `remit keys show`, and the clocks; send one proof per request.",
    )


class Hop(Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """The content of a block: to whom the sender passes a request on, and within which limits."""

    to: Digest
    """The key of the hub that is called; only that hub may add the next block."""
    request: Digest
    user: Name
    until_ms: Count
    """The one clock reading that travels."""
    depth: Count
    """The depth of the called agent, counted from the user's."""
    max_depth: Count
    tokens: Count
    may_delegate: bool
    chain: Annotated[tuple[Name, ...], Meta(max_length=100)]
    """The agents added to the chain since the previous hop, as `agent@hub`."""
    tools: Tools | None
    targets: Names | None
    cost: Count | None = None
    """The money; None sets no bound."""


class CredentialChain(Struct, frozen=True, kw_only=True):
    """A credential with valid signatures: the content of its blocks, who signed each, and its revocation ids.

    Whether it is valid for a given request is decided by `verify`.
    """

    hops: tuple[Hop, ...]
    signers: tuple[str, ...]
    ids: tuple[str, ...]
    token: str
    """The credential as it was sent."""
    biscuit: Any = None
    """The library's object, to which a block can be added; None if it was read without the library."""

    @property
    def to(self) -> str:
        """The key of the hub that it was issued to."""
        return written(self.hops[-1].to)

    @property
    def until_ms(self) -> int:
        """When it expires."""
        return min(hop.until_ms for hop in self.hops)

    @property
    def agents(self) -> tuple[str, ...]:
        """All agents between the user and the called agent."""
        return tuple(agent for hop in self.hops for agent in hop.chain)

    def __repr__(self) -> str:
        return f"CredentialChain({', '.join((*self.signers, self.to))})"


class Verified(Struct, frozen=True, kw_only=True):
    """A credential that is valid for its request, and what it grants."""

    grant: Grant
    chain: CredentialChain
