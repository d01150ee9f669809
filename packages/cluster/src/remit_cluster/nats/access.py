"""How a hub proves itself to a NATS server, and what keeps it out, in words that name the setting."""

import base64
import binascii
import re
import ssl
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
import nats.errors
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct
from nats.aio.client import Client

_JWT = re.compile(rb"-+BEGIN NATS USER JWT-+\s+(\S+)\s+-+END")
_SEED = re.compile(rb"-+BEGIN USER NKEY SEED-+\s+(\S+)\s+-+END")
# "SU": a seed, of a user. The server accepts no others from clients.
_USER_SEED = b"SU"
_SEED_BYTES = 36
_EXPIRED, _WRONG_HOST, _WRONG_ADDRESS = 10, 62, 64
_REFUSED = re.compile("authorization|authentication", re.IGNORECASE)
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)


class NotEncryptedError(nats.errors.Error):
    """The server does not encrypt, and the team file says that it must."""

    def __str__(self) -> str:
        return "the server does not encrypt, and the settings of `[bus]` ask for it"


class EncryptedClient(Client):
    """A client that sends nothing before the connection is encrypted.

    The plain client leaves that to the server: an address with `tls://` would be used without encryption, and the
    token sent, if whoever answers there does not ask for it.
    """

    def _connect_command(self) -> bytes:
        if not self._server_info.get("tls_required"):
            raise NotEncryptedError
        return super()._connect_command()


class BusAccess(Protocol):
    """The settings that prove who connects: see `BusSettings`."""

    @property
    def credentials(self) -> Path | None: ...
    @property
    def token(self) -> str | None: ...
    @property
    def user(self) -> str | None: ...
    @property
    def password(self) -> str | None: ...
    @property
    def authority(self) -> Path | None: ...
    @property
    def certificate(self) -> Path | None: ...
    @property
    def private_key(self) -> Path | None: ...
    @property
    def servers(self) -> list[str]: ...


# ── what is sent ──────────────────────────────────────────────────────────────────────────────────────────────────────


def encryption(access: BusAccess) -> ssl.SSLContext | None:
    """Return the settings of an encrypted connection, or None; raise a ValueError that names a file it cannot use."""
    if access.authority is None and access.certificate is None and not _says_tls(access):
        return None
    try:
        context = ssl.create_default_context(cafile=None if access.authority is None else str(access.authority))
    except (OSError, ssl.SSLError):
        raise ValueError(f"`authority`: {access.authority} holds no certificates in PEM") from None
    if access.certificate is not None:
        try:
            # A key that needs a password would else be asked for at the terminal.
            context.load_cert_chain(access.certificate, access.private_key, password=lambda: b"")
        except (OSError, ssl.SSLError):
            raise ValueError(
                f"`certificate` and `private_key`: {access.certificate} and {access.private_key} are not a certificate "
                "and its key in PEM, without a password"
            ) from None
    return context


def _says_tls(access: BusAccess) -> bool:
    return any(each.startswith("tls://") for each in access.servers)


def proof_options(access: BusAccess) -> dict[str, object]:
    """Return the options of the client that prove who connects."""
    options: dict[str, object] = {}
    if access.credentials is not None:
        # Read at each connection: the file is replaced when its credentials expire.
        read = partial(read_credentials, access.credentials)
        options["user_jwt_cb"] = lambda: read().jwt
        options["signature_cb"] = lambda nonce: read().sign(nonce)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType, reportUnknownMemberType]
    given = {"token": access.token, "user": access.user, "password": access.password}
    return options | {name: value for name, value in given.items() if value is not None}


