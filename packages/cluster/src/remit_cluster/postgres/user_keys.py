"""The keys of users in a PostgreSQL database, and connections that read its texts decrypted."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from remit.ports import StoreError
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, fault
from remit.protocol.records import Body
from remit.stores.database import FORGOTTEN, KEPT
from remit.stores.user_keys import (
    NOBODY,
    KnownKeys,
    UserCipher,
    UserKey,
    destroyed_key,
    is_encrypted_kind,
    key_id_of,
    key_prefix,
    user_of,
)
from remit_cluster.postgres.connection import PgConnection

# The columns that can be encrypted; a query that wants one as it is stored gives it another name.
_TEXTS = ("body", "content", "text", "begun_body", "ended_body")


class _Row(Protocol):
    def keys(self) -> Iterable[str]: ...


class PgUserKeys:
    """The keys of users, as one hub knows them; the store's own key is read when the first of them is needed."""

    def __init__(self, key_file: Path) -> None:
        self._known = KnownKeys(key_file, None, lambda: _lost_key(key_file))

    async def open(self, connection: PgConnection, *, encrypt: bool) -> bool:
        """Return whether any text is, or will be, encrypted; with *encrypt*, new ones are from now on."""
        if encrypt and not await is_encrypted(connection):
            async with connection.transaction():
                await self.encrypt(connection, NOBODY, b"")
                # Copies of texts that are searched for words; without them, texts are searched one by one.
                await connection.execute("DELETE FROM remit.word")
                await connection.execute("UPDATE remit.conversation SET words = 0")
        return await is_encrypted(connection)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def reading(self, connection: PgConnection) -> PgConnection:
        """Return a connection that reads encrypted texts decrypted."""
        return PlainConnection(connection, self)

    async def plain(self, connection: PgConnection, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the rows of a query with their texts decrypted."""
        if not rows:
            return rows
        names = list(cast(_Row, rows[0]).keys())
        places = [place for place, name in enumerate(names) if name in _TEXTS]
        ids = {id for row in rows for place in places if (id := key_id_of(row[place])) is not None}
        if not ids:
            return rows
        await self.load(connection, ids)
        known = {id for id in ids if id in self._known}
        # Any text can begin like an encrypted one, but no body and no question does.
        if known != ids and (await is_encrypted(connection) or any(names[place] != "text" for place in places)):
            raise destroyed_key()
        return [
            tuple(self.decrypt(value) if key_id_of(value) in known else value for value in row) if known else row
            for row in rows
        ]

    async def load(self, connection: PgConnection, ids: Iterable[int]) -> None:
        """Read the keys with these ids, as far as they are there."""
        missing = [id for id in ids if id not in self._known]
        if missing:
            sql = "SELECT id, wrapped FROM remit.user_key WHERE id = ANY ($1::bigint[])"
            for row in await connection.fetch(sql, missing):
                self._known.keep(UserKey(*row))

    def cipher(self, id: int) -> UserCipher:
        """Return the cipher with a key that was loaded."""
        cipher = self._known.get(id)
        if cipher is None:
            raise destroyed_key()
        return cipher

    def decrypt(self, stored: bytes) -> bytes:
        """Return a text decrypted, whose key was loaded."""
        id = key_id_of(stored)
        return stored if id is None else self.cipher(id).decrypt(stored)

    # ── writing, in a transaction ─────────────────────────────────────────────────────────────────────────────────────

    async def encrypt(self, connection: PgConnection, user: str, text: bytes) -> bytes:
        """Return a text encrypted under the key of a user, which is made if there is none."""
        return (await self._ciphers(connection, {user}))[user].encrypt(text)

    async def encrypt_bodies(
        self, connection: PgConnection, runs: Sequence[str], bodies: Sequence[Body], raws: Sequence[bytes]
    ) -> list[bytes]:
        """Return the bodies of records, encrypted under the keys of their users."""
        for run, body in zip(runs, bodies, strict=True):
            if isinstance(body, Request):
                self._known.know(run, body.remit.user)
        of_run = await self._users_of(connection, {run for run in runs if self._known.user_of(run) is None})
        users = [
            (user_of(body) or of_run.get(run) or self._known.user_of(run) or NOBODY)
            if is_encrypted_kind(body)
            else None
            for run, body in zip(runs, bodies, strict=True)
        ]
        ciphers = await self._ciphers(connection, {user for user in users if user is not None})
        return [raw if user is None else ciphers[user].encrypt(raw) for user, raw in zip(users, raws, strict=True)]

    async def _users_of(self, connection: PgConnection, runs: Iterable[str]) -> dict[str, str]:
        """Return the users of runs, as far as they are known."""
        wanted = sorted(runs)
        rows = await connection.fetch(_USERS, wanted) if wanted else []
        for run, user in rows:
            self._known.know(run, user)
        return dict(rows)

    async def _ciphers(self, connection: PgConnection, users: set[str]) -> dict[str, UserCipher]:
        """Return the ciphers of users; nobody destroys their keys before the transaction ends."""
        wanted = sorted(users)
        rows = await connection.fetch(_KEYS, wanted) if wanted else []
        if missing := sorted(users - {user for user, *_ in rows}):
            new = [self._known.make() for _ in missing]
            await connection.execute(_ADD_KEYS, [key.id for key in new], missing, [key.wrapped for key in new])
            # Another hub may have been first.
            rows = await connection.fetch(_KEYS, wanted)
        return {user: self._known.keep(UserKey(id, wrapped)) for user, id, wrapped in rows}


_USERS = f"""
    SELECT DISTINCT ON (run) run, by_user FROM remit.request
    WHERE run = ANY ($1::text[]) AND ({KEPT} OR {FORGOTTEN}) ORDER BY run, {FORGOTTEN}, place DESC
"""
_KEYS = """
    SELECT by_user, id, wrapped FROM remit.user_key WHERE by_user = ANY ($1::text[]) ORDER BY by_user FOR KEY SHARE
"""
_ADD_KEYS = """
    INSERT INTO remit.user_key (id, by_user, wrapped) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[])
    ON CONFLICT DO NOTHING
