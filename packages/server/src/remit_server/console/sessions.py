"""Sessions of browsers: signed cookies, one-time links, page keys, and the ids of those that are used up.

A cookie holds the name of a client and is signed; nothing about it is kept here, so it counts in every process of a
server and after a restart. The key of the signature comes from the secret of the store or device and from the client's
token: a client that is removed, or gets another token, is signed out.

Browsers send a cookie to every port of a host. So a cookie counts only together with the key of its page, which is told
once, at the sign-in, and which the browser keeps for one port.

Every process that serves the console sees the used ids, and they outlive a restart. An id is forgotten once what it
belongs to has expired anyway.
"""

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest, digest
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from remit.policy.reception import Sender
from remit.ports import Counters
from remit.protocol.errors import Code, RemitError, fault

# A person signs in and out some times a day. More than this within a month is a script that went wrong.
MOST = 5_000

_KEY = "remit/console/spent"
_decode_spent = msgspec.json.Decoder(dict[str, int]).decode


class SpentIds(Protocol):
    """The ids that were used up."""

    async def spend(self, name: str, until_ms: int) -> bool:
        """Use up an id, which would expire at *until_ms*; return whether it was unused."""
        ...

    async def is_spent(self, name: str) -> bool:
        """Return whether an id was used up."""
        ...


class SpentInStore:
    """Kept in the store of a hub, which all its processes share."""

    def __init__(self, store: Counters, wall_ms: Callable[[], int]) -> None:
        self._store = store
        self._wall_ms = wall_ms
        self._known: tuple[int, dict[str, int]] = (0, {})

    async def spend(self, name: str, until_ms: int) -> bool:
        """Use up an id."""
        while True:
            revision, spent = await self._now()
            if name in spent:
                return False
            added = _with(spent, name, until_ms, self._wall_ms())
            if await self._store.cas(_KEY, revision, msgspec.json.encode(added)) is not None:
                return True

    async def is_spent(self, name: str) -> bool:
        """Return whether an id was used up."""
        return name in (await self._now())[1]

    async def _now(self) -> tuple[int, dict[str, int]]:
        row = await self._store.get(_KEY)
        if row is None:
            return 0, {}
        if row[0] != self._known[0]:
            self._known = (row[0], _decode_spent(row[1]))
        return self._known


class SpentInFile:
    """Kept in a private file of a device, which one process runs."""

    def __init__(self, path: Path, wall_ms: Callable[[], int]) -> None:
        self._path = path
        self._wall_ms = wall_ms
        self._known: dict[str, int] | None = None

    async def spend(self, name: str, until_ms: int) -> bool:
        """Use up an id."""
        from remit_server.transports.credentials.keys import write_private

        spent = self._spent()
        if name in spent:
            return False
        added = _with(spent, name, until_ms, self._wall_ms())
        try:
            write_private(self._path, msgspec.json.encode(added), replace=True)
        except OSError as error:
            why = f"{self._path} cannot be written: {error.strerror}"
            raise RemitError(fault(Code.STORE_UNAVAILABLE, why)) from error
        self._known = added
        return True

    async def is_spent(self, name: str) -> bool:
        """Return whether an id was used up."""
        return name in self._spent()

    def _spent(self) -> dict[str, int]:
        if self._known is None:
            try:
                self._known = _decode_spent(self._path.read_bytes())
            except FileNotFoundError:
                self._known = {}
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                # Without it, a link or session that was used up would count again.
                why = f"{self._path} cannot be read"
                how = "Remove it, and the token file beside it: every browser has to sign in again."
                raise RemitError(fault(Code.STORE_UNAVAILABLE, why, suggestion=how)) from error
        return self._known


def _with(spent: dict[str, int], name: str, until_ms: int, now_ms: int) -> dict[str, int]:
    kept = {each: until for each, until in spent.items() if until > now_ms}
    if len(kept) >= MOST:
        why = f"{MOST} browsers have signed in or out lately"
        raise RemitError(fault(Code.OVERLOADED, why, suggestion="Use the token, not sessions, for programs."))
    return {**kept, name: until_ms}


# A person opens the link at once; a link that stays in a terminal's history must not open anything later.
LINK_MS = 300_000
# A browser that is used at least once a week stays signed in, for a month at most.
SESSION_MS = 7 * 24 * 3_600_000
LONGEST_MS = 30 * 24 * 3_600_000
# A session is prolonged this long after it was last.
PROLONG_MS = 24 * 3_600_000

MAX_CHARS = 2_048


class ConsoleClients(Protocol):
    """The clients of a server that have a token; see `Authenticator`."""

    def client(self, name: str) -> tuple[Sender, bytes] | None:
        """Return a client and the digest of its token; None if there is none of that name."""
        ...

    async def sender(self, headers: Mapping[str, str], method: str = "", path: str = "") -> Sender:
        """Return the sender of a request by its headers, or raise a `RemitError`."""
        ...


