"""Serves a team over HTTP: its hub, its authenticator, and its shutdown."""

import logging
import os
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from remit.hub.hub import Hub
from remit.policy.reception import Permission
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.clock import LoopClock
from remit.runtime.engine import AFTER_ANSWERS_S, CLOSE_S
from remit.runtime.registry import team_invalid
from remit_cli.config.composition import PresentTeam, hub_of, price_book_of
from remit_cli.config.origins import dotted
from remit_cli.config.peers import ANYONE, authenticator_of, key_of, unservable
from remit_cli.config.sections.hub import A2aSection
from remit_cli.config.team import Composition, Team, sections
from remit_cli.config.team_policy import FileTeamPolicy
from remit_cli.config.values import duration_ms
from remit_server.access import token_in
from remit_server.access_log import AccessLog
from remit_server.app import Api
from remit_server.console.hosts import ConsoleHosts
from remit_server.documents.spend import Pricing
from remit_server.figures_endpoints import WorkerMetrics, WorkerPlace
from remit_server.mcp.host_delegations import McpOffer
from remit_server.server import Server
from remit_server.transports.addresses import connections_within_files, listening
from remit_server.transports.credentials.incoming import KnownSender, RunCredentials, Spending

if TYPE_CHECKING:  # most teams do not serve A2A, or the console
    from remit_server.a2a.guests import PublicAccess
    from remit_server.a2a.routes import Exposure
    from remit_server.console.console import Console
    from remit_server.transports.credentials.incoming import Authenticator

log = logging.getLogger("remit")

# The keys of an identity provider take a few kilobytes.
MOST_KEYS = 1_000_000
FETCH_S = 10.0

LOCAL = ("127.0.0.1", "::1", "localhost")
STDERR = "-"
"""The name of standard error, for the access log."""
TOKEN_FILE = "serve.token"
LOCAL_CLIENT = "local"
"""The name of whoever has the token in that file."""


class TeamServer(NamedTuple):
    """A server made from a team, ready to serve."""

    server: Server
    hub: Hub
    token: Path | None
    """The file with the only accepted token, if the team names no clients or peers."""
    is_local: bool
    """Whether it can be reached only from this machine."""


