"""Reads a file of JSON lines that grows while an agent works."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO, cast


class GrowingFile:
    """A file to which a tool adds lines; each is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._identity: tuple[int, int] | None = None

    @property
    def is_there(self) -> bool:
        """Whether it could be read at least once."""
        return self._identity is not None

    def added(self) -> Iterator[dict[str, Any]]:
        """Return the objects that were added since the last time; half a line is left for the next time.

        A file that was replaced or cut off is read from its beginning: callers know by their ids what they have had.
        """
        try:
            with open_file(self.path) as file:
                about = os.fstat(file.fileno())
                identity = about.st_dev, about.st_ino
                if identity != self._identity or about.st_size < self._offset:
                    self._identity, self._offset = identity, 0
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self._offset += len(line)
                    yield _object(line)
        except OSError:  # it is not there yet
            return


def open_file(path: Path) -> BinaryIO:
    """Open a file to read; raise an `OSError` if it is none: a pipe would hold up the hooks of all tools."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # there is a null character in the path
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def _object(line: bytes) -> dict[str, Any]:
    """Return the object of a line; empty if it has none. A crash of the system leaves zeros before the next line."""
    try:
        return table(json.loads(line.decode(errors="replace").lstrip("\ufeff\0")))
    except (ValueError, RecursionError):
        return {}


def table(value: object) -> dict[str, Any]:
    """Return a JSON object; anything else as an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def count(usage: dict[str, Any], name: str) -> int:
    """Return a number of tokens; zero if it is missing or no such number."""
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
