"""Brings agents in processes of their own, and the upkeep of a SQLite store, to the core."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit import AgentOptions, Hub
    from remit.ports import Agent, StoreEngine


def isolated_agent(
    hub: "Hub", name: str, code: object, options: "AgentOptions", secret: Sequence[Path]
) -> "tuple[Agent, Callable[[], Awaitable[None]]]":
    """Return an agent that runs in processes, and what ends them."""
    from remit_cli.processes.isolation import process_agent

    return process_agent(hub, name, code, options, secret)


def stores() -> "Mapping[str, StoreEngine]":
    """Return what removes rows from a SQLite store."""
    from remit.ports import StoreEngine

    return {"sqlite": StoreEngine(upkeep="remit_cli.upkeep.sqlite:SqliteUpkeep")}
