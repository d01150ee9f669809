"""What commands share before they do anything: options, groups of subcommands, colours."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from remit.installed import brought, named
from remit.plugin import NamedStore

F = TypeVar("F", bound=Callable[..., Any])


class Duration(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - older ones take none
    """A time with its unit."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds."""
        from remit_cli.config.values import duration_ms

        if isinstance(value, int):
            return value
        try:
            ms = duration_ms(str(value))
        except ValueError:
            ms = 0
        if ms <= 0:
            self.fail(f"expected a duration with a unit, such as 500ms, 30s, 5m, 2h or 3d, got {value!r}", param, ctx)
        return ms


class MoneyOption(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - older ones take none
    """An amount of money with its currency; whether it is that of the team is known once the team file is read."""

    name = "amount"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the amount as a team file has it."""
        from msgspec import ValidationError, convert

        from remit_cli.config.values import Money

        try:
            return convert(value, Money)
        except ValidationError:
            self.fail(f'expected an amount with its currency, such as "0.50 USD", got {value!r}', param, ctx)


user_option = click.option("--user", metavar="NAME", help="User to run as.  [default: current user]")
verbose_option = click.option("--verbose", "-v", is_flag=True, help="Show all log messages of the hub.")
save_option = click.option(
    "--save",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Folder to write the files of the answer to; existing files are kept.",
)

out_option = click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Output file.  [default: stdout]",
)


def budget_option(says: str = "Token budget of the run, shared by all agents.") -> Callable[[F], F]:
    """Return what adds `--budget`, in tokens."""
    return click.option("--budget", "max_tokens", type=click.IntRange(min=1), metavar="TOKENS", help=says)


def cost_option(says: str = "Money that the models of the run may cost, with all agents below.") -> Callable[[F], F]:
    """Return what adds `--max-cost`, an amount with its currency."""
    return click.option("--max-cost", type=MoneyOption(), metavar='"0.50 USD"', help=says)


def deadline_option(says: str = "Time limit: 30s, 5m.") -> Callable[[F], F]:
    """Return what adds `--deadline`, in milliseconds for the command."""
    return click.option("--deadline", "deadline_ms", type=Duration(), metavar="TIME", help=says)


def team_options(command: F) -> F:
    """Add `--team` and `--set`: the team file and overrides."""
    command = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one key of the team file: --set limits.max_depth=3. Repeatable.",
    )(command)
    return click.option(
        "--team",
        "team_file",
        type=click.Path(path_type=Path),
        envvar="REMIT_TEAM",
        callback=_note_team,
        help="Team file.  [default: remit.toml here or in the nearest parent folder]",
    )(command)


def same_team(team_file: Path | None) -> str:
    """Return the `--team` option for a suggested command; empty if none was given."""
    from shlex import quote

    return f" --team {quote(str(team_file))}" if team_file else ""


def store_option(command: F) -> F:
    """Add `--store`: the store to read."""
    return click.option(
        "--store",
        "store_path",
        type=click.Path(path_type=Path),
        cls=_StoreOption,
        callback=_named_store,
        help="Store to read.  [default: the team's, or .remit/hub.db]",
    )(command)


class GivenStore(NamedTuple):
    """The store and the team that a command line names."""

    store_path: Path | None
    team_file: Path | None
    overrides: tuple[str, ...]

    @property
    def is_teams(self) -> bool:
        """Whether the store is that of the team, so that the team's key opens its values."""
        return self.store_path is None or self.team_file is not None


def store_options(command: Callable[..., None]) -> Any:
    """Add `--store`, `--team` and `--set`, and pass them as `given`."""

    @wraps(command)
    def with_store(
        *, store_path: Path | None, team_file: Path | None, overrides: tuple[str, ...], **others: Any
    ) -> None:
        command(given=GivenStore(store_path, team_file, overrides), **others)

    return store_option(team_options(with_store))


class _StoreOption(click.Option):
    """An option whose help has the names of stores; to ask the plugins takes longer than most commands."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        names = "".join(f"; `{name}`: that of {store.of}" for name, store in named_stores().items())
        options, says = super().get_help_record(ctx) or ("", "")
        return options, says.replace(".", f"{names}.", 1)


def _named_store(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:  # noqa: ARG001 - click's
    if value is None or not str(value).isidentifier():
        return value
    store = named_stores().get(str(value))
    return value if store is None else named(store.address)()


def named_stores() -> dict[str, NamedStore]:
    """Return the stores that plugins have, by name."""
    return {name: store for bring in brought("named_stores") for name, store in bring().items()}


NAMED_TEAM = "remit.named_team"
"""Context key of the given team file, for suggested commands."""


def _note_team(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:  # noqa: ARG001 - click's
    ctx.meta[NAMED_TEAM] = value
    return value


AS_JSON = "remit.as_json"
"""Context key: errors are also printed as documents."""


def json_option(command: F) -> F:
    """Add `--json`."""
    return _documents("--json", "as_json", "Print one JSON document; see `remit docs cli-json`.")(command)


def jsonl_option(command: F) -> F:
    """Add `--jsonl`."""
    return _documents("--jsonl", "as_jsonl", "Print JSON lines: one document per line, as they arrive.")(command)


def _documents(flag: str, name: str, says: str) -> Callable[[F], F]:
    return click.option(flag, name, is_flag=True, callback=_note_json, help=says)


def _note_json(ctx: click.Context, param: click.Parameter, value: bool) -> bool:  # noqa: ARG001 - click's
    if value and ctx.meta.get(AS_JSON):
        raise click.UsageError("--json and --jsonl cannot be combined")
    ctx.meta[AS_JSON] = value or ctx.meta.get(AS_JSON, False)
    return value


# Longer than any summary: click would cut it at the width of the terminal.
_WHOLE = 1_000


class SubcommandGroup(click.Group):
    """A group of subcommands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(_WHOLE)) for name, each in commands if each is not None])


def wants_colour() -> bool | None:
    """Return whether the user wants colours; None: in a terminal only.

    `NO_COLOR` (https://no-color.org) and terminals without colours come before `FORCE_COLOR`
    (https://force-color.org), which is for pipes.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "unknown") in ("", "dumb"):
        return False
    return True if os.environ.get("FORCE_COLOR", "0") not in ("", "0") else None
