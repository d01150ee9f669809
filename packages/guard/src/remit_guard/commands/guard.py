"""`remit guard`: limits for the sub-agents of coding tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from remit_cli.options import SubcommandGroup, json_option, team_options
from remit_cli.show.screen import clock_time, many, print_text
from remit_server.documents.common import GuardedTool, GuardReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from remit_guard.commands.guarding import GuardOrder


F = TypeVar("F", bound="Callable[..., Any]")


@click.group(cls=SubcommandGroup)
def guard() -> None:
    """Put limits on the sub-agents of coding tools.

    A session of the tool is a run, and each of its sub-agents a delegation: one budget for the whole tree, with limits
    on depth, sub-agents at once and time. See `remit docs guard-coding-tools`.

    \b
    Example:
      remit guard claude-code
      remit guard serve
    """


def _install_options(command: F) -> F:
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask before the file is changed."),
        click.option("--undo", is_flag=True, help="Take the guard out again."),
        click.option("--user", "for_user", is_flag=True, help="For all of your projects.  [default]"),
        click.option("--project", is_flag=True, help="For the project in this folder, and for you alone."),
    ):
        command = option(command)
    return command


@guard.command("claude-code")
@_install_options
def claude_code(project: bool, for_user: bool, undo: bool, yes: bool) -> None:
    """Put the guard into Claude Code.

    It adds hooks to the settings of Claude Code, beside those that are there. The content before is kept, and --undo
    restores it byte for byte unless you changed the file since.

    \b
    Example:
      remit guard claude-code --project
    """
    _change("claude-code", project, for_user, undo=undo, yes=yes)


@guard.command("codex")
@_install_options
def codex(project: bool, for_user: bool, undo: bool, yes: bool) -> None:
    """Put the guard into Codex.

    It adds hooks to `hooks.json` of Codex, beside those that are there. Codex runs them only when you have trusted
    them: start it, and choose to trust them. --undo restores the file byte for byte unless you changed it since.

    \b
    Example:
      remit guard codex
    """
    _change("codex", project, for_user, undo=undo, yes=yes)


@guard.command("opencode")
@_install_options
def opencode(project: bool, for_user: bool, undo: bool, yes: bool) -> None:
    """Put the guard into OpenCode.

    It writes a plugin, which OpenCode loads when it starts. --undo removes it.

    \b
    Example:
      remit guard opencode
    """
    _change("opencode", project, for_user, undo=undo, yes=yes)


@guard.command("gemini-cli")
@_install_options
def gemini_cli(project: bool, for_user: bool, undo: bool, yes: bool) -> None:
    """Put the guard into Gemini CLI.

    It adds hooks to the settings of Gemini CLI, beside those that are there. The content before is kept, and --undo
    restores it byte for byte unless you changed the file since. Gemini CLI has one settings file for a project: with
    --project, do not commit it.

    \b
    Example:
      remit guard gemini-cli
    """
    _change("gemini-cli", project, for_user, undo=undo, yes=yes)


def _change(name: str, project: bool, for_user: bool, *, undo: bool, yes: bool) -> None:
    from remit_guard.install import install, is_traced, uninstall
    from remit_guard.places import guard_folder, usable, writing
    from remit_guard.status import guard_status
    from remit_guard.tools.known_tools import TOOLS

    if project and for_user:
        raise click.UsageError("--project and --user exclude each other")
    tool, folder = TOOLS[name], guard_folder()
    path = tool.path(Path.cwd() if project else None).absolute()
    if undo:
        is_here = is_traced(path, folder)
        with writing(folder):
            whole = (is_here or folder.exists()) and uninstall(tool, path, folder)
        if not is_here:
            click.echo(f"The guard is not in {path}.", err=True)
            return
        rest = "" if whole else " The file was changed since, so the rest stays."
        click.echo(f"Took the guard out of {path}.{rest}")
        return
    click.echo(tool.changes(path))
    if not yes:
        click.confirm("Change the file?", abort=True)
    with usable(folder):
        install(tool, path, folder)
    runs = guard_status(folder) is not None
    click.echo(f"The guard is in {path}.\n→ {'remit guard status' if runs else 'Start it: remit guard serve --detach'}")


@guard.command()
@click.option("--detach", is_flag=True, help="Start it in the background, and return once it runs.")
@click.option("--install", "installs", is_flag=True, help="Let the system start it at login: systemd or launchd.")
@click.option("--print", "prints", is_flag=True, help="With --install: print the file, and change nothing.")
@team_options
def serve(detach: bool, installs: bool, prints: bool, team_file: Path | None, overrides: tuple[str, ...]) -> None:
    """Answer the hooks of all tools until Ctrl-C.

    The limits are those of `[guard]` in the team file, or the defaults. While it does not run, no sub-agent starts; if
    the file has `[[guard.rules]]` about tools, none is used either.
    `remit up` does the same beside its device, if the team file has `[guard]`.

    \b
    Example:
      remit guard serve
      remit guard serve --detach
      remit guard serve --install
    """
    if detach and installs:
        raise click.UsageError("--detach and --install cannot be combined")
    if prints and not installs:
        raise click.UsageError("--print needs --install")
    import asyncio

    from remit_cli.drive import login_service
    from remit_guard.commands import guarding

    order = _order(team_file, overrides)
    if installs:
        raise SystemExit(login_service.install(order.service(), prints=prints))
    if detach:
        guarding.detach(order)
    else:
        asyncio.run(guarding.run_guard(order.settings, order.rules, order.prices))


@guard.command()
@click.argument("agent")
@click.argument("tool")
@click.option("--input", "given", metavar="JSON", default="{}", help="Arguments: JSON, @FILE, or - for stdin.")
@team_options
def explain(agent: str, tool: str, given: str, team_file: Path | None, overrides: tuple[str, ...]) -> None:
    """Explain what `[[guard.rules]]` say about the use of TOOL by AGENT. Nothing runs or is recorded.

    AGENT is a coding tool, as `claude-code`, or a kind of its sub-agents. The exit code is 0 if the use would be
    allowed, 4 if a person would be asked first, and otherwise that of the refusal.

    \b
    Example:
      remit guard explain claude-code Bash --input '{"command": "git push --force"}'
    """
    from remit.policy.guards import judge
    from remit.policy.verdict import Ask, Facts, Refuse
    from remit.ports.brief import as_arguments
    from remit.protocol.envelope import VERSION, Request
    from remit.protocol.errors import TABLE, Code
    from remit.protocol.remit import Remit
    from remit_cli.drive.order import read_task
    from remit_cli.places import current_user

    _, arguments = read_task(None, given, None)
    remit = Remit(user=current_user(), depth=0, max_depth=0, time_ms=0, tokens=0)
    request = Request(
        version=VERSION,
        id="explained",
        origin=agent,
        target=tool,
        remit=remit,
        input=as_arguments(tool, arguments),
        act="tool",
    )
    match judge(request, Facts(target=None), _order(team_file, overrides).rules.tool_guards):
        case Refuse(fault=why):
            print_text(f"refused: {why.message}")
            raise SystemExit(TABLE[why.code].exit_code)
        case Ask(question=question):
            print_text(f"a person is asked: {question}")
            raise SystemExit(TABLE[Code.APPROVAL_DECLINED].exit_code)
        case _:
            print_text("allowed")


@guard.command()
def stop() -> None:
    """Stop the guard: no sub-agent starts any more in the tools that have it, and no tool is used if it has rules.

    \b
    Example:
      remit guard stop
    """
    from remit_guard.commands import guarding

    guarding.stop()


@guard.command()
@click.option("--no-browser", is_flag=True, help="Print the link, and open no browser.")
def console(no_browser: bool) -> None:
    """Open the console over the sessions of all tools: who started whom, as it happens.

    The guard serves it on this machine alone, from the first time on that you look. The link signs in one browser.

    \b
    Example:
      remit guard console
    """
    import webbrowser

    from remit_guard.places import guard_folder
    from remit_guard.status import console_link

    link = console_link(guard_folder())
    if link is None:
        click.echo("The guard does not run.\n→ remit guard serve", err=True)
        raise click.exceptions.Exit(1)
    if not link.link:
        click.echo(f"{link.error}\n→ {link.suggestion}", err=True)
        raise click.exceptions.Exit(1)
    click.echo(f"Console, once within 5 minutes: {link.link}")
    if not no_browser:
        webbrowser.open(link.link)


@guard.command()
@json_option
def status(as_json: bool) -> None:
    """Show whether the guard runs, which tools have it, and when each was last heard.

    It warns of versions that the guard was not tried with. Exit code 1: it does not run, or is gone from a file.

    \b
    Example:
      remit guard status
    """
    from remit_cli.show.screen import print_json
    from remit_guard.places import guard_folder
    from remit_guard.status import report

    state = report(guard_folder())
    if as_json:
        print_json(state)
    else:
        print_guard_status(state)
    raise SystemExit(0 if state.ok else 1)


def _order(team_file: Path | None, overrides: tuple[str, ...]) -> GuardOrder:
    from remit_cli.config.composition import price_book_of
    from remit_cli.config.load import load_team
    from remit_cli.config.team_search import find_team
    from remit_guard.commands.guarding import GuardOrder
    from remit_guard.section import GUARD
    from remit_guard.settings import NO_RULES, GuardSettings
    from remit_server.model_prices import PriceBook

    file = find_team(team_file)
    if file is None and overrides:
        raise click.UsageError("--set changes a team file, and there is none here; see `remit init`")
    team = None if file is None else load_team(file, overrides=list(overrides), code=False)
    section = None if team is None else GUARD.of(team)
    return GuardOrder(
        settings=GuardSettings() if section is None else section.settings(),
        rules=NO_RULES if section is None else section.team_rules(),
        prices=PriceBook() if team is None else price_book_of(team),
        team_file=file,
        overrides=overrides,
    )


def print_guard_status(guard: GuardReport) -> None:
    """Print whether the guard runs, and a line or two for each file that it was put into."""
    from remit_guard.places import guard_folder, stopped_without
    from remit_guard.tool_use import use_in_words

    effect = stopped_without(guard_folder())
    if guard.unanswering is not None:
        print_text(
            f"The guard runs as process {guard.unanswering or 'unknown'}, but does not answer: {effect} in the tools "
            "that have it.\n→ remit guard stop, then remit guard serve"
        )
    elif guard.process is None:
        print_text(f"The guard does not run: {effect} in the tools that have it.\n→ remit guard serve")
    else:
        print_text(f"The guard runs as process {guard.process}; {many(guard.sessions, 'session')} open.")
        for each in guard.use:
            print_text(f"{each.tool}  {each.session}: {use_in_words(each, guard.currency)}")
    for tool in guard.tools:
        print_text(f"{tool.tool}  {tool.path}: {_state(tool)}")
        if tool.obstacle:
            print_text(tool.obstacle)
        if tool.is_untried:
            print_text(f"{tool.tool}  {tool.version} was not tried; tried: {', '.join(tool.tried)}")
    if not guard.tools:
        print_text("No tool has it.\n→ remit guard claude-code")


def _state(tool: GuardedTool) -> str:
    if tool.state == "gone":
        return f"the guard is gone from it, or of another version\n→ remit guard {tool.tool}"
    if tool.state == "silent" or tool.heard_ms is None:
        return "not heard since the guard was put in\n→ Start a session of the tool; it is heard at its start."
    return f"last heard {clock_time(tool.heard_ms)}, {many(tool.events, 'event')} since the guard was started"
