"""What the shell may complete: names of agents, ids of runs and questions.

Someone waits at a keyboard for each: none of these raises, and none imports more than it needs.
"""

import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from remit.faces.cli.show.screen import now_ms

# More than this nobody reads.
MOST = 50
# Where the team file's folder is noted beside what it says; no key of a section is called so.
_FOLDER = "folder of the file"


def agent_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the agents and workflows of the team."""
    return _agents(ctx, incomplete)


def device_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the devices that the profile which was named before may call, as the team file has them."""
    profile = ctx.params.get("agent") or next(iter(ctx.args), None)
    with suppress(AttributeError, TypeError):  # what stands there need not be tables yet
        named = _team(ctx).get("profiles", {}).get(profile, {}).get("devices", [])
        return [CompletionItem(name) for name in named if name.startswith(incomplete)]
    return []


def capability_codes(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the capabilities of the team."""
    with suppress(AttributeError, TypeError):  # what stands there need not be tables yet
        return [
            CompletionItem(code, help=_short(section.get("description", "")))
            for code, section in _team(ctx).get("capabilities", {}).items()
            if code.startswith(incomplete)
        ]
    return []


def agents_and_user(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return whoever may ask: the agents of the team, or the user."""
    user = [CompletionItem("user", help="whoever asks from outside")] if "user".startswith(incomplete) else []
    return user + _agents(ctx, incomplete)


def run_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the newest runs."""
    from remit.stores.reader import runs

    found = _read(ctx, runs(None, incomplete or None, MOST, now_ms()))
    return [_run_item(each) for each in found]


def open_run_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the newest runs that have not ended."""
    from remit.stores.reader import runs

    found = _read(ctx, runs(None, incomplete or None, MOST, now_ms()))
    return [_run_item(each) for each in found if each.response is None]


def _run_item(run: Any) -> CompletionItem:
    return CompletionItem(run.run, help=f"{run.agent}: {_short(run.objective)}")


def session_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the newest conversations with the agent that was named before."""
    from remit.stores.reader import records, runs

    # While an option has no value yet, click has not told apart what stands before it.
    agent = ctx.params.get("agent") or next(iter(ctx.args), None)

    def query(connection: Any) -> list[Any]:
        newest = runs(None, None, MOST, now_ms())(connection)
        return [
            (records(each.run, None, 0, 1)(connection)[0].session, each)
            for each in newest
            if agent in (None, each.agent)
        ]

    found: dict[str, str] = {}
    for session, run in _read(ctx, query):
        if session.startswith(incomplete):
            found.setdefault(session, f"{run.agent}: {_short(run.objective)}")
    return [CompletionItem(session, help=said) for session, said in found.items()]


def question_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the questions that wait."""
    from remit.stores.inbox import pending

    found = _read(ctx, lambda connection: pending(connection, now_ms()))[:MOST]
    return [CompletionItem(each.id, help=_short(each.text)) for each in found if each.id.startswith(incomplete)]


def _agents(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    with suppress(AttributeError, TypeError):  # what stands there need not be tables yet
        team = _team(ctx)
        agents: dict[str, dict[str, Any]] = {**team.get("agents", {}), **team.get("workflows", {})}
        return [
            CompletionItem(name, help=_short(section.get("description", "")))
            for name, section in agents.items()
            if name.startswith(incomplete)
        ]
    return []


def _read(ctx: click.Context, query: Callable[[Any], list[Any]]) -> list[Any]:
    """Return what a query finds in the store, nothing if there is none or it cannot be read at once."""
    with suppress(Exception):  # no store yet, a busy one, one of another version: there is nothing to complete
        from remit.faces.team.values import STORE_PATH
        from remit.stores.connection import connect_reader

        team = _team(ctx)
        path: Path = team.get(_FOLDER, Path()) / team.get("store", {}).get("path", STORE_PATH)
        connection = connect_reader(ctx.params.get("store_path") or path, 0)
        try:
            return query(connection)
        finally:
            connection.close()
    return []


def _team(ctx: click.Context) -> dict[str, Any]:
    """Return what the team file says, read as it is."""
    from remit.faces.team.file import find_team

    with suppress(Exception):  # a team file that is being written need not be one yet
        file = ctx.params.get("team_file") or find_team()
        if file is not None:
            return {**tomllib.loads(Path(file).read_text(encoding="utf-8")), _FOLDER: Path(file).parent}
    return {}


def _short(text: object) -> str:
    from remit.faces.safe_text import one_line

    return one_line(str(text), 60)
