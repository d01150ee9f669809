"""Notes of the files that a check has passed with: it runs again only once one of them has changed."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def digest(files: Iterable[Path]) -> str:
    """Return a digest of the names and contents of files."""
    found = hashlib.sha256()
    for path in sorted(files):
        found.update(f"{path}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def files_in(*folders: Path) -> list[Path]:
    """Return all files in folders but what npm has installed."""
    found = (path for folder in folders for path in folder.rglob("*") if "node_modules" not in path.parts)
    return [path for path in found if path.is_file()]


def has_passed(note: Path, found: str) -> bool:
    return note.exists() and note.read_text(encoding="ascii") == found
