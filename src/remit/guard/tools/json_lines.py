"""Reads a file of JSON lines that grows while an agent works."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast


class GrowingFile:
    """A file to which a tool adds lines; each is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def added(self) -> Iterator[dict[str, Any]]:
        """Return the objects that were added since the last time; half a line is left for the next time."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                added = file.read()
        except OSError:  # it is not there yet
            return
        whole = added[: added.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            yield table(entry)


def table(value: object) -> dict[str, Any]:
    """Return a JSON object; anything else as an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def count(usage: dict[str, Any], name: str) -> int:
    """Return a number of tokens; zero if it is missing or no such number."""
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
