"""MCP in a team file: checks its servers, names their tools, and reads what is offered to hosts."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from remit.agents.mcp.oauth_settings import OauthKeys, is_private
from remit.agents.mcp.settings import Program, hub_name
from remit.config.sections.mcp import McpSection
from remit.config.team import Team, TeamFile
from remit.protocol.problems import WrongPart
from remit.runtime.registry import NAME
from remit.server.mcp.offer import McpOffer

_OF_PROGRAMS = ("args", "env")


def tools_in(said: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the tools of the MCP servers in a file, as far as it is valid."""
    return tuple(name for _, _, name in _named(said.get("mcp")))


def _named(servers: object) -> Iterator[tuple[str, str, str]]:
    """Yield each allowed tool: its server, its name there and its name in the hub."""
    for server, section in cast("dict[str, Any]", servers).items() if isinstance(servers, dict) else ():
        if isinstance(section, dict):
            table = cast("dict[str, Any]", section)
            prefix, allowed = table.get("prefix", server), table.get("allow", [])
            for tool in cast("list[object]", allowed) if isinstance(allowed, list) else ():
                if isinstance(tool, str) and isinstance(prefix, str):
                    yield server, tool, hub_name(prefix, tool)


def undecided(said: dict[str, Any], team: TeamFile) -> Iterator[WrongPart]:
    """Return servers that do not have exactly one of `command` and `url`, and invalid tool names."""
    taken = dict.fromkeys(team.tools, "the tool of that name")
    for name, section in team.mcp.items():
        place, keys = ("mcp", name), said["mcp"][name]
        if ("command" in keys) == ("url" in keys):
            yield WrongPart(place, "a server needs `command`, which starts it, or `url`, where it is; not both")
        for key in _OF_PROGRAMS:
            if key in keys and "url" in keys:
                yield WrongPart((*place, key), f"`{key}` is for a server that has a `command`")
        if "token" in keys and "command" in keys:
            yield WrongPart(
                (*place, "token"), "`token` is for a server that has a `url`; give a program its secret in `env`"
            )
        yield from _oauth_misfits(place, section)
        for tool in sorted(section.safe_to_repeat - set(section.allow)):
            yield WrongPart((*place, "safe_to_repeat", tool), f"`{tool}` is not in `allow`, so no agent can use it")
        for tool in sorted(set(section.sees) - set(section.allow)) if isinstance(section.sees, dict) else ():
            yield WrongPart((*place, "sees", tool), f"`{tool}` is not in `allow`, so no agent can use it")
    for server, tool, name in _named(said.get("mcp")):
        place = ("mcp", server, "allow", tool)
        if not NAME.fullmatch(name):
            yield WrongPart(place, f"`{name}` cannot be a tool's name; choose another `prefix`")
        elif (other := taken.setdefault(name, f"`{tool}` of `[mcp.{server}]`")) != f"`{tool}` of `[mcp.{server}]`":
            yield WrongPart(place, f"`{name}` would also be {other}; choose another `prefix`")


def _oauth_misfits(place: tuple[str, ...], section: McpSection) -> Iterator[WrongPart]:
    """Return keys for OAuth that do not go together, or not with the server."""
    keys = oauth_keys(section)
    for key, why in keys.misfits():
        yield WrongPart((*place, key), why)
    given = next((key for key in keys.__struct_fields__ if getattr(keys, key) is not None), None)
    if given is None:
        return
    if section.command is not None:
        yield WrongPart((*place, given), f"`{given}` is for a server that has a `url`")
    if section.token is not None:
        yield WrongPart((*place, "token"), f"a server has a `token` or `{given}`, not both")
    if section.auth is not None and section.url is not None and not is_private(section.url):
        yield WrongPart((*place, "url"), "a server with `auth` needs an https URL")


def oauth_keys(section: McpSection) -> OauthKeys:
    """Return what a section says of OAuth, with the names of variables in the place of secrets."""
    return OauthKeys(
        auth=section.auth,
        issuer=section.issuer,
        client_id=section.client_id,
        client_secret=section.client_secret,
        client_key=section.client_key,
        client_metadata_url=section.client_metadata_url,
        scope=section.scope,
        redirect_port=section.redirect_port,
    )


def unstartable(team: TeamFile, folder: Path) -> Iterator[WrongPart]:
    """Return servers that cannot be started, or that need a missing package."""
    for name, section in team.mcp.items():
        if find_spec("mcp") is None:
            yield WrongPart(("mcp", name), "MCP servers need the extra `mcp`: pip install 'remit[mcp]'")
        elif section.command is not None:
            env = {name: value for name, value in section.env.items() if not value.startswith("$")}
            if not Program(command=section.command, env=env, folder=str(folder)).exists():
                yield WrongPart(
                    ("mcp", name, "command"), f"there is no program `{section.command}` that could be started"
                )


def secrets_of(team: TeamFile) -> Iterator[tuple[tuple[str, ...], str]]:
    """Return the places of secrets of servers, with the names of the variables."""
    for name, section in team.mcp.items():
        if section.token is not None:
            yield ("mcp", name, "token"), section.token
        if section.client_secret is not None:
            yield ("mcp", name, "client_secret"), section.client_secret
        if section.client_key is not None:
            yield ("mcp", name, "client_key"), section.client_key
        for variable, value in section.env.items():
            if value.startswith("$"):
                yield ("mcp", name, "env", variable), value


def mcp_offer(team: Team) -> McpOffer:
    """Return what a team offers to MCP hosts."""
    return McpOffer(tools=team.serve.mcp_tools, sampling=team.serve.mcp_sampling)
