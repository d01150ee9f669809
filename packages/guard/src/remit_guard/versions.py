"""The version of a coding tool that is installed."""

import re
import shutil
import subprocess

# A tool that runs on Node takes a second; one that asks its server for news must not hold up a command.
PATIENCE_S = 10
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")


def installed_version(command: str) -> str | None:
    """Ask a program for its version; None if it is not on the path, or tells none in time."""
    program = shutil.which(command)
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stdout.decode(errors="replace"))
    return None if found is None else found[0]
