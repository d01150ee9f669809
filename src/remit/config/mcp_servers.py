"""Settings of the MCP servers of a team, with their secrets."""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from remit.agents.mcp.logins import FOLDER
from remit.agents.mcp.oauth_settings import OauthClient, OauthLogin
from remit.agents.mcp.pins import FILE as PINS
from remit.agents.mcp.settings import Address, Program, Settings, Unset
from remit.config.checks import secret_of
from remit.config.mcp import oauth_keys
from remit.config.sections.mcp import McpSection
from remit.config.team import Team
from remit.config.values import duration_ms


def settings_of(team: Team, name: str, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of a team's server; if a secret is missing, they hold the reason why it cannot start."""
    section = team.mcp[name]
    try:
        reach = _reach(team, section, environ)
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
        pins=team.store_path.with_name(PINS),
        files=section.files,
        sampling=section.sampling,
    )


def _reach(team: Team, section: McpSection, environ: Mapping[str, str]) -> Program | Address:
    if section.command is None:
        assert section.url is not None, "one that has neither is refused by the checks"
        token = None if section.token is None else secret_of(section.token, environ)
        return Address(url=section.url, token=token, oauth=_oauth(team, section, environ))
    env = {
        variable: secret_of(value, environ) if value.startswith("$") else value
        for variable, value in section.env.items()
    }
    return Program(command=section.command, args=section.args, env=env, folder=str(team.folder))


def _oauth(team: Team, section: McpSection, environ: Mapping[str, str]) -> OauthClient | OauthLogin | None:
    secret, key = section.client_secret, section.client_key
    found = replace(
        oauth_keys(section),
        client_secret=None if secret is None else secret_of(secret, environ),
        client_key=None if key is None else secret_of(key, environ),
    ).chosen()
    return replace(found, folder=logins_folder(team)) if isinstance(found, OauthLogin) else found


def logins_folder(team: Team) -> Path:
    """Return the folder of the logins of people at MCP servers, beside the store."""
    return team.store_path.with_name(FOLDER)
