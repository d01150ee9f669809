"""`remit serve`, `remit dev` and `remit reload`: run a team's server, and change its settings."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit_cli.options import GivenStore, json_option, store_options, team_options, verbose_option
from remit_cli.show.screen import print_json, print_text
from remit_server.documents.team import Reloading

if TYPE_CHECKING:
    from remit_cli.places import Place


@click.command()
@click.option("--host", metavar="ADDRESS", help="Address to listen on.  [default: from the team file, or 127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="Port to listen on; 0: any free port.  [default: from the team file, or 8080]",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Worker processes, to use several cores.  [default: from the team file, or 1]",
)
@click.option("--console", is_flag=True, help="Serve the console for browsers, too, and print a link to it.")
@click.option(
    "--access-log",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    help="Write a line of JSON per request to a file, or to standard error.  [default: from the team file, or none]",
)
@click.option("--link", "links", is_flag=True, help="Print a link to the console of the running server, and end.")
@click.option("--client", metavar="NAME", help="With --link: the client to sign in as.  [default: the only one]")
@click.option("--worker", "place", hidden=True, help="The place of a worker process among those of a server.")
@verbose_option
@team_options
@json_option
def serve(
    host: str | None,
    port: int | None,
    workers: int | None,
    console: bool,
    access_log: str | None,
    links: bool,
    client: str | None,
    place: str | None,
    verbose: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Serve the team's agents over HTTP, until Ctrl-C.

    `[clients.NAME]` and `[peers.NAME]` in the team file set who may connect, and which agents they may call. Without
    these sections, the server listens on this machine only, and requires the token in .remit/serve.token.

    On Ctrl-C or SIGTERM, the server accepts no new requests and waits for requests in progress, for at most `drain` in
    `[serve]`. The next hub resumes the rest where possible. A second Ctrl-C stops the server at once.

    With --console, a browser can show runs, approvals and spend at the same address. The link signs in one browser,
    once, within five minutes; without a link, a person types the token of a client. `remit docs console` says who
    may see what.

    \b
    Example:
      remit serve
      remit serve --console
      remit serve --link
      remit serve --host 0.0.0.0 --port 8443 --workers 4
      curl -H "Authorization: Bearer $(cat .remit/serve.token)" http://127.0.0.1:8080/v1/agents
    """
    if client is not None and not links:
        raise click.UsageError("--client needs --link")
    if links:
        from remit_cli.drive.serving import print_link

        raise SystemExit(print_link(team_file, overrides, host, port, client, as_json=as_json))
    from remit_cli.config.load import load_team
    from remit_cli.drive import running
    from remit_cli.drive.running import data_only, logging_to
    from remit_cli.drive.serving import run_server
    from remit_cli.places import importing, team_path
    from remit_server.server import fast_loop

    with data_only() as data, logging_to(lambda line: click.echo(line, err=True), verbose=verbose):
        with importing():
            team = load_team(team_path(team_file), overrides=overrides)
        shown = data if as_json else None
        workers = workers or team.serve.workers
        if place is None and workers > 1:
            from remit_cli.drive.serving import run_workers  # most servers are one process

            given = [("--host", host), ("--access-log", access_log), ("--team", team_file)]
            given += [("--set", each) for each in overrides]
            arguments = [word for name, value in given if value is not None for word in (name, str(value))]
            arguments += ["--verbose"] * verbose + ["--console"] * console
            work = run_workers(team, host, port, workers, arguments, shown)
        else:
            work = run_server(team, host, port, shown, place, console=console, access_log=access_log)
        code, stuck = running.run(work, fast_loop(tls=team.serve.certificate is not None))
        if stuck:
            running.leave(code)
        raise SystemExit(code)


FOLDER = Path(".remit", "dev")


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    metavar="PORT",
    help="Port of the console on 127.0.0.1.  [default: any free port]",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=FOLDER,
    metavar="PATH",
    help=f"Folder for everything that is kept.  [default: {FOLDER}]",
)
@click.option("--fresh", is_flag=True, help="Delete what an earlier one has kept there.")
@click.option("--no-browser", is_flag=True, help="Print the link, and open no browser.")
@click.option("--verbose", "-v", is_flag=True, help="Show all log messages.")
@team_options
@json_option
def dev(
    port: int,
    folder: Path,
    fresh: bool,
    no_browser: bool,
    verbose: bool,
    team_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Open the console in the browser, with a team, a gateway and two devices on this machine.

    If there is a team file here, its team is shown. Without one, an example team goes through a month of receipts, so
    that there is something to see: calls within calls, a refusal, a failure, and a question that waits for an answer.
    Two devices are paired over the gateway: yours, with a scripted agent, and one that shares an agent with you. This
    chat demo needs the extra relay; without it, everything else is shown.

    Nothing of it needs a model, an account or another machine. Everything is kept in .remit/dev: the store of your own
    team is not touched. Ctrl-C stops all of it.

    \b
    Example:
      remit dev
      remit dev --no-browser --port 8090
      remit dev --fresh
    """
    from remit_cli.config.team_search import find_team
    from remit_cli.drive import running
    from remit_cli.drive.dev import DevOrder, run_dev
    from remit_cli.drive.running import data_only, logging_to

    with data_only() as data, logging_to(lambda line: click.echo(line, err=True), verbose=verbose):
        order = DevOrder(
            folder=folder.absolute(),
            team_file=find_team(team_file),
            overrides=overrides,
            port=port,
            fresh=fresh,
            opens=not no_browser,
        )
        code, stuck = running.run(run_dev(order, data if as_json else None))
        if stuck:
            running.leave(code)
        raise SystemExit(code)


@click.command()
@store_options
@json_option
def reload(given: GivenStore, as_json: bool) -> None:
    """Make all running hubs on the team's store apply the changed team file.

    The file is checked first, as by `remit validate`. No run is stopped: calls in progress keep the time, tokens and
    tools that they were granted, and new calls follow the new settings. These settings apply at once: limits, budgets,
    breaker, rules, approvals.timeout, and may_call, allow_sub_agent_calls, recursive, authority, rate, tool_rates,
    time, tokens, cost and draws of agents. Everything else needs a restart: code, new agents, capabilities, tools,
    redaction, the store.

    \b
    Example:
      remit reload
    """
    import asyncio

    from remit_cli.places import relative_path, store_file, team_of

    team = team_of(given.team_file, given.overrides)
    path = store_file(given._replace(team_file=team.file))
    number = asyncio.run(_tell(path))
    file = relative_path(team.file)
    if as_json:
        print_json(Reloading(file=str(file), store=str(path), number=number))
        return
    print_text(f"{file} is valid. All hubs that run on {path} apply it now.")
    click.echo("→ To see what each hub applied: remit runs watch last, or remit audit tail.", err=True)


async def _tell(path: "Place") -> int:
    from remit_cli.places import current_user, writing

    async with writing(path) as store:
        return await store.control("", "reload", current_user(), "")
