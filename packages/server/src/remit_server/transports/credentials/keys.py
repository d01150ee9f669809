"""A hub's identity: an Ed25519 key in a file, rotated without interruption."""

import os
import re
import secrets
from base64 import b64encode
from contextlib import suppress
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.remit import Count

if TYPE_CHECKING:  # it takes longer to load than most commands run
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PUBLIC = re.compile(r"ed25519/[0-9a-f]{64}")
"""A public key as it is shown, sent and stored."""
SEED_BYTES = 32
# The number of parsed keys in the cache: parsing one costs a third of a signature check.
_READY = 1_024


def public_of(text: str) -> str:
    """Return a public key in its canonical form, with digits of either case; raise a ValueError if it is invalid."""
    key = text.strip().lower()
    if PUBLIC.fullmatch(key) is None:
        raise ValueError("a public key is written `ed25519/` and 64 hexadecimal digits, as `remit keys show` prints it")
    return key


def fingerprint(public: str) -> str:
    """Return what two people read to each other to compare a key."""
    return "SHA256:" + b64encode(sha256(raw(public)).digest()).decode().rstrip("=")


def raw(public: str) -> bytes:
    """Return the 32 bytes of a public key."""
    return bytes.fromhex(public.removeprefix("ed25519/"))


def written(public: bytes) -> str:
    """Return the text form of the 32 bytes of a public key."""
    return f"ed25519/{public.hex()}"


def is_signed(public: str, signature: bytes, message: bytes) -> bool:
    """Return whether the owner of *public* signed *message*."""
    from cryptography.exceptions import InvalidSignature

    try:
        _ready(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


# The points of an order that divides 8, in all encodings. A sender with such a key needs no secret: some signatures are
# valid for every eighth message, or for all, and OpenSSL accepts them.
_WEAK = frozenset(
    bytes.fromhex(each)
    for each in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)


@lru_cache(_READY)
def _ready(public: str) -> "Ed25519PublicKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = raw(public)
    if key[:-1] + bytes([key[-1] & 0x7F]) in _WEAK:
        raise ValueError("a key that needs no secret")
    return Ed25519PublicKey.from_public_bytes(key)


class Pair:
    """A key with its secret half, which is neither shown nor compared."""

    def __init__(self, seed: bytes) -> None:
        self.seed = seed

    @property
    def public(self) -> str:
        """The public half."""
        return self._public

    @cached_property
    def _public(self) -> str:
        return written(self._private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        return self._private.sign(message)

    @cached_property
    def _private(self) -> "Ed25519PrivateKey":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed)

    def __repr__(self) -> str:
        return f"Pair({self.public})"


class _Version(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    seed: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    signs_from_ms: Count
    accepted_until_ms: Count | None = None


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="remit-hub-key/1"):
    versions: Annotated[tuple[_Version, ...], Meta(min_length=1, max_length=100)]


class Stage(Struct, frozen=True, kw_only=True):
    """One key of a hub, and when it is valid."""

    pair: Pair
    signs_from_ms: int
    accepted_until_ms: int | None = None


class HubKey:
    """The key that a hub signs with, and every key that it still accepts as its own.

    During a rotation there are two. For the first half of the overlap the old one signs, so that peers can learn the
    new one; for the second half the new one signs. Both are accepted as this hub's all the time.
    """

    def __init__(self, stages: tuple[Stage, ...]) -> None:
        self.stages = stages

    @classmethod
    def create(cls, now_ms: int) -> "HubKey":
        """Return a new identity."""
        return cls((Stage(pair=Pair(secrets.token_bytes(SEED_BYTES)), signs_from_ms=now_ms),))

    def signing(self, now_ms: int) -> Pair:
        """Return the key that signs now."""
        due = [stage for stage in self.accepted(now_ms) if stage.signs_from_ms <= now_ms]
        # A clock that was set back must not leave a hub without a key.
        return (due or self.stages)[-1].pair

    def accepted(self, now_ms: int) -> tuple[Stage, ...]:
        """Return the keys by which others may name this hub: oldest first, including the next one."""
        return tuple(
            stage for stage in self.stages if stage.accepted_until_ms is None or now_ms < stage.accepted_until_ms
        )

    def pair(self, public: str, now_ms: int) -> Pair | None:
        """Return the key that others name *public*, if it is still valid."""
        return next((stage.pair for stage in self.accepted(now_ms) if stage.pair.public == public), None)

    def rotated(self, now_ms: int, overlap_ms: int) -> "HubKey":
        """Return the identity with a new key; earlier ones are valid for *overlap_ms* more, and sign half of it."""
        until_ms = now_ms + overlap_ms
        old = [
            msgspec.structs.replace(stage, accepted_until_ms=min(stage.accepted_until_ms or until_ms, until_ms))
            for stage in self.accepted(now_ms)
        ]
        pair = Pair(secrets.token_bytes(SEED_BYTES))
        stages = (*old, Stage(pair=pair, signs_from_ms=now_ms + overlap_ms // 2))
        return HubKey(HubKey(stages).accepted(now_ms))

    # ── the file ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def load(cls, path: Path) -> "HubKey":
        """Return the identity in a file, or raise a `RemitError` that says what is wrong with the file."""
        try:
            with path.open("rb") as file:
                mode, content = os.fstat(file.fileno()).st_mode, file.read()
        except FileNotFoundError as error:
            raise _unusable(f"{path}: no hub key found", "Make one with `remit keys init`.") from error
        except OSError as error:
            raise _unusable(f"{path} cannot be read: {error.strerror}", "Give this user read permission.") from error
        if os.name == "posix" and mode & 0o077:
            raise _unusable(f"{path} can be read by other users", f"Run: chmod 600 {path}")
        try:
            versions = msgspec.json.decode(content, type=_File).versions
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Without its cause: that would show the content of the file.
            raise _unusable(
                f"{path} is damaged: it does not hold a hub key",
                "Put the file back from a backup, or move it away and make a new key with `remit keys init`, "
                "which peers then have to trust.",
            ) from None
        return cls(
            tuple(
                Stage(
                    pair=Pair(bytes.fromhex(each.seed)),
                    signs_from_ms=each.signs_from_ms,
                    accepted_until_ms=each.accepted_until_ms,
                )
                for each in versions
            )
        )

    def save(self, path: Path, *, replace: bool = False) -> None:
        """Write the identity atomically, readable by its owner only; raise `FileExistsError` rather than replace."""
        versions = tuple(
            _Version(
                seed=stage.pair.seed.hex(),
                signs_from_ms=stage.signs_from_ms,
                accepted_until_ms=stage.accepted_until_ms,
            )
            for stage in self.stages
        )
        write_private(path, msgspec.json.encode(_File(versions=versions)) + b"\n", replace=replace)


def write_private(path: Path, content: bytes, *, replace: bool) -> None:
    """Write a file that only its owner can read, atomically, so that nobody ever sees half of it."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(draft, path)
        else:
            os.link(draft, path)  # this never replaces a file, not even one that is being created
    finally:
        draft.unlink(missing_ok=True)
    # The name survives a power cut, too; where directories cannot be opened, the system ensures that.
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _unusable(message: str, suggestion: str) -> RemitError:
    return RemitError(fault(Code.TEAM_INVALID, message, suggestion=suggestion))
