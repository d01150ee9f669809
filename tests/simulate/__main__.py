"""`make simulate`: trees of delegations in simulated worlds, with a fault at each place in turn and then at random.

`python -m simulate --help` lists the options, with `tests` on PYTHONPATH.
"""

import argparse
import hashlib
import multiprocessing
import os
import random
import sys
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.pool import AsyncResult

from simulate.mutations import MUTATIONS
from simulate.runs import RunResult, quieted, repeat, sweep, without

TRACE_LINES = 80
MOST_SHOWN = 5
# After so many runs, how many were done is printed: also of what is interrupted it is known then.
COUNT_EVERY = 1_000

# What killed hubs leave behind is never collected, and makes each later run of the process slower.
SCENARIOS_OF_A_PROCESS = 10


def main() -> int:
    """Run, print what does not hold, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make simulate", description="Simulate faults, and check what was promised.")
    parser.add_argument(
        "--seed", default="", help="the first scenario, such as 17; one run of it, such as 17.42 (default: drawn)"
    )
    parser.add_argument("--runs", type=int, default=1_000, help="begin no scenario after so many runs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--without", choices=MUTATIONS, help="take out one repair, and see that it is noticed")
    parser.add_argument("--whole", action="store_true", help="print whole traces")
    given = parser.parse_args()
    seed = given.seed or str(random.randrange(10**6))
    scenario, _, place = seed.partition(".")
    began = time.monotonic()
    runs, failed, traces = 0, list[RunResult](), hashlib.sha256()
    if given.without is not None:
        sweeps = iter([without(given.without)])
    elif place:
        sweeps = iter([[repeat(int(scenario), int(place))]])
    else:
        sweeps = _sweeps(int(scenario), given.runs, given.jobs)
    for results in sweeps:
        counted, runs = runs // COUNT_EVERY, runs + len(results)
        if runs // COUNT_EVERY > counted:
            took_s = time.monotonic() - began
            print(f"{runs} runs in {took_s:.0f} s, the last {results[-1].name}", file=sys.stderr, flush=True)
        traces.update("".join(each.trace_hash for each in results).encode())
        for each in (each for each in results if each.violations):
            failed.append(each)
            again = f"make simulate SEED={each.name}" if given.without is None else f"--without {given.without}"
            _show(each, again, len(each.trace) if given.whole else TRACE_LINES if len(failed) <= MOST_SHOWN else 0)
    took_s = time.monotonic() - began
    print(f"{runs} runs in {took_s:.0f} s, {runs / took_s:.0f} each second", file=sys.stderr)
    print(f"seed {seed}: {runs} runs, {len(failed)} with violations; digest of all traces {traces.hexdigest()[:16]}")
    return 1 if failed else 0


def _sweeps(seed: int, runs: int, jobs: int) -> Iterator[list[RunResult]]:
    """Yield the results of one scenario after another, until there are enough runs."""
    with multiprocessing.Pool(jobs, initializer=quieted, maxtasksperchild=SCENARIOS_OF_A_PROCESS) as pool:
        waiting = deque[AsyncResult[list[RunResult]]]()
        while runs > 0:
            # One process has one scenario; several have more than one each, as some take longer than others.
            while len(waiting) < jobs * 2 - 1:
                waiting.append(pool.apply_async(sweep, (seed,)))
                seed += 1
            results = waiting.popleft().get()
            yield results
            runs -= len(results)


def _show(result: RunResult, again: str, lines: int) -> None:
    """Print the last *lines* of a trace, and what does not hold."""
    print(f"\nrun {result.name} violates what was promised; repeat it with: {again}")
    if lines and len(result.trace) > lines:
        print(f"  … {len(result.trace) - lines} lines before; --whole shows them")
    for line in result.trace[-lines:] if lines else ():
        print(f"  {line}")
    for line in result.violations:
        print(f"✗ {line}", flush=True)


if __name__ == "__main__":
    quieted()
    sys.exit(main())
