"""Reads the lines that a coding tool adds to a file while it works."""

from pathlib import Path


class GrowingFile:
    """A file of lines that only grows; each line is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def new_lines(self) -> list[bytes]:
        """Return the lines that were added; half a line is left for the next time."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                added = file.read()
        except OSError:  # it is not there yet
            return []
        whole = added[: added.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.splitlines()
