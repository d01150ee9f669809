"""Pages that are made from the code are as the code makes them."""

import re
import sys
from pathlib import Path

import pytest

from doc_pages import DOCS, page_text
from generate import PAGES
from remit import Code
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_the_code_makes(page: str) -> None:
    made = PAGES[page]()
    written = (DOCS / page).read_text(encoding="utf-8")
    assert written == made, f"docs/{page} is out of date; make it anew: .venv/bin/python docs/generate.py"


def test_every_error_code_has_its_heading() -> None:
    headings = {line[3:] for line in page_text("errors").splitlines() if line[:3] == "## "}
    assert headings == set(Code)


async def test_the_example_of_a_team_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_text("team")
    file = tmp_path / "remit.toml"
    file.write_text(re.findall(r"```toml remit.toml\n(.*?)```", page, re.DOTALL)[0], encoding="utf-8")
    (tmp_path / "receipts.py").write_text(
        re.findall(r"```python receipts.py\n(.*?)```", page, re.DOTALL)[0], encoding="utf-8"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    async with hub_of(load_team(file, environ={})) as hub:
        monkeypatch.delitem(sys.modules, "receipts")
        for question in ("Can I deduct this?", "Is there a refund?"):
            response = await hub.ask("front-desk", question, user="u-1", input={"amount": 80})
            assert response.unwrap() == "You can deduct 40.0."
