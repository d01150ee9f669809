"""`remit completion`, and the completion of the names of agents, and of the ids of runs, questions and drafts.

A person waits at the keyboard for each: no function here raises, and none imports more than it needs.
"""

import re
import time
import tomllib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for your SHELL. It completes agent and device names, and run and question ids.

    \b
    bash: add this line to ~/.bashrc
      eval "$(remit completion bash)"

    \b
    zsh: add this line to ~/.zshrc, after compinit
      eval "$(remit completion zsh)"

    \b
    fish: run this once
      remit completion fish > ~/.config/fish/completions/remit.fish

    \b
    Example:
      remit completion bash
    """
    from click.shell_completion import get_completion_class

    command = click.get_current_context().find_root().command
    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(script(command, {}, "remit", "_REMIT_COMPLETE").source())


# A longer list is not readable.
MOST = 50
# The key under which the team file's folder is stored beside its content; no section has a key of this name.
_FOLDER = "folder of the file"


Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
# Characters that a shell takes literally as part of one word. Bash inserts a completion unchanged, and names may come
# from a team file, a peer or a client.
_WORD = re.compile(r"[\w./@][\w./@%+=:,-]*")


def plain(complete: Completion) -> Completion:
    """Remove characters that a shell interprets, and shorten descriptions to one line."""

    @wraps(complete)
    def completed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        items = complete(ctx, param, incomplete)
        return [
            CompletionItem(each.value, help=short(each.help) if each.help else None)
            for each in items
            if isinstance(each.value, str) and _WORD.fullmatch(each.value)
        ]

    return completed


@plain
def agent_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the agents and workflows of the team."""
    return agent_items(ctx, incomplete)


@plain
def recorded_profiles(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the recorded names of connections with other devices: profiles and shared agents."""
    names = dict.fromkeys((*tables_of(ctx, "profiles"), *tables_of(ctx, "shared")))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@plain
def capability_codes(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the capabilities of the team."""
    with suppress(AttributeError, TypeError):  # the values need not be tables yet
        return [
            CompletionItem(code, help=short(section.get("description", "")))
            for code, section in team_content(ctx).get("capabilities", {}).items()
            if code.startswith(incomplete)
        ]
    return []


@plain
def agents_and_user(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the possible callers: the agents of the team, or the user."""
    user = [CompletionItem("user", help="any external user")] if "user".startswith(incomplete) else []
    return user + agent_items(ctx, incomplete)


@plain
def run_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the newest runs."""
    from remit.stores.reader import runs

    rows = _query_store(ctx, lambda store: runs(store, None, incomplete or None, MOST))
    return [_run_item(each) for each in rows]


@plain
def open_run_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the newest runs that have not ended."""
    from remit.stores.reader import runs

    rows = _query_store(ctx, lambda store: runs(store, None, incomplete or None, MOST))
    return [_run_item(each) for each in rows if each.response is None]


def _run_item(run: Any) -> CompletionItem:
    return CompletionItem(run.run, help=f"{run.agent}: {short(run.objective)}")


@plain
def session_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the newest conversations with the agent in the previous argument."""
    from remit.stores.reader import runs

    # While an option has no value yet, click has not assigned the arguments before it.
    agent = ctx.params.get("agent") or next(iter(ctx.args), None)

    latest: dict[str, str] = {}
    for run in _query_store(ctx, lambda store: runs(store, None, None, MOST)):
        if agent in (None, run.agent) and run.session.startswith(incomplete):
            latest.setdefault(run.session, f"{run.agent}: {short(run.objective)}")
    return [CompletionItem(session, help=about) for session, about in latest.items()]


@plain
def question_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the pending questions, and the drafts of plugins."""
    from remit.stores.side_tables import pending
    from remit_cli.places import drafts_in

    questions = _query_store(ctx, lambda store: pending(store, time.time_ns() // 1_000_000))
    items = [(each.id, each.text) for each in questions[:MOST]]
    with suppress(Exception):  # as in a store
        box = drafts_in(store_of(ctx).parent, ctx.params.get("team_file"), ())
        items += [] if box is None else box.readable()[:MOST]
    return [CompletionItem(name, help=short(text)) for name, text in items if name.startswith(incomplete)]


def agent_items(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the agents and workflows of the team, for further words beside them."""
    with suppress(AttributeError, TypeError):  # the values need not be tables yet
        team = team_content(ctx)
        agents: dict[str, dict[str, Any]] = {**team.get("agents", {}), **team.get("workflows", {})}
        return [
            CompletionItem(name, help=short(section.get("description", "")))
            for name, section in agents.items()
            if name.startswith(incomplete)
        ]
    return []


def _query_store(ctx: click.Context, query: Callable[[Any], Awaitable[list[Any]]]) -> list[Any]:
    """Return the rows of a query on the store; none if there is no store or it cannot be read at once."""
    with suppress(Exception):  # no store yet, a locked one, or one of another version: there is nothing to complete
        from remit.stores.database import ask
        from remit.stores.user_keys import connect_plain

        connection = connect_plain(store_of(ctx), 0)
        try:
            return ask(connection, query)
        finally:
            connection.close()
    return []


def store_of(ctx: click.Context) -> Path:
    """Return the file of the store that the command line means."""
    from remit.stores import STORE_PATH

    team = team_content(ctx)
    path: Path = team.get(_FOLDER, Path()) / team.get("store", {}).get("path", STORE_PATH)
    return ctx.params.get("store_path") or path


def tables_of(ctx: click.Context, section: str) -> dict[str, Any]:
    """Return the tables in a section of the team file; none if it has none."""
    with suppress(AttributeError, TypeError, ValueError):  # the values need not be tables yet
        return dict(team_content(ctx).get(section, {}))
    return {}


def team_content(ctx: click.Context) -> dict[str, Any]:
    """Return the content of the team file, without validation."""
    from remit_cli.config.team_search import find_team

    with suppress(Exception):  # an unfinished team file may be invalid
        file = find_team(ctx.params.get("team_file"))
        if file is not None:
            return {**tomllib.loads(Path(file).read_text(encoding="utf-8")), _FOLDER: Path(file).parent}
    return {}


def short(text: object) -> str:
    """Return a text as a description beside a word."""
    from remit.words.terminal import one_line

    return one_line(str(text), 60)
