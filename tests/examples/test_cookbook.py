"""Every recipe of the cookbook prints what its page shows."""

import os
import re
import sys
from pathlib import Path

import pytest

from commands import run_program
from doc_pages import page_text

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "cookbook"
COMMAND = re.compile(r"^\$ python examples/cookbook/(\w+)\.py\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# By the package that a recipe needs and that is not installed here; `make test-frameworks` runs them.
NEEDED = {
    "crewai_crew": "crewai",
    "fastapi_deadline": "fastapi",
    "langgraph_node": "langgraph.pregel",
    "openai_agents": "agents",
}

SHOWN: dict[str, str] = dict(COMMAND.findall(page_text("cookbook")))


@pytest.mark.parametrize("recipe", sorted(SHOWN.keys() - NEEDED.keys()))
def test_a_recipe_prints_what_the_page_shows(recipe: str, tmp_path: Path) -> None:
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONWARNINGS": "error",
        "PYTHONUTF8": "1",
    }
    done = run_program([sys.executable, str(FOLDER / f"{recipe}.py")], folder=tmp_path, variables=environment)
    # On a busy machine, loading a library takes so long that the watchdog of the event loop says so.
    errors = [line for line in done.stderr.splitlines() if "blocks the event loop" not in line]
    assert (done.returncode, done.stdout, errors) == (0, SHOWN[recipe], [])


def test_the_page_shows_ten_recipes_and_every_recipe_is_short() -> None:
    files = {path.stem: path for path in FOLDER.glob("*.py") if path.stem != "scripted"}
    assert set(files) == set(SHOWN)
    assert len(files) == 10
    long = [name for name, path in files.items() if len(path.read_text(encoding="utf-8").splitlines()) >= 70]
    assert long == []
