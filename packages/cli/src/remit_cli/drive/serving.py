"""Runs a server in the foreground until it is stopped, in one process or in several workers."""

import asyncio
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from ssl import SSLContext, create_default_context

import click
import msgspec

from remit.agents.program import RestartPause
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.registry import team_invalid
from remit_cli.config.checks import secret_of
from remit_cli.config.load import load_team
from remit_cli.config.serving import LOCAL_CLIENT, TOKEN_FILE, TeamServer, serving
from remit_cli.config.team import Team
from remit_cli.drive.running import Data, interrupts
from remit_cli.places import relative_path, team_path
from remit_cli.show.screen import many, print_json, print_text, spoken
from remit_server.access import token_in
from remit_server.documents.api import LINKS, OneTimeLink
from remit_server.documents.api_values import FailureBody
from remit_server.documents.team import ConsoleLink, ServerUp
from remit_server.figures_endpoints import WorkerPlace
from remit_server.server import Server
from remit_server.transports.addresses import listening


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
        up.server.when_stopping = lambda: _tell_of_the_wait(up.server)
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


ANSWER_S = 30.0


def print_link(
    team_file: Path | None,
    overrides: tuple[str, ...],
    host: str | None,
    port: int | None,
    client: str | None,
    *,
    as_json: bool,
) -> int:
    """Print a new link of the server that serves a team on this machine; raise a `RemitError` if it does not answer."""
    team = load_team(team_path(team_file), overrides=overrides, secrets=False, code=False)
    link = asyncio.run(_ask(team, _address(team, host, port), _token(team, client)))
    if as_json:
        print_json(ConsoleLink(url=link.url, expires_in_ms=link.expires_in_ms))
    else:
        print_text(link.url)
    return 0


def _address(team: Team, host: str | None, port: int | None) -> str:
    host = host or team.serve.host
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    scheme = "http" if team.serve.certificate is None else "https"
    return f"{scheme}://{host}:{team.serve.port if port is None else port}"


def _token(team: Team, client: str | None) -> str:
    """Return the token to show: that of the client to sign in as, or the one in the token file."""
    if not (team.clients or team.peers):
        if client not in (None, "local"):
            raise team_invalid(f"the team names no client `{client}`")
        return token_in(team.store_path.parent / TOKEN_FILE)
    tokens = {name: each.token for name, each in team.clients.items() if each.token is not None}
    named = ", ".join(sorted(tokens)) or "none"
    if client is None and len(tokens) == 1:
        (client,) = tokens
    if client is None or client not in tokens:
        why = "name the client to sign in as" if client is None else f"no client `{client}` with a token"
        raise RemitError(
            fault(Code.TEAM_INVALID, f"{why}; there are: {named}", suggestion="Use: remit serve --link --client NAME")
        )
    try:
        return secret_of(tokens[client], os.environ)
    except ValueError as error:
        raise team_invalid(f"the token of `{client}` is not known here: {error}") from error


async def _ask(team: Team, address: str, token: str) -> OneTimeLink:
    from aiohttp import ClientError, ClientSession, ClientTimeout

    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=ANSWER_S)) as session,
            session.post(f"{address}{LINKS.path}", headers=headers, ssl=_trusting(team)) as reply,
        ):
            body = await reply.read()
    except (ClientError, TimeoutError, OSError) as error:
        why = f"no server answers at {address} ({type(error).__name__})"
        how = "Start it: remit serve --console; or say where it is: --host, --port"
        raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, suggestion=how)) from error
    if reply.status == 404:
        why = f"the server at {address} serves no console"
        raise RemitError(fault(Code.NOT_FOUND, why, suggestion="Start it with: remit serve --console"))
    try:
        if reply.status >= 400:
            raise RemitError(msgspec.json.decode(body, type=FailureBody).fault)
        return msgspec.json.decode(body, type=OneTimeLink)
    except msgspec.DecodeError as error:
        why = f"what answers at {address} is not a server of Remit (status {reply.status})"
        raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why)) from error


def _trusting(team: Team) -> SSLContext | bool:
    """Return how to check the server's certificate: it must be the one in the team file."""
    if team.serve.certificate is None:
        return True
    context = create_default_context(cafile=str(team.folder / team.serve.certificate))
    context.check_hostname = False  # it is asked for by its address on this machine
    return context


# A worker that ends by itself is started again, later after each failure in a row.
PAUSES_S = (0.2, 1.0, 5.0, 15.0)
# A worker that ran for this long had started well.
STEADY_S = 30.0

_decode_server_up = msgspec.json.Decoder(ServerUp).decode


