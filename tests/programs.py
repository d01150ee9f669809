"""Run a test module as a program of its own."""

import os
import sys


def with_tests_on_path() -> dict[str, str]:
    """Return the environment in which a test module, run as a program, finds the modules that tests share."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
