"""Runs agents in processes of their own, with the code folder, environment and hidden files of their hub."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from remit.agents.cards import AgentOptions, Sandbox, names_of
from remit.agents.function import function_of
from remit.hub.hub import Hub
from remit.ports.brief import Agent
from remit.runtime.registry import team_invalid


class Isolation:
    """The code folder, environment and hidden files of a hub's isolated agents."""

    def __init__(self, folder: Path | None, environ: Mapping[str, str], hidden: Iterable[Path]) -> None:
        self.folder = folder
        self.environ = environ
        self.hidden = tuple(hidden)
        """Files that no sandbox may open, besides those of the store."""


def configure_isolation(hub: Hub, *, folder: Path, environ: Mapping[str, str], hidden: Iterable[Path] = ()) -> None:
    """Set the code folder and the environment of isolated agents of a hub, and hide files from every sandbox.

    It applies to agents that are added later. By default, code is imported from where the hub imports, the environment
    is that of this process, and the store and its key are hidden.
    """
    hub.keep(Isolation(folder, environ, hidden))


def process_agent(
    hub: Hub, name: str, code: object, options: AgentOptions, secret: Iterable[Path]
) -> tuple[Agent, Callable[[], Awaitable[None]]]:
    """Return an agent that runs in processes, and what ends them.

    *code* is its function, or names it as `"module:function"`. The *secret* files are hidden, too.
    """
    from remit_cli.processes.process import ProcessAgent  # most hubs have no isolated agents
    from remit_cli.processes.sandbox import demand
    from remit_cli.processes.spawn import ProcessEnvironment

    isolation = hub.kept(Isolation) or Isolation(None, os.environ, ())
    sandbox = options.get("sandbox", False)
    wanted = (Sandbox() if sandbox else None) if isinstance(sandbox, bool) else sandbox
    if wanted is not None:
        demand(wanted, name)
    around = ProcessEnvironment(
        folder=isolation.folder,
        environ=isolation.environ,
        env=names_of(options.get("env", ()), name, "env"),
        sandbox=wanted,
        hidden=[*secret, *isolation.hidden],
    )
    if isinstance(code, str) and not all(code.partition(":")):
        raise team_invalid(f'agent `{name}`: "{code}" does not name a function as "module:function"')
    agent = ProcessAgent(code if isinstance(code, str) else function_of(code), around=around)
    return agent, agent.close