"""


def _lost_key(file: Path) -> StoreError:
    advice = "Copy the key from a hub that uses this store, or from a backup."
    message = f"the texts of users cannot be read: there is no {file}"
    return StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))


async def is_encrypted(connection: PgConnection) -> bool:
    """Return whether any text in the database is, or will be, encrypted."""
    return await connection.fetchval("SELECT EXISTS (SELECT 1 FROM remit.user_key)")


async def prefix_of(connection: PgConnection, user: str) -> bytes | None:
    """Return how everything begins that is encrypted under the key of a user; None if there is no key."""
    id = await connection.fetchval("SELECT id FROM remit.user_key WHERE by_user = $1", user)
    return None if id is None else key_prefix(id)


class PlainConnection:
    """A connection that reads encrypted texts decrypted."""

    def __init__(self, connection: PgConnection, keys: PgUserKeys) -> None:
        self._connection = connection
        self._keys = keys
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.transaction = connection.transaction
        self.add_listener = connection.add_listener
        self.is_closed = connection.is_closed
        self.is_in_transaction = connection.is_in_transaction
        self.close = connection.close
        self.terminate = connection.terminate

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[tuple[Any, ...]]:
        rows = await self._connection.fetch(query, *args, timeout=timeout)
        return await self._keys.plain(self._connection, rows)

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> tuple[Any, ...] | None:
        row = await self._connection.fetchrow(query, *args, timeout=timeout)
        return None if row is None else (await self._keys.plain(self._connection, [row]))[0]

    async def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        row = await self.fetchrow(query, *args, timeout=timeout)
        return None if row is None else row[0]
