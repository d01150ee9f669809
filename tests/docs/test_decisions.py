"""Every decision is in the list, and every page of one has the same parts."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "explanation" / "decisions"
DECISIONS = sorted(page for page in FOLDER.glob("*.md") if page.name != "index.md")


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_every_decision_is_in_the_list_under_its_own_title(page: Path) -> None:
    title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    assert f"[{title}]({page.name})" in (FOLDER / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_every_decision_says_what_was_rejected_and_what_follows(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == ["Context", "Decision", "Rejected", "Consequences"]


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_every_file_that_a_decision_names_exists(page: Path) -> None:
    named = re.findall(r"`([\w/]+(?:\.py|/))`", page.read_text(encoding="utf-8"))
    places = (ROOT, *ROOT.glob("packages/*/src"), *ROOT.glob("packages/*/src/*"))
    assert [path for path in named if not any((place / path).exists() for place in places)] == []
