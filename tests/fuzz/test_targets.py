"""Whatever strangers send gives a value or a documented error, never anything else; `make fuzz` draws more of it."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from fuzz.targets import DOORS, TARGETS

# `make fuzz` runs what has this mark; to property tests Hypothesis gives it by itself.
pytestmark = pytest.mark.hypothesis

FOUND = Path(__file__).with_name("found")
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


@pytest.fixture(scope="module", autouse=True)
def doors() -> Iterator[None]:
    yield
    DOORS.close()


def check(name: str, raw: bytes) -> None:
    target = TARGETS[name]
    with suppress(*target.refusals):
        target.read(raw)


def folder_of(name: str) -> Path:
    return FOUND / name.replace(" ", "-")


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_give_a_value_or_a_documented_error(name: str, pytestconfig: pytest.Config) -> None:
    seconds: float | None = pytestconfig.getoption("--fuzz")
    end = time.monotonic() + (seconds or 0) / len(TARGETS)
    last = b""

    @settings(suppress_health_check=SLOW, database=None)
    @given(TARGETS[name].inputs)
    def law(raw: bytes) -> None:
        nonlocal last
        last = raw
        check(name, raw)

    while True:
        try:
            law()
        except BaseException:
            if seconds is not None:
                # The last that was tried is the smallest that fails.
                folder_of(name).mkdir(parents=True, exist_ok=True)
                (folder_of(name) / hashlib.sha256(last).hexdigest()[:16]).write_bytes(last)
            raise
        if time.monotonic() >= end:
            return


def test_what_once_went_wrong_goes_wrong_no_more() -> None:
    for name in TARGETS:
        for path in sorted(folder_of(name).glob("*")):
            check(name, path.read_bytes())
