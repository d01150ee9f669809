"""The navigation of the site has every page once, behind one of four doors."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from doc_pages import DOCS, ROOT
from site_build import version_in_code, versions, write_front
from site_nav import DOORS, PROJECT, PROJECT_PAGES, Nav, navigation, pages_of
from site_text import for_site, links_outside

INDEX = (DOCS / "index.md").read_text(encoding="utf-8")
NAV = navigation(INDEX)
FOLDERS = {"Tutorials": "tutorials", "How-to": "how-to", "Reference": "reference", "Explanation": "explanation"}


def tabs() -> dict[str, Nav]:
    return {
        title: below for each in NAV if isinstance(each, dict) for title, below in each.items() if below != "index.md"
    }  # pyright: ignore[reportReturnType]


def test_every_page_is_in_the_navigation_once() -> None:
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} | set(PROJECT_PAGES.values())
    assert Counter(path for _, path in pages_of(NAV)) == Counter(pages), "docs/index.md names each page once"


def test_there_are_four_doors_each_with_the_pages_of_its_folder() -> None:
    assert list(tabs()) == [*DOORS, PROJECT]
    for door, folder in FOLDERS.items():
        assert [path for _, path in pages_of(tabs()[door]) if not path.startswith(f"{folder}/")] == []


def test_no_two_pages_behind_one_door_have_the_same_title() -> None:
    for door, nav in tabs().items():
        titles = Counter(title for title, _ in pages_of(nav) if title)
        assert [title for title, times in titles.items() if times > 1] == [], door


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_every_page_begins_with_its_one_title(page: Path) -> None:
    text = re.sub(r"^(`{3,}).*?^\1\s*$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^# .+", text, re.MULTILINE) == [text.splitlines()[0]]


def test_a_heading_is_a_tab_or_a_group_and_a_listed_link_a_page() -> None:
    index = "# R\n\n- [Tutorials](#tutorials) first\n\n## Tutorials\n\n- [A](tutorials/a.md): one.\n\n## How-to\n\n"
    index += (
        "### Write\n\n- [B](how-to/b.md): like [A](tutorials/a.md).\n- [C](how-to/c.md)\n\n## Words\n\n- [X](x.md)\n\n"
    )
    index += "## Project\n\n- [Changes](../CHANGELOG.md)\n"
    assert navigation(index) == [
        {"Home": "index.md"},
        {"Tutorials": [{"A": "tutorials/a.md"}]},
        {"How-to": [{"Write": [{"B": "how-to/b.md"}, {"C": "how-to/c.md"}]}]},
        {"Project": [{"Changes": "project/changelog.md"}]},
    ]


@pytest.mark.parametrize(
    ("place", "written", "shown"),
    [
        ("docs/how-to/a.md", "[b](b.md#c) [d](../index.md) [e](https://e) [f](#f)", None),
        ("docs/how-to/a.md", "[c](../../CHANGELOG.md#x)", "[c](../project/changelog.md#x)"),
        ("docs/how-to/a.md", "[c](../../src/x.py) `[c](../../y.py)`", "[c](../source/src/x.py.md) `[c](../../y.py)`"),
        ("README.md", "![p](docs/images/p.png) [h](docs/how-to/a.md)", "![p](../images/p.png) [h](../how-to/a.md)"),
        ("docs/a.md", "```python a.py\n[x](../y.py)\n```", '```python title="a.py"\n[x](../y.py)\n```'),
        ("docs/a.md", "```console no-run needs a.py\n$ x\n```", "```console\n$ x\n```"),
        ("docs/a.md", "| `str \\| None` | a \\| b |", "| `str | None` | a \\| b |"),
        ("docs/a.md", "```python model\nx\n```", "```python\nx\n```"),
        ("docs/a.md", "Some:\n- a\n- b\n\n- c\n  d\n- e\n", "Some:\n\n- a\n- b\n\n- c\n  d\n- e\n"),
    ],
)  # fmt: skip
def test_a_page_is_changed_only_where_the_site_reads_it_otherwise_than_github(
    place: str, written: str, shown: str | None
) -> None:
    assert for_site(written, place) == (written if shown is None else shown)


def test_files_beside_the_docs_are_found_in_the_prose_alone() -> None:
    text = "[a](../../x/y.py) [b](b.md) `[c](../../c.py)`\n```text\n[d](../../d.py)\n```\n[e](../../README.md#e)\n"
    assert list(links_outside(text, "docs/how-to/a.md")) == ["x/y.py", "README.md"]


def test_the_newest_version_is_the_front_and_every_version_is_offered(tmp_path: Path) -> None:
    for name in ("0.9", "0.10", "dev"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    (tmp_path / "unfinished").mkdir()
    assert versions(tmp_path) == ["0.10", "0.9", "dev"]
    write_front(tmp_path)
    offered = json.loads((tmp_path / "versions.json").read_text(encoding="utf-8"))
    assert [(each["version"], each["aliases"]) for each in offered] == [("0.10", ["latest"]), ("0.9", []), ("dev", [])]
    assert 'url=0.10/"' in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_the_site_is_named_after_the_version_and_asks_no_other_host() -> None:
    assert re.fullmatch(r"\d+\.\d+", version_in_code())
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in settings
    assert "://" not in settings + (DOCS / "site.css").read_text(encoding="utf-8")


def test_whatever_mkdocs_can_check_is_a_warning_and_a_warning_fails_the_build() -> None:
    checks = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nvalidation:\n")[1]
    assert set(re.findall(r"\w+: (\w+)", checks)) == {"warn"}
    kinds = ("omitted_files", "not_found", "absolute_links", "anchors", "unrecognized_links")
    assert [kind for kind in kinds if f"{kind}: " not in checks] == []
    build = (DOCS / "site_build.py").read_text(encoding="utf-8")
    assert '"--strict"' in build
    assert '"--quiet"' not in build
