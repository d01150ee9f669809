"""Read text files of one folder for an agent, never a file outside of it."""

import errno
import os
import stat
from contextlib import ExitStack
from pathlib import PurePath

from remit.stores.secret_files import is_closed, is_secret

# More than any source file.
MAX_BYTES = 1_000_000


class UnreadableError(Exception):
    """A file may not be read; the message says why, without any of its content."""


class FolderReader:
    """Reads files in *folder*, except hidden ones and those with names of secrets (see `stores.secret_files`).

    Each part of a path is opened relative to the previous one, and links are not followed, so that a concurrent change
    cannot lead outside.
    """

    def __init__(self, folder: str) -> None:
        self._given = os.path.abspath(folder)
        self._folder = os.path.realpath(folder)
        # An agent uses the configured path of its folder, or the resolved one.
        self._names = (self._given, self._folder)

    def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """Return the text of a file, or *limit* lines from *line*, counted from 1."""
        parts = self._parts(path)
        try:
            data = self._data(parts)
        except OSError as error:
            is_link = error.errno in (errno.ELOOP, errno.ENOTDIR)
            why = "symbolic links are not followed" if is_link else error.strerror
            raise UnreadableError(f"cannot read {parts[-1]}: {why}") from error
        if len(data) > MAX_BYTES:
            raise UnreadableError(f"{parts[-1]} is larger than the limit of {MAX_BYTES} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise UnreadableError(f"{parts[-1]} is not UTF-8 text") from error
        if line is None and limit is None:
            return text
        first = max(1, line or 1) - 1
        return "".join(text.splitlines(keepends=True)[first : None if limit is None else first + max(0, limit)])

    def _parts(self, path: str) -> tuple[str, ...]:
        """Return the parts of the path within the folder, or raise an `UnreadableError`."""
        asked = PurePath(path)
        if "\0" in path or not asked.is_absolute():
            raise UnreadableError("the path must be absolute")
        if ".." in asked.parts:
            raise UnreadableError("the path must not contain ..")
        inside = next((asked.relative_to(each) for each in self._names if asked.is_relative_to(each)), None)
        if inside is None or not inside.parts:
            raise UnreadableError(f"only files in {self._given} can be read")
        if any(part.startswith(".") for part in inside.parts):
            raise UnreadableError("hidden files cannot be read")
        if any(is_closed(part) for part in inside.parts) or is_secret(inside.name):
            raise UnreadableError(f"{inside.name} cannot be read: such files contain keys or passwords")
        return inside.parts

    def _data(self, parts: tuple[str, ...]) -> bytes:
        with ExitStack() as stack:
            at = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, at)
            for part in parts[:-1]:
                at = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                stack.callback(os.close, at)
            # Non-blocking, because opening a pipe waits for its writer.
            file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
            stack.callback(os.close, file)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise UnreadableError(f"{parts[-1]} is not a file")
            if os.fstat(file).st_nlink > 1:
                raise UnreadableError(f"{parts[-1]} is a hard link, which may point to a file outside the folder")
            with open(file, "rb", closefd=False) as opened:
                return opened.read(MAX_BYTES + 1)
