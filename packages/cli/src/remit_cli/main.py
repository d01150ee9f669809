"""The `remit` command: its subcommands and its error handling."""

import errno
import gc
import os
import sys
from functools import cache
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NoReturn

import click

from remit import __version__
from remit.installed import brought, brought_under, named
from remit.plugin import CommandSpec
from remit_cli.extras import command_needs
from remit_cli.options import AS_JSON, NAMED_TEAM, wants_colour

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# `remit --help` must not wait for a database: a command's module is imported when the command is used.


_GROUPS: dict[str, dict[str, str]] = {
    "Start": {
        "init": "Create a working team in this folder.",
        "dev": "Look at a team in the browser, with everything on this machine.",
        "validate": "Check the team file, and list all problems.",
        "doctor": "Check this machine and this folder, and suggest fixes.",
        "docs": "Read the documentation in the terminal.",
    },
    "Run": {
        "run": "Ask an agent to do a task, and watch the calls.",
        "ask": "Describe what you want; the team chooses the agents.",
        "chat": "Chat with an agent.",
        "eval": "Run cases, and check their answers and calls.",
    },
    "Look": {
        "runs": "List, show, watch, cancel and resume runs.",
        "agents": "Show the agents of the team.",
        "audit": "Read, verify and export the audit record.",
        "errors": "Explain an error code, or list them all.",
    },
    "Decide": {
        "pending": "Approve or reject what agents ask permission for.",
        "policy": "Explain what each guard decides about a request.",
    },
    "Connect": {
        "serve": "Serve the team's agents over HTTP.",
    },
    "Operate": {
        "reload": "Make running hubs apply the changed team file.",
        "store": "Prune, archive, back up and restore the store.",
        "users": "Export or erase what is kept about a user.",
        "keys": "Manage the keys of this hub and of its peers.",
        "bench": "Measure how fast Remit is on this machine.",
        "schema": "Print the JSON Schema of the team file, or of the output.",
        "completion": "Print the completion script for your shell.",
    },
}
"""The lines of help of the commands of this package, by what they are for, in the order in which a newcomer meets them.

The command is the object with its name, in the module with its name or in that of its family.
"""

_MODULES = {
    **dict.fromkeys(("ask", "chat"), "run"),
    **dict.fromkeys(("bench", "validate"), "doctor"),
    **dict.fromkeys(("dev", "reload"), "serve"),
    **dict.fromkeys(("errors", "schema"), "docs"),
    "users": "store",
    "eval": "evaluation",
}

_OWN = {
    name: CommandSpec(f"{__package__}.{_MODULES.get(name, name)}:{name}", line)
    for lines in _GROUPS.values()
    for name, line in lines.items()
}

# To ask the plugins takes longer than most commands.
_EXTENSIBLE = ("chat", "store")


@cache
def groups() -> dict[str, dict[str, CommandSpec]]:
    """Return all commands, also those of plugins, by what they are for."""
    merged = {title: {name: _OWN[name] for name in lines} for title, lines in _GROUPS.items()}
    known = dict(_OWN)
    for bring in brought("commands"):
        for title, brings in bring().items():
            for name, each in brings.items():
                if name in known:
                    both = f"{known[name].address} and {each.address}"
                    raise click.ClickException(f"two commands have the name `{name}`: {both}; uninstall a plugin")
                known[name] = merged.setdefault(title, {})[name] = each
    return merged


def command_spec(name: str) -> CommandSpec | None:
    """Return a command by its name; plugins are loaded only for a name that is not one of this package."""
    return _OWN.get(name) or next((each[name] for each in groups().values() if name in each), None)


# A command creates some 40,000 objects while it imports its modules. They stay until it ends: collecting garbage
# meanwhile finds nothing, and takes a tenth of the start.
OBJECTS_OF_MODULES = 50_000

# Errors of a full disk or quota.
_UNWRITABLE = (errno.ENOSPC, errno.EIO)


class CommandGroup(click.Group):
    """The subcommands by name; each is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return [name for commands in groups().values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        spec = command_spec(cmd_name)
        command: click.Command | None = None if spec is None else named(spec.address)
        for address in brought_under("extensions", cmd_name) if cmd_name in _EXTENSIBLE else ():
            command = named(address)(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for title, commands in groups().items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), each.help) for name, each in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete the names of commands without importing them, as click would, to know their help."""
        from click.shell_completion import CompletionItem

        commands = [(name, each.help) for group in groups().values() for name, each in group.items()]
        items = [CompletionItem(name, help=line) for name, line in commands if name.startswith(incomplete)]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and command_spec(args[0]) is None:
            from remit.protocol.problems import did_you_mean

            if needs := command_needs(args[0]):
                ctx.fail(needs)
            near = did_you_mean(args[0], self.list_commands(ctx))
            ctx.fail(f"no such command `{args[0]}`{near or '; see remit --help'}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a Remit error becomes a message, a suggestion and an exit code."""
        ctx.color = wants_colour()
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader closed the pipe; prevent Python's error when it flushes the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            click.echo(f"Cannot write the output: {error.strerror}.\n→ Send it elsewhere.", err=True)
            ctx.exit(1)
        except Exception as error:  # noqa: BLE001 - what is not ours is raised on
            from remit_cli.show.screen import explain

            ctx.exit(explain(error, as_json=bool(ctx.meta.get(AS_JSON)), named_team=ctx.meta.get(NAMED_TEAM)))

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run a command and leave with its exit code."""
        gc.set_threshold(OBJECTS_OF_MODULES, *gc.get_threshold()[1:])
        for stream in (sys.stdout, sys.stderr):
            _make_sayable(stream)
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
            sys.exit(code if isinstance(code, int) else 0)
        except click.exceptions.Exit as stop:
            sys.exit(stop.exit_code)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            click.echo("Interrupted.", err=True)
            sys.exit(130)
        finally:
            _leave_quickly()


def _leave_quickly() -> None:
    """Skip the last garbage collection of the process, unless agents ran: it may have to close their objects."""
    if "remit.hub.hub" not in sys.modules:
        gc.freeze()


def _make_sayable(stream: Any) -> None:
    """Make a non-UTF-8 stream replace unknown characters; redirected data is UTF-8."""
    if isinstance(stream, TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
        if stream is sys.stdout and not stream.isatty():
            stream.reconfigure(encoding="utf-8")
        else:
            stream.reconfigure(errors="replace")


@click.command(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="remit")
def main() -> None:
    """Let AI agents call other agents safely: guarded, budgeted, recorded.

    \b
    Example:
      remit init && remit run assistant "Sort my receipts"
    """
