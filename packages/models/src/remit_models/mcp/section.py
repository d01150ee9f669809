"""The section `[mcp]` of the team file: its keys, its checks, and the servers that it gives a hub."""

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from msgspec import Meta
from msgspec.structs import replace

from remit.agents.program import Program
from remit.installed import install_command
from remit.protocol.card import Rate, Sees
from remit.protocol.problems import WrongPart
from remit.runtime.registry import NAME
from remit_cli.config.checks import known_kinds, secret_of, unknown_kinds
from remit_cli.config.peers import is_plain
from remit_cli.config.team import Composition, Inspection, Team, TeamFile, TeamSection
from remit_cli.config.values import (
    AgentName,
    Duration,
    Kind,
    Positive,
    Secret,
    Section,
    Url,
    Variable,
    duration,
    duration_ms,
)
from remit_models.mcp.oauth_settings import OauthClient, OauthKeys, OauthLogin, is_private
from remit_models.mcp.settings import MAX_OUTPUT, TIME_S, Address, Settings, Unset, hub_name


class McpSection(Section, frozen=True, kw_only=True):
    """An MCP server, by `command` or `url`, with tools for agents, as `NAME.TOOL`; see `remit docs mcp-servers`."""

    command: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="The program that starts the server, looked up as in a shell and run in the team file's folder."
        ),
    ] = None
    args: Annotated[tuple[str, ...], Meta(description="Arguments of the program.")] = ()
    env: Annotated[
        dict[str, Variable],
        Meta(
            description="Environment of the program, besides `PATH`, `HOME` and the like: plain texts, or "
            '`"$NAME"` for the value of that variable here.'
        ),
    ] = {}
    url: Annotated[
        Url | None, Meta(description="The URL of a server that runs elsewhere and speaks streamable HTTP.")
    ] = None
    token: Annotated[
        Secret | None, Meta(description="The token that authenticates this hub to a server with a `url`.")
    ] = None
    auth: Annotated[
        Literal["oauth"] | None,
        Meta(description='`"oauth"`: a person logs in, with `remit mcp login NAME`, for a server with a `url`.'),
    ] = None
    issuer: Annotated[
        Url | None,
        Meta(
            description="The authorization server (OAuth) that gives this hub tokens for a server with a `url` "
            "(default with `auth`: the one that the server names)."
        ),
    ] = None
    client_id: Annotated[
        Annotated[str, Meta(min_length=1)] | None, Meta(description="The id of this hub at the `issuer`.")
    ] = None
    client_secret: Annotated[Secret | None, Meta(description="The secret of that id.")] = None
    client_key: Annotated[
        Secret | None, Meta(description="The private key (PEM) of that id, in the place of a secret.")
    ] = None
    client_metadata_url: Annotated[
        Url | None,
        Meta(description="With `auth`: the https URL of a document that describes this hub, in the place of an id."),
    ] = None
    scope: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The scopes to ask for, with spaces between them (default: those that the server names)."),
    ] = None
    redirect_port: Annotated[
        Annotated[int, Meta(ge=1, le=65_535)] | None,
        Meta(
            description="With `auth`: the port of this machine to which the browser is sent after a login (default: "
            "any); the redirect URI is `http://127.0.0.1:PORT/callback`."
        ),
    ] = None
    allow: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=128)], ...],
        Meta(min_length=1, description="Tools of the server that agents may be given, by the server's names."),
    ]
    safe_to_repeat: Annotated[
        frozenset[str], Meta(description="Those of the tools that do no harm if they run twice.")
    ] = frozenset()
    sees: Annotated[
        frozenset[Kind] | dict[str, frozenset[Kind] | dict[str, frozenset[Kind]]],
        Meta(
            description='Kinds of personal data that its tools are given in clear: `["EMAIL"]`, or by tool `{ '
            'find = ["EMAIL"] }`, or by tool and parameter `{ find = { email = ["EMAIL"] } }`.'
        ),
    ] = frozenset()
    clear: Annotated[frozenset[str], Meta(description="Those of the tools whose results models get in clear.")] = (
        frozenset()
    )
    rates: Annotated[
        dict[str, Rate],
        Meta(description="How often all agents together may use a tool: `{ search = { calls = 5, seconds = 60 } }`."),
    ] = {}
    prefix: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        Meta(
            description="Prefix of the tools' names, followed by a dot (default: the server's name). If "
            "empty, there is no prefix."
        ),
    ] = None
    time: Annotated[Duration, Meta(description="Time for one tool call.")] = duration(TIME_S * 1_000)
    max_output: Annotated[
        Positive, Meta(description="Maximum characters of a result that an agent is given; the rest is cut off.")
    ] = MAX_OUTPUT
    files: Annotated[
        bool,
        Meta(
            description="Whether results are objects with `content` and `files`: pictures, sounds, other data, links."
        ),
    ] = False
    sampling: Annotated[
        bool, Meta(description="Whether the server may have the model of an agent that uses it write texts.")
    ] = True


# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_OF_PROGRAMS = ("args", "env")


