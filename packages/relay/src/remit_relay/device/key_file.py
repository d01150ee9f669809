"""The key file of a device's state, optionally encrypted with a passphrase."""

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.keys import HubKeys
from remit_server.transports.credentials.keys import write_private

# These files are beside the store of the device's team.
DEVICE_FILE = "device.db"
LOCK_FILE = "device.lock"
"""Locked by the process that runs the device."""
KEY_FILE = "device.key"

SECRET_BYTES = 32
# 128 MiB and half a second for each guess (RFC 7914's parameters for files); the owner waits once, at the start.
_COST, _BLOCK, _LANES = 2**17, 8, 1
_MEMORY = 2**28
_CHECK = "remit device key"

_Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]{32,64}\Z")]


class _Open(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="remit-device-key/1"):
    secret: _Hex


class _Locked(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="remit-device-passphrase/1"
):
    """The secret, encrypted with a key derived from the passphrase, so that the passphrase can change."""

    salt: _Hex
    locked: str


def open_keys(path: Path, passphrase: str = "") -> HubKeys:
    """Return the keys for a device's state; create the file if it does not exist (of several processes one wins).

    With a *passphrase* the file alone is useless; without one the file is enough, and only its owner can read it.
    """
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            write_private(path, _written(secrets.token_bytes(SECRET_BYTES), passphrase), replace=False)
    return HubKeys(_read(path, passphrase))


def change_passphrase(path: Path, old: str, new: str) -> None:
    """Encrypt the key with another passphrase (empty: none); the state file does not change."""
    write_private(path, _written(_read(path, old), new), replace=True)


def _written(secret: bytes, passphrase: str) -> bytes:
    if not passphrase:
        return msgspec.json.encode(_Open(secret=secret.hex())) + b"\n"
    salt = secrets.token_bytes(16)
    locked = _stretched(passphrase, salt).lock(secret, _CHECK)
    return msgspec.json.encode(_Locked(salt=salt.hex(), locked=locked.hex())) + b"\n"


def _read(path: Path, passphrase: str) -> bytes:
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read(4_096)
    except OSError as error:
        raise _unusable(f"cannot read {path}: {error.strerror}", "Give this user read permission.") from error
    if os.name == "posix" and mode & 0o077:
        raise _unusable(f"{path} is readable by other users", f"Restrict it: chmod 600 {path}")
    try:
        found = msgspec.json.decode(content, type=_Open | _Locked)
        if isinstance(found, _Open):
            return bytes.fromhex(found.secret)
        salt, locked = bytes.fromhex(found.salt), bytes.fromhex(found.locked)
    except (ValueError, UnicodeDecodeError):
        # Without its cause, which would show the content of the file.
        raise _unusable(
            f"{path} is damaged: it does not contain a device key",
            "Restore the file from a backup. Without it the device's state cannot be read: move both files away, "
            "create a new device, and pair again.",
        ) from None
    if not passphrase:
        raise _unusable(f"{path} is protected by a passphrase", "Enter the passphrase that was set for it.")
    secret = _stretched(passphrase, salt).unlock(locked, _CHECK)
    if secret is None:
        raise _unusable(f"wrong passphrase for {path}", "Try again; passphrases are case-sensitive.")
    return secret


def _stretched(passphrase: str, salt: bytes) -> HubKeys:
    return HubKeys(
        hashlib.scrypt(passphrase.encode(), salt=salt, n=_COST, r=_BLOCK, p=_LANES, maxmem=_MEMORY, dklen=SECRET_BYTES)
    )


def _unusable(message: str, suggestion: str) -> RemitError:
    return RemitError(fault(Code.TEAM_INVALID, message, suggestion=suggestion))
