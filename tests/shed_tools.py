"""What the tools of the MCP servers for tests do, whichever way they are served."""

import os
import subprocess
import sys


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


def call_back(phone: str) -> str:
    """Call someone back."""
    return f"nobody answers at {phone}"


def count() -> dict[str, int]:
    """Count the processes that were started for this server so far, by the lines of a file."""
    with open(os.environ["SHED_STARTS"], encoding="ascii") as file:
        return {"starts": len(file.readlines())}


def environment() -> dict[str, str]:
    """Return everything that it finds in its environment."""
    return dict(os.environ)


def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


def huge(size: int) -> str:
    """Return a text of that size."""
    return "x" * size


def complain(size: int) -> str:
    """Write so much to stderr."""
    sys.stderr.write("y" * size + "\n")
    sys.stderr.flush()
    return "said"


def spawn(file: str) -> str:
    """Start a process that would outlive this one, and note its number."""
    child = subprocess.Popen(["sleep", "1000"])
    with open(file, "w", encoding="ascii") as noted:
        noted.write(str(child.pid))
    return "started"


PLAIN = (add, shout, call_back, count, environment, fail, huge, complain, spawn)
"""Those that need nothing but their arguments."""


def note_pid(file: str) -> None:
    with open(file, "w", encoding="ascii") as touched:
        touched.write(str(os.getpid()))


def note_start(file: str | None) -> None:
    """Add a line for this process, if there is a file for such lines."""
    if file is not None:
        with open(file, "a", encoding="ascii") as starts:
            starts.write("started\n")
