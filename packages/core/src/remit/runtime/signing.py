"""The key of a store, and the checkpoints of its audit chain that it signs."""

import hashlib
import os
import re
import secrets
import stat
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from remit.ports import StoreError
from remit.protocol.codec import encode
from remit.protocol.errors import Code, fault

# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

_KEY_FILE = re.compile(r"remit-ed25519 ([0-9a-f]{64})\n?\Z")


class CheckpointKey(NamedTuple):
    """The secret key with which a hub signs its checkpoints."""

    seed: bytes

    @property
    def public(self) -> bytes:
        """The public key, which verifies signatures."""
        return self._private().public_key().public_bytes_raw()

    @property
    def fingerprint(self) -> str:
        """Identifies this key without revealing anything else; unlike `public` it takes microseconds."""
        return hashlib.blake2b(self.seed, digest_size=16, person=b"remit key id").hexdigest()

    def sign(self, message: bytes) -> bytes:
        return self._private().sign(message)

    def _private(self):
        # Imported late: it takes longer than opening the store, and only a checkpoint needs it.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed)


def open_key(path: Path) -> CheckpointKey:
    """Return the key in the file; create it if there is none. If several processes create it, one wins."""
    try:
        return read_key(path)
    except FileNotFoundError:
        return _make_key(path)


def read_key(path: Path, *, private: bool = True) -> CheckpointKey:
    """Return the key in the file; raise `StoreError` if it is unusable and `FileNotFoundError` if it is missing.

    A *private* key that others can read or replace is unusable: they could sign a record of their own.
    """
    with path.open(encoding="ascii", errors="replace") as file:
        mode, content = os.fstat(file.fileno()).st_mode, file.read()
    match = _KEY_FILE.match(content)
    if match is None:
        raise StoreError(
            fault(
                Code.STORE_UNAVAILABLE,
                f"{path} is damaged: it does not hold an audit key",
                suggestion="Put the file back from a backup, or move it away: a new key is then made, "
                "and verification will name the checkpoints that the old one signed.",
            )
        )
    if private and os.name == "posix" and mode & 0o077:
        raise StoreError(
            fault(
                Code.STORE_UNAVAILABLE,
                f"{path} is accessible to other users (mode {stat.S_IMODE(mode):o}): they could sign a forged record",
                suggestion=f"Restrict it: chmod 600 {path}. If others may have read it, move it away: "
                "the next start makes a new key and records the change.",
            )
        )
    return CheckpointKey(bytes.fromhex(match[1]))


def _make_key(path: Path) -> CheckpointKey:
    key = CheckpointKey(secrets.token_bytes(32))
    # The file gets its name once it is complete, and a link never replaces a file: the second process reads the first's
    # key.
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"remit-ed25519 {key.seed.hex()}\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return read_key(path)
    finally:
        draft.unlink()
    return key


def is_signed(message: bytes, key: str, signature: str) -> bool:
    """Return whether the owner of the public *key* signed the message; both are in hexadecimal."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


# ── checkpoints ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Checkpoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed statement that the chain up to row *seq* had this digest. Numbered, so that a removed one is noticed."""

    number: int
    seq: int
    digest: str
    at_ms: int
    key: str
    signature: str = ""

    def signed_bytes(self) -> bytes:
        """Return the bytes that the signature covers."""
        return b"remit audit checkpoint\n" + encode((self.number, self.seq, self.digest, self.at_ms, self.key))

    def is_genuine(self) -> bool:
        """Return whether the owner of `key` signed it."""
        return is_signed(self.signed_bytes(), self.key, self.signature)


class VerifiedMark(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed statement that the record was verified up to a checkpoint, so that later only the rest is."""

    checkpoint: Checkpoint
    at_ms: int
    signature: str = ""

    def signed_bytes(self) -> bytes:
        """Return the bytes that the signature covers."""
        return b"remit audit verified\n" + encode((self.checkpoint, self.at_ms))

    def is_genuine(self, public_key: bytes) -> bool:
        """Return whether the owner of the key signed it."""
        return is_signed(self.signed_bytes(), public_key.hex(), self.signature)


def sign_verified(key: CheckpointKey, checkpoint: Checkpoint, at_ms: int) -> VerifiedMark:
    """Return a statement that the record was verified up to *checkpoint*."""
    draft = VerifiedMark(checkpoint=checkpoint, at_ms=at_ms)
    return msgspec.structs.replace(draft, signature=key.sign(draft.signed_bytes()).hex())


def sign(key: CheckpointKey, *, number: int, seq: int, digest: bytes, at_ms: int) -> Checkpoint:
    """Return a checkpoint signed with *key*."""
    draft = Checkpoint(number=number, seq=seq, digest=digest.hex(), at_ms=at_ms, key=key.public.hex())
    return msgspec.structs.replace(draft, signature=key.sign(draft.signed_bytes()).hex())


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the checkpoint as one line of a checkpoint file."""
    return encode(checkpoint) + b"\n"


def decode_checkpoints(raw: bytes) -> list[Checkpoint | None]:
    """Return each line's checkpoint, None where a line holds none; an incomplete last line is left out."""
    whole = raw[: raw.rfind(b"\n") + 1]
    return [_decode_checkpoint(line) for line in whole.splitlines()]


def _decode_checkpoint(line: bytes) -> Checkpoint | None:
    try:
        return msgspec.json.decode(line, type=Checkpoint)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


# ── anchors ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_ANCHOR = re.compile(r'\{"(?:schema":"remit\.audit-checkpoint/1","number|number)":')
_PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")


def read_anchors(text: str) -> list[Checkpoint]:
    """Return the checkpoints in a text that was kept elsewhere: anchors, an export, a checkpoint file, or a log.

    Raises `ValueError` if a line begins like a checkpoint and is not a valid one.
    """
    checkpoints: list[Checkpoint] = []
    for number, line in enumerate(text.splitlines(), start=1):
        begins = _ANCHOR.search(line)
        if begins is None:
            continue  # another log line, or a row of an export
        try:
            fields = msgspec.json.decode(line[begins.start() : line.rindex("}") + 1], type=dict[str, int | str])
            fields.pop("schema", None)
            checkpoints.append(msgspec.convert(fields, Checkpoint))
        except ValueError as error:
            raise ValueError(f"line {number} holds a damaged anchor: {error}") from error
    return checkpoints


def read_public_key(text: str) -> bytes:
    """Return the public key in a text: 64 hexadecimal digits, or PEM; raises `ValueError` if there is none."""
    text = text.strip()
    if text.startswith("remit-ed25519 "):
        raise ValueError("it is the secret key of a store; the public one is what `remit audit verify` prints")
    if _PUBLIC_KEY.fullmatch(text.lower()):
        return bytes.fromhex(text)
    if text.startswith("-----BEGIN"):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        if isinstance(key := load_pem_public_key(text.encode()), Ed25519PublicKey):
            return key.public_bytes_raw()
    raise ValueError("it is neither 64 hexadecimal digits nor an Ed25519 key in PEM")