class ConsoleSession(Struct, frozen=True, array_like=True):
    """The session of one browser."""

    client: str
    id: str
    issued_ms: int
    until_ms: int


class _Link(Struct, frozen=True, array_like=True):
    client: str
    id: str
    until_ms: int


T = TypeVar("T", ConsoleSession, _Link)


class ConsoleSessions:
    """Opens, checks and ends the sessions of browsers."""

    def __init__(self, secret: bytes, clients: ConsoleClients, spent: SpentIds, wall_ms: Callable[[], int]) -> None:
        self._secret = digest(secret, b"remit console", sha256)
        self.clients = clients
        self._spent = spent
        self._wall_ms = wall_ms

    # ── links ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def code(self, client: str) -> str:
        """Return the code of a link that signs in one browser as *client*, once, within `LINK_MS`."""
        link = _Link(client, secrets.token_urlsafe(16), self._wall_ms() + LINK_MS)
        return self._signed(b"link", self._known(client), link)

    async def enter(self, code: str) -> ConsoleSession:
        """Spend a code and return a new session; raise a `RemitError` if the code is not valid."""
        link = self._verified(b"link", code, _Link)
        if (
            link is None
            or link.until_ms < self._wall_ms()
            or not await self._spent.spend(f"link-{link.id}", link.until_ms)
        ):
            raise RemitError(
                fault(
                    Code.UNAUTHENTICATED,
                    "the link was used before, or has expired",
                    suggestion="Ask for a new one: `remit serve --link` or `remit up --link`.",
                )
            )
        return self.begin(link.client)

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, client: str) -> ConsoleSession:
        """Return a new session of a client; raise a `RemitError` if no browser can be signed in as this sender."""
        self._known(client)
        now_ms = self._wall_ms()
        return ConsoleSession(client, secrets.token_urlsafe(16), now_ms, now_ms + SESSION_MS)

    def prolonged(self, session: ConsoleSession) -> ConsoleSession | None:
        """Return a session that lasts longer; None if it is not time for that yet, or it has lasted long enough."""
        now_ms = self._wall_ms()
        until_ms = min(now_ms + SESSION_MS, session.issued_ms + LONGEST_MS)
        if until_ms < session.until_ms + PROLONG_MS:
            return None
        return ConsoleSession(session.client, session.id, session.issued_ms, until_ms)

    def sealed(self, session: ConsoleSession) -> str:
        """Return the value of the session's cookie."""
        return self._signed(b"session", self._known(session.client), session)

    async def open(self, value: str) -> tuple[ConsoleSession, Sender] | None:
        """Return the session in a cookie, and its client as it is now; None if the session is not valid."""
        session = self._verified(b"session", value, ConsoleSession)
        if session is None or session.until_ms < self._wall_ms():
            return None
        entry = self.clients.client(session.client)
        if entry is None or await self._spent.is_spent(session.id):
            return None
        return session, entry[0]

    async def leave(self, session: ConsoleSession) -> None:
        """End a session for good."""
        # It may have been prolonged meanwhile, by another request of the same browser.
        await self._spent.spend(session.id, session.issued_ms + LONGEST_MS)

    def page_key(self, session: ConsoleSession) -> str:
        """Return what proves that a request comes from the page that was signed in."""
        return _text(digest(self._secret, b"remit console page key\0" + session.id.encode(), sha256))

    def is_page_key(self, session: ConsoleSession, key: str) -> bool:
        """Return whether *key* is the one of this session."""
        return compare_digest(self.page_key(session).encode(), key.encode("utf-8", "surrogatepass"))

    # ── signatures ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _known(self, client: str) -> bytes:
        entry = self.clients.client(client)
        if entry is None:
            raise RemitError(
                fault(
                    Code.PERMISSION_DENIED,
                    f"no browser can be signed in as {client}",
                    suggestion="Use the token of a client: `[clients.NAME]` of the team file with a `token`.",
                )
            )
        return entry[1]

    def _mac(self, kind: bytes, token_digest: bytes, payload: bytes) -> bytes:
        return digest(self._secret, b"\0".join((b"remit console", kind, token_digest, payload)), sha256)

    def _signed(self, kind: bytes, token_digest: bytes, value: Struct) -> str:
        payload = msgspec.json.encode(value)
        return f"{_text(payload)}.{_text(self._mac(kind, token_digest, payload))}"

    def _verified(self, kind: bytes, text: str, shape: type[T]) -> T | None:
        """Return a signed value; None unless its signature is right, for a client that there is now."""
        payload, _, mac = text.partition(".")
        if len(text) > MAX_CHARS:
            return None
        try:
            raw, given = _bytes(payload), _bytes(mac)
            value = msgspec.json.decode(raw, type=shape)
        except (NotBase64, ValueError):  # also a DecodeError
            return None
        entry = self.clients.client(value.client)
        if entry is None or not compare_digest(given, self._mac(kind, entry[1], raw)):
            return None
        return value


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
