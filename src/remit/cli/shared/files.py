"""The commands of a chat for files: attach, detach, list, save."""

import asyncio
import os
import stat
from pathlib import Path

from remit.cli.shared.client import DeviceClient
from remit.cli.shared.commands import OnFile
from remit.cli.shared.wording import file_line
from remit.protocol.errors import Code, RemitError, fault
from remit.relay.session.file_rules import MAX_TOTAL, name_problem
from remit.relay.session.run import Person
from remit.server.public_runs import SharedRunView
from remit.words.terminal import one_line


async def work_on_file(client: DeviceClient, run: SharedRunView, wanted: OnFile, by: Person) -> list[str]:
    """Do what a command says, and return what to tell the person; raise a `RemitError` if it is not possible."""
    match wanted.what:
        case "attach":
            path = _expanded(wanted.name)
            files = await client.attach(run.id, path.name, await asyncio.to_thread(_read, path), by=by)
            return [f"The next message carries: {', '.join(map(file_line, files))}"]
        case "detach":
            await client.detach(run.id, wanted.name, by=by)
            return [f"The next message does not carry {one_line(wanted.name)}."]
        case "save":
            name, _, target = wanted.name.partition(" as ")
            file, data = await client.file(run.id, name.strip())
            path = _expanded(target.strip() or file.name)
            await asyncio.to_thread(_save, path, data)
            return [f"Saved {file_line(file)} as {one_line(str(path))}."]
        case "files":
            files = await client.files(run.id)
            return [file_line(each) for each in (*files.attached, *files.sent, *files.received)] or [
                "The run has no files."
            ]


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
