"""Every page can be reached from the index, and every link leads somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / ".github").rglob("*.md")])


def prose(page: Path) -> str:
    """Return what a page says outside of code."""
    text = re.sub(r"^ *(`{3,}).*?^ *\1\s*$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "`code`", text)


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files that a page links to, each with the heading that is meant."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" not in target and not target.startswith("mailto:"):
            path, _, heading = target.partition("#")
            yield (page.parent / path).resolve() if path else page, heading


def headings(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    text = re.sub(r"^ *(`{3,}).*?^ *\1\s*$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    dead = [
        f"{target.name}#{heading}"
        for target, heading in links(page)
        if not target.exists() or (heading and heading not in headings(target))
    ]
    assert dead == []


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, waiting = set[Path](), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting.extend(target for target, _ in links(page) if target.suffix == ".md" and target.exists())
    assert [page.name for page in DOCS.rglob("*.md") if page not in reached] == []


def test_every_picture_is_shown_on_a_page() -> None:
    shown = {target for page in PAGES for target, _ in links(page)}
    assert [picture.name for picture in (DOCS / "images").iterdir() if picture not in shown] == []