@asynccontextmanager
async def serving(
    team: Team,
    *,
    host: str | None = None,
    port: int | None = None,
    bound: socket.socket | None = None,
    place: WorkerPlace | None = None,
    console: bool = False,
    access_log: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> AsyncGenerator[TeamServer, None]:
    """Open a team's hub and make its server; *host*, *port*, *console* and *access_log* override the team file.

    A worker process is given the socket that all workers share, *bound*, and its *place* among them.
    """
    section = team.serve
    host, port = host or section.host, section.port if port is None else port
    connections = _connections(team)
    for wrong in unservable(team):
        raise team_invalid(f"{dotted(wrong.place)}: {wrong.message}")
    token = None if team.clients or team.peers else _token_file(team, host)
    own: tuple[KnownSender, ...] = ()
    if token is not None:
        own = (local_client(token_in(token)),)
    wall_ms = LoopClock().wall_ms
    held = RunCredentials(wall_ms)
    metrics = None if place is None else WorkerMetrics(place)
    present = PresentTeam(team)
    with bound or listening(host, port) as listener:
        async with (
            hub_of(
                team, environ=environ, held=held, shared=place is not None, takes=True, reloaded=present.replace
            ) as hub,
            _beside(Composition(hub=hub, team=team, environ=environ)),
            _access_log(team, access_log) as lines,
        ):
            spending = Spending(hub.store.incr, wall_ms=wall_ms)
            authenticator = authenticator_of(
                team,
                held=held,
                spending=spending,
                count=hub.store.incr,
                wall_ms=wall_ms,
                fetch=fetch,
                environ=environ,
                more=own,
            )
            hosts = _hosts(team, host, listener)
            api = Api(
                hub,
                authenticator,
                exposed=lambda: hub.cards if ANYONE in section.agents else section.agents,
                a2a=_exposure(team, hub, host, connections, shared=place is not None),
                proxies=section.proxies,
                workers=metrics,
                console=_console(team, hosts, hub, authenticator) if console or section.console else None,
                hosts=hosts,
                mcp=McpOffer(tools=section.mcp_tools, sampling=section.mcp_sampling),
                policy=FileTeamPolicy(hub, present, environ),
                pricing=pricing_of(team),
                access_log=lines,
                connections=connections,
            )
            server = Server(
                api,
                bound=listener,
                drain_s=duration_ms(section.drain) / 1_000,
                connections=connections,
                certificate=section.certificate and str(team.folder / section.certificate),
                key=section.private_key and str(team.folder / section.private_key),
            )
            if metrics is not None:
                await metrics.open(api.own_metrics)
            server.closing = hub.closing
            yield TeamServer(server, hub, token, is_local=host in LOCAL)
            async with hub.closing.leaving(AFTER_ANSWERS_S, "the bus"):
                if metrics is not None:
                    await metrics.close()
                await hub.drain(hub.closing.left_s(CLOSE_S, server.drain_s))


def _connections(team: Team) -> int:
    """Return how many connections a worker accepts on each port: as many as it may open files for."""
    files_each = 1
    if team.a2a is not None and team.a2a.grpc_port is not None:
        from remit_server.a2a.grpc_server import DESCRIPTORS

        files_each += DESCRIPTORS
    connections = connections_within_files(team.serve.connections, files_each)
    if connections < team.serve.connections:
        log.warning(
            "only %d connections are accepted instead of %d, because this process may not open more files (ulimit -n)",
            connections,
            team.serve.connections,
        )
    return connections


@asynccontextmanager
async def _beside(made: Composition) -> AsyncGenerator[None]:
    """Run what plugins run beside a server."""
    async with AsyncExitStack() as stack:
        for each in sections():
            await stack.enter_async_context(each.beside(made))
        yield


@asynccontextmanager
async def _access_log(team: Team, named: str | None) -> AsyncGenerator[AccessLog | None]:
    """Open the access log while the block lasts, if there is to be one; *named* is `-` or a file."""
    section = team.serve.access_log
    if named is None and isinstance(section, str):
        named = str(team.folder / section)
    elif named is None and section:
        named = STDERR
    if named is None:
        yield None
        return
    opened = AccessLog(None if named == STDERR else Path(named))
    try:
        yield opened
    finally:
        opened.close()


def local_client(token: str) -> KnownSender:
    """Return the user of this machine, who may do everything."""
    return KnownSender(name=LOCAL_CLIENT, token=token, permissions=frozenset(Permission), may_approve=True)


def _hosts(team: Team, host: str, bound: socket.socket) -> ConsoleHosts:
    """Return the host names under which a team is served."""
    public = () if team.a2a is None or team.a2a.url is None else (urlsplit(team.a2a.url),)
    return ConsoleHosts(
        bound.getsockname()[1],
        host=host,
        tls=team.serve.certificate is not None,
        more=[*sorted(team.serve.console_hosts), *(f"{each.scheme}://{each.netloc}" for each in public)],
        advice="Another name has to be in `console_hosts` of `[serve]`.",
    )


def _console(team: Team, hosts: ConsoleHosts, hub: Hub, clients: "Authenticator") -> "Console":
    from remit_server.console.console import operator_console

    return operator_console(hub, hosts, clients, team=team.name, currency=team.currency)


def _exposure(team: Team, hub: Hub, host: str, connections: int, *, shared: bool) -> "Exposure | None":
    """Return the A2A settings of a team; None if it does not serve A2A."""
    section = team.a2a
    if section is None:
        return None
    from remit_server.a2a.grpc_server import GrpcListener
    from remit_server.a2a.routes import Exposure
    from remit_server.transports.addresses import OutboundHosts

    grpc = None
    if section.grpc_port is not None:
        grpc = GrpcListener(
            host=host,
            port=section.grpc_port,
            address=section.grpc_address,
            certificate=team.serve.certificate and str(team.folder / team.serve.certificate),
            key=team.serve.private_key and str(team.folder / team.serve.private_key),
            connections=connections,
            shared=shared,
        )
    return Exposure(
        agents=lambda: hub.cards if ANYONE in section.agents else section.agents,
        default=section.default,
        url=section.url,
        key=key_of(team),
        required=section.require_remit,
        push=section.push,
        reach=OutboundHosts(hosts=frozenset(each.lower() for each in section.push_hosts)),
        public=_public(section) if section.public else None,
        open=section.open,
        grpc=grpc,
    )


def _public(section: A2aSection) -> "PublicAccess":
    from remit_server.a2a.guests import PublicAccess

    return PublicAccess(
        agents=section.public,
        rate=section.public_rate,
        open=section.public_open,
        tokens=section.public_tokens,
        time_ms=None if section.public_time is None else duration_ms(section.public_time),
    )


def pricing_of(team: Team) -> Pricing:
    """Return the prices of a team, and the models that its agents have."""
    book = price_book_of(team)
    return Pricing(price=book.price, models=book.models, currency=team.currency)


def _token_file(team: Team, host: str) -> Path:
    """Return the token file for a team without clients; only for this machine."""
    if host not in LOCAL:
        raise RemitError(
            fault(
                Code.TEAM_INVALID,
                f"{host} can be reached from other machines, and the team names no clients or peers",
                suggestion="Name them in `[clients.NAME]` or `[peers.NAME]`; `remit docs serving` shows how.",
            )
        )
    return team.store_path.parent / TOKEN_FILE


async def fetch(url: str) -> bytes:
    """Fetch the keys of an identity provider from a URL in the team file."""
    from aiohttp import ClientError, ClientSession, ClientTimeout

    try:
        async with (
            ClientSession(timeout=ClientTimeout(FETCH_S)) as session,
            session.get(url, allow_redirects=False) as reply,
        ):
            if reply.status != 200:
                raise OSError(f"{url} answered with status {reply.status}")
            return await reply.content.read(MOST_KEYS)
    except (ClientError, TimeoutError) as error:
        raise OSError(f"{url} cannot be reached ({type(error).__name__})") from error
