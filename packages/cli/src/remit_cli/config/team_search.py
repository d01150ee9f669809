"""Whether a team file may run code here, by its owner and its folder; and private folders for files that stay here.

A team file names code that is imported, so using a stranger's file means running a stranger's program. As with git's
`safe.directory` and with sudo, the owner must be this user or root (who can run anything as this user anyway), and
nobody else may be able to write to the file or to the folder in which it and its code lie.
"""

import os
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from remit.protocol.errors import Code, RemitError, fault
from remit.stores import STORE_PATH

FILE = "remit.toml"
TRUST_VARIABLE = "REMIT_TRUST_TEAM"
"""Team files, or folders with one, that are trusted whoever owns them; separated as in PATH."""


def is_trusted(path: Path) -> bool:
    """Return whether only this user and root can write to a file or folder."""
    return next(_doubts(path), None) is None


def trusted(file: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Return a team file that only this user and root can write, or that is trusted by name; else raise a `RemitError`.

    A file that does not exist is returned as it is: the reader reports it.
    """
    if _named_as_trusted(file, environ):
        return file
    for each in (file, file.absolute().parent, file.resolve().parent):
        for doubt in _doubts(each):
            advice = (
                f"If you know it and trust everyone who can write to it, name it: {TRUST_VARIABLE}={file.absolute()}. "
                "Otherwise change its owner and permissions, or copy the team into a folder of your own."
            )
            why = f"{each} {doubt}; a team file names code to run, so this one is not read"
            raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=advice))
    return file


def _named_as_trusted(file: Path, environ: Mapping[str, str]) -> bool:
    named = (Path(each) for each in environ.get(TRUST_VARIABLE, "").split(os.pathsep) if each)
    # A relative name would mean another file in every folder.
    meant = {(each / FILE if each.is_dir() else each).resolve() for each in named if each.is_absolute()}
    return file.resolve() in meant


def _doubts(path: Path) -> Iterator[str]:
    """Yield the reasons why others can write to *path*; none on systems without such owners (Windows)."""
    if not hasattr(os, "geteuid"):
        return
    try:
        status = path.stat()
    except OSError:  # the file is missing or unreadable
        return
    user = os.geteuid()
    if status.st_uid not in (user, 0):
        yield f"belongs to {_name_of(status.st_uid)}, and you are {_name_of(user)}"
    # The sticky bit of /tmp keeps others from deleting a file there, not from putting one there first.
    if status.st_mode & stat.S_IWOTH:
        yield "can be written by everyone"
    elif status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, status.st_uid):
        yield f"can be written by the group {_name_of_group(status.st_gid)}"


def _is_private_group(gid: int, uid: int) -> bool:
    """Return whether a group has one user only; many Linux systems create one for each user, with umask 002."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _name_of(uid: int) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (user {uid})"
    except KeyError:
        return f"user {uid}"


def _name_of_group(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


OWN = ".remit"


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can open, if it does not exist; a new `.remit` gets a `.gitignore`.

    Raises an `OSError` if it cannot be created.
    """
    own = next((each for each in (folder, folder.parent) if each.name == OWN and not each.exists()), None)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if own is not None:
        (own / ".gitignore").write_text("*\n", encoding="ascii")


VARIABLE = "REMIT_TEAM"
# `REMIT_LIMITS__MAX_DEPTH` overrides `limits.max_depth`.
PREFIX, BETWEEN = "REMIT_", "__"


def find_team(
    named: Path | None = None, *, start: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Path | None:
    """Return the team file: *named*, else what `$REMIT_TEAM` names, else the nearest one from *start* upwards.

    Raises a `RemitError` if another user could have written it. The search starts in the working
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


def recorded_store(file: Path, *, overrides: Sequence[str]) -> Path | None:
    """Return the existing SQLite file of a team; None if the whole team file must be read to know which it is.

    Commands that read the record do not wait for checks of agents, peers and workflows.
    """
    if overrides or any(name.startswith(PREFIX) and BETWEEN in name for name in os.environ):
        return None
    with suppress(OSError, ValueError, RecursionError):
        values = tomllib.loads(file.read_bytes().decode("utf-8-sig"))
        match values.get("store", {}):
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
