"""Folders that Remit makes for what is to stay on this machine."""

from pathlib import Path

OWN = ".remit"


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can open, unless it is there; Remit's own, made with it, ignores itself in git.

    Raises an `OSError` if it cannot be made.
    """
    own = next((each for each in (folder, folder.parent) if each.name == OWN and not each.exists()), None)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if own is not None:
        (own / ".gitignore").write_text("*\n", encoding="ascii")
