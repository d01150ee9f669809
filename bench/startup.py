"""What importing Remit and starting its command line cost, against bare Python."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness import Figure, at_most, best_of_each, main

ROUNDS = 15
PYTHON = sys.executable
REMIT = str(Path(PYTHON).with_name("remit"))

# A user's second start finds compiled files; where this is set, no start ever would.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def start(*command: str) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL)


def measure() -> list[Figure]:
    runs = {
        "python -c pass": start(PYTHON, "-c", "pass"),
        "import remit": start(PYTHON, "-c", "import remit"),
        "from remit import Hub": start(PYTHON, "-c", "from remit import Hub"),
        "remit --help": start(REMIT, "--help"),
    }
    for run in runs.values():
        run()  # compiles what is not compiled yet
    best = best_of_each(ROUNDS, runs, clock=time.perf_counter)
    # asyncio alone is six times bare Python: what imports it can have no goal.
    goals = {"import remit": at_most(4), "from remit import Hub": None, "remit --help": at_most(6)}
    return [
        Figure(
            name=f"start-up: {name}", value=best[name] * 1e3, floor=best["python -c pass"] * 1e3, unit="ms", bound=goal
        )
        for name, goal in goals.items()
    ]


if __name__ == "__main__":
    main(measure)
