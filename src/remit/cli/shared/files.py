"""The commands of a chat for files: attach, detach, list, save."""

import asyncio
import os
import stat
from pathlib import Path

from remit.cli.shared.commands import OnFile
from remit.cli.shared.wording import file_line
from remit.protocol.errors import Code, RemitError, fault
from remit.relay.messages.audit import Person
from remit.relay.run_files import RunFiles
from remit.relay.session.file_rules import MAX_TOTAL, name_problem
from remit.relay.session.file_store import files_of
from remit.relay.session.run import Overlay
from remit.text.terminal import one_line


async def work_on_file(files: RunFiles, run: Overlay, wanted: OnFile, by: Person) -> list[str]:
    """Do what a command says, and return what to tell the person; raise a `RemitError` if it is not possible."""
    match wanted.what:
        case "attach":
            path = _expanded(wanted.name)
            run = await files.attach(run.id, path.name, await asyncio.to_thread(_read, path), by=by)
            return [f"The next message carries: {', '.join(map(file_line, run.attached))}"]
        case "detach":
            await files.detach(run.id, wanted.name, by=by)
            return [f"The next message does not carry {one_line(wanted.name)}."]
        case "save":
            name, _, target = wanted.name.partition(" as ")
            file, data = await files.content(run.id, name.strip())
            path = _expanded(target.strip() or file.name)
            await asyncio.to_thread(_save, path, data)
            return [f"Saved {file_line(file)} as {one_line(str(path))}."]
        case "files":
            return [file_line(each) for each in files_of(run)] or ["The run has no files."]


def _expanded(typed: str) -> Path:
    try:
        return Path(typed).expanduser()
    except RuntimeError:  # `~nobody`
        return Path(typed)


def _read(path: Path) -> bytes:
    """Return the content of a file; one that is too large for every rule is not read whole."""
    try:
        # Without waiting, if it is a pipe.
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, f"{path} is not a file"))
            return file.read(MAX_TOTAL + 1)
    except (OSError, ValueError) as error:
        why = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise RemitError(fault(Code.NOT_FOUND, why, suggestion="Give the path of a file: /attach PATH")) from error


def _save(path: Path, data: bytes) -> None:
    """Write a new file, readable by its owner; never over another, and never through a link."""
    if (why := name_problem(path.name)) is not None:
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, f"cannot save as {path}: the name {why}"))
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
    except (OSError, ValueError) as error:
        why = f"{path} cannot be written: {getattr(error, 'strerror', None) or error}"
        raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion="Choose another: /save NAME as PATH")) from error
