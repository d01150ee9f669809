"""The recipes of the cookbook that need a framework print what their page shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.test_cookbook import FOLDER, NEEDED, SHOWN
from frameworks.conftest import installed
from waiting import PATIENCE_S


@pytest.mark.parametrize("recipe", [recipe for recipe, package in NEEDED.items() if installed(package)])
def test_a_recipe_prints_what_the_page_shows(recipe: str, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PATH": os.environ.get("PATH", os.defpath), "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, FOLDER / f"{recipe}.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (0, SHOWN[recipe]), done.stderr
