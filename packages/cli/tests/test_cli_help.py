"""The help of commands: in groups, and with whole summaries."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from remit_cli.main import groups as command_groups
from remit_cli.main import main


def groups(context: click.Context) -> Iterator[click.Context]:
    """Return the contexts of all commands that have subcommands."""
    assert isinstance(context.command, click.Group)
    yield context
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        if isinstance(command, click.Group):
            yield from groups(click.Context(command, info_name=name, parent=context))


def test_the_help_shows_every_command_once_in_its_group() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    listed = [line.split()[0] for line in output.partition("\nStart:\n")[2].splitlines() if line.strip()]
    assert listed == ["init", *[word for title, each in command_groups().items() for word in (f"{title}:", *each)][2:]]


@pytest.mark.parametrize("width", [46, 80, 120])
def test_no_summary_is_cut_and_no_line_is_too_long(width: int) -> None:
    for context in groups(click.Context(main, info_name="remit")):
        path = context.command_path.split()[1:]
        output = CliRunner().invoke(main, [*path, "--help"], terminal_width=width).output
        listed = output.partition("-h, --help")[2]
        assert all(len(line) <= width for line in listed.splitlines()), listed
        assert "..." not in listed


def test_the_summaries_of_the_top_level_stand_on_one_line_each() -> None:
    output = CliRunner().invoke(main, ["--help"], terminal_width=80).output
    assert all(f"{each.help}\n" in output for group in command_groups().values() for each in group.values())
