"""The files of a question on disk, for the agent that works on it.

    attachments/REQUEST/NAME

beside the device's file, readable by its owner only. They are there while the agent works; before and after that they
are in the device's file, encrypted. A crash leaves them: `forget_others` deletes those of questions that are not open.
"""

import os
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from remit.protocol.errors import Code, RemitError, fault
from remit.relay.session.file_rules import AttachedFile, name_problem

FOLDER = "attachments"
# Never a file that is there, and through no link.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def folder_of(device_file: Path, request: str) -> Path:
    """Return the folder for the files of a request: the same one after a restart."""
    return device_file.absolute().with_name(FOLDER) / request


def write_files(folder: Path, files: Sequence[AttachedFile]) -> None:
    """Write the files of a question, replacing what a crash may have left; raise a `RemitError` if that fails."""
    remove(folder)
    try:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700)
        for each in files:
            assert name_problem(each.name) is None, "checked before"
            with os.fdopen(os.open(folder / each.name, _NEW, 0o600), "wb") as file:
                file.write(each.data)
    except OSError as error:
        remove(folder)
        why = "the attached files cannot be stored on the device that shares the agent"
        raise RemitError(fault(Code.DELEGATION_FAILED, why)) from error


def remove(folder: Path) -> None:
    """Delete the files of a question."""
    shutil.rmtree(folder, ignore_errors=True)


def forget_others(device_file: Path, requests: Callable[[], Collection[str]]) -> None:
    """Delete the files of all requests that are not open; *requests*, which are, is called if there are any files."""
    place = device_file.absolute().with_name(FOLDER)
    left = list(place.iterdir()) if place.is_dir() else []
    still_open = requests() if left else ()
    for each in left:
        if each.name not in still_open:
            remove(each)
