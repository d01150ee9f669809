"""Settings of a team's MCP servers, with their secrets, for the hub."""

import os
from collections.abc import Mapping
from pathlib import Path

from remit.agents.mcp.settings import Address, Program, Settings, Unset
from remit.config.checks import secret_of
from remit.config.sections.agents import McpSection
from remit.config.team import Team
from remit.config.values import duration_ms


def settings_of(team: Team, name: str, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of a team's server; if a secret is missing, they hold the reason why it cannot start."""
    section = team.mcp[name]
    try:
        reach = _reach(section, team.folder, environ)
    except ValueError as error:
        reach = Unset(why=str(error))
    return Settings(
        name=name,
        reach=reach,
        allow=section.allow,
        safe_to_repeat=section.safe_to_repeat,
        sees=section.sees,
        prefix=section.prefix,
        time_s=duration_ms(section.time) / 1_000,
        max_output=section.max_output,
    )


def _reach(section: McpSection, folder: Path, environ: Mapping[str, str]) -> Program | Address:
    if section.command is None:
        assert section.url is not None, "one that has neither is refused by the checks"
        token = None if section.token is None else secret_of(section.token, environ)
        return Address(url=section.url, token=token)
    env = {
        variable: secret_of(value, environ) if value.startswith("$") else value
        for variable, value in section.env.items()
    }
    return Program(command=section.command, args=section.args, env=env, folder=str(folder))
