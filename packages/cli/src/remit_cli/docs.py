"""`remit docs`: read the documentation in the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from remit_cli.completion_words import page_names

if TYPE_CHECKING:
    from remit_cli.manual import ManualPage

# A longer line is harder to read.
_WIDEST = 100
# More results than fit on a screen are not read.
_MOST_FOUND = 20


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
    from remit_cli.manual import DOORS, pages
    from remit_cli.show.screen import print_beside, styled

    listed = [page for page in pages().values() if page.is_listed]
    width = max(len(page.name) for page in listed)
    for number, (door, meaning) in enumerate(DOORS.items()):
        click.echo(("\n" if number else "") + styled(meaning, bold=True))
        for page in listed:
            if page.door == door:
                print_beside(f"{page.name:{width}}  ", page.title)
    click.echo("\n→ Read one with `remit docs NAME`, search all with `remit docs --search WORDS`.", err=True)


def _print_found(words: str) -> None:
    from remit_cli.manual import matches
    from remit_cli.show.screen import print_beside

    found = list(matches(words))
    if not found:
        raise click.ClickException(f"no page has the words: {words}")
    for page, section in found[:_MOST_FOUND]:
        place = page.name if section.level <= 1 else f"{page.name}#{section.anchor}"
        print_beside(f"{place}  ", section.title)
    if len(found) > _MOST_FOUND:
        click.echo(f"→ {len(found) - _MOST_FOUND} more; search for more words.", err=True)


def _print_page(topic: str) -> None:
    from remit.protocol.errors import TABLE
    from remit_cli.manual import anchor_of, part_of

    name, _, heading = (f"errors#{topic}" if topic.upper() in TABLE else topic).partition("#")
    page = _page(name)
    text = page.text()
    if heading:
        part = part_of(text, anchor_of(heading))
        if part is None:
            raise click.UsageError(f"`{page.name}` has no section {heading}; its sections: {_anchors(text)}")
        text = part
    if sys.stdout.isatty():
        click.echo_via_pager(_laid_out(text))
    else:
        click.echo(text, nl=not text.endswith("\n"))


def _page(name: str) -> ManualPage:
    from remit.protocol.problems import did_you_mean
    from remit_cli.manual import pages

    wanted = name.lower().removesuffix(".md").rpartition("/")[2]
    if found := pages().get(wanted):
        return found
    raise click.UsageError(f"no such page: {name}{did_you_mean(wanted, pages()) or '; `remit docs` lists all'}")


def _anchors(text: str) -> str:
    from remit_cli.manual import sections

    return ", ".join(section.anchor for section in sections(text) if section.level > 1)


def _laid_out(text: str) -> str:
    from rich.console import Console
    from rich.markdown import Markdown

    from remit_cli.show.screen import without_style

    console = Console(no_color=without_style())
    console.width = min(console.width, _WIDEST)
    with console.capture() as laid_out:
        console.print(Markdown(text, hyperlinks=False))
    return laid_out.get()
