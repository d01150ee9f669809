"""Runs a team's device in this process with its local API, so that other processes of this user can join it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from urllib.parse import quote

from msgspec import Struct

from remit.hub.hub import Hub
from remit.runtime.clock import LoopClock
from remit_cli.config.composition import PresentTeam, hub_of
from remit_cli.config.team import Team
from remit_relay.device.identity import Card
from remit_relay.device.peers import Grants, PeerDevice, Peers
from remit_relay.local_api.access import local_operations
from remit_relay.local_api.device_endpoints import DeviceEndpoints, DeviceNews, OwnDeviceStatus, OwnSharedAgent
from remit_relay.local_api.pairing import GrantEndpoints, GrantNames, OnPeers, PairingEndpoints
from remit_relay.local_api.serving import BrowserLinks, Changes, serve_shared
from remit_relay.local_api.views import shown_as
from remit_relay.notifier import needs_person
from remit_relay.pairing.client import PairingGateway, PairingService
from remit_relay.session.moves import ENDED
from remit_relay.session_service import SessionService
from remit_relay.team.device import device_path, using_device, with_gateway
from remit_relay.team.device_process import Command, DeviceProcess, announced, this_process
from remit_relay.team.device_service import Relaying, authority_of, relaying
from remit_relay.team.section import PROFILES, RELAY, SHARED, SharedSection, gateway_name, relay_of
from remit_server.access import SenderGate
from remit_server.console.hosts import TOKEN_FILE
from remit_server.server import Served

_now_ms = LoopClock().wall_ms


class DeviceHere(Struct, frozen=True, kw_only=True):
    """A device that runs in this process."""

    process: DeviceProcess
    relay: Relaying
    news: DeviceNews
    status: Callable[[], OwnDeviceStatus]
    links: BrowserLinks
    """Makes links that sign in browsers."""
    hub: Hub | None
    """The hub of the team, if something needs it."""


@asynccontextmanager
async def device_here(
    team: Team,
    *,
    command: Command,
    overrides: tuple[str, ...] = (),
    shared: Mapping[str, SharedSection] | None = None,
    port: int = 0,
    operator: bool = False,
) -> AsyncGenerator[DeviceHere]:
    """Run the team's device while the block lasts: its runs, its shared agents (or *shared*), and its local API.

    The hub of the team is opened if something needs it; with *operator*, in any case.

    Raises a `RemitError` if another process runs it, or the API cannot listen on *port*.
    """
    team = with_gateway(team)
    sections = SHARED.of(team) if shared is None else shared
    with using_device(team) as own:  # report what is missing before the hub is opened
        names = {each.device: each.card.name for each in Peers(own.state).list()}
    async with AsyncExitStack() as stack:
        needs_hub = (
            operator or bool(sections) or any(profile.agent is not None for profile in PROFILES.of(team).values())
        )
        present = PresentTeam(team)
        hub = await stack.enter_async_context(hub_of(team, reloaded=present.replace)) if needs_hub else None
        changes, links = Changes(), BrowserLinks()
        news = DeviceNews(_now_ms, lambda device: names.get(device, device))
        relay = await stack.enter_async_context(
            relaying(
                team,
                hub=hub,
                host=True,
                share=bool(sections),
                shared=shared,
                changed=changes.changed,
                reported=news.called,
                unable=news.unable,
                trouble=news.trouble,
                linked=news.linked,
            )
        )
        assert relay.host is not None, "it was asked for"
        news.name_of = _Names(relay, names).of
        relay.ended.add_done_callback(lambda ended: None if ended.cancelled() else news.ended(ended.result().fault))
        folder, host = device_path(team).parent, relay.host
        status = _DeviceState(team, relay, news, sections)
        names_here = GrantNames(agents=frozenset(sections), profiles=frozenset(PROFILES.of(team)))
        pairings = _pairings(relay, team)
        stack.push_async_callback(pairings.close)
        routes = [
            *local_operations(DeviceEndpoints(news, status.now)),
            *local_operations(PairingEndpoints(pairings, names_here)),
            *local_operations(GrantEndpoints(_on_peers(relay), names_here)),
        ]
        address = await stack.enter_async_context(
            serve_shared(
                host,
                changes,
                token=folder / TOKEN_FILE,
                port=port,
                link=relay.link,
                shared=relay.shared,
                presence=relay.presence_of,
                links=links,
                routes=routes,
                team=team.name,
                currency=team.currency,
                operator=None if hub is None else partial(_operator_api, hub, present),
            )
        )
        links.console.start = partial(_waiting_page, host, hub)
        stack.callback(news.close)
        process = status.process = this_process(command, address, team.file, overrides)
        ready = asyncio.create_task(_tell_when_ready(relay, news))
        stack.callback(ready.cancel)
        with announced(folder, process):
            yield DeviceHere(process=process, relay=relay, news=news, status=status.now, links=links, hub=hub)


def _operator_api(hub: Hub, present: PresentTeam, gate: SenderGate) -> Served:
    """Return the API of the hub; it is loaded for the first request to it, because most devices never get one."""
    from remit_cli.config.serving import pricing_of
    from remit_cli.config.team_policy import FileTeamPolicy
    from remit_server.app import Api

    return Api(hub, gate, policy=FileTeamPolicy(hub, present), pricing=pricing_of(present.team))


async def _waiting_page(host: SessionService, hub: Hub | None) -> str:
    """Return the path of the console's page on which the oldest decision waits; `/` if none does."""
    run = next((each.id for each in host.runs if needs_person(each)), None)
    if run is not None:
        return f"/chat/{run}"
    questions = () if hub is None else await hub.pending()
    return f"/approvals?id={quote(questions[0].id, safe='')}" if questions else "/"