class NatsCredentials(Struct, frozen=True):
    """The content of a credentials file: who the user is, signed by an account, and the user's key."""

    jwt: bytes
    key: Ed25519PrivateKey

    def sign(self, nonce: str) -> bytes:
        """Return the signature that the server asks for."""
        return base64.b64encode(self.key.sign(nonce.encode()))

    @property
    def expires(self) -> datetime | None:
        """When they expire, if ever."""
        claims = self.jwt.split(b".")[1]
        try:
            content = base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4))
            until = msgspec.json.decode(content, type=dict[str, object]).get("exp")
        except (ValueError, msgspec.MsgspecError):
            return None
        return datetime.fromtimestamp(until, UTC) if isinstance(until, int) else None


def read_credentials(path: Path) -> NatsCredentials:
    """Return what is in a credentials file; raise a ValueError that names the file, and never its content."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"`credentials`: {path} cannot be read: {error.strerror}") from None
    jwt, seed = _JWT.search(content), _SEED.search(content)
    key = None if seed is None else _key_of(seed[1])
    if jwt is None or jwt[1].count(b".") != 2 or key is None:
        raise ValueError(f"`credentials`: {path} does not hold the credentials of a NATS user (`nsc generate creds`)")
    return NatsCredentials(jwt[1], key)


def _key_of(seed: bytes) -> Ed25519PrivateKey | None:
    """Return the key of an NKEY seed: two bytes that say so, the seed, and a check sum."""
    try:
        raw = base64.b32decode(seed + b"=" * (-len(seed) % 8))
    except binascii.Error:
        return None
    if not seed.startswith(_USER_SEED) or len(raw) != _SEED_BYTES:
        return None
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        return None
    return Ed25519PrivateKey.from_private_bytes(raw[2:-2])


# ── what keeps it out ─────────────────────────────────────────────────────────────────────────────────────────────────


def explained(error: BaseException, access: BusAccess) -> str:
    """Describe what keeps a hub from its bus, and name the setting that decides it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrusted(error, access)
    if isinstance(error, ssl.SSLError) and "ALERT" in str(error.reason or "").upper():
        return _refused_certificate(access)
    text = str(error).removeprefix("nats: ").strip("'")
    if (
        isinstance(error, nats.errors.AuthorizationError)
        or "authorization" in text.lower()
        or "authentication" in text.lower()
    ):
        return f"the server refused {_proof_of(access)} ({text})"
    return text or type(error).__name__


def _distrusted(error: ssl.SSLCertVerificationError, access: BusAccess) -> str:
    if error.verify_code == _EXPIRED:
        return "the certificate of the server has expired"
    if error.verify_code in (_WRONG_HOST, _WRONG_ADDRESS):
        return "the certificate of the server is for another host than `url` names"
    if access.authority is None:
        return "the system does not trust the certificate of the server; set `authority` if it is one of your own"
    return f"the certificate of the server is not signed by one in `authority` ({access.authority})"


def _refused_certificate(access: BusAccess) -> str:
    if access.certificate is None:
        return "the server asks for a certificate; set `certificate` and `private_key`"
    return f"the server refused `certificate` ({access.certificate})"


def _proof_of(access: BusAccess) -> str:
    if access.credentials is not None:
        try:
            until = read_credentials(access.credentials).expires
        except ValueError as error:
            return str(error)
        over = until is not None and until <= datetime.now(UTC)
        return f"`credentials`, which expired at {until:%Y-%m-%d %H:%M} UTC" if over else "`credentials`"
    if access.token is not None:
        return "`token`"
    if access.user is not None:
        return "`user` and `password`"
    if access.certificate is not None:
        return "`certificate`"
    return "a hub without `credentials`, `token` or `user`"


def denied(error: BaseException) -> str | None:
    """Return which permission the user lacks, if that is what an error says."""
    match = _DENIED.search(str(error))
    if match is None:
        return None
    how = "publish" if match[1].lower() == "publish" else "subscribe"
    # The client reports everything in lower case.
    before, ours, rest = match[2].partition("remit-")
    subject = f"{before.upper()}{ours}{rest}" if before.startswith("$") else match[2]
    return f"its user lacks the permission to {how} to {subject}"
