"""Settings that every test shares."""

import gc
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from new_stores import new_store
from remit import Hub
from side_by_side import run_tests

pytest_plugins = ["transcripts"]

FOUND = Path(__file__).parent / "tests" / "fuzz" / "found"

# Timing belongs to bench/, and a slow machine is no counterexample: there is no deadline, and examples may be drawn
# slowly. The same examples are drawn everywhere and each time, so that a change is not turned down for what another
# one did.
# Thirty show that a law holds for what is common; to look for what is rare is for `make fuzz`.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("remit", PATIENT, derandomize=True, max_examples=30)
# New ones each time, for `make fuzz`; those that fail are kept, and tried first the next time.
settings.register_profile(
    "fuzz", PATIENT, derandomize=False, max_examples=500, database=DirectoryBasedExampleDatabase(FOUND)
)
settings.load_profile("remit")
# A team file that others can write is refused, and tests make such files with whatever mask they are started with.
os.umask(0o022)


# Where Python is told to write no bytecode, each process of a run would compile every test anew, 19 seconds of work:
# pytest keeps what it makes of them all the same. What tests themselves load leaves nothing behind, as Python was told.
_WRITE_NO_BYTECODE = sys.dont_write_bytecode
sys.dont_write_bytecode = False


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = _WRITE_NO_BYTECODE


# A shell has what it starts in the background ignore these two, and so all that is started from there. Tests that
# interrupt a program would wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture
def make_hub(tmp_path: Path) -> Callable[..., Hub]:
    """Return `Hub` with its file given, not open yet; a test adds agents, limits, guards, an approver or a clock."""
    return partial(Hub, store=new_store(tmp_path / "hub.db"), durability="process")


@pytest.fixture
def hub(make_hub: Callable[..., Hub]) -> Hub:
    """Return a hub on an SQLite file of its own, so that a test can add its agents."""
    return make_hub()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz", type=float, metavar="SECONDS", help="draw new examples, and begin no test after this time"
    )
    parser.addoption("--forks", type=int, metavar="NUMBER", help="run the tests in so many processes")
    parser.addoption("--shuffle", metavar="SEED", help="run the tests in an order drawn by this seed")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fuzz") is not None:
        settings.load_profile("fuzz")


_END = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for garbage only in what the tests make: ten thousand collected tests and all modules stay anyway."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    processes: int | None = session.config.getoption("--forks")
    return None if processes is None else run_tests(session, processes)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (seed := config.getoption("--shuffle")) is not None:
        random.Random(seed).shuffle(items)
    seconds: float | None = config.getoption("--fuzz")
    if seconds is not None:
        config.stash[_END] = time.monotonic() + seconds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Let the coverage run watch only plain tests of ordinary size.

    Watching doubles what the others cost, and a branch that only drawn examples reach is reached by luck.
    """
    watching = sys.gettrace()
    # A debugger may watch, too, and goes on.
    by_coverage = type(watching).__module__.partition(".")[0] == "coverage"
    if not by_coverage or not any(map(item.get_closest_marker, ("hypothesis", "unwatched"))):
        return (yield)
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(watching)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > item.config.stash.get(_END, float("inf")):
        pytest.skip("the time for drawing examples is up")
