"""Turns a page as GitHub shows it into one that mkdocs understands: links that leave docs/, fences, lists."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from site_nav import PROJECT_PAGES

ROOT = Path(__file__).resolve().parents[1]

FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`\n]*)\n(?P<body>.*?)^ *(?P=ticks) *$", re.DOTALL | re.MULTILINE
)
LINK = re.compile(r"(?P<before>\]\(|(?:src|href|srcset)=\")(?P<target>[^)\s\"]+)")
INLINE_CODE = re.compile(r"(`+)[^`\n]+\1")
FILE = re.compile(r"[\w.-]+\.[a-z]+|[A-Z]\w+file")
# GitHub lets a list begin right below a paragraph; Python-Markdown needs an empty line between.
PARAGRAPH_ABOVE_LIST = re.compile(
    r"(?:\A|(?<=\n\n))(?!(?:[-*]|\d+\.) )[^\s|][^\n]*\n(?:(?!(?:[-*]|1\.) )[^\n]+\n)*(?=(?:[-*]|1\.) )"
)


def for_site(text: str, place: str) -> str:
    """Return the text of the page that lies at *place* in the repository, for the site."""
    return "".join(_fence(part) if is_code else _prose(part, place) for part, is_code in _parts(text))


def links_outside(text: str, place: str) -> Iterator[str]:
    """Yield the places in the repository that a page links to and that are not below docs/."""
    for part, is_code in _parts(text):
        for match in LINK.finditer("" if is_code else INLINE_CODE.sub("", part)):
            target = repository_place(match["target"], place)
            if target is not None and not target.startswith("docs/"):
                yield target


def repository_place(link: str, place: str) -> str | None:
    """Return where in the repository a link of the page at *place* leads; None for other hosts and the page itself."""
    path = link.partition("#")[0]
    if not path or re.match(r"[a-z]+:|/", path):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(place), path))


def site_place(place: str) -> str:
    """Return where the site has what lies at *place* in the repository."""
    if place in PROJECT_PAGES:
        return PROJECT_PAGES[place]
    return place.removeprefix("docs/") if place.startswith("docs/") else f"source/{place.removesuffix('.md')}.md"


def source_page(place: str) -> str:
    """Return a page that shows a file or a folder of the repository."""
    path = ROOT / place
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {place}\n\n"
    if path.is_dir():
        return head + "".join(f"- `{each.name}{'/' * each.is_dir()}`\n" for each in sorted(path.iterdir()))
    language = {".py": "python", ".mjs": "javascript", ".toml": "toml", ".yaml": "yaml"}.get(path.suffix, "text")
    return f"{head}````{language}\n{path.read_text(encoding='utf-8')}````\n"


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a page in order, each with whether it is a fenced block."""
    at = 0
    for fence in FENCE.finditer(text):
        yield text[at : fence.start()], False
        yield fence[0], True
        at = fence.end()
    yield text[at:], False


def _fence(block: str) -> str:
    """Return a fenced block whose first line mkdocs reads: the file is its title, and marks for tests are left out."""
    match = FENCE.fullmatch(block)
    assert match is not None
    language, *marks = match["info"].split() or ["text"]
    file = "" if "no-run" in marks else next((mark for mark in marks if FILE.fullmatch(mark)), "")
    title = f' title="{file}"' if file else ""
    first, rest = block.split("\n", 1)
    return f"{match['indent']}{match['ticks']}{language}{title}\n{rest}" if first else block


def _prose(text: str, place: str) -> str:
    code: list[str] = []

    def keep(match: re.Match[str]) -> str:
        code.append(match[0].replace("\\|", "|"))  # GitHub reads the escape in a table's code, Python-Markdown shows it
        return f"\x00{len(code) - 1}\x00"

    def lead(match: re.Match[str]) -> str:
        target = repository_place(match["target"], place)
        if target is None:
            return match[0]
        _, hash_mark, heading = match["target"].partition("#")
        here = posixpath.dirname(site_place(place))
        return f"{match['before']}{posixpath.relpath(site_place(target), here or '.')}{hash_mark}{heading}"

    text = PARAGRAPH_ABOVE_LIST.sub(r"\g<0>\n", LINK.sub(lead, INLINE_CODE.sub(keep, text)))
    return re.sub("\x00(\\d+)\x00", lambda match: code[int(match[1])], text)
