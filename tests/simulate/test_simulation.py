"""The short form of `make simulate`, and what is found if a repair is taken out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands import run_program
from simulate.mutations import MUTATIONS

TESTS = Path(__file__).parent.parent
# Only ends what hangs.
BOUND_S = 600
RUNS = 100


def start(*arguments: str, **variables: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "simulate", *arguments, "--jobs", "1"]
    environ = {**os.environ, "PYTHONPATH": str(TESTS), **variables}
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, encoding="utf-8")


def test_what_was_promised_holds_with_a_fault_at_every_place_and_a_seed_repeats_exactly() -> None:
    # The order of sets and dicts differs between the two.
    both = [start("--seed", "1", "--runs", str(RUNS), PYTHONHASHSEED=seed) for seed in ("1", "2")]
    first, second = (process.communicate(timeout=BOUND_S)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0], first
    assert first == second


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param("700060", id="calls with others below them are collected when no loop runs any more"),
        pytest.param("20000065.48", id="a hub that stood still reads what its successor sent"),
        pytest.param("20800004.40", id="a request is cancelled while the store is away"),
        pytest.param("20800061.69", id="the hub between a cancelled call and its work is dead"),
        pytest.param("30400016.71", id="a request is cancelled at a hub that reaches neither the store nor its host"),
        pytest.param("50400033.16", id="a request is cancelled while it is found that it was made before"),
        pytest.param("40000024.93", id="a request is cancelled at a hub whose lease ended while the store was away"),
    ],
)
def test_what_was_found_once_stays_repaired(seed: str) -> None:
    process = start("--seed", seed, "--runs", "1")
    output = process.communicate(timeout=BOUND_S)[0]
    assert process.returncode == 0, output


@pytest.mark.parametrize("repair", MUTATIONS)
def test_a_repair_that_is_taken_out_is_missed(repair: str) -> None:
    program = "import sys; from simulate.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "--jobs", "1", "--without", repair]
    done = run_program(command, variables={**os.environ, "PYTHONPATH": str(TESTS)}, timeout=BOUND_S)
    assert done.returncode == 1, done.stderr
    assert MUTATIONS[repair].violation in done.stdout
