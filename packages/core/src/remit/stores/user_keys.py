"""The keys of users: what both engines know of them, and views through which a SQLite file is read decrypted."""

import secrets
from collections.abc import Callable
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from remit.ports import StoreError
from remit.ports.keys import HubKeys
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, fault
from remit.protocol.records import Body, ChainBreak, Refusal, Removal, SharedStep
from remit.runtime.signing import CheckpointKey, read_key
from remit.stores.checkpoints import key_path
from remit.stores.connection import SqliteConnection, connect_reader
from remit.stores.database import FORGOTTEN, KEPT
from remit.stores.schema import RUNS

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

# No JSON text begins with it, so encrypted and plain values stand side by side.
MARK = b"\x01"
_ID, _NONCE = 8, 12
_HEAD = len(MARK) + _ID + _NONCE
# How many bytes name the key at the beginning of everything that is encrypted under it.
PREFIX_BYTES = len(MARK) + _ID

# Texts that belong to no user.
NOBODY = ""


def secret_of(key: CheckpointKey) -> bytes:
    """Return the secret derived from the store's key; the key cannot be computed from it."""
    return blake2b(key.seed, digest_size=32, person=b"remit store").digest()


class UserKey(NamedTuple):
    """The key of a user, as it is stored: encrypted under the store's own key."""

    id: int
    """Random, so that it is never given to another user."""
    wrapped: bytes


def make_user_key(store_keys: HubKeys) -> UserKey:
    """Return a new key."""
    id = secrets.randbits(62)
    return UserKey(id, store_keys.lock(secrets.token_bytes(32), _key_label(id)))


def _key_label(id: int) -> str:
    return f"user key {id}"


class UserCipher:
    """Encrypts and decrypts the texts of one user."""

    def __init__(self, key: UserKey, store_keys: HubKeys) -> None:
        opened = store_keys.unlock(key.wrapped, _key_label(key.id))
        if opened is None:
            message = "the texts of users cannot be read: their keys were encrypted under another key of the store"
            advice = "Put the store's key back from a backup."
            raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))
        self._prefix = key_prefix(key.id)
        self._key = opened

    @cached_property
    def _cipher(self) -> "ChaCha20Poly1305":
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        return ChaCha20Poly1305(self._key)

    def encrypt(self, text: bytes) -> bytes:
        """Return the text encrypted; the same text gives the same bytes, so that it can be stored only once."""
        # A nonce made from key and text is used for no other text.
        nonce = blake2b(text, key=self._key, digest_size=_NONCE, person=b"remit text").digest()
        return self._prefix + nonce + self._cipher.encrypt(nonce, text, self._prefix)

    def decrypt(self, stored: bytes) -> bytes:
        return self._cipher.decrypt(stored[_HEAD - _NONCE : _HEAD], stored[_HEAD:], self._prefix)


def key_prefix(id: int) -> bytes:
    """Return how everything begins that is encrypted under a key."""
    return MARK + id.to_bytes(_ID)


def destroyed_key() -> StoreError:
    """Return the error for texts whose key is not there."""
    message = "the key of these texts is gone: their user was erased, or the keys were left out of a backup"
    advice = "Restore the backup with the file of its keys."
    return StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))


def key_id_of(stored: object) -> int | None:
    """Return the id of the key under which a stored value is encrypted; None if it is plain."""
    if isinstance(stored, bytes) and stored.startswith(MARK):
        return int.from_bytes(stored[len(MARK) : len(MARK) + _ID])
    return None


def user_of(body: Body) -> str | None:
    """Return the user whose text a record is, as far as its body says; None if the run has to be asked."""
    match body:
        case Request():
            return body.remit.user
        case Refusal():
            return body.request.remit.user
        case _:
            return None


def is_encrypted_kind(body: Body) -> bool:
    """Return whether a record's body is encrypted: not what verification has to read, nor steps without content."""
    return not isinstance(body, ChainBreak | Removal | SharedStep)


# As many runs are at work at once in a large hub.
MOST_RUNS = 10_000
# A cipher is some 300 bytes.
MOST_CIPHERS = 10_000


class KnownKeys:
    """The keys of users and the users of runs, as far as one connection knows them."""

    def __init__(self, key_file: Path, key: CheckpointKey | None, lost: Callable[[], StoreError]) -> None:
        """Without *key*, the store's own is read from its file once it is needed; *lost* says that there is none."""
        self._key_file, self._lost = key_file, lost
        self._store_keys = None if key is None else HubKeys(secret_of(key))
        self._by_id: dict[int, UserCipher] = {}
        self._users: dict[str, str] = {}

    def __contains__(self, id: int) -> bool:
        return id in self._by_id

    def get(self, id: int) -> UserCipher | None:
        return self._by_id.get(id)

    def keep(self, key: UserKey) -> UserCipher:
        """Return the cipher with a key."""
        if key.id not in self._by_id:
            if len(self._by_id) >= MOST_CIPHERS:
                self._by_id.clear()
            self._by_id[key.id] = UserCipher(key, self._unwrapping())
        return self._by_id[key.id]

    def make(self) -> UserKey:
        """Return a new key."""
        return make_user_key(self._unwrapping())

    def forget(self) -> None:
        """Forget all keys."""
        self._by_id.clear()

    def user_of(self, run: str) -> str | None:
        """Return the user of a run, if it is known."""
        return self._users.get(run)

    def know(self, run: str, user: str) -> None:
        """Note the user of a run."""
        if len(self._users) >= MOST_RUNS:
            self._users.clear()
        self._users[run] = user

    def _unwrapping(self) -> HubKeys:
        if self._store_keys is None:
            try:
                self._store_keys = HubKeys(secret_of(read_key(self._key_file)))
            except FileNotFoundError as error:
                raise self._lost() from error
        return self._store_keys


