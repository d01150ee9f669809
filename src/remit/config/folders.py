"""Creates private folders for files that must stay on this machine."""

from pathlib import Path

OWN = ".remit"


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can open, if it does not exist; a new `.remit` gets a `.gitignore`.

    Raises an `OSError` if it cannot be created.
    """
    own = next((each for each in (folder, folder.parent) if each.name == OWN and not each.exists()), None)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if own is not None:
        (own / ".gitignore").write_text("*\n", encoding="ascii")
