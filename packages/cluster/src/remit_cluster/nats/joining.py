"""Joins a hub to the bus of its team."""

from collections.abc import Collection

from remit.protocol.card import AgentCard
from remit.runtime.engine import Engine
from remit_cluster.nats.bus import Bus
from remit_cluster.nats.connection import BusSettings


def join_bus(
    hub: Engine,
    settings: BusSettings,
    *,
    name: str,
    hosts: Collection[str] | None = None,
    calls: Collection[AgentCard] = (),
) -> Bus:
    """Join a hub, which is not open yet, to the bus of the hubs that share its store and its *name*.

    It takes requests for *hosts*, which are agents of its own (default: all of them), and calls the agents in *calls*,
    which other hubs host, like its own. Other agents are looked for when they are asked; if one of its own may call
    everyone, all that are hosted anywhere are added as it hears of them.
    """
    bus = Bus(hub, settings, team=name, hosts=hosts)
    for card in calls:
        bus.add(card)
    hub.accompany(bus, bus)
    hub.keep(bus)
    return bus
