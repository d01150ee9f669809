"""Asks the other hubs of a team over its bus."""

import asyncio

from remit.ports.keys import HubKeys
from remit.protocol.card import AgentCard
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.shared_requests import CancelOrder
from remit.runtime.signing import read_key
from remit.stores.checkpoints import key_path
from remit.stores.user_keys import secret_of
from remit_cli.config.composition import vault_key_of
from remit_cli.config.team import Team, is_hosted
from remit_cli.show.screen import many
from remit_cluster.nats.cancels import cancel_over_bus
from remit_cluster.nats.presence import present_hubs
from remit_cluster.nats.section import settings_of
from remit_cluster.nats.subjects import HostedAgent


class BusHubs:
    """The hubs on the bus of a team."""

    def __init__(self, team: Team) -> None:
        self._team = team

    def hosted(self) -> tuple[dict[str, str], dict[str, AgentCard]]:
        """Return where agents are hosted, in words, and the cards of all agents that a hub on the bus hosts."""
        team = self._team
        settings = settings_of(team)
        hubs = asyncio.run(present_hubs(settings, team.name))
        if hubs is None:
            raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, f"the bus at {settings.url} cannot be reached"))
        hosted: dict[str, list[HostedAgent]] = {}
        for each in (agent for hub in hubs for agent in hub.agents):
            hosted.setdefault(each.card.name, []).append(each)
        where = {name: "bus: no hub" for name in team.agents if not is_hosted(team, name)}
        for name, hosts in hosted.items():
            versions = ", ".join(sorted({each.card.version for each in hosts}))
            where[name] = f"bus: {many(len(hosts), 'hub')}, version {versions}, {sum(each.free for each in hosts)} free"
        return where, {name: hosts[0].card for name, hosts in hosted.items()}

    def cancel(self, order: CancelOrder) -> bool:
        """Tell the hubs on the bus to cancel a run, and return whether one of them confirms it."""
        team = self._team
        try:
            keys = HubKeys(vault_key_of(team) or secret_of(read_key(key_path(team.store_path))))
            settings = settings_of(team)
        except (RemitError, OSError, ValueError):  # without a key or a secret there is only the store
            return False
        return asyncio.run(cancel_over_bus(settings, team.name, keys, order)) is not None
