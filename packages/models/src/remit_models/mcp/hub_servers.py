"""The MCP servers whose tools the agents of a hub may use."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from msgspec.structs import replace

from remit.agents.cards import listed, refuse_unknown, seen_by_server
from remit.hub.hub import Hub
from remit.ports.brief import Brief
from remit.protocol.card import Rate
from remit.runtime.registry import team_invalid

if TYPE_CHECKING:  # most hubs have no MCP servers
    from remit_models.mcp.oauth_settings import OauthClient, OauthLogin
    from remit_models.mcp.server import McpServer
    from remit_models.mcp.settings import Settings


class McpOptions(TypedDict, total=False):
    """Options of an MCP server."""

    url: str | None
    """Its address, if it is not a command."""
    env: Mapping[str, str] | None
    """Variables of its process, besides `PATH`, `HOME` and the like."""
    folder: Path | str | None
    """The folder that it is started in."""
    token: str | None
    """The token for its address."""
    auth: Literal["oauth"] | None
    """`"oauth"`: tokens for its address come from the login of a person; needs `logins` or `browser`."""
    issuer: str | None
    """The authorization server (OAuth) that gives tokens for its address, instead of a token."""
    client_id: str | None
    """The id of this hub at the issuer."""
    client_secret: str | None
    """The secret of that id; no other authorization server is sent it."""
    client_key: str | None
    """A private key (PEM) in the place of that secret."""
    assertion: Callable[[str, str], Awaitable[str]] | None
    """Gets the grant of a company's identity provider (ID-JAG) for the issuer and this server; besides a secret."""
    client_metadata_url: str | None
    """Where an issuer can read what this hub is; with `auth`, in the place of a `client_id`."""
    scope: str | None
    """The scopes to ask the issuer for; None: those that the server names."""
    redirect_port: int | None
    """The port of this machine to which the browser is sent after a login; None: any."""
    logins: Path | str | None
    """The folder of the logins; `.remit/mcp-logins` for those of `remit mcp login`."""
    browser: Callable[[str], Awaitable[object]] | None
    """Opens the address of a login during a run; None: a run that needs a login fails."""
    safe_to_repeat: Collection[str]
    """Tools that may be used again after a restart."""
    sees: Collection[str] | Mapping[str, Collection[str] | Mapping[str, Collection[str]]]
    """Kinds of personal data that its tools get raw: all tools, or by tool, or by argument."""
    clear: Collection[str]
    """Tools whose results models get raw."""
    rates: Mapping[str, Rate]
    """How often its tools may be used, by tool."""
    prefix: str | None
    """The prefix of its tools' names; None: its name."""
    time_ms: int | None
    """The time of one use."""
    max_output: int | None
    """The most characters of one result."""
    pins: Path | str | None
    """The file in which its tools' descriptions are kept, to notice changes."""
    files: bool
    """Whether results are objects with `content` and `files`."""
    sampling: bool
    """Whether it may have the model of a calling agent write texts; default: yes."""