class Workers:
    """The worker processes of one server: started together, started again, stopped together."""

    def __init__(self, command: Sequence[str], count: int, bound: socket.socket, folder: Path) -> None:
        self._command = command
        self._count = count
        self._bound = bound
        self._folder = folder
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = False
        loop = asyncio.get_running_loop()
        self._first_up: asyncio.Future[bool] = loop.create_future()
        """Whether the first worker started: it makes what is missing (key, token), and says what is wrong."""
        self._all_up: asyncio.Future[ServerUp] = loop.create_future()
        self._up: set[int] = set()
        self.complaint = b""
        """The document in which a worker says why it could not start."""

    async def run(self) -> int:
        """Run the workers until they are stopped; return the exit code."""
        # A worker ends when it can read the end of this pipe: also if this process is killed.
        life, held = os.pipe()
        os.set_inheritable(life, True)
        try:
            codes = await asyncio.gather(*(self._keep(number, life) for number in range(1, self._count + 1)))
        finally:
            os.close(held)
            os.close(life)
        return max(codes)

    async def started(self) -> ServerUp:
        """Return what the workers serve, once all accept requests."""
        return await self._all_up

    def stop(self, _signal: str) -> None:
        """Let the workers finish what they have begun, and end."""
        self._stopping = True
        if not self._first_up.done():
            self._first_up.set_result(False)
        self._signal(signal.SIGTERM)

    def stop_at_once(self) -> None:
        """End the workers without waiting."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep(self, number: int, life: int) -> int:
        """Keep one worker running; return its exit code once it is stopped, or if it cannot even start."""
        pause = RestartPause(PAUSES_S, time.monotonic)
        if number > 1 and not await asyncio.shield(self._first_up):
            return 0
        while not self._stopping:
            began = time.monotonic()
            code = await self._run_once(number, life)
            if self._stopping:
                return max(code, 0)
            if not self._first_up.done():
                self._first_up.set_result(False)
                return code or 1
            if time.monotonic() - began > STEADY_S:
                pause.reset()
            pause.fail()
            click.echo(f"Worker {number} ended with {code}; starting it again in {pause.left_s():.1f} s.", err=True)
            await asyncio.sleep(pause.left_s())
        return 0

    def _take_line(self, number: int, line: bytes) -> None:
        try:
            up = _decode_server_up(line)
        except msgspec.DecodeError:  # why it could not start
            self.complaint = line
            return
        self._up.add(number)
        if not self._first_up.done():
            self._first_up.set_result(True)
        if len(self._up) == self._count and not self._all_up.done():
            self._all_up.set_result(up)

    async def _run_once(self, number: int, life: int) -> int:
        place = f"{number}/{self._count}:{self._bound.fileno()}:{life}:{self._folder}"
        process = await asyncio.create_subprocess_exec(
            *self._command,
            "--worker",
            place,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(self._bound.fileno(), life),
            # Ctrl-C reaches this process alone, which then stops the workers in order.
            start_new_session=True,
        )
        self._running[number] = process
        if self._stopping:
            process.terminate()
        try:
            assert process.stdout is not None
            async for line in process.stdout:
                self._take_line(number, line)
            return await process.wait()
        finally:
            del self._running[number]


async def run_workers(
    team: Team, host: str | None, port: int | None, count: int, arguments: Sequence[str], data: Data | None
) -> int:
    """Serve a team with *count* worker processes until it is stopped, and return the exit code."""
    section = team.serve
    if any(agent.device is not None for agent in team.agents.values()):
        raise team_invalid("a team with agents on other devices is served by one process: leave out `workers`")
    command = [sys.executable, "-m", "remit_cli", "serve", "--json", *arguments]
    with (
        listening(host or section.host, section.port if port is None else port) as bound,
        tempfile.TemporaryDirectory(prefix="remit-workers-") as folder,
    ):
        workers = Workers(command, count, bound, Path(folder))
        with interrupts(workers.stop, workers.stop_at_once):
            running = asyncio.ensure_future(workers.run())
            telling = asyncio.ensure_future(_tell_all(workers, team, count, data))
            code = await running
            telling.cancel()
    if code and data is not None and workers.complaint:
        data.document(msgspec.Raw(workers.complaint))
    if code == 0:
        click.echo("Stopped. All workers have ended.", err=True)
    return code


async def _tell_all(workers: Workers, team: Team, count: int, data: Data | None) -> None:
    up = await workers.started()
    if data is not None:
        data.document(up)
    else:
        click.echo(f"Serving {team.name} at {up.address} with {count} workers (Ctrl-C to stop).", err=True)
        if up.token_file is not None:
            token = relative_path(Path(up.token_file))
            click.echo(f"The team has no [clients], so requests need the token in {token}.", err=True)
        if up.console is not None:
            tell_of_console(up.console, up.console_link)
