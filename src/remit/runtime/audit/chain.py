"""The hash chain of the record: each row contains the digest of the one before it."""

import hashlib
from typing import NamedTuple

import msgspec

GENESIS = bytes(32)

_sha256 = hashlib.sha256

_head = msgspec.msgpack.Encoder().encode


def link(previous: bytes, seq: int, kind: str, at_ms: int, run: str, session: str, body: bytes) -> bytes:
    """Return the digest of a row that follows the row with digest *previous*."""
    # The digest before has a fixed length and msgpack is self-delimiting, so no two rows hash the same bytes.
    return _sha256(previous + _head((seq, kind, at_ms, run, session)) + body).digest()


class ChainRow(NamedTuple):
    """A record as it is stored, with its stored digest."""

    seq: int
    kind: str
    at_ms: int
    run: str
    session: str
    body: bytes
    digest: bytes
