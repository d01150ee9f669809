"""`remit docs`, `remit errors` and `remit schema`: look up pages, error codes and the JSON Schemas."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem

from remit.installed import as_installed
from remit_cli.completion import plain
from remit_cli.options import json_option
from remit_cli.show.screen import print_beside, print_json, styled, without_style

# A longer line is harder to read.
_WIDEST = 100
# More results than fit on a screen are not read.
_MOST_FOUND = 20


@plain
def page_names(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the pages of the documentation."""
    return [CompletionItem(name, help=page.title) for name, page in pages().items() if name.startswith(incomplete)]


@click.command()
@click.argument("topic", required=False, shell_complete=page_names)
@click.option("--search", metavar="WORDS", help="List the sections in which all of these words occur.")
def docs(topic: str | None, search: str | None) -> None:
    """Show the page of the documentation about TOPIC, or list all pages.

    TOPIC is the name of a page, a section of one (`PAGE#SECTION`), or an error code. On a terminal the page is laid out
    for reading; in a pipe it is Markdown.

    \b
    Example:
      remit docs first-team
    """
    if search is not None:
        if topic is not None:
            raise click.UsageError("give a TOPIC or --search, not both")
        _print_found(search)
    elif topic is None:
        _print_list()
    else:
        _print_page(topic)


def _print_list() -> None:
    listed = [page for page in pages().values() if page.is_listed]
    width = max(len(page.name) for page in listed)
    for number, (door, meaning) in enumerate(DOORS.items()):
        click.echo(("\n" if number else "") + styled(meaning, bold=True))
        for page in listed:
            if page.door == door:
                print_beside(f"{page.name:{width}}  ", page.title)
    click.echo("\n→ Read one with `remit docs NAME`, search all with `remit docs --search WORDS`.", err=True)


def _print_found(words: str) -> None:
    results = list(matches(words))
    if not results:
        raise click.ClickException(f"no page has the words: {words}")
    for page, section in results[:_MOST_FOUND]:
        place = page.name if section.level <= 1 else f"{page.name}#{section.anchor}"
        print_beside(f"{place}  ", section.title)
    if len(results) > _MOST_FOUND:
        click.echo(f"→ {len(results) - _MOST_FOUND} more; search for more words.", err=True)


def _print_page(topic: str) -> None:
    from remit.protocol.errors import TABLE

    name, _, heading = (f"errors#{topic}" if topic.upper() in TABLE else topic).partition("#")
    page = _page(name)
    text = page.text()
    if heading:
        part = part_of(text, anchor_of(heading))
        if part is None:
            anchors = ", ".join(section.anchor for section in sections(text) if section.level > 1)
            raise click.UsageError(f"`{page.name}` has no section {heading}; its sections: {anchors}")
        text = part
    if sys.stdout.isatty():
        click.echo_via_pager(_laid_out(text))
    else:
        click.echo(text, nl=not text.endswith("\n"))


def _page(name: str) -> ManualPage:
    from remit.protocol.problems import did_you_mean

    wanted = name.lower().removesuffix(".md").rpartition("/")[2]
    if page := pages().get(wanted):
        return page
    raise click.UsageError(f"no such page: {name}{did_you_mean(wanted, pages()) or '; `remit docs` lists all'}")


def _laid_out(text: str) -> str:
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(no_color=without_style())
    console.width = min(console.width, _WIDEST)
    with console.capture() as laid_out:
        console.print(Markdown(text, hyperlinks=False))
    return laid_out.get()


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
        return _for_terminals(as_installed(self.path.read_text(encoding="utf-8")))


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
    listed = [
        ManualPage(path.parent.name if path.stem == "index" else path.stem, door, path)
        for door in DOORS
        for path in sorted((folder / door).rglob("*.md"))
    ]
    return {page.name: page for page in listed}


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
    results = [
        (page, section)
        for page in pages().values()
        for section in sections(page.text())
        if all(word in section.text.lower() for word in wanted)
    ]
    yield from sorted(results, key=lambda each: not all(word in each[1].title.lower() for word in wanted))


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


@click.command()
@click.argument("code", required=False)
@json_option
def errors(code: str | None, as_json: bool) -> None:
    """Explain an error CODE, or list them all.

    \b
    Example:
      remit errors LOOP_DETECTED
    """
    from difflib import get_close_matches

    from remit.protocol.errors import TABLE, Code
    from remit_server.documents.common import ErrorCode, ErrorCodes

    if code is not None and code.upper() not in TABLE:
        near = get_close_matches(code.upper(), TABLE, n=1)
        raise click.UsageError(
            f"no such code: {code}; " + (f"did you mean {near[0]}?" if near else "see `remit errors`")
        )
    chosen = [Code(code.upper())] if code else list(TABLE)
    if as_json:
        print_json(ErrorCodes(errors=tuple(ErrorCode(code=each, **TABLE[each]._asdict()) for each in chosen)))
        return
    for each in chosen:
        row = TABLE[each]
        if code is None:
            print_beside(f"{each:26} ", row.meaning)
        else:
            retry = "yes" if row.recoverable else "no"
            click.echo(each)
            print_beside("  ", row.meaning)
            print_beside("  → ", row.suggestion)
            figures = f"blame {row.blame}, HTTP {row.status}, exit code {row.exit_code}, recoverable: {retry}"
            print_beside("  ", figures)


@click.command()
@click.argument("what", type=click.Choice(["team", "outputs"]), default="team")
@click.option("--out", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write it to FILE.", metavar="FILE")
def schema(what: str, out: Path | None) -> None:
    """Print the JSON Schema of the team file, or of the output of --json and --jsonl.

    Editors use it to complete and check remit.toml. The first line there, `#:schema ./remit.schema.json`, gives its
    location.

    \b
    Example:
      remit schema --out remit.schema.json
      remit schema outputs
    """
    from json import dumps

    if what == "team":
        from remit_cli.config.team import team_schema as written
    else:
        from remit_server.documents.schema import outputs_schema as written
    text = dumps(written(), indent=2)
    if out is None:
        click.echo(text)
        return
    try:
        out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(f"cannot write {out}: {error.strerror}", param_hint="--out") from error
    click.echo(f"Wrote the schema to {out}.", err=True)
