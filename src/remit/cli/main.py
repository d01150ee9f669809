"""The `remit` command: its subcommands and its error handling."""

import errno
import gc
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from remit import __version__
from remit.cli.colours import wants_colour
from remit.cli.options import AS_JSON, NAMED_TEAM

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# `remit --help` must not wait for a database: a command's module is imported when the command is used.


class CommandSpec(NamedTuple):
    """The module of a command, and its line in `remit --help`."""

    module: str
    help: str


GROUPS: dict[str, dict[str, CommandSpec]] = {
    "Start": {
        "init": CommandSpec("init", "Create a working team in this folder."),
        "dev": CommandSpec("dev", "Look at a team in the browser, with everything on this machine."),
        "validate": CommandSpec("validate", "Check the team file, and list all problems."),
        "doctor": CommandSpec("doctor", "Check this machine and this folder, and suggest fixes."),
        "docs": CommandSpec("docs", "Read the documentation in the terminal."),
    },
    "Run": {
        "run": CommandSpec("run", "Ask an agent to do a task, and watch the calls."),
        "ask": CommandSpec("ask", "Describe what you want; the team chooses the agents."),
        "chat": CommandSpec("chat", "Chat with an agent."),
    },
    "Look": {
        "runs": CommandSpec("runs", "List, show, watch, cancel and resume runs."),
        "agents": CommandSpec("agents", "Show the agents of the team."),
        "audit": CommandSpec("audit", "Read, verify and export the audit record."),
        "errors": CommandSpec("errors", "Explain an error code, or list them all."),
    },
    "Decide": {
        "pending": CommandSpec("pending", "Approve or reject what agents ask permission for."),
        "policy": CommandSpec("policy", "Explain what each guard decides about a request."),
        "guard": CommandSpec("guard", "Put limits on the sub-agents of coding tools."),
    },
    "Connect": {
        "serve": CommandSpec("serve", "Serve the team's agents over HTTP."),
        "worker": CommandSpec("worker", "Host the team's agents for its other hubs."),
        "mcp": CommandSpec("mcp", "Serve the team's agents to an MCP host, over stdin and stdout."),
        "pair": CommandSpec("pair", "Connect this device with another one, over a short code."),
        "devices": CommandSpec("devices", "Pair this device with others, and set what they may do."),
        "share": CommandSpec("share", "Let other devices call agents of the team, end-to-end encrypted."),
        "up": CommandSpec("up", "Run this device: its runs, its shared agents and the local API."),
        "relay": CommandSpec("relay", "Run a gateway that forwards encrypted messages between devices."),
    },
    "Operate": {
        "reload": CommandSpec("reload", "Make running hubs apply the changed team file."),
        "store": CommandSpec("store", "Prune, archive, back up and restore the store."),
        "users": CommandSpec("users", "Export or erase what is kept about a user."),
        "keys": CommandSpec("keys", "Manage the keys of this hub and of its peers."),
        "bench": CommandSpec("bench", "Measure how fast Remit is on this machine."),
        "schema": CommandSpec("schema", "Print the JSON Schema of the team file, or of the output."),
        "completion": CommandSpec("completion", "Print the completion script for your shell."),
    },
}
"""The commands by what they are for, in the order in which a newcomer meets them."""

COMMANDS = {name: each for commands in GROUPS.values() for name, each in commands.items()}
_NAME_WIDTH = max(map(len, COMMANDS))


# A command creates some 40,000 objects while it imports its modules. They stay until it ends: collecting garbage
# meanwhile finds nothing, and takes a tenth of the start.
OBJECTS_OF_MODULES = 50_000

# Errors of a full disk or quota.
_UNWRITABLE = (errno.ENOSPC, errno.EIO)


class CommandGroup(click.Group):
    """The subcommands by name; each is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"remit.cli.{COMMANDS[cmd_name].module}")
        return getattr(module, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(_NAME_WIDTH), each.help) for name, each in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete the names of commands without importing them, as click would, to know their help."""
        from click.shell_completion import CompletionItem

        commands = [CompletionItem(name, help=each.help) for name, each in COMMANDS.items()]
        found = [each for each in commands if each.value.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from remit.protocol.problems import did_you_mean

            ctx.fail(f"no such command `{args[0]}`{did_you_mean(args[0], COMMANDS) or '; see remit --help'}")
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
            from remit.cli.show.screen import explain

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
