"""A run in several processes tells the same as one in a single process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")

CONFTEST = """
import side_by_side

def pytest_addoption(parser):
    parser.addoption("--forks", type=int)

def pytest_runtestloop(session):
    processes = session.config.getoption("--forks")
    return None if processes is None else side_by_side.run_tests(session, processes)
"""
TESTS = """
import os
import pytest

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    yield folder
    print("closed", os.getpid())

@pytest.fixture
def stuck():
    yield
    raise ValueError("in its teardown")

@pytest.mark.parametrize("number", range(20))
def test_one_of_many(shared, number):
    (shared / str(number)).touch()

def test_that_fails(shared):
    print("printed by the one that fails")
    assert 1 == 2

def test_that_is_skipped():
    pytest.skip("for a reason")

@pytest.mark.xfail
def test_that_fails_as_expected():
    assert False

def test_that_ends_badly(stuck):
    pass
"""
DIES = "def test_that_dies():\n    import os\n    os._exit(3)\n\ndef test_that_comes_after_it():\n    pass\n"


def run(folder: Path, *options: str) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rsfE",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        *options,
    ]
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    variables.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in ("one", "two", "three"):
        (tmp_path / f"test_{name}.py").write_text(TESTS)
    return tmp_path


@pytest.mark.parametrize("forks", ["1", "4"])
def test_what_came_of_each_test_is_told_as_in_one_process(folder: Path, forks: str) -> None:
    alone, together = (run(folder, *options) for options in ((), ("--forks", forks)))
    for pattern in (r"^(?:FAILED|ERROR|SKIPPED).*$", r"\d+ failed.* (?=in )"):
        outcomes = [sorted(re.findall(pattern, text, flags=re.MULTILINE)) for text in (alone, together)]
        assert outcomes[0] == outcomes[1]
        assert outcomes[0]
    assert together.count("printed by the one that fails") == alone.count("printed by the one that fails") >= 3


def test_a_process_that_dies_fails_its_test_and_the_others_are_run(folder: Path) -> None:
    (folder / "test_dies.py").write_text(DIES)
    text = run(folder, "--forks", "2")
    assert "the process of this test ended with 3" in text
    assert "FAILED test_dies.py::test_that_dies" in text
    assert "4 failed, 64 passed, 3 skipped, 3 xfailed, 3 errors" in text


def test_the_first_failure_ends_a_run_that_is_told_so(folder: Path) -> None:
    # The other process may be in the middle of one that fails, too.
    assert re.search(r"stopping after [12] failures", run(folder, "--forks", "2", "-x"))