# ── of a SQLite file ──────────────────────────────────────────────────────────────────────────────────────────────────

# A name without its schema means the view, so that queries need not know; whoever writes says `main.record`.
_VIEWS = f"""
    CREATE TEMP VIEW record AS SELECT seq, kind, at_ms, run, session, plain(body) AS body, digest FROM main.record;
    CREATE TEMP VIEW fact AS SELECT id, by_user, plain(text) AS text, run, at_ms FROM main.fact;
    CREATE TEMP VIEW note AS SELECT id, session, kind, plain(text) AS text, by_agent, at_ms FROM main.note;
    CREATE TEMP VIEW question AS SELECT number, id, run, plain(content) AS content, asked_ms, expires_ms, over_ms,
        decision FROM main.question;
    {RUNS.format(temporary="TEMP")}
"""


class _Functions(Protocol):
    def create_scalar_function(
        self, name: str, callable: Callable[..., Any], numargs: int, *, deterministic: bool
    ) -> None: ...


class UserKeys:
    """The keys of users, as one connection sees them."""

    def __init__(self, connection: SqliteConnection, path: Path, key: CheckpointKey | None = None) -> None:
        self._connection = connection
        self._known = KnownKeys(key_path(path), key, lambda: lost_key(connection, path))
        self._by_user: dict[str, UserCipher] = {}
        self._version = -1

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def show_plain(self) -> None:
        """Have every query of the connection read decrypted texts."""
        functions = cast(_Functions, self._connection)
        functions.create_scalar_function("plain", self.plain, 1, deterministic=True)
        self._connection.execute(_VIEWS)

    def plain(self, stored: Any) -> Any:
        """Return a stored value, decrypted if it is encrypted."""
        id = key_id_of(stored)
        return stored if id is None else self.cipher(id).decrypt(stored)

    def cipher(self, id: int) -> UserCipher:
        """Return the cipher with that key."""
        if (cipher := self._known.get(id)) is not None:
            return cipher
        row = self._connection.execute("SELECT id, wrapped FROM user_key WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise destroyed_key()
        return self._known.keep(UserKey(*row))

    # ── writing, in a transaction ─────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Forget keys that another process may have destroyed since; called when the file's write lock is held."""
        version: int = self._connection.pragma("data_version")
        if version != self._version:
            self.forget()
            self._version = version

    def forget(self) -> None:
        """Forget all keys, because some of them may not be stored."""
        self._by_user.clear()
        self._known.forget()

    def encrypt(self, user: str, text: bytes) -> bytes:
        """Return a text encrypted under the key of a user, which is made if there is none."""
        cipher = self._by_user.get(user)
        if cipher is None:
            if len(self._by_user) >= MOST_CIPHERS:
                self._by_user.clear()
            self._by_user[user] = cipher = self._of_user(user)
        return cipher.encrypt(text)

    def _of_user(self, user: str) -> UserCipher:
        row = self._connection.execute("SELECT id, wrapped FROM user_key WHERE by_user = ?", (user,)).fetchone()
        if row is not None:
            return self._known.keep(UserKey(*row))
        key = self._known.make()
        self._connection.execute(
            "INSERT INTO user_key (id, by_user, wrapped) VALUES (?,?,?)", (key.id, user, key.wrapped)
        )
        return self._known.keep(key)

    def encrypt_body(self, run: str, body: Body, raw: bytes) -> bytes:
        """Return the body of a record, encrypted under the key of its user."""
        if not is_encrypted_kind(body):
            return raw
        user = user_of(body)
        if user is None:
            user = self.user_of_run(run)
        elif isinstance(body, Request):
            self._known.know(run, user)
        return self.encrypt(user, raw)

    def user_of_run(self, run: str) -> str:
        """Return the user of a run; nobody if it is not known."""
        if (known := self._known.user_of(run)) is not None:
            return known
        row = self._connection.execute(
            f"SELECT by_user FROM request WHERE run = ?1 AND {KEPT}"
            f" UNION ALL SELECT by_user FROM request WHERE run = ?1 AND {FORGOTTEN} LIMIT 1",
            (run,),
        ).fetchone()
        if row is None:
            return NOBODY
        self._known.know(run, row[0])
        return row[0]


def is_encrypted(connection: SqliteConnection) -> bool:
    """Return whether any text in the file is, or will be, encrypted."""
    return connection.execute("SELECT 1 FROM user_key LIMIT 1").fetchone() is not None


def connect_plain(path: Path, busy_seconds: float) -> SqliteConnection:
    """Return a connection that only reads, and reads encrypted texts decrypted."""
    connection = connect_reader(path, busy_seconds)
    try:
        show_plain(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def show_plain(connection: SqliteConnection, path: Path) -> None:
    """Have a connection read encrypted texts decrypted, if there are any."""
    has_keys = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'user_key'"
    if connection.execute(has_keys).fetchone() and is_encrypted(connection):
        UserKeys(connection, path).show_plain()


def lost_key(connection: SqliteConnection, path: Path) -> StoreError:
    """Return the error for a store whose texts are encrypted and whose key is gone."""
    ((users,),) = connection.execute("SELECT count(*) FROM user_key WHERE by_user <> ''").fetchall()
    message = f"the key of {path} is gone, and with it the texts of {users} users: there is no {key_path(path)}"
    advice = "Put it back from a backup. Without it nothing in this store can be read, but the record can be verified."
    return StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))
