"""Whom a hub trusts: files of keys and revocations, and the tokens of identity providers (OpenID Connect)."""

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

from remit.protocol.errors import Code, Fault, RemitError, duration, fault
from remit.protocol.remit import Name
from remit.runtime.registry import NAME
from remit_server.transports.credentials.keys import public_of

T = TypeVar("T")

# More lines than anyone needs; nobody trusts that many hubs.
MAX_BYTES = 16 * 1024 * 1024
REVOCATION = re.compile(r"[0-9a-f]{128}")


class WatchedFile(Generic[T]):
    """The content of a file, read again when it changes. An unreadable file raises a `RemitError`."""

    def __init__(self, path: Path, read: Callable[[bytes], T], missing: T | None = None) -> None:
        self._path = path
        self._read = read
        self._missing = missing
        self._state: tuple[int, int, int] | None = None
        self._value: T | None = None

    @property
    def value(self) -> T:
        """The content of the file; *missing*, if given, when there is no file."""
        try:
            found = self._path.stat()
            state = (found.st_mtime_ns, found.st_size, found.st_ino)
            if self._value is None or state != self._state:
                if found.st_size > MAX_BYTES:
                    raise ValueError("it is too large")
                self._value, self._state = self._read(self._path.read_bytes()), state
        except FileNotFoundError as error:
            if self._missing is None:
                raise _unusable(self._path, "there is no such file") from error
            self._value, self._state = self._missing, None
        except OSError as error:
            raise _unusable(self._path, f"it cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise _unusable(self._path, str(error)) from error
        return self._value


def trusted_keys(content: bytes) -> dict[str, tuple[str, ...]]:
    """Return the keys of each peer from lines like `NAME ed25519/…`, oldest first; raise a ValueError naming a line."""
    owners: dict[str, str] = {}
    for number, line in _lines(content):
        words = line.split()
        if len(words) != 2 or NAME.fullmatch(words[0]) is None:
            raise ValueError(f"line {number} is not a peer name followed by a key")
        try:
            owner = owners.setdefault(public_of(words[1]), words[0])
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        if owner != words[0]:
            raise ValueError(f"line {number}: the key already belongs to {owner}")
    names = dict.fromkeys(owners.values())
    return {name: tuple(key for key, owner in owners.items() if owner == name) for name in names}


def revoked_ids(content: bytes) -> frozenset[str]:
    """Return the ids in a revocation list, one per line; raise a ValueError that names an invalid line."""
    found: set[str] = set()
    for number, line in _lines(content):
        # An unreadable line must not let pass what somebody wanted to revoke.
        if REVOCATION.fullmatch(line.lower()) is None:
            raise ValueError(f"line {number} is not a credential id of 128 hexadecimal digits")
        found.add(line.lower())
    return frozenset(found)


def _lines(content: bytes) -> Iterator[tuple[int, str]]:
    """Return the lines without comments and empty lines, each with its number."""
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
        said = line.partition("#")[0].strip()
        if said:
            yield number, said


def _unusable(path: Path, why: str) -> RemitError:
    return RemitError(
        fault(Code.TEAM_INVALID, f"{path}: {why}", suggestion="Correct the file; `remit keys show` checks it.")
    )


Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
# The common ones. None of them takes a secret that could be confused with a public key, and `none` is excluded.
ALGORITHMS: tuple[Algorithm, ...] = ("RS256", "ES256")


try:
    from joserfc import jwt
    from joserfc.errors import ExpiredTokenError, InvalidKeyIdError, JoseError
    from joserfc.jwk import JWKRegistry, Key, KeySet
except ImportError as error:
    raise ImportError(
        "tokens of identity providers need joserfc; install it with pip install 'remit[credentials]'", name=error.name
    ) from error

LEEWAY_S = 30
MAX_CHARS = 8_192
MAX_KEYS_BYTES = 262_144
# How long a provider's keys are cached, if it is reachable.
FRESH_S = 600
# The shortest interval between fetches that are caused by tokens with an unknown key.
AGAIN_S = 30

Fetch = Callable[[str], Awaitable[bytes]]
"""Fetches a URL; raises an OSError if it cannot."""


class KeySource(Protocol):
    """The source of a provider's public keys."""

    async def get(self, now_s: float, *, anew: bool) -> KeySet:
        """Return the keys, *anew* if one was missing; raise an OSError if there are none."""
        ...


class KeysFile:
    """Keys in a file, read again when it changes."""

    def __init__(self, watched: WatchedFile[KeySet]) -> None:
        self._watched = watched

    async def get(self, now_s: float, *, anew: bool) -> KeySet:  # noqa: ARG002 - a file is as new as it is
        return self._watched.value


class KeysUrl:
    """Keys at a URL, cached; the last fetched keys count until newer ones can be fetched."""

    def __init__(self, url: str, fetch: Fetch) -> None:
        self._url = url
        self._fetch = fetch
        self._keys: KeySet | None = None
        self._fetched_s = float("-inf")
        self._failed_s = float("-inf")

    async def get(self, now_s: float, *, anew: bool) -> KeySet:
        old_s = now_s - self._fetched_s
        if self._keys is not None and old_s < (AGAIN_S if anew else FRESH_S):
            return self._keys
        # Senders of unverifiable tokens must not make this hub flood a provider that is down.
        if now_s - self._failed_s >= AGAIN_S:
            try:
                self._keys, self._fetched_s = key_set(await self._fetch(self._url)), now_s
            except (OSError, ValueError):
                self._failed_s = now_s
        if self._keys is None:
            raise OSError
        return self._keys


def key_set(content: bytes) -> KeySet:
    """Return the public signing keys in a JWKS document; raise a ValueError if there are none."""
    if len(content) > MAX_KEYS_BYTES:
        raise ValueError("the JWKS document is too large")
    try:
        document: Any = json.loads(content)
    except RecursionError:
        raise ValueError("the JWKS document is nested too deeply") from None
    listed: object = cast("dict[str, Any]", document).get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("invalid JWKS document: it has no list `keys`")
    keys: list[Key] = []
    for each in cast("list[Any]", listed):
        if isinstance(each, dict):
            key = cast("dict[str, Any]", each)
            # Unknown keys are skipped (RFC 7517, 5); a shared secret does not belong among public keys.
            if key.get("kty") in ("RSA", "EC", "OKP") and key.get("use", "sig") == "sig":
                with suppress(JoseError, ValueError, TypeError, KeyError):
                    keys.append(JWKRegistry.import_key(key))
    if not keys:
        raise ValueError("the JWKS document holds no signing key")
    return KeySet(keys)


class Issuer(Struct, frozen=True, kw_only=True):
    """A provider whose tokens are accepted here, and what they must hold."""

    issuer: str
    audience: str
    keys: KeySource
    algorithms: tuple[Algorithm, ...] = ALGORITHMS
    user_claim: str = "sub"

    async def user_of(self, token: str, now_s: float) -> str | Fault:
        """Return the user that a token was issued for, or why it is invalid."""
        if len(token) > MAX_CHARS:
            return _refused("it is too long")
        try:
            try:
                claims = self._claims(token, await self.keys.get(now_s, anew=False))
            except InvalidKeyIdError:
                claims = self._claims(token, await self.keys.get(now_s, anew=True))
            self._rules(now_s).validate(claims)
        except ExpiredTokenError:
            return fault(Code.CREDENTIAL_EXPIRED, "the token has expired", suggestion="Sign in again for a new one.")
        except OSError:
            why = f"cannot fetch the keys of {self.issuer}"
            again = f"Try again in {duration(AGAIN_S * 1_000)}."
            return fault(Code.UNAUTHENTICATED, why, retry_after_ms=AGAIN_S * 1_000, suggestion=again)
        except JoseError as error:
            return _refused(error.description or error.error)
        except (ValueError, TypeError, RecursionError):
            return _refused("it is malformed, or there are no keys to check it with")
        try:
            return msgspec.convert(claims.get(self.user_claim), Name)
        except msgspec.ValidationError:
            return _refused(f"its claim `{self.user_claim}` names no user")

    def _claims(self, token: str, keys: KeySet) -> dict[str, Any]:
        return jwt.decode(token, keys, algorithms=self.algorithms).claims

    def _rules(self, now_s: float) -> jwt.JWTClaimsRegistry:
        return jwt.JWTClaimsRegistry(
            now=int(now_s),
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self.audience},
            exp={"essential": True},
        )


def _refused(why: str) -> Fault:
    return fault(
        Code.UNAUTHENTICATED,
        f"invalid token: {why}",
        suggestion="Get a token for this hub from the identity provider that its team file names.",
    )
