"""`remit serve`: serve the team's agents over HTTP."""

from pathlib import Path

import click

from remit_cli.options import json_option, team_options, verbose_option


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
    from remit_cli.teams import importing, team_path
    from remit_server.server import fast_loop

    with data_only() as data, logging_to(lambda line: click.echo(line, err=True), verbose=verbose):
        with importing():
            team = load_team(team_path(team_file), overrides=overrides)
        shown = data if as_json else None
        workers = workers or team.serve.workers
        if place is None and workers > 1:
            from remit_cli.drive.workers import run_workers  # most servers are one process

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
