"""Runs a server in the foreground until it is stopped."""

import asyncio
import signal
import socket
from pathlib import Path

import click

from remit.cli.drive.running import Data
from remit.cli.places import relative_path
from remit.cli.show.screen import many, spoken
from remit.config.serving import LOCAL_CLIENT, TeamServer, serving
from remit.config.team import Team
from remit.documents.team import ServerUp
from remit.server.server import Server
from remit.server.worker_metrics import WorkerPlace


async def run_server(
    team: Team,
    host: str | None,
    port: int | None,
    data: Data | None,
    place: str | None = None,
    *,
    console: bool = False,
    access_log: str | None = None,
) -> int:
    """Serve a team until it is stopped, and return the exit code.

    *place* is set in a worker process: its number, how many there are, the socket that they share, a pipe whose end
    means that the parent is gone, and the folder for the workers' own sockets.
    """
    if place is not None:
        return await _work(team, host, place, data, console=console, access_log=access_log)
    async with serving(team, host=host, port=port, console=console, access_log=access_log) as up:
        up.server.when_started = lambda: _tell(team, up, data)
        up.server.when_told = lambda: _tell_of_the_wait(up.server)
        await up.server.serve()
    return _stopped(up)


async def _work(
    team: Team, host: str | None, place: str, data: Data | None, *, console: bool, access_log: str | None
) -> int:
    """Serve as one of several worker processes."""
    number, bound, life, folder = place.split(":", 3)
    own, _, workers = number.partition("/")
    where = WorkerPlace(int(own), int(workers), Path(folder))
    shared = socket.socket(fileno=int(bound))
    async with serving(team, host=host, bound=shared, place=where, console=console, access_log=access_log) as up:
        up.server.when_started = lambda: _tell(team, up, data)
        # The parent holds the other end of the pipe: it can be read once the parent is gone, however it ended.
        asyncio.get_running_loop().add_reader(int(life), _stop_without_parent, up.server, int(life))
        await up.server.serve()
    return _stopped(up) if up.server.unfinished else 0


def _stop_without_parent(server: Server, life: int) -> None:
    asyncio.get_running_loop().remove_reader(life)
    server.handle_exit(signal.SIGTERM, None)


def _stopped(up: TeamServer) -> int:
    if up.server.unfinished:
        left = many(up.server.unfinished, "request")
        click.echo(
            f"Stopped with {left} in progress. The next hub resumes what it can; the rest is cancelled.",
            err=True,
        )
        click.echo("→ remit runs list", err=True)
    else:
        click.echo("Stopped. No request was interrupted.", err=True)
    return 0


def _tell_of_the_wait(server: Server) -> None:
    if under_way := server.api.delegations.under_way:
        wait = f"waiting up to {spoken(int(server.drain_s * 1_000))} for {many(under_way, 'request')}"
        click.echo(f"Stopping: {wait}. Press Ctrl-C again to stop at once.", err=True)


def _tell(team: Team, up: TeamServer, data: Data | None) -> None:
    address = up.server.address
    if data is not None:
        agents = tuple(sorted(up.server.api.delegations.exposed()))
        token_file = None if up.token is None else str(up.token)
        shown, link = _console_of(up)
        document = ServerUp(
            team=team.name, address=address, agents=agents, token_file=token_file, console=shown, console_link=link
        )
        data.document(document)
        return
    click.echo(f"Serving {team.name} at {address} (Ctrl-C to stop).", err=True)
    if (over_grpc := up.server.api.grpc_address) is not None:
        click.echo(f"A2A over gRPC at {over_grpc}.", err=True)
    if address.startswith("http:") and not up.is_local:
        click.echo(
            "The connection is not encrypted: others on the network can read tokens and requests. "
            "Use an HTTPS proxy in front, or set a `certificate`.",
            err=True,
        )
    if up.token is not None:
        token = relative_path(up.token)
        click.echo(f"The team has no [clients], so requests need the token in {token}. Try:", err=True)
        click.echo(f'  curl -H "Authorization: Bearer $(cat {token})" {address}/v1/agents', err=True)
    console, link = _console_of(up)
    if console is not None:
        tell_of_console(console, link)


def _console_of(up: TeamServer) -> tuple[str | None, str | None]:
    """Return the address of the console, and a link that signs in a browser, if there is one client it can be for."""
    console = up.server.api.console
    if console is None:
        return None, None
    return f"{console.hosts.address}/", console.link(LOCAL_CLIENT) if up.token is not None else None


def tell_of_console(address: str, link: str | None) -> None:
    """Say where the console is, and how to sign in."""
    if link is not None:
        click.echo(f"Console, once within 5 minutes: {link}", err=True)
        click.echo("For another browser: remit serve --link", err=True)
    else:
        click.echo(f"Console: {address}", err=True)
        click.echo("Sign in with the token of a client, or by a link: remit serve --link --client NAME", err=True)
