"""Finds the team file, and the path of the store in it, without reading the rest."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from remit.stores import STORE_PATH
from remit_cli.config.file_trust import FILE, is_trusted, trusted

VARIABLE = "REMIT_TEAM"
# `REMIT_LIMITS__MAX_DEPTH` overrides `limits.max_depth`.
PREFIX, BETWEEN = "REMIT_", "__"


def find_team(
    named: Path | None = None, *, start: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Path | None:
    """Return the team file: *named*, else what `$REMIT_TEAM` names, else the nearest one from *start* upwards.

    Raises a `RemitError` if another user could have written it; see `file_trust`. The search starts in the working
    directory and ends at the home folder, at the root of a repository, and below a folder that others can write to. If
    a folder is named, the file in it is used.
    """
    if variable := named or environ.get(VARIABLE):
        path = Path(variable)
        return trusted(path / FILE if path.is_dir() else path, environ)
    folder = (start or Path.cwd()).absolute()
    for each in (folder, *folder.parents):
        # Ignored, not refused: a file that another user leaves in /tmp must not break commands below it.
        if each != folder and not is_trusted(each):
            return None
        if (each / FILE).is_file():
            return trusted(each / FILE, environ)
        if each == Path.home() or (each / ".git").exists():
            return None
    return None


def recorded_store(
    file: Path, *, overrides: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> Path | None:
    """Return the existing SQLite file of a team; None if the whole team file must be read to know which it is.

    Commands that read the record do not wait for checks of agents, peers and workflows.
    """
    if overrides or any(name.startswith(PREFIX) and BETWEEN in name for name in environ):
        return None
    with suppress(OSError, ValueError, RecursionError):
        said = tomllib.loads(file.read_bytes().decode("utf-8-sig"))
        match said.get("store", {}):
            case {"url": _}:
                return None
            case {"path": str(path)}:
                store = file.absolute().parent / path
            case {"path": _}:
                return None
            case dict():
                store = file.absolute().parent / STORE_PATH
            case _:
                return None
        return store if store.is_file() else None
    return None