def _tools_in(values: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the tools of the MCP servers in a file, as far as it is valid."""
    return tuple(name for _, _, name in _allowed_tools(values.get("mcp")))


def _allowed_tools(servers: object) -> Iterator[tuple[str, str, str]]:
    """Yield each allowed tool: its server, its name there and its name in the hub."""
    for server, section in cast("dict[str, Any]", servers).items() if isinstance(servers, dict) else ():
        if isinstance(section, dict):
            table = cast("dict[str, Any]", section)
            prefix, allowed = table.get("prefix", server), table.get("allow", [])
            for tool in cast("list[object]", allowed) if isinstance(allowed, list) else ():
                if isinstance(tool, str) and isinstance(prefix, str):
                    yield server, tool, hub_name(prefix, tool)


def _problems(file: Inspection) -> Iterator[WrongPart]:
    yield from _undecided(file.values, file.team)
    for name, section in MCP.of(file.team).items():
        yield from unknown_kinds(("mcp", name, "sees"), section.sees, known_kinds(file.team))
    if file.starts_programs:
        yield from _unstartable(file.team, file.folder)


def _undecided(values: dict[str, Any], team: TeamFile) -> Iterator[WrongPart]:
    """Return servers that do not have exactly one of `command` and `url`, and invalid tool names."""
    taken = dict.fromkeys(team.tools, "the tool of that name")
    for name, section in MCP.of(team).items():
        place, keys = ("mcp", name), values["mcp"][name]
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
        for key in ("safe_to_repeat", "clear", "rates"):
            for tool in sorted(set(getattr(section, key)) - set(section.allow)):
                yield WrongPart((*place, key, tool), f"`{tool}` is not in `allow`, so no agent can use it")
        for tool in sorted(set(section.sees) - set(section.allow)) if isinstance(section.sees, dict) else ():
            yield WrongPart((*place, "sees", tool), f"`{tool}` is not in `allow`, so no agent can use it")
    for server, tool, name in _allowed_tools(values.get("mcp")):
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
    return OauthKeys(**{key: getattr(section, key) for key in OauthKeys.__struct_fields__})


def _unstartable(team: TeamFile, folder: Path) -> Iterator[WrongPart]:
    """Return servers that cannot be started, or that need a missing package."""
    for name, section in MCP.of(team).items():
        if find_spec("mcp") is None:
            yield WrongPart(("mcp", name), f"MCP servers need the extra `mcp`: {install_command('mcp')}")
        elif section.command is not None:
            env = {name: value for name, value in section.env.items() if not value.startswith("$")}
            if not Program(command=section.command, env=env, folder=str(folder)).exists():
                yield WrongPart(
                    ("mcp", name, "command"), f"there is no program `{section.command}` that could be started"
                )


def _unencrypted(team: TeamFile) -> Iterator[WrongPart]:
    """Return addresses that servers' secrets go to without encryption."""
    for name, server in MCP.of(team).items():
        secrets = [] if server.token is None and server.issuer is None else [("url", server.url, "token")]
        secrets += [("issuer", server.issuer, "secret and the tokens")]
        for key, url, secret in secrets:
            if is_plain(url):
                why = f"plain http: anyone on the network path can read the {secret}; use https"
                yield WrongPart(("mcp", name, key), why)


def _tools_see(team: TeamFile) -> dict[str, Sees]:
    seen: dict[str, Sees] = {}
    for server, section in MCP.of(team).items():
        for tool in section.allow:
            name = hub_name(server if section.prefix is None else section.prefix, tool)
            seen[name] = section.sees.get(tool, frozenset()) if isinstance(section.sees, dict) else section.sees
    return seen


# ── servers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def settings_of(team: Team, name: str, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of a team's server; if a secret is missing, they hold the reason why it cannot start."""
    from remit_models.mcp.pins import FILE as PINS

    section = MCP.of(team)[name]
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
        clear=section.clear,
        rates=section.rates,
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
    settings = replace(
        oauth_keys(section),
        client_secret=None if secret is None else secret_of(secret, environ),
        client_key=None if key is None else secret_of(key, environ),
    ).chosen()
    return replace(settings, folder=logins_folder(team)) if isinstance(settings, OauthLogin) else settings


def logins_folder(team: Team) -> Path:
    """Return the folder of the logins of people at MCP servers, beside the store."""
    from remit_models.mcp.logins import FOLDER

    return team.store_path.with_name(FOLDER)


def _add_servers(made: Composition) -> None:
    from remit_models.mcp.hub_servers import add_mcp_server  # a team file is read without the event loop

    for name in MCP.of(made.team):
        add_mcp_server(made.hub, settings_of(made.team, name, made.environ))


MCP: TeamSection[dict[str, McpSection]] = TeamSection(
    key="mcp",
    kind=Annotated[dict[AgentName, McpSection], Meta(description="MCP servers whose tools agents may use, by name.")],
    default={},
    after="tools",
    one_of=("command", "url"),
    problems=_problems,
    unencrypted=_unencrypted,
    needs_secrets=lambda _: False,
    tools_in=_tools_in,
    tools_see=_tools_see,
    add_tools=_add_servers,
)
