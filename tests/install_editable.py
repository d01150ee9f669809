"""Installs the packages of the checkout, so that what is changed in their folders is what runs.

As `pip install --editable` does for each of them, in three processes for each: here one process makes all their wheels.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from hatchling.builders.wheel import WheelBuilder

PIP = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]


def install(projects: Iterable[Path]) -> None:
    """Install the projects, whatever is installed of them, and nothing that they need."""
    with TemporaryDirectory() as folder:
        wheels = [
            wheel
            for project in projects
            for wheel in WheelBuilder(str(project)).build(directory=folder, versions=["editable"])
        ]
        subprocess.run([*PIP, "--no-index", "--no-deps", "--force-reinstall", *wheels], check=True)


if __name__ == "__main__":
    install(Path(name).resolve().parent for name in sys.argv[1:])
