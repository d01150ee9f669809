"""The pages of the documentation that are shipped with the package, by name."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

DOORS = {
    "tutorials": "Tutorials: learn it by doing",
    "how-to": "How-to: get one thing done",
    "reference": "Reference: look it up",
    "explanation": "Explanation: understand it",
}
"""The folders of the documentation, in the order in which they are listed."""

_LINK = re.compile(r"(?<!!)\[((?:`[^`]*`|[^\]`])+)\]\((?!\w+:)([^)#\s]*?)(?:#[^)\s]*)?\)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\([^)]+\)")
_EXAMPLE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"(#+) (.+)")


class ManualPage(NamedTuple):
    """One page; its name is that of its file, or that of its folder for the first page of a folder."""

    name: str
    door: str
    path: Path

    @property
    def title(self) -> str:
        with self.path.open(encoding="utf-8") as lines:
            return next(lines).removeprefix("# ").strip()

    @property
    def is_listed(self) -> bool:
        """Whether it stands in the list of pages; the pages of a folder within a door are found through its first."""
        return self.path.parent.name == self.door or self.path.stem == "index"

    def text(self) -> str:
        """Return the page in Markdown, with links to other pages as the commands that show them."""
        return _for_terminals(self.path.read_text(encoding="utf-8"))


class PageSection(NamedTuple):
    """A heading and the text below it, up to the next heading."""

    level: int
    title: str
    text: str

    @property
    def anchor(self) -> str:
        return anchor_of(self.title)


@cache
def pages() -> dict[str, ManualPage]:
    """Return the pages by name, in the order of their doors."""
    folder = _folder()
    found = [
        ManualPage(path.parent.name if path.stem == "index" else path.stem, door, path)
        for door in DOORS
        for path in sorted((folder / door).rglob("*.md"))
    ]
    return {page.name: page for page in found}


def _folder() -> Path:
    """Return the folder of the pages: in an installed package beside the code, in a checkout at its root."""
    package = Path(__file__).resolve().parent
    shipped = package / "pages"
    return shipped if shipped.is_dir() else package.parents[3] / "docs"


def anchor_of(title: str) -> str:
    """Return the anchor that links use for a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def sections(text: str) -> Iterator[PageSection]:
    """Yield the sections of a page, without those that are lines of an example."""
    level, title, lines, fence = 0, "", list[str](), ""
    for line in text.splitlines():
        mark = re.match(r" *(`{3,})", line)
        if mark:
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        heading = None if fence or mark else _HEADING.match(line)
        if heading:
            yield PageSection(level, title, "\n".join(lines))
            level, title, lines = len(heading[1]), heading[2], []
        lines.append(line)
    yield PageSection(level, title, "\n".join(lines))


def part_of(text: str, anchor: str) -> str | None:
    """Return the part of a page below a heading, with the headings below that one."""
    part = list[str]()
    above = 0
    for section in sections(text):
        if part and section.level <= above:
            break
        if part or section.anchor == anchor:
            above = above or section.level
            part.append(section.text)
    return "\n".join(part) or None


def matches(words: str) -> Iterator[tuple[ManualPage, PageSection]]:
    """Yield the sections in which all of the words occur; those with a word in their heading come first."""
    wanted = words.lower().split()
    found = [
        (page, section)
        for page in pages().values()
        for section in sections(page.text())
        if all(word in section.text.lower() for word in wanted)
    ]
    yield from sorted(found, key=lambda each: not all(word in each[1].title.lower() for word in wanted))


def _for_terminals(text: str) -> str:
    """Replace links by commands, and pictures by what they show; examples stay as they are."""
    parts = _EXAMPLE.split(text)
    parts[::2] = [_LINK.sub(_command, _PICTURE.sub(r"*Picture: \1*", prose)) for prose in parts[::2]]
    return "".join(parts)


def _command(link: re.Match[str]) -> str:
    path = Path(link[2])
    name = path.parent.name if path.stem == "index" else path.stem
    if path.suffix == ".md" and name in pages():
        return f"{link[1]} (`remit docs {name}`)"
    return link[1]
