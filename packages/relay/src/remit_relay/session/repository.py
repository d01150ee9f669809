"""The storage of runs in the device's file, and commands for a run from another process.

    run/ID                the run with its short texts
    run/ID/said           the names of its long texts, by place; empty for a short one
    run/ID/said/NAME      one long text, written once

A command is deleted in the commit of its step, so it is carried out once, whatever crashes in between. The reason of a
refusal is stored for the sender. Commands need the file and key of the device; there is no other way in.
"""

import secrets
from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from remit_relay.device.state import DeviceFile
from remit_relay.session import moves
from remit_relay.session.moves import SessionState
from remit_relay.session.run import Overlay, PendingDraft, TimelineEntry

# ── unread entries ────────────────────────────────────────────────────────────────────────────────────────────────────

# read/ID               the number of the last entry that the user has read in a run


class ReadMarks:
    """The marks of a device. A mark only moves forward; everything is synchronous."""

    def __init__(self, file: DeviceFile) -> None:
        self._file = file
        self._marks: dict[str, int] = {}

    def load(self) -> None:
        """Read the marks."""
        for name, value in self._file.rows("SELECT name, value FROM facts WHERE name >= 'read/' AND name < 'read0'"):
            self._marks[name.removeprefix("read/")] = self._file.unlock(value, f"facts/{name}", int)

    def keep(self, run: str, number: int) -> None:
        """Store that the user has read a run up to an entry."""
        if number > self._marks.get(run, 0):
            self._file.keep(f"read/{run}", number)
            self._marks[run] = number

    def unread(self, run: Overlay) -> int:
        """Return the number of entries after the mark that no person released: replies, and what was auto-sent."""
        mark = self._marks.get(run.id, 0)
        count = 0
        for entry in reversed(run.timeline):
            if entry.number <= mark:
                break
            count += entry.role == "remote_agent" or entry.label == "auto_sent"
        return count


# ── the repository ────────────────────────────────────────────────────────────────────────────────────────────────────


# Shorter texts are smaller than the overhead of a row.
LONG = 1_000

Names = tuple[str, ...]
Written = TypeVar("Written", TimelineEntry, PendingDraft)


class RunRepository:
    """The runs of a device in its file. Everything is synchronous, and in the caller's transaction."""

    def __init__(self, file: DeviceFile) -> None:
        self._file = file
        self._names: dict[str, dict[str, str]] = {}
        """The names of the long texts of each run: an equal text has the same name, wherever it is used."""

    def keep(self, run: Overlay) -> None:
        """Store a run."""
        file, place = self._file, f"run/{run.id}"
        known = self._names.get(run.id, {})
        named = {text: known.get(text) or secrets.token_hex(8) for text in _texts(run) if len(text) > LONG}
        self._names[run.id] = named
        names = tuple(named.get(text, "") for text in _texts(run))
        with file.writing():
            # Ask the file which texts it has: an earlier transaction may have failed.
            was: Names = file.fact(f"{place}/said", Names) or ()
            for text, name in named.items():
                if name not in was:
                    file.keep(f"{place}/said/{name}", text)
            for name in {*was} - {*names, ""}:
                file.execute("DELETE FROM facts WHERE name = ?", f"{place}/said/{name}")
            if names != was and (any(names) or was):
                file.keep(f"{place}/said", names)
            file.keep(
                place,
                _replace_texts(run, ["" if name else text for text, name in zip(_texts(run), names, strict=True)]),
            )

    def all(self) -> list[Overlay]:
        """Return the stored runs, oldest first."""
        runs: dict[str, Overlay] = {}
        named: dict[str, Names] = {}
        texts: dict[tuple[str, str], str] = {}
        # In one query, for a consistent snapshot.
        for name, value in self._file.rows("SELECT name, value FROM facts WHERE name >= 'run/' AND name < 'run0'"):
            match name.split("/"):
                case ["run", run]:
                    runs[run] = self._file.unlock(value, f"facts/{name}", Overlay)
                case ["run", run, "said"]:
                    named[run] = self._file.unlock(value, f"facts/{name}", Names)
                case ["run", run, "said", text]:
                    texts[run, text] = self._file.unlock(value, f"facts/{name}", str)
                case _:
                    pass
        for run, names in named.items():
            try:
                pairs = zip(_texts(runs[run]), names, strict=True)
                runs[run] = _replace_texts(runs[run], [texts[run, name] if name else text for text, name in pairs])
            except (KeyError, ValueError) as error:
                raise self._file.damage(f"a part of the run {run} is missing") from error
            self._names[run] = {texts[run, name]: name for name in names if name}
        return [runs[run] for run in sorted(runs)]


def _texts(run: Overlay) -> tuple[str, ...]:
    """Return the texts of a run that may be long, in a fixed order."""
    drafts = () if run.pending is None else (run.pending,)
    written = (part for each in (*drafts, *run.timeline, *run.kept) for part in (each.text, each.original))
    return (run.result, *written, *(draft.text for draft in run.rejected))


def _replace_texts(run: Overlay, texts: Sequence[str]) -> Overlay:
    """Return the run with its texts replaced."""
    left = iter(texts)

    def with_both(each: Written) -> Written:
        text, original = next(left), next(left)
        return each if (each.text, each.original) == (text, original) else replace(each, text=text, original=original)

    return replace(
        run,
        result=next(left),
        pending=None if run.pending is None else with_both(run.pending),
        timeline=tuple(map(with_both, run.timeline)),
        kept=tuple(map(with_both, run.kept)),
        rejected=tuple(replace(draft, text=next(left)) for draft in run.rejected),
    )


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
