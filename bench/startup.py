"""What importing Remit and starting its command line cost, against bare Python and against asyncio."""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness import Figure, Goal, at_most, best_of_each, main, sized

ROUNDS = 15
PYTHON = sys.executable
REMIT = str(Path(PYTHON).with_name("remit"))

# A user's second start finds compiled files; where this is set, no start ever would.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


# Completion is asked as bash does.
COMPLETION = {"_REMIT_COMPLETE": "bash_complete", "COMP_WORDS": "remit run ", "COMP_CWORD": "2"}
TEAM = '[agents.echo]\nrun = "echo:answer"\ndescription = "Repeats its task."\n'
CODE = "async def answer(brief):\n    return brief.objective\n"


def children_seconds() -> float:
    """CPU time of the commands so far: a start hardly waits, and what else the machine does must not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def start(*command: str, folder: Path | None = None, **variables: str) -> Callable[[], object]:
    environment = {**ENVIRONMENT, **variables}
    quiet = subprocess.DEVNULL
    return lambda: subprocess.run(command, check=True, env=environment, stdout=quiet, stderr=quiet, cwd=folder)


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "remit.toml").write_text(TEAM)
        (folder / "echo.py").write_text(CODE)
        runs = {
            "python -c pass": start(PYTHON, "-c", "pass"),
            "import asyncio": start(PYTHON, "-c", "import asyncio"),
            "import remit": start(PYTHON, "-c", "import remit"),
            "from remit import Hub": start(PYTHON, "-c", "from remit import Hub"),
            "remit --help": start(REMIT, "--help"),
            "remit run": start(REMIT, "run", "echo", "Hello", folder=folder),
            "remit runs list": start(REMIT, "runs", "list", folder=folder),
            "completion": start(REMIT, folder=folder, **COMPLETION),
            "remit doctor": start(REMIT, "doctor", folder=folder),
        }
        for run in sized(list(runs.values()), []):
            run()  # compiles what is not compiled yet
        best = best_of_each(ROUNDS, runs, clock=children_seconds)
    # Programs with an event loop are compared with asyncio, which is five times bare Python.
    goals: dict[tuple[str, str], Goal | None] = {
        ("import remit", "python -c pass"): at_most(4),
        ("remit --help", "python -c pass"): at_most(6),
        ("from remit import Hub", "import asyncio"): at_most(2.5),
        ("remit run", "import asyncio"): at_most(5),
        ("remit runs list", "import asyncio"): at_most(3),
        ("completion", "import asyncio"): at_most(2.5),
        ("remit doctor", "import asyncio"): None,
    }
    return [
        Figure(name=f"start-up: {name}", value=best[name] * 1e3, floor=best[floor] * 1e3, unit="ms", bound=goal)
        for (name, floor), goal in goals.items()
    ]


if __name__ == "__main__":
    main(measure)
