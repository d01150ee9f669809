"""The encrypted values behind a conversation's placeholders, in a SQLite file."""

import hashlib
from collections.abc import Sequence

from remit.runtime.ports import SealedValue
from remit.runtime.signing import CheckpointKey
from remit.stores.connection import SqliteConnection

# Well below SQLite's limit of bound values; nearly every conversation has fewer.
_CHUNK = 500


def secret(key: CheckpointKey) -> bytes:
    """Return the secret derived from the store's key; the key cannot be computed from it."""
    return hashlib.blake2b(key.seed, digest_size=32, person=b"remit store").digest()


def seal(connection: SqliteConnection, scope: str, sealed: Sequence[SealedValue], now_ms: int) -> None:
    """Store values; the first of each token is kept, and `of_user` stays once it is set."""
    for start in range(0, len(sealed), _CHUNK):
        part = sealed[start : start + _CHUNK]
        rows = ",".join(["(?,?,?,?,?)"] * len(part))
        values = [column for each in part for column in (scope, each.token, each.value, each.of_user, now_ms)]
        connection.execute(
            f"INSERT INTO sealed (scope, token, value, of_user, at_ms) VALUES {rows}"
            " ON CONFLICT DO UPDATE SET of_user = 1 WHERE excluded.of_user AND NOT sealed.of_user",
            values,
        )
