"""Serves a team over HTTP: its hub, its authenticator, and its shutdown."""

import logging
import os
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from remit.config.composition import hub_of
from remit.config.line_numbers import dotted
from remit.config.peers import ANYONE, authenticator_of, key_of, unservable
from remit.config.team import Team
from remit.config.values import duration_ms
from remit.policy.reception import Permission
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.clock import LoopClock
from remit.runtime.engine import Engine
from remit.runtime.registry import team_invalid
from remit.server.access import token_in
from remit.server.app import Api
from remit.server.server import Server
from remit.server.worker_metrics import WorkerMetrics, WorkerPlace
from remit.transports.credentials.incoming import KnownSender, RunCredentials
from remit.transports.credentials.spending import Spending
from remit.transports.listening import listening

if TYPE_CHECKING:  # most teams do not serve A2A
    from remit.server.a2a.routes import Exposure

log = logging.getLogger("remit")

# The keys of an identity provider take a few kilobytes.
MOST_KEYS = 1_000_000
FETCH_S = 10.0

LOCAL = ("127.0.0.1", "::1", "localhost")
TOKEN_FILE = "serve.token"


class TeamServer(NamedTuple):
    """A server made from a team, ready to serve."""

    server: Server
    hub: Engine
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
    environ: Mapping[str, str] = os.environ,
) -> AsyncGenerator[TeamServer, None]:
    """Open a team's hub and make its server; *host* and *port* override the team file.

    A worker process is given the socket that all workers share, *bound*, and its *place* among them.
    """
    section = team.serve
    host, port = host or section.host, section.port if port is None else port
    for wrong in unservable(team):
        raise team_invalid(f"{dotted(wrong.place)}: {wrong.message}")
    token = None if team.clients or team.peers else _token_file(team, host)
    own: tuple[KnownSender, ...] = ()
    if token is not None:
        own = (KnownSender(name="local", token=token_in(token), permissions=frozenset(Permission), may_approve=True),)
    wall_ms = LoopClock().wall_ms
    held = RunCredentials(wall_ms)
    metrics = None if place is None else WorkerMetrics(place)
    with bound or listening(host, port) as listener:
        async with (
            hub_of(team, environ=environ, held=held, shared=place is not None, takes=True) as hub,
            _device_of(team, hub, environ),
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
            api = Api(
                hub,
                authenticator,
                exposed=lambda: hub.cards if ANYONE in section.agents else section.agents,
                a2a=_exposure(team, hub),
                proxies=section.proxies,
                workers=metrics,
            )
            server = Server(
                api,
                bound=listener,
                drain_s=duration_ms(section.drain) / 1_000,
                connections=section.connections,
                certificate=section.certificate and str(team.folder / section.certificate),
                key=section.private_key and str(team.folder / section.private_key),
            )
            if metrics is not None:
                await metrics.open(api.own_metrics)
            yield TeamServer(server, hub, token, is_local=host in LOCAL)
            if metrics is not None:
                await metrics.close()
            if hub.bus is not None:
                await hub.bus.drain(duration_ms(section.drain) / 1_000)


@asynccontextmanager
async def _device_of(team: Team, hub: Engine, environ: Mapping[str, str]) -> AsyncGenerator[None]:
    """Run the device of a team with agents on other devices; it also shares agents, since no other process can.

    If it fails, the rest is still served: calls to such agents fail with the reason.
    """
    if all(agent.device is None for agent in team.agents.values()):
        yield
        return
    from remit.config.device_service import relaying  # most teams have none

    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(
                relaying(team, hub=hub, host=False, share=bool(team.shared), environ=environ)
            )
        except RemitError as error:
            log.warning("agents on other devices cannot be called: %s", error.fault.message)
        yield


def _exposure(team: Team, hub: Engine) -> "Exposure | None":
    """Return the A2A settings of a team; None if it does not serve A2A."""
    said = team.a2a
    if said is None:
        return None
    from remit.server.a2a.routes import Exposure
    from remit.transports.addresses import OutboundHosts

    return Exposure(
        agents=lambda: hub.cards if ANYONE in said.agents else said.agents,
        default=said.default,
        url=said.url,
        key=key_of(team),
        required=said.require_remit,
        push=said.push,
        reach=OutboundHosts(hosts=frozenset(host.lower() for host in said.push_hosts)),
    )


def _token_file(team: Team, host: str) -> Path:
    """Return the token file for a team without clients; only for this machine."""
    if host not in LOCAL:
        raise RemitError(
            fault(
                Code.TEAM_INVALID,
                f"{host} can be reached from other machines, and the team names no clients or peers",
                suggestion="Name them in `[clients.NAME]` or `[peers.NAME]`; docs/serving.md shows how.",
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
