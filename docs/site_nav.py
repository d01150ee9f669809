"""Reads the navigation of the site from docs/index.md, so that a new page needs one line, and only there."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

DOCS = Path(__file__).parent

DOORS = ("Tutorials", "How-to", "Reference", "Explanation")
"""The kinds of pages: each is a heading of docs/index.md, a tab of the site and a folder."""

PROJECT = "Project"
"""The heading of what lies beside docs/: the README, the changelog and the like."""

PROJECT_PAGES = {
    name: f"project/{name.lower()}" for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
}
"""Where the site has the pages that lie at the root of the repository."""

Nav = list[str | dict[str, "str | Nav"]]
"""What mkdocs takes: a page, or a title with a page or more of the same."""

ENTRY = re.compile(r"- \[(?P<title>[^]]+)\]\((?P<target>[^)#\s]+)\)")


def navigation(index: str) -> Nav:
    """Return the navigation that the text of docs/index.md describes.

    A heading of the second level is a tab, one of the third a group, and a list item that begins with a link a page.
    """
    nav: Nav = [{"Home": "index.md"}]
    tab: Nav = nav
    pages: Nav = nav
    for line in index.splitlines():
        if line.startswith("## "):
            pages = tab = _below(nav, line[3:]) if line[3:] in (*DOORS, PROJECT) else []
        elif line.startswith("### "):
            pages = _below(tab, line[4:])
        elif (entry := ENTRY.match(line)) is not None and tab is not nav:
            pages.append(_page(entry["title"], site_path(entry["target"])))
    return nav


def site_path(target: str) -> str:
    """Return where the site has a page that docs/index.md links to."""
    return PROJECT_PAGES[target.removeprefix("../")] if target.startswith("../") else target


def pages_of(nav: Nav) -> Iterator[tuple[str, str]]:
    """Yield every page with its title, in order."""
    for each in nav:
        if isinstance(each, str):
            yield "", each
            continue
        for title, below in each.items():
            if isinstance(below, str):
                yield title, below
            else:
                yield from pages_of(below)


def _below(nav: Nav, title: str) -> Nav:
    pages: Nav = []
    nav.append({title: pages})
    return pages


def _page(title: str, path: str) -> dict[str, "str | Nav"]:
    """Return a page with its title; an index of a folder becomes a group with the pages that it lists."""
    folder = PurePosixPath(path)
    if folder.name != "index.md":
        return {title: path}
    text = (DOCS / path).read_text(encoding="utf-8")
    listed = re.findall(r"\[([^]]+)\]\(([a-z0-9-]+\.md)\)", text)
    return {title: [path, *({name: str(folder.with_name(file))} for name, file in dict.fromkeys(listed))]}
