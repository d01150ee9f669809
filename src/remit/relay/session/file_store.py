"""The files of runs in the device's file, encrypted like everything in it.

    file/RUN/ID           the content of one file

A file is stored before its run names it, and is deleted after its run no longer does: `sweep` finds what a crash left
between the two.
"""

import secrets
from collections.abc import Iterable, Mapping

from msgspec import Struct

from remit.relay.device.state import DeviceFile
from remit.relay.session.file_rules import Attachment
from remit.relay.session.moves import ENDED
from remit.relay.session.profile import KEEP_FILES_MS
from remit.relay.session.run import Overlay


class StoredFile(Struct, frozen=True):
    """The content of a file."""

    data: bytes


def store(file: DeviceFile, run: str, contents: Iterable[bytes]) -> list[str]:
    """Store the contents of files for a run, together or not at all; return their ids."""
    ids: list[str] = []
    with file.writing():
        for data in contents:
            ids.append(secrets.token_hex(8))
            file.keep(_place(run, ids[-1]), StoredFile(data))
    return ids


def load(file: DeviceFile, run: str, id: str) -> bytes | None:
    """Return the content of a file; None if it is not kept any more."""
    found = file.fact(_place(run, id), StoredFile)
    return None if found is None else found.data


def delete(file: DeviceFile, run: str, ids: Iterable[str]) -> None:
    """Delete files of a run."""
    with file.writing():
        for each in ids:
            file.execute("DELETE FROM facts WHERE name = ?", _place(run, each))


def sweep(
    file: DeviceFile, runs: Mapping[str, Overlay], keep_ms: Mapping[str, int], now_ms: int, *, orphans: bool
) -> None:
    """Delete files of ended runs after the time of their profile; and *orphans*, which no run names.

    Orphans are deleted only while no file is being stored: between the two commits of a file it is one.
    """
    with file.writing():
        for (name,) in file.rows("SELECT name FROM facts WHERE name >= 'file/' AND name < 'file0'"):
            _, run_id, id = name.split("/")
            run = runs.get(run_id)
            named = None if run is None else next((each for each in files_of(run) if each.id == id), None)
            if orphans if run is None or named is None else not _is_kept(run, named, keep_ms, now_ms):
                file.execute("DELETE FROM facts WHERE name = ?", name)


def _is_kept(run: Overlay, named: Attachment, keep_ms: Mapping[str, int], now_ms: int) -> bool:
    return run.state not in ENDED or now_ms - named.at_ms < keep_ms.get(run.profile, KEEP_FILES_MS)


def files_of(run: Overlay) -> tuple[Attachment, ...]:
    """Return all files of a run: those that wait for the next message, and those of its messages."""
    return (*run.attached, *(file for entry in (*run.timeline, *run.kept) for file in entry.files))


def _place(run: str, id: str) -> str:
    return f"file/{run}/{id}"
