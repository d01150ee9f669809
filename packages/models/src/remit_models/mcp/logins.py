"""Keeps the tokens of a login at an MCP server in a private file."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from remit.agents.program import Program
from remit.protocol.errors import Code, RemitError, fault
from remit_models.mcp.oauth_settings import OauthClient, OauthLogin
from remit_models.mcp.settings import Address, Unset

FOLDER = "mcp-logins"
AGAIN_S = 0.05
# Longer than an authorization server may take for a new token, so that one slow process does not fail the others.
LOCK_S = 60.0


class StoredLogin(Struct, frozen=True, kw_only=True):
    """What is needed to use and renew the tokens of one login; valid for one server and one issuer."""

    url: str
    """The MCP server that the tokens are for."""
    issuer: str
    """The authorization server that gave them."""
    access_token: str
    refresh_token: str | None = None
    renew_at: float | None = None
    """When the access token is about to expire, in seconds since 1970; None: unknown."""
    scope: str | None = None
    """The scopes that were granted."""
    requested: str | None = field(default=None, name="asked")
    """The scopes that were asked for."""
    client: dict[str, Any] = {}
    """This hub as the issuer registered it; without a secret that the team keeps."""
    metadata: dict[str, Any] | None = None
    """What the issuer says of itself, with the address that renews tokens."""
    resource: dict[str, Any] | None = None
    """What the MCP server says of itself."""

    def __repr__(self) -> str:
        return f"StoredLogin({self.url!r}, {self.issuer!r})"  # tracebacks must not show tokens


class LoginFile:
    """The login at one server, in a file of a folder; without a folder, as long as the object lives."""

    def __init__(self, folder: Path | None, server: str) -> None:
        self._path = None if folder is None else folder / f"{quote(server, safe='')}.json"
        self._login: StoredLogin | None = None

    def read(self) -> StoredLogin | None:
        """Return the login, or None if there is none that can be read."""
        if self._path is None:
            return self._login
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=StoredLogin)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None  # a new login replaces it

    def write(self, login: StoredLogin) -> None:
        """Replace the login as a whole, or raise a `RemitError`; the caller holds the lock."""
        self._login = login
        if self._path is None:
            return
        draft = self._path.with_suffix(".draft")
        try:
            draft.unlink(missing_ok=True)  # of a process that was killed
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(msgspec.json.encode(login))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, self._path)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise self._failed(error) from error

    def forget(self) -> bool:
        """Delete the login; return whether there was one. The caller holds the lock."""
        there, self._login = self._login is not None, None
        if self._path is None:
            return there
        try:
            self._path.with_suffix(".draft").unlink(missing_ok=True)
            self._path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._failed(error) from error
        return True

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Hold the lock of this login against other processes: most refresh tokens work only once."""
        if self._path is None:
            yield
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._failed(error) from error
        with os.fdopen(handle, "r+b") as file:
            try:
                from fcntl import LOCK_EX, LOCK_NB, flock
            except ImportError:  # without such locks, two processes may both renew, and one has to log in again
                yield
                return
            try:
                async with asyncio.timeout(LOCK_S):
                    while True:
                        with suppress(BlockingIOError):
                            flock(file, LOCK_EX | LOCK_NB)
                            break
                        await asyncio.sleep(AGAIN_S)
            except TimeoutError as error:
                why = f"another process holds {self._path.with_suffix('.lock')}"
                raise RemitError(fault(Code.STATE_CONFLICT, why)) from error
            yield

    def _failed(self, error: OSError) -> RemitError:
        return RemitError(fault(Code.STORE_UNAVAILABLE, f"{self._path} cannot be written: {error.strerror}"))


def usable(login: StoredLogin | None, url: str, oauth: OauthClient | OauthLogin) -> StoredLogin | None:
    """Return a login if it is for the server, the issuer and the client that a team names now."""
    if login is None or login.url != url:
        return None
    if oauth.issuer is not None and login.issuer.rstrip("/") != oauth.issuer.rstrip("/"):
        return None
    if oauth.client_id is not None and login.client.get("client_id") != oauth.client_id:
        return None
    return login


# RFC 6749, section 3.3: the characters of a scope.
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def scopes_of(text: str | None) -> tuple[str, ...]:
    """Return the scopes in a text, in their order."""
    return tuple(dict.fromkeys(_SCOPE.findall(text or "")))


def login_file(name: str, reach: Program | Address | Unset) -> LoginFile:
    """Return where the tokens for a server are kept: in a folder for those of a person, else in memory."""
    oauth = reach.oauth if isinstance(reach, Address) else None
    return LoginFile(oauth.folder if isinstance(oauth, OauthLogin) else None, name)
