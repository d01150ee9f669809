"""The command line as a user meets it: a process of its own, in a folder of its own."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from commands import REMIT, run
from remit_cli.init import init

__all__ = ["REMIT", "document", "environment", "make_team", "remit"]


def environment(**more: str) -> dict[str, str]:
    """Return the variables of this process without what would change what is printed, a guard of the user included."""
    changing = ("REMIT_", "_REMIT_", "COLUMNS", "LINES", "FORCE_COLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(changing)}
    return {**kept, "NO_COLOR": "1", "PYTHONWARNINGS": "error", "REMIT_GUARD": "/nonexistent", **more}


def remit(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return run(arguments, folder=folder, variables=environment(**variables))


def document(*arguments: str, folder: Path) -> dict[str, Any]:
    """Run a command that prints one JSON document, and return it."""
    done = remit(*arguments, "--json", folder=folder)
    assert done.stdout.count("\n") == 1, done.stdout + done.stderr
    return json.loads(done.stdout)


def make_team(folder: Path, template: str = "function", more: str = "") -> Path:
    """Make a team as `remit init` does, add to its file, and return the file."""
    made = CliRunner().invoke(init, [str(folder), "--yes", "--name", "office", "--template", template])
    assert made.exit_code == 0, made.output
    file = folder / "remit.toml"
    file.write_text(file.read_text(encoding="utf-8") + more, encoding="utf-8")
    return file
