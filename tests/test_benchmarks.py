"""Every benchmark runs: in its smallest form, so that one that is broken shows before somebody measures with it."""

import sys
from math import isfinite
from pathlib import Path

import msgspec
import pytest

import harness
import run
from command_line import environment
from commands import run_program, run_variables
from harness import Figure

# What is run by another test already.
RUN_ELSEWHERE = {"layout": "test_layout_figures.py"}


@pytest.mark.parametrize("name", [name for name in run.benchmarks() if name not in RUN_ELSEWHERE])
def test_a_benchmark_runs_in_its_smallest_form(name: str, tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    done = run_program(
        [sys.executable, str(run.HERE / f"{name}.py"), "--json", str(written)],
        folder=tmp_path,
        variables={**environment(), **run_variables(), harness.SMALL: "1"},
        timeout=290,  # a little less than that of a test, so that what hangs is ended
    )
    assert done.returncode == 0, done.stderr
    figures = msgspec.json.decode(written.read_bytes(), type=list[Figure])
    if not figures:
        assert done.stderr, "a benchmark that measures nothing says why"
        pytest.skip(f"NOT TESTED: bench/{name}.py: {done.stderr.strip()}")
    assert all(isfinite(each.value) for each in figures)
    assert len({each.name for each in figures}) == len(figures)


def test_a_missed_goal_is_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    missed = Figure(name="recall", value=0.7, unit="", bound=harness.at_least(0.8))
    monkeypatch.setattr(sys, "argv", ["bench"])
    with pytest.raises(SystemExit, match="True"):
        harness.main(lambda: [missed])
    assert ">= 0.8  missed" in capsys.readouterr().out
