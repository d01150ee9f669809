"""What waits together is committed together: whole or not at all each, and told when it is durable."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import apsw
import pytest

from commands import run_program
from remit.ports import StoreError
from remit.ports.keys import HubKeys
from remit_relay.device.state import MOST_AT_ONCE, Commits, DeviceFile, FailedWork, FileChanges, Work
from waiting import PATIENCE_S


class Desk:
    """A device's state, a view of the same file from outside, and works that wait until they are let go."""

    def __init__(self, path: Path) -> None:
        self.state = DeviceFile.open(path / "device.db", HubKeys(b"k" * 32), "process")
        self.outside = DeviceFile.open(path / "device.db", HubKeys(b"k" * 32), "process")
        self.commits = Commits(self.state, self._company)
        self.go = threading.Event()
        self.batches: list[int] = []
        self.extra: list[Work] = []

    def _company(self, batch: list[Work]) -> None:
        self.batches.append(len(batch))
        batch += self.extra

    def hold(self) -> "asyncio.Future[bool]":
        """Keep the thread busy, so that what is wanted meanwhile waits together."""
        return self.commits.do(lambda: self.go.wait(PATIENCE_S))

    def keep(self, name: str) -> Callable[[], str]:
        def work() -> str:
            self.state.keep(name, name)
            return name

        return work

    def kept(self) -> list[str]:
        rows = self.outside.rows("SELECT name FROM facts WHERE name <> 'check' ORDER BY name")
        return [name for (name,) in rows]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.go.set()
    await desk.commits.close()
    desk.state.close()
    desk.outside.close()


def failing(desk: Desk, error: Exception) -> Callable[[], None]:
    def work() -> None:
        desk.state.keep("half", "done")
        raise error

    return work


async def test_what_waits_together_is_one_commit_and_is_told_when_that_is_durable(desk: Desk) -> None:
    held = desk.hold()
    works = [desk.commits.do(desk.keep(f"{number:03}")) for number in range(MOST_AT_ONCE + 5)]
    seen: list[list[str]] = []
    works[0].add_done_callback(lambda _: seen.append(desk.kept()))
    desk.go.set()
    assert await held
    assert [await each for each in works] == [f"{number:03}" for number in range(MOST_AT_ONCE + 5)]
    assert desk.batches == [1, MOST_AT_ONCE, 5]
    assert len(seen[0]) >= MOST_AT_ONCE


async def test_a_work_that_fails_is_undone_alone(desk: Desk) -> None:
    held = desk.hold()
    one = desk.commits.do(desk.keep("one"))
    wrong = desk.commits.do(failing(desk, KeyError("x")))
    two = desk.commits.do(desk.keep("two"))
    desk.go.set()
    await held
    assert (await one, await two) == ("one", "two")
    with pytest.raises(KeyError):
        await wrong
    assert desk.kept() == ["one", "two"]


async def test_if_the_store_is_in_trouble_nothing_is_kept_and_all_are_told(desk: Desk) -> None:
    held = desk.hold()
    own = desk.commits.do(failing(desk, KeyError("x")))
    one, wrong, two = (
        desk.commits.do(each) for each in (desk.keep("one"), failing(desk, apsw.FullError()), desk.keep("two"))
    )
    desk.go.set()
    await held
    with pytest.raises(KeyError):
        await own
    for each in (one, wrong, two):
        with pytest.raises(StoreError, match="the disk is full"):
            await each
    assert desk.kept() == []
    assert await desk.commits.do(desk.keep("later")) == "later"
    assert desk.kept() == ["later"]


async def test_what_was_wanted_is_done_though_nobody_waits_for_it_any_more(desk: Desk) -> None:
    held = desk.hold()
    wanted = desk.commits.do(desk.keep("wanted"))
    wanted.cancel()
    desk.go.set()
    await held
    await desk.commits.do(lambda: None)
    assert desk.kept() == ["wanted"]


async def test_the_company_of_a_commit_hears_of_it_before_the_next_one_begins(desk: Desk) -> None:
    outcomes: list[tuple[object, int]] = []
    desk.extra = [Work(desk.keep("extra"), lambda outcome: outcomes.append((outcome, len(desk.batches))))]
    held = desk.hold()
    one = desk.commits.do(desk.keep("one"))
    desk.go.set()
    await held
    await one
    assert outcomes == [("extra", 1), ("extra", 2)]
    desk.extra = [Work(failing(desk, KeyError("x")), lambda outcome: outcomes.append((outcome, 0)))]
    await desk.commits.do(desk.keep("two"))
    assert isinstance(outcomes[-1][0], FailedWork)
    assert desk.kept() == ["extra", "one", "two"]


def test_changes_of_a_file_are_seen_once_whoever_made_them(tmp_path: Path) -> None:
    here, there = (DeviceFile.open(tmp_path / "device.db", HubKeys(b"k" * 32), "process") for _ in range(2))
    changes = FileChanges(here)
    assert [changes.look(), changes.look()] == [True, False]
    for each in (here, there):
        each.keep("name", 1)
        assert [changes.look(), changes.look()] == [True, False]
    with here.writing():  # a commit without changes
        pass
    assert not changes.look()
    here.close()
    there.close()


_WRITE = """
import sys
from pathlib import Path
from remit_relay.device.state import DeviceFile
from remit.ports.keys import HubKeys

state = DeviceFile.open(Path(sys.argv[1]), HubKeys(b"k" * 32), "process")
if sys.argv[2] == "undo":
    try:
        with state.writing():
            state.keep("name", 3)
            raise KeyError
    except KeyError:
        pass
else:
    state.keep("name", 2)
state.close()
"""


@pytest.mark.parametrize(("what", "changed"), [("keep", True), ("undo", False)])
def test_what_another_process_commits_is_seen_and_what_it_rolls_back_is_not(
    tmp_path: Path, what: str, changed: bool
) -> None:
    path = tmp_path / "device.db"
    state = DeviceFile.open(path, HubKeys(b"k" * 32), "process")
    changes = FileChanges(state)
    assert [changes.look(), changes.look()] == [True, False]
    done = run_program([sys.executable, "-c", _WRITE, str(path), what])
    assert done.returncode == 0, done.stderr
    assert [changes.look(), changes.look()] == [changed, False]
    assert state.fact("name", int) == (2 if changed else None)
    state.close()


def test_a_file_that_another_thread_writes_counts_as_changed(tmp_path: Path) -> None:
    state = DeviceFile.open(tmp_path / "device.db", HubKeys(b"k" * 32), "process")
    changes, held, go = FileChanges(state), threading.Event(), threading.Event()
    assert [changes.look(), changes.look()] == [True, False]

    def write() -> None:
        with state.writing():
            held.set()
            go.wait(PATIENCE_S)

    thread = threading.Thread(target=write)
    thread.start()
    held.wait(PATIENCE_S)
    assert [changes.look(), changes.look()] == [True, True]
    go.set()
    thread.join()
    state.close()
