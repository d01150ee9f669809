"""Brings agents in processes of their own, and the upkeep of a SQLite store, to the core."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.agents.cards import AgentOptions
    from remit.hub.hub import Hub
    from remit.ports.brief import Agent


def isolated_agent(
    hub: "Hub", name: str, code: object, options: "AgentOptions", secret: Sequence[Path]
) -> "tuple[Agent, Callable[[], Awaitable[None]]]":
    """Return an agent that runs in processes, and what ends them."""
    from remit_cli.processes.isolation import process_agent

    return process_agent(hub, name, code, options, secret)


def upkeep() -> Mapping[str, str]:
    """Return what removes rows from a SQLite store."""
    return {"sqlite": "remit_cli.upkeep.sqlite:SqliteUpkeep"}
