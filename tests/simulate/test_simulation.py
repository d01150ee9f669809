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


def simulated(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Return what came of `make simulate`; without variables of its own it is forked, and so starts at once."""
    program = "import sys; from simulate.__main__ import main, quieted; quieted(); sys.exit(main())"
    command = [sys.executable, "-c", program, *arguments, "--jobs", "1"]
    return run_program(command, variables={**os.environ, "PYTHONPATH": str(TESTS), **variables}, timeout=BOUND_S)


def test_what_was_promised_holds_with_a_fault_at_every_place_and_a_seed_repeats_exactly() -> None:
    # One scenario, with 41 faults; the order of sets and dicts differs between the two.
    first, second = (simulated("--seed", "1", "--runs", "1", PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert (first.returncode, second.returncode) == (0, 0), first.stdout
    assert first.stdout == second.stdout


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param("700060", id="calls with others below them are collected when no loop runs any more"),
        pytest.param("20000065.48", id="a hub that stood still reads what its successor sent"),
        pytest.param("20800004.40", id="a request is cancelled while the store is away"),
        pytest.param("20800061.69", id="the hub between a cancelled call and its work is dead"),
        pytest.param("30400016.71", id="a request is cancelled at a hub that reaches neither the store nor its host"),
        pytest.param("50400033.16", id="a request is cancelled while it is found that it was made before"),
        pytest.param("61500036.33", id="a request that a hub has taken is cancelled while the store is away from it"),
        pytest.param("40000024.93", id="a request is cancelled at a hub whose lease ended while the store was away"),
    ],
)
def test_what_was_found_once_stays_repaired(seed: str) -> None:
    done = simulated("--seed", seed, "--runs", "1")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("repair", MUTATIONS)
def test_a_repair_that_is_taken_out_is_missed(repair: str) -> None:
    done = simulated("--without", repair)
    assert done.returncode == 1, done.stderr
    assert MUTATIONS[repair].violation in done.stdout
