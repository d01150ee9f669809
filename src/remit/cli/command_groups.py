"""Commands with subcommands, whose help shows every summary whole."""

import click

# Longer than any summary: click would cut it at the width of the terminal.
_WHOLE = 1_000


class SubcommandGroup(click.Group):
    """A group of subcommands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(_WHOLE)) for name, each in commands if each is not None])
