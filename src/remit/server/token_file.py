"""The token that admits programs of the same user: a file that only its owner can read."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from remit.protocol.errors import Code, RemitError, fault
from remit.transports.credentials.bearer import unfit


def token_in(path: Path) -> str:
    """Return the token in a file, created if it does not exist; raise a `RemitError` if it is not usable."""
    if not path.exists():
        from remit.transports.credentials.keys import write_private

        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another server was faster
                write_private(path, f"{secrets.token_hex(32)}\n".encode(), replace=False)
        except OSError as error:
            raise _unusable(
                f"{path} cannot be written: {error.strerror}", "Give this user write permission."
            ) from error
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read()
    except OSError as error:
        raise _unusable(f"{path} cannot be read: {error.strerror}", "Give this user read permission.") from error
    if os.name == "posix" and mode & 0o077:
        raise _unusable(f"{path} can be read by other users", f"Run: chmod 600 {path}")
    token = content.decode("ascii", errors="replace").strip()
    if (why := unfit(token)) is not None:
        raise _unusable(f"{path} holds no valid token: {why}", "Remove it; a new one is created.")
    return token


def _unusable(message: str, suggestion: str) -> RemitError:
    return RemitError(fault(Code.TEAM_INVALID, message, suggestion=suggestion))
