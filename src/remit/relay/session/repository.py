"""The storage of runs in the device's file: long texts are separate, so that a step writes only what changed.

run/ID                the run with its short texts
run/ID/said           the names of its long texts, by place; empty for a short one
run/ID/said/NAME      one long text, written once
"""

import secrets

from msgspec.structs import replace

from remit.relay.device.state import DeviceFile
from remit.relay.session.run import Overlay, TimelineEntry

# Shorter texts are smaller than the overhead of a row.
LONG = 1_000

Names = tuple[str, ...]


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
            file.keep(place, _with(run, tuple("" if name else text for text, name in _pairs(run, names))))

    def all(self) -> list[Overlay]:
        """Return the stored runs, oldest first."""
        runs: dict[str, Overlay] = {}
        said: dict[str, Names] = {}
        texts: dict[tuple[str, str], str] = {}
        # In one query, for a consistent snapshot.
        for name, value in self._file.rows("SELECT name, value FROM facts WHERE name >= 'run/' AND name < 'run0'"):
            match name.split("/"):
                case ["run", run]:
                    runs[run] = self._file.unlock(value, f"facts/{name}", Overlay)
                case ["run", run, "said"]:
                    said[run] = self._file.unlock(value, f"facts/{name}", Names)
                case ["run", run, "said", text]:
                    texts[run, text] = self._file.unlock(value, f"facts/{name}", str)
                case _:
                    pass
        for run, names in said.items():
            try:
                pairs = _pairs(runs[run], names)
                runs[run] = _with(runs[run], tuple(texts[run, name] if name else text for text, name in pairs))
            except (KeyError, ValueError) as error:
                raise self._file.damage(f"a part of the run {run} is missing") from error
            self._names[run] = {texts[run, name]: name for name in names if name}
        return [runs[run] for run in sorted(runs)]


def _texts(run: Overlay) -> tuple[str, ...]:
    """The texts of a run that may be long, in a fixed order."""
    pending = run.pending.text if run.pending else ""
    return (run.result, pending, *(entry.text for entry in (*run.timeline, *run.kept)))


def _pairs(run: Overlay, names: Names) -> list[tuple[str, str]]:
    return list(zip(_texts(run), names, strict=True))


def _with(run: Overlay, texts: tuple[str, ...]) -> Overlay:
    """The run with its texts replaced."""
    result, pending, *said = texts
    entries: list[TimelineEntry] = [
        entry if entry.text == text else replace(entry, text=text)
        for entry, text in zip((*run.timeline, *run.kept), said, strict=True)
    ]
    timeline, kept = tuple(entries[: len(run.timeline)]), tuple(entries[len(run.timeline) :])
    draft = replace(run.pending, text=pending) if run.pending else None
    return replace(run, result=result, pending=draft, timeline=timeline, kept=kept)
