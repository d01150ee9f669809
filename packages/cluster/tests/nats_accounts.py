"""Keys and tokens of NATS accounts for tests: an operator, the account of a team, and its users."""

import base64
import binascii
import json
import time
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_SEED = 18 << 3
_KINDS = {"operator": 14 << 3, "account": 0, "user": 20 << 3}


class NatsKey:
    """A key of NATS; its text begins with the letter of its kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._key = Ed25519PrivateKey.generate()
        self.public = _written(bytes([_KINDS[kind]]) + self._key.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        kind = _KINDS[self.kind]
        return _written(bytes([_SEED | kind >> 5, (kind & 31) << 3]) + self._key.private_bytes_raw())

    def vouch(self, other: "NatsKey", claims: Mapping[str, object], expires_s: float | None = None) -> str:
        """Return the token in which the owner of this key says who *other* is."""
        now = int(time.time())
        content: dict[str, object] = {"jti": other.public, "iat": now, "iss": self.public, "sub": other.public}
        if expires_s is not None:
            content["exp"] = int(time.time() + expires_s)
        content |= {"name": other.kind, "nats": {"type": other.kind, "version": 2, **claims}}
        text = ".".join(map(_encoded, ({"typ": "JWT", "alg": "ed25519-nkey"}, content)))
        return f"{text}.{_base64(self._key.sign(text.encode()))}"


class NatsAccounts:
    """An operator with one account for each team."""

    def __init__(self, *teams: str) -> None:
        operator = NatsKey("operator")
        self._accounts = {team: NatsKey("account") for team in teams}
        system = NatsKey("account")
        unlimited = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
        storage = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
        limits = {"limits": {**unlimited, "wildcards": True, **storage}}
        known = {each.public: operator.vouch(each, limits) for each in self._accounts.values()}
        known[system.public] = operator.vouch(system, {"limits": {**unlimited, "wildcards": True}})
        preload = "\n".join(f"  {public}: {token}" for public, token in known.items())
        itself = operator.vouch(operator, {"system_account": system.public})
        self.config = f"operator: {itself}\nresolver: MEMORY\nresolver_preload {{\n{preload}\n}}\n"

    def credentials(self, path: Path, team: str, *, expires_s: float | None = None, **permissions: object) -> Path:
        """Write the credentials file of a new user of a team."""
        user = NatsKey("user")
        claims = {"subs": -1, "data": -1, "payload": -1, **permissions}
        token = self._accounts[team].vouch(user, claims, expires_s)
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
        )
        return path


def _written(content: bytes) -> str:
    check = binascii.crc_hqx(content, 0).to_bytes(2, "little")
    return base64.b32encode(content + check).decode().rstrip("=")


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _encoded(value: object) -> str:
    return _base64(json.dumps(value).encode())
