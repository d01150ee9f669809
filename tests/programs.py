"""Programs of tests: how a test module is run as one, and whether its process is there."""

import os
import sys
from pathlib import Path


def with_tests_on_path() -> dict[str, str]:
    """Return the environment in which a test module, run as a program, finds the modules that tests share."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def is_alive(pid: int) -> bool:
    """Say whether a process runs, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_there(pid: int) -> bool:
    """Say whether a process is there, be it as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
