"""The page of commands, from the commands themselves."""

from collections.abc import Iterator
from inspect import cleandoc

import click

from remit_cli.main import groups, main

HEAD = """\
# Commands

stdout is data, stderr is progress: what a command was asked for can be piped, and what is said meanwhile cannot get in
its way. With `--json` the data is one JSON document, with `--jsonl` one on each line:
[What --json prints](cli-json.md). In a terminal there are colours, a tree that grows, and tables that fit its width (or
`COLUMNS`): columns that have no room move below their row. Where there is no terminal there are plain lines, in colour
with `FORCE_COLOR=1`. With `NO_COLOR` there are no colours.

Nothing that an agent, a peer or a file says acts on the terminal: escape sequences and control characters are taken
out. In the log, further lines of a record begin with `  | `, so that no text can pass for another record. The shell
completes only names that it takes as one plain word.

| exit code | meaning |
|---|---|
| 0 | it went well |
| 1 | the run failed |
| 2 | the command was not understood |
| 3 | something is wrong with the team file or the machine |
| 4 | refused by policy |
| 5 | a limit or budget was reached |
| 6 | it took too long |
| 7 | an agent or the store cannot be reached, or an agent is left alone for a while |
| 130 | interrupted |

Every command explains itself with `--help`. This page is made from the commands; `.venv/bin/python docs/generate.py`
makes it anew.
"""


def cli_page() -> str:
    """Return the page about the command line."""
    top = click.Context(main, info_name="remit")
    return (
        HEAD
        + _contents()
        + "".join(
            _section(context) for group in groups().values() for name in group for context in _commands(name, top)
        )
    )


def _contents() -> str:
    """Return the commands by what they are for, as a table."""
    rows = [
        f"| {title if place == 0 else ''} | [`{name}`](#remit-{name}) | {each.help} |"
        for title, group in groups().items()
        for place, (name, each) in enumerate(group.items())
    ]
    return "\n".join(("", "| to | command | what it does |", "|---|---|---|", *rows, ""))


def _commands(name: str, parent: click.Context) -> Iterator[click.Context]:
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command is not None, f"{name} is listed and not there"
    context = click.Context(command, info_name=name, parent=parent)
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            yield from _commands(each, context)


def _section(context: click.Context) -> str:
    command, level = context.command, "##" if context.parent and context.parent.parent is None else "###"
    parts = [f"\n{level} {context.command_path}\n", _prose(cleandoc(command.help or ""))]
    if not isinstance(command, click.Group) or command.invoke_without_command:
        usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
        parts.insert(1, f"`{usage}`\n")
        parts += _options(context)
    return "\n".join(parts)


def _prose(text: str) -> str:
    """Return a help text as Markdown: what click leaves as it is stands in a block."""
    parts: list[str] = []
    for part in text.split("\n\n"):
        if part.startswith("\b"):
            _, *lines = part.split("\n")
            title, *block = lines
            parts.append("\n".join((title, "", "```text", *(line.strip() for line in block), "```")))
        else:
            parts.append(part)
    return "\n\n".join(parts) + "\n"


def _options(context: click.Context) -> list[str]:
    rows = [
        record
        for each in context.command.get_params(context)
        if isinstance(each, click.Option) and (record := each.get_help_record(context)) and "--help" not in each.opts
    ]
    if not rows:
        return []
    cells = ["| `{}` | {} |".format(*(each.replace("|", "\\|") for each in row)) for row in rows]
    return ["\n".join(("| option | meaning |", "|---|---|", *cells)) + "\n"]
