"""Runs in a device's file: whole, and no text written twice."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack
from msgspec.structs import replace

from remit.ports import StoreError
from remit.ports.keys import HubKeys
from remit_relay.device.state import DeviceFile
from remit_relay.session.repository import LONG, RunRepository
from remit_relay.session.run import Overlay, PendingDraft, RejectedDraft, TimelineEntry

MEGABYTE = 1_000_000


@pytest.fixture
def file(tmp_path: Path) -> Iterator[DeviceFile]:
    state = DeviceFile.open(tmp_path / "device.db", HubKeys(b"k" * 32), "process")
    yield state
    state.close()


def run_of(*texts: str, name: str = "r1", first: int = 1, **more: Any) -> Overlay:
    timeline = tuple(
        TimelineEntry(
            role="local_agent" if number % 2 else "remote_agent", text=text, turn=number, at_ms=number, number=number
        )
        for number, text in enumerate(texts, first)
    )
    return Overlay(
        id=name, profile="p", device="d", session="s", objective="Review this API", timeline=timeline, **more
    )


def long(letter: str, size: int = LONG + 1) -> str:
    return letter * size


class Written:
    """Counts what is put into the file."""

    def __init__(self, file: DeviceFile, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        keep = file.keep

        def counted(name: str, value: object) -> None:
            self.bytes += len(msgpack.encode(value))
            keep(name, value)

        monkeypatch.setattr(file, "keep", counted)

    def since(self) -> int:
        written_bytes, self.bytes = self.bytes, 0
        return written_bytes


text = st.sampled_from(["", "short", "x" * LONG, long("y"), long("z"), long("é")])
entries = st.lists(text, max_size=4)


@given(steps=st.lists(st.tuples(entries, entries, entries, st.none() | text, text), min_size=1, max_size=4))
def test_a_run_is_read_as_it_was_kept_last(
    steps: list[tuple[list[str], list[str], list[str], str | None, str]],
) -> None:
    with TemporaryDirectory() as folder:
        file = DeviceFile.open(Path(folder) / "device.db", HubKeys(b"k" * 32), "process")
        runs, run = RunRepository(file), run_of()
        for texts, later, rejected, draft, result in steps:
            run = run_of(
                *texts,
                result=result,
                kept=tuple(
                    replace(each, original=each.text[::-1]) for each in run_of(*later, first=1 + len(texts)).timeline
                ),
                pending=None if draft is None else PendingDraft(id="draft", text=draft, original=result),
                rejected=tuple(RejectedDraft(number=9, id="r", text=each, turn=1, at_ms=1) for each in rejected),
            )
            runs.keep(run)
            assert RunRepository(file).all() == [run]
        # Nothing is left of what is not said any more.
        texts, later, rejected, draft, result = steps[-1]
        used = {each for each in (*texts, *later, *rejected, draft or "", result) if len(each) > LONG}
        assert file.rows("SELECT count(*) FROM facts WHERE name LIKE 'run/%/said/%'") == [(len(used),)]
        file.close()


def test_a_step_writes_what_it_has_changed_and_no_text_again(file: DeviceFile, monkeypatch: pytest.MonkeyPatch) -> None:
    written, runs = Written(file, monkeypatch), RunRepository(file)
    run = run_of(*(long(letter, MEGABYTE) for letter in "abcdefgh"))
    runs.keep(run)
    assert 8 * MEGABYTE < written.since() < 8.1 * MEGABYTE
    steps = [
        replace(run, turn=5),
        replace(run, timeline=(*run.timeline[:-1], replace(run.timeline[-1], sent_ms=9))),
        replace(run, timeline=run.timeline[:-1], pending=PendingDraft(id="draft", text=run.timeline[-1].text)),
        replace(run, timeline=run.timeline[:-1], kept=run.timeline[-1:]),
    ]
    for each in steps:
        runs.keep(each)
        assert written.since() < 5_000
        assert RunRepository(file).all() == [each]
    more = replace(steps[-1], result=long("i", MEGABYTE))
    runs.keep(more)
    assert MEGABYTE < written.since() < 1.1 * MEGABYTE
    # Nor does whoever reads them first.
    again = RunRepository(file)
    assert again.all() == [more]
    again.keep(replace(more, turn=6))
    assert written.since() < 5_000


def test_what_was_not_committed_is_written_once_more(file: DeviceFile) -> None:
    runs, run = RunRepository(file), run_of(long("a"), long("b"))

    def killed() -> None:
        with file.writing():
            runs.keep(run)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        killed()
    assert runs.all() == []
    runs.keep(run)
    assert RunRepository(file).all() == [run]


@pytest.mark.parametrize("name", ["run/r1", "run/r1/said/%"])
def test_a_run_of_which_something_is_missing_is_an_error_that_names_the_file(file: DeviceFile, name: str) -> None:
    RunRepository(file).keep(run_of(long("a")))
    with file.writing():
        file.execute("DELETE FROM facts WHERE name LIKE ?", name)
    with pytest.raises(StoreError, match=r"device\.db is damaged: a part of the run r1 is missing"):
        RunRepository(file).all()


def test_nothing_of_a_text_can_be_read_or_guessed_in_the_file(file: DeviceFile) -> None:
    """S1: neither the words nor a digest of them that somebody could try guesses on."""
    runs, run = RunRepository(file), run_of(long("CANARY"))
    runs.keep(run)
    first = file.rows("SELECT name FROM facts WHERE name LIKE 'run/%/said/%'")
    runs.keep(replace(run, timeline=()))
    RunRepository(file).keep(run)
    assert first != file.rows("SELECT name FROM facts WHERE name LIKE 'run/%/said/%'")
    assert not any(b"CANARY" in each.read_bytes() for each in file.path.parent.glob("device.db*"))