class _DeviceState:
    """Tells the state of a device that runs in this process."""

    process: DeviceProcess
    """Set once the address of the local API is known, before anybody can ask."""

    def __init__(self, team: Team, relay: Relaying, news: DeviceNews, sections: Mapping[str, SharedSection]) -> None:
        self._team = team
        self._relay = relay
        self._news = news
        self._sections = sections

    def now(self) -> OwnDeviceStatus:
        """Return the current state."""
        relay, process, gateway = self._relay, self.process, RELAY.of(self._team)
        assert gateway is not None, "a device has a gateway"
        assert relay.host is not None, "it hosts runs"
        runs = [each for each in relay.host.runs if each.state not in ENDED]
        return shown_as(
            OwnDeviceStatus,
            process,
            id=relay.device.id,
            name=relay.device.card.name,
            gateway=gateway.gateway,
            connection=relay.link.state,
            why=relay.link.why,
            ready=relay.ready.is_set(),
            shared=tuple(
                OwnSharedAgent(name=name, agent=each.agent or name, devices=self._callers(name, each))
                for name, each in self._sections.items()
            ),
            open_runs=len(runs),
            waiting_drafts=sum(each.waits for each in runs),
            clients=self._news.readers,
        )

    def _callers(self, name: str, section: SharedSection) -> tuple[str, ...]:
        shared = self._relay.shared.get(name)
        ids = frozenset[str]() if shared is None else shared.profile.allowed_shared_device_ids
        known = {self._news.name_of(each) for each in ids}
        return tuple(sorted(known | (section.devices - ids - known)))


def _pairings(relay: Relaying, team: Team) -> PairingService:
    """Return the pairings that clients start on a running device."""
    peers, do, section = relay.sealer.peers, relay.post.do, relay_of(team)
    gateway = PairingGateway(url=section.gateway, name=gateway_name(team), ssl=authority_of(team, section))

    async def check(card: Card) -> None:
        await do(peers.check, card)

    async def record(card: Card, grants: Grants) -> PeerDevice:
        peer = await do(peers.pair_verified, card, grants)
        await relay.refresh()
        return peer

    return PairingService(gateway, lambda: relay.device.card, check=check, record=record)


def _on_peers(relay: Relaying) -> OnPeers:
    async def work(on: Callable[[Peers], list[PeerDevice]]) -> list[PeerDevice]:
        peers = await relay.post.do(on, relay.sealer.peers)
        await relay.refresh()
        return peers

    return work


async def _tell_when_ready(relay: Relaying, news: DeviceNews) -> None:
    await relay.ready.wait()
    news.linked(relay.link.state, relay.link.why)


class _Names:
    """The local names of devices; those that are paired later are looked up once."""

    def __init__(self, relay: Relaying, known: dict[str, str]) -> None:
        self._relay = relay
        self._known = known

    def of(self, device: str) -> str:
        if device not in self._known and (peer := self._relay.sealer.peers.get(device)) is not None:
            self._known[device] = peer.card.name
        return self._known.get(device, device)
