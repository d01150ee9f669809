"""Pages of the documentation by name, wherever they lie below docs/, and the blocks of a page."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

FILE = re.compile(r"[\w-]+\.(py|toml)")
EXIT = re.compile(r"# exit (\d+)$")
FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)")


def page_path(name: str) -> Path:
    """Return the one page of this name, without its ending."""
    (path,) = DOCS.rglob(f"{name}.md")
    return path


def page_text(name: str) -> str:
    return page_path(name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int  # of the fence
    language: str
    marks: Sequence[str]
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def script(self) -> str:
        """The text below as many empty lines as there are above it, so that tracebacks name lines of the page."""
        return "\n" * self.line + self.text

    @property
    def file(self) -> str | None:
        """The file in which a reader saves it."""
        return next((mark for mark in self.marks if FILE.fullmatch(mark)), None)

    @property
    def commands(self) -> list[str]:
        """What follows a prompt, with continued lines joined."""
        joined = self.text.replace("\\\n", " ")
        return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]


def blocks(page: Path) -> Iterator[Block]:
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
    for number, line in lines:
        opening = FENCE.fullmatch(line)
        if opening is None:
            continue
        language, *marks = opening["info"].split() or [""]
        body: list[str] = []
        for _, inner in lines:
            if inner.strip() == opening["ticks"]:
                break
            body.append(inner.removeprefix(opening["indent"]))
        yield Block(page=page, line=number, language=language, marks=marks, text="\n".join(body) + "\n")
