"""Brings the bus of a team to the `remit` command."""

from collections.abc import Mapping
from typing import Any

from remit.plugin import CommandSpec


def commands() -> Mapping[str, Mapping[str, CommandSpec]]:
    """Return the command that hosts agents for other hubs."""
    line = "Host the team's agents for its other hubs."
    return {"Connect": {"worker": CommandSpec("remit_cluster.nats.commands.worker:worker", line)}}


def team_hubs(team: Any) -> str | None:
    """Return what reaches the other hubs of a team, if it has a bus."""
    from remit_cluster.nats.section import BUS

    return None if BUS.of(team) is None else "remit_cluster.nats.commands.bus_hubs:BusHubs"


def sections() -> tuple[str, ...]:
    """Return the addresses of the sections of the team file."""
    return ("remit_cluster.nats.section:BUS",)
