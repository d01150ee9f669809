"""The tokens of identity providers (OpenID Connect)."""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol, cast

import msgspec
from msgspec import Struct

from remit.installed import install_command
from remit.protocol.errors import Code, Fault, duration, fault
from remit.protocol.remit import Name
from remit_server.transports.credentials.trusted_files import ALGORITHMS, Algorithm, WatchedFile

try:
    from joserfc import jwt
    from joserfc.errors import ExpiredTokenError, InvalidKeyIdError, JoseError
    from joserfc.jwk import JWKRegistry, Key, KeySet
except ImportError as error:
    raise ImportError(
        f"tokens of identity providers need joserfc; install it with {install_command('credentials')}", name=error.name
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
