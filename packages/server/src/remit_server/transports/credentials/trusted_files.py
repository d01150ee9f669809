"""The files that say which keys a hub trusts and which credentials are revoked, read again when they change."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Literal, TypeVar

from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.registry import NAME
from remit_server.transports.credentials.keys import public_of

T = TypeVar("T")

# More lines than anyone needs; nobody trusts that many hubs.
MAX_BYTES = 16 * 1024 * 1024
REVOCATION = re.compile(r"[0-9a-f]{128}")

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
# The common ones. None of them takes a secret that could be confused with a public key, and `none` is excluded.
ALGORITHMS: tuple[Algorithm, ...] = ("RS256", "ES256")


class WatchedFile(Generic[T]):
    """The content of a file, read again when it changes. An unreadable file raises a `RemitError`."""

    def __init__(self, path: Path, parse: Callable[[bytes], T], missing: T | None = None) -> None:
        self._path = path
        self._parse = parse
        self._missing = missing
        self._state: tuple[int, int, int] | None = None
        self._value: T | None = None

    @property
    def value(self) -> T:
        """The content of the file; *missing*, if given, when there is no file."""
        try:
            status = self._path.stat()
            state = (status.st_mtime_ns, status.st_size, status.st_ino)
            if self._value is None or state != self._state:
                if status.st_size > MAX_BYTES:
                    raise ValueError("it is too large")
                self._value, self._state = self._parse(self._path.read_bytes()), state
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
    names: set[str] = set()
    for number, line in _lines(content):
        # An unreadable line must not let pass what somebody wanted to revoke.
        if REVOCATION.fullmatch(line.lower()) is None:
            raise ValueError(f"line {number} is not a credential id of 128 hexadecimal digits")
        names.add(line.lower())
    return frozenset(names)


def _lines(content: bytes) -> Iterator[tuple[int, str]]:
    """Return the lines without comments and empty lines, each with its number."""
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
        content_of_line = line.partition("#")[0].strip()
        if content_of_line:
            yield number, content_of_line


def _unusable(path: Path, why: str) -> RemitError:
    return RemitError(
        fault(Code.TEAM_INVALID, f"{path}: {why}", suggestion="Correct the file; `remit keys show` checks it.")
    )
