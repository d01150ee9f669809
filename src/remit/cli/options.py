"""Shared options: team, store, output format and times."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Duration(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - older ones take none
    """A time with its unit."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds."""
        from remit.config.values import duration_ms

        if isinstance(value, int):
            return value
        try:
            ms = duration_ms(str(value))
        except ValueError:
            ms = 0
        if ms <= 0:
            self.fail(f"expected a duration with a unit, such as 500ms, 30s, 5m, 2h or 3d, got {value!r}", param, ctx)
        return ms


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
        callback=_store_of_guard,
        help="Store to read; `guard`: that of coding tools.  [default: the team's, or .remit/hub.db]",
    )(command)


def _store_of_guard(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:  # noqa: ARG001 - click's
    if value is None or str(value) != "guard":
        return value
    from remit.guard.places import guard_folder, guard_store

    return guard_store(guard_folder())


NAMED_TEAM = "remit.named_team"
"""Context key of the given team file, for suggested commands."""


def _note_team(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:  # noqa: ARG001 - click's
    ctx.meta[NAMED_TEAM] = value
    return value


AS_JSON = "remit.as_json"
"""Context key: errors are also printed as documents."""


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        callback=_note_json,
        help="Print one JSON document; see `remit docs cli-json`.",
    )(command)


def jsonl_option(command: F) -> F:
    """Add `--jsonl`."""
    return click.option(
        "--jsonl",
        "as_jsonl",
        is_flag=True,
        callback=_note_json,
        help="Print JSON lines: one document per line, as they arrive.",
    )(command)


def _note_json(ctx: click.Context, param: click.Parameter, value: bool) -> bool:  # noqa: ARG001 - click's
    ctx.meta[AS_JSON] = value or ctx.meta.get(AS_JSON, False)
    return value
