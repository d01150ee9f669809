"""Brings the bus of a team to the `remit` command."""

from collections.abc import Mapping

from remit.plugin import CommandSpec


def commands() -> Mapping[str, Mapping[str, CommandSpec]]:
    """Return the command that hosts agents for other hubs."""
    line = "Host the team's agents for its other hubs."
    return {"Connect": {"worker": CommandSpec("remit_cluster.nats.commands.worker:worker", line)}}


def sections() -> tuple[str, ...]:
    """Return the addresses of the sections of the team file."""
    return ("remit_cluster.nats.section:BUS",)
