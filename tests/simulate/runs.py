"""The runs of a scenario: without a fault, with one at each place in turn, and with several."""

import gc
import logging
import random
import sys
import warnings
from typing import NamedTuple

import pytest

from simulate.laws import violations
from simulate.mutations import MUTATIONS
from simulate.plan import PlannedFault, Scenario, draw_faults, draw_scenario
from simulate.world import SimulatedWorld

# After a fault at each place in turn, so many runs with several faults.
RANDOM_RUNS = 20
# Garbage is collected between runs only: a task that is collected runs its `finally` blocks.
COLLECT_EVERY = 40


class RunResult(NamedTuple):
    """One run: its name, which repeats it, and what does not hold."""

    name: str
    violations: list[str]
    trace: list[str]
    """Empty if everything holds."""
    trace_hash: str
    places: int


def run(name: str, scenario: Scenario, faults: dict[int, PlannedFault]) -> RunResult:
    """Run a scenario with faults; everything else is drawn by the name."""
    world = SimulatedWorld(scenario, faults, name)
    broken = violations(world, ended=world.run())
    return RunResult(name, broken, world.trace if broken else [], world.trace_hash(), world.places)


def simulate(seed: int, place: int, places: int) -> RunResult:
    """Run the scenario of a seed with a fault at one of its *places*; 0: without one."""
    name = f"{seed}.{place}"
    faults = draw_faults(random.Random(f"faults {name}"), places, place)
    return run(name, draw_scenario(random.Random(f"scenario {seed}")), faults)


def repeat(seed: int, place: int) -> RunResult:
    """Run one run of a scenario again."""
    return simulate(seed, place, simulate(seed, 0, 0).places if place else 0)


def sweep(seed: int) -> list[RunResult]:
    """Run all runs of a scenario."""
    first = simulate(seed, 0, 0)
    results = [first]
    for place in range(1, first.places + RANDOM_RUNS + 1):
        results.append(simulate(seed, place, first.places))
        if place % COLLECT_EVERY == 0:
            gc.collect()
    return results


def without(name: str) -> list[RunResult]:
    """Take out a repair, and run the scenario that shows it, with its fault at each place in turn."""
    mutation = MUTATIONS[name]

    def run_all() -> list[RunResult]:
        first = run(f"{name}.0", mutation.scenario, {})
        places = range(1, first.places + 1)
        return [first, *(run(f"{name}.{place}", mutation.scenario, {place: mutation.fault}) for place in places)]

    assert not any(each.violations for each in run_all()), "the repair itself does not hold"
    with pytest.MonkeyPatch.context() as patch:
        mutation.takes_out(patch)
        return run_all()


def quieted() -> None:
    """Prepare a process that does nothing but simulate."""
    logging.disable(logging.CRITICAL)
    # Tasks of killed processes never end, and say so when they are collected.
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None
    gc.disable()
    gc.freeze()
