"""The text files of one folder, as they may be read for somebody else: never one that lies, or leads, outside of it."""

import errno
import os
import stat
from contextlib import ExitStack
from pathlib import PurePath

from remit.stores.secret_files import is_closed, is_secret

# More than a source file ever has.
MAX_BYTES = 1_000_000


class UnreadableError(Exception):
    """A file is not given out; the message says why, and holds nothing of it."""


class FolderReader:
    """Reads within *folder*, and no files that are hidden or by their names hold secrets; see `stores.secret_files`.

    Each part of a path is opened from the one before, and no link is followed, so that nothing which is changed
    meanwhile leads elsewhere.
    """

    def __init__(self, folder: str) -> None:
        self._given = os.path.abspath(folder)
        self._folder = os.path.realpath(folder)
        # An agent names its folder as it was told, or as it found out.
        self._names = (self._given, self._folder)

    def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """Return the text of a file, or *limit* lines from *line* on, which is counted from 1."""
        parts = self._parts(path)
        try:
            data = self._data(parts)
        except OSError as error:
            is_link = error.errno in (errno.ELOOP, errno.ENOTDIR)
            why = "a link on the way to it is not followed" if is_link else error.strerror
            raise UnreadableError(f"{parts[-1]} cannot be read: {why}") from error
        if len(data) > MAX_BYTES:
            raise UnreadableError(f"{parts[-1]} is longer than the {MAX_BYTES} bytes that are read of a file")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise UnreadableError(f"{parts[-1]} is not a text in UTF-8") from error
        if line is None and limit is None:
            return text
        first = max(1, line or 1) - 1
        return "".join(text.splitlines(keepends=True)[first : None if limit is None else first + max(0, limit)])

    def _parts(self, path: str) -> tuple[str, ...]:
        """Return the way from the folder to a file, or raise an `UnreadableError`."""
        asked = PurePath(path)
        if "\0" in path or not asked.is_absolute():
            raise UnreadableError("the path of a file has to be absolute")
        if ".." in asked.parts:
            raise UnreadableError("a path with .. in it is not followed")
        inside = next((asked.relative_to(each) for each in self._names if asked.is_relative_to(each)), None)
        if inside is None or not inside.parts:
            raise UnreadableError(f"only files in {self._given} are read")
        if any(part.startswith(".") for part in inside.parts):
            raise UnreadableError("hidden files are not read")
        if any(is_closed(part) for part in inside.parts) or is_secret(inside.name):
            raise UnreadableError(f"{inside.name} is not read: such files hold keys or passwords")
        return inside.parts

    def _data(self, parts: tuple[str, ...]) -> bytes:
        with ExitStack() as stack:
            at = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, at)
            for part in parts[:-1]:
                at = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                stack.callback(os.close, at)
            # Whoever opens a pipe waits for its writer, unless told not to.
            file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
            stack.callback(os.close, file)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise UnreadableError(f"{parts[-1]} is not a file")
            if os.fstat(file).st_nlink > 1:
                raise UnreadableError(f"{parts[-1]} has a second name (a hard link), which may be a file elsewhere")
            with open(file, "rb", closefd=False) as opened:
                return opened.read(MAX_BYTES + 1)
