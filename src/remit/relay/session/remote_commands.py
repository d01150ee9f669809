"""Commands for a run from another process: stored in the device's file, carried out by its session service.

A command is deleted in the commit of its step, so it is carried out once, whatever crashes in between. The reason of a
refusal is stored for the sender. Commands need the file and key of the device; there is no other way in.
"""

import secrets

from msgspec import Struct

from remit.relay.device.state import DeviceFile
from remit.relay.session import moves
from remit.relay.session.moves import SessionState
from remit.relay.session.repository import RunRepository
from remit.relay.session.run import Overlay

Wanted = moves.Approve | moves.Reject | moves.Pause | moves.Resume | moves.Stop
"""The events that another process may send: those that do not change who types next."""


class RemoteCommand(Struct, frozen=True, kw_only=True):
    """A command for a run."""

    run: str
    event: Wanted
    by: str = ""
    """The person who sent it."""


def leave(file: DeviceFile, command: RemoteCommand) -> str:
    """Store a command for the session service; return its name."""
    # Names grow, so that commands are carried out in order.
    with file.writing():
        (last,) = file.one("SELECT max(name) FROM facts WHERE name >= 'do/' AND name < 'do0'") or (None,)
        number = int(last.split("/")[1].partition("-")[0], 16) + 1 if last else 0
        name = f"do/{number:08x}-{secrets.token_hex(4)}"
        file.keep(name, command)
    return name


def left(file: DeviceFile) -> list[tuple[str, RemoteCommand]]:
    """Return the open commands, oldest first."""
    # Read together with their values: the session service may delete one at any moment.
    rows = file.rows("SELECT name, value FROM facts WHERE name >= 'do/' AND name < 'do0' ORDER BY name")
    return [(name, file.unlock(value, f"facts/{name}", RemoteCommand)) for name, value in rows]


def forget(file: DeviceFile, name: str) -> None:
    """Delete a command that was carried out or refused."""
    with file.writing():
        file.execute("DELETE FROM facts WHERE name = ?", name)


def refuse(file: DeviceFile, name: str, why: str) -> None:
    """Delete a command that is no longer possible, and store the reason."""
    with file.writing():
        forget(file, name)
        file.keep(f"undone/{name}", why)


def is_left(file: DeviceFile, name: str) -> bool:
    """Return whether a command is still open."""
    return file.one("SELECT 1 FROM facts WHERE name = ?", name) is not None


def refusal(file: DeviceFile, name: str) -> str | None:
    """Return why a command was refused; None if it was carried out or is open."""
    return file.fact(f"undone/{name}", str)


def forget_refusals(file: DeviceFile) -> None:
    """Delete the reasons of refused commands: their senders have read them, or are gone."""
    with file.writing():
        file.execute("DELETE FROM facts WHERE name >= 'undone/' AND name < 'undone0'")


def is_early(command: RemoteCommand, run: Overlay) -> bool:
    """Return whether a command waits until the run is resumed: an answer to its draft does not end a pause."""
    if not isinstance(command.event, moves.Approve | moves.Reject) or run.pending is None:
        return False
    return run.state in {SessionState.PAUSED, SessionState.ERROR} and run.pending.id == command.event.draft


# ── waiting runs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def kept_runs(file: DeviceFile) -> list[Overlay]:
    """Return the stored runs of a device, oldest first."""
    return RunRepository(file).all()


def waiting(file: DeviceFile) -> list[Overlay]:
    """Return the runs with a draft that waits for a person and has no answer yet."""
    answered = {
        command.event.draft for _, command in left(file) if isinstance(command.event, moves.Approve | moves.Reject)
    }
    return [run for run in kept_runs(file) if run.waits and run.draft and run.draft.id not in answered]
