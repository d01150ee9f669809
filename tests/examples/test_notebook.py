"""The notebook runs from top to bottom as it does in Jupyter, and is kept without what a run leaves behind."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from commands import run_program

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "first_team.ipynb"
CELLS: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]

# In Jupyter a loop runs while a cell does, and a cell may await.
RUN = """
import ast, asyncio, inspect, json, pathlib, sys

async def main():
    names = {"__name__": "__main__"}
    for cell in json.loads(pathlib.Path(sys.argv[1]).read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            code = compile("".join(cell["source"]), cell["id"], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if inspect.iscoroutine(awaited := eval(code, names)):
                await awaited

asyncio.run(main())
"""


def test_every_cell_runs_in_order(tmp_path: Path) -> None:
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONWARNINGS": "error",
        "PYTHONUTF8": "1",
    }
    done = run_program([sys.executable, "-c", RUN, str(NOTEBOOK)], folder=tmp_path, variables=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "LOOP_DETECTED" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_no_cell_keeps_what_a_run_printed() -> None:
    cells = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in cells] == [([], None)] * len(cells)


def test_every_link_of_the_notebook_leads_to_a_page() -> None:
    texts = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown"]
    links = [link for text in texts for link in re.findall(r"\]\(([^)]+)\)", text)]
    assert links
    assert [link for link in links if not (NOTEBOOK.parent / link).exists()] == []
