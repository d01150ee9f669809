"""Runs agents in processes of their own, with the code folder, environment and hidden files of their hub."""

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from remit.agents.function import function_of
from remit.hub.cards import names_of
from remit.runtime.registry import team_invalid

if TYPE_CHECKING:  # most hubs have no isolated agents
    from remit.agents.process import ProcessAgent
    from remit.agents.sandbox import Sandbox


class Isolation:
    """The code folder, environment and hidden files of a hub's isolated agents."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._environ: Mapping[str, str] = os.environ
        self._hidden: list[Path] = []
        """Files that no sandbox may open."""

    def configure(self, *, folder: Path, environ: Mapping[str, str], hidden: Iterable[Path]) -> None:
        """Set the folder and the environment of agents that are added later, and hide more files."""
        self._folder, self._environ = folder, environ
        self.hide(hidden)

    def hide(self, paths: Iterable[Path]) -> None:
        """Keep files from every sandbox."""
        self._hidden.extend(paths)

    def process_agent(
        self, name: str, agent: object, env: Collection[str], sandbox: "Sandbox | bool"
    ) -> "ProcessAgent":
        """Return an agent that runs in processes; *agent* is its code, or names it as `"module:function"`."""
        from remit.agents.process import ProcessAgent
        from remit.agents.sandbox import Sandbox, demand
        from remit.agents.spawn import ProcessEnvironment

        wanted = (Sandbox() if sandbox else None) if isinstance(sandbox, bool) else sandbox
        if wanted is not None:
            demand(wanted, name)
        around = ProcessEnvironment(
            folder=self._folder,
            environ=self._environ,
            env=names_of(env, name, "env"),
            sandbox=wanted,
            hidden=self._hidden,
        )
        if isinstance(agent, str):
            if not all(agent.partition(":")):
                raise team_invalid(f'agent `{name}`: "{agent}" does not name a function as "module:function"')
            return ProcessAgent(agent, around=around)
        return ProcessAgent(function_of(agent), around=around)