class HubMcpServers:
    """The MCP servers of one hub, by the names of their tools."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._by_tool: dict[str, McpServer] = {}

    def add(self, settings: "Settings") -> None:
        """Register the tools of a server, and stop the server with the hub."""
        from remit_models.mcp.server import McpServer
        from remit_models.mcp.settings import Offered

        hub = self._hub

        def offered() -> Offered:
            sampling = settings.sampling and self._serves_model(server.names)
            return Offered(elicitation=hub.can_ask_person, sampling=sampling)

        server = McpServer(settings, hub.describe_tool, offered=offered)
        for tool in server.tools():
            hub.register_tool(tool)
            self._by_tool[tool.card.name] = server
        hub.when_closed(server.close)

    def _serves_model(self, tools: Collection[str]) -> bool:
        """Return whether an agent that is backed by a model may use one of these tools."""
        from remit_models.model import ModelAgent  # few servers use a model

        cards = self._hub.cards
        models = (name for name, code in self._hub.made_of.items() if isinstance(code, ModelAgent))
        return any(not cards[name].tools.isdisjoint(tools) for name in models)

    async def start(self, brief: Brief) -> None:
        """Return once the parameters of the MCP tools that an agent may use are known."""
        for server in {self._by_tool[tool] for tool in brief.tools if tool in self._by_tool}:
            await server.ready()


def add_mcp(
    hub: Hub,
    name: str,
    command: str | None = None,
    args: Sequence[str] = (),
    *,
    allow: Collection[str],
    **options: Unpack[McpOptions],
) -> None:
    """Let agents of a hub use tools of an MCP server: one that *command* starts, or one at *url*.

    Only the tools in *allow* become tools of the hub, with the name `NAME.TOOL`, or with *prefix* in the place of
    NAME. The server starts with the first request to an agent that may use one of them, and ends with the hub. It
    gets *env* and the variables of this process that every program needs; *token* authenticates this hub to a server
    at a *url*. *sees* are the kinds of personal data that its tools are given in clear: for all, or by tool.
    """
    add_mcp_server(hub, mcp_settings(name, command, args, allow, options))


def add_mcp_server(hub: Hub, settings: "Settings") -> None:
    """Add an MCP server as `add_mcp` does, by its settings."""
    servers = hub.kept(HubMcpServers)
    if servers is None:
        servers = HubMcpServers(hub)
        hub.keep(servers)
        hub.before_agents(servers.start)
    servers.add(settings)


def mcp_settings(
    name: str, command: str | None, args: Sequence[str], allow: Collection[str], options: McpOptions
) -> "Settings":
    """Return the settings of an MCP server; `add_mcp` describes the arguments."""
    from remit_models.mcp.settings import MAX_OUTPUT, TIME_S, Settings, server_reach

    refuse_unknown(options, McpOptions.__optional_keys__)
    get = options.get
    time_ms, max_output = get("time_ms"), get("max_output")
    return Settings(
        name=name,
        reach=server_reach(
            name, command, args, get("env") or {}, get("folder"), get("url"), get("token"), _oauth(name, options)
        ),
        allow=tuple(listed(allow, name, "allow")),
        safe_to_repeat=frozenset(listed(get("safe_to_repeat", ()), name, "safe_to_repeat")),
        sees=seen_by_server(get("sees", ()), f"MCP server `{name}`"),
        clear=frozenset(listed(get("clear", ()), name, "clear")),
        rates=dict(get("rates", {})),
        prefix=get("prefix"),
        time_s=TIME_S if time_ms is None else time_ms / 1_000,
        max_output=MAX_OUTPUT if max_output is None else max_output,
        pins=None if (pins := get("pins")) is None else Path(pins),
        files=get("files", False),
        sampling=get("sampling", True),
    )


def _oauth(name: str, options: McpOptions) -> "OauthClient | OauthLogin | None":
    from remit_models.mcp.oauth_settings import OauthKeys, OauthLogin

    get = options.get
    logins, browser = get("logins"), get("browser")
    keys = OauthKeys(**{key: get(key) for key in OauthKeys.__struct_fields__})
    for _, why in keys.misfits():
        raise team_invalid(f"MCP server `{name}`: {why}")
    chosen = keys.chosen()
    assertion = get("assertion")
    if assertion is not None and (isinstance(chosen, OauthLogin) or chosen is None or chosen.client_secret is None):
        raise team_invalid(f"MCP server `{name}`: assertion goes with issuer, client_id and client_secret")
    if not isinstance(chosen, OauthLogin):
        if logins is not None or browser is not None:
            raise team_invalid(f'MCP server `{name}`: logins and browser need auth="oauth"')
        return chosen if chosen is None else replace(chosen, assertion=assertion)
    if logins is None and browser is None:
        raise team_invalid(f"MCP server `{name}`: auth needs `logins`, the folder of the logins, or `browser`")
    return replace(chosen, folder=None if logins is None else Path(logins), browser=browser)
