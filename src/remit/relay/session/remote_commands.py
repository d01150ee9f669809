"""What somebody wants of a run from another process: left in the device's file, done by the host that has the run.

A command is forgotten in the commit of the step that it leads to, so it is done once, whatever dies in between. Why one
can no longer be done is kept, for whoever left it. It is left with `leave`, through the same file and key that the host
uses; there is no other way in.
"""

import secrets

from msgspec import Struct

from remit.relay.device.state import DeviceFile
from remit.relay.session import moves
from remit.relay.session.moves import SessionState
from remit.relay.session.repository import RunRepository
from remit.relay.session.run import Overlay

Wanted = moves.Approve | moves.Reject | moves.Pause | moves.Resume | moves.Stop
"""What can be wanted from afar: what leaves no question of who types next."""


class RemoteCommand(Struct, frozen=True, kw_only=True):
    """What is wanted of a run."""

    run: str
    event: Wanted
    by: str = ""
    """Who wants it."""


def leave(file: DeviceFile, command: RemoteCommand) -> str:
    """Leave a command for the host; return its name."""
    # Names grow, so that they are done in the order in which they were left.
    with file.writing():
        (last,) = file.one("SELECT max(name) FROM facts WHERE name >= 'do/' AND name < 'do0'") or (None,)
        number = int(last.split("/")[1].partition("-")[0], 16) + 1 if last else 0
        name = f"do/{number:08x}-{secrets.token_hex(4)}"
        file.keep(name, command)
    return name


def left(file: DeviceFile) -> list[tuple[str, RemoteCommand]]:
    """Return the commands that were left and not done, oldest first."""
    # Read together with their values: a host may do and forget one at any moment.
    rows = file.rows("SELECT name, value FROM facts WHERE name >= 'do/' AND name < 'do0' ORDER BY name")
    return [(name, file.unlock(value, f"facts/{name}", RemoteCommand)) for name, value in rows]


def forget(file: DeviceFile, name: str) -> None:
    """Forget a command: it is done, or cannot be."""
    with file.writing():
        file.execute("DELETE FROM facts WHERE name = ?", name)


def refuse(file: DeviceFile, name: str, why: str) -> None:
    """Forget a command that cannot be done any more, and keep why."""
    with file.writing():
        forget(file, name)
        file.keep(f"undone/{name}", why)


def is_left(file: DeviceFile, name: str) -> bool:
    """Say whether a command is neither done nor refused yet."""
    return file.one("SELECT 1 FROM facts WHERE name = ?", name) is not None


def refusal(file: DeviceFile, name: str) -> str | None:
    """Return why a command could not be done; None if it was, or may still be."""
    return file.fact(f"undone/{name}", str)


def forget_refusals(file: DeviceFile) -> None:
    """Forget why commands could not be done: whoever waited for it has heard it, or is gone."""
    with file.writing():
        file.execute("DELETE FROM facts WHERE name >= 'undone/' AND name < 'undone0'")


def is_early(command: RemoteCommand, run: Overlay) -> bool:
    """Say whether a command waits until the run is resumed: an answer to its draft does, for it ends no pause."""
    if not isinstance(command.event, moves.Approve | moves.Reject) or run.pending is None:
        return False
    return run.state in {SessionState.PAUSED, SessionState.ERROR} and run.pending.id == command.event.draft


# ── what waits ────────────────────────────────────────────────────────────────────────────────────────────────────────


def kept_runs(file: DeviceFile) -> list[Overlay]:
    """Return the runs of a device as they were last kept, oldest first."""
    return RunRepository(file).all()


def waiting(file: DeviceFile) -> list[Overlay]:
    """Return the runs that have a draft which waits for a person, and nobody has answered yet."""
    answered = {
        command.event.draft for _, command in left(file) if isinstance(command.event, moves.Approve | moves.Reject)
    }
    return [run for run in kept_runs(file) if run.waits and run.draft and run.draft.id not in answered]
