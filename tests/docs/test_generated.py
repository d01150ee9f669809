"""Pages that are made from the code are as the code makes them."""

import runpy
from pathlib import Path

from remit import Code

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_of_error_codes_is_what_the_table_makes() -> None:
    made = runpy.run_path(str(DOCS / "generate.py"))["errors_page"]()
    written = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert written == made, "docs/errors.md is out of date; make it anew: .venv/bin/python docs/generate.py"


def test_every_error_code_has_its_heading() -> None:
    headings = {line[3:] for line in (DOCS / "errors.md").read_text(encoding="utf-8").splitlines() if line[:3] == "## "}
    assert headings == set(Code)
