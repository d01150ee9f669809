"""Serves a hub over HTTP to the clients and hubs that a program names."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from remit.agents.cards import names_of, permissions_of
from remit.hub.hub import Hub
from remit.protocol.problems import did_you_mean
from remit.runtime.clock import LoopClock
from remit.runtime.registry import team_invalid
from remit_server.a2a.routes import Exposure
from remit_server.app import Api
from remit_server.console.hosts import ConsoleHosts
from remit_server.documents.spend import Pricing
from remit_server.mcp.host_delegations import McpOffer
from remit_server.model_prices import PriceBook
from remit_server.server import Server
from remit_server.transports.addresses import listening
from remit_server.transports.credentials.incoming import Authenticator, KnownSender

_ADVICE = "Another name has to be in `hosts` of `serve`."


@asynccontextmanager
async def serve(
    hub: Hub,
    *,
    clients: Mapping[str, str] | None = None,
    hubs: Mapping[str, str] | None = None,
    permissions: Mapping[str, Collection[str]] | None = None,
    may_approve: Collection[str] = (),
    agents: Collection[str] | None = None,
    users: Mapping[str, Collection[str]] | None = None,
    a2a: Exposure | bool = False,
    host: str = "127.0.0.1",
    port: int = 0,
    hosts: Collection[str] = (),
    mcp_tools: Collection[str] = (),
    mcp_sampling: bool = True,
) -> AsyncGenerator[str, None]:
    """Serve a hub, which is open, over HTTP until the block ends; the block is given the address.

    *clients* and *hubs* are the senders that are accepted: tokens by name. A hub speaks for its agents, under its own
    name. *permissions* grants more by name: `metrics` reads the metrics, `read` the runs and records of all users,
    `control` cancels them, `reveal` reads personal values in clear. Users of the clients in *may_approve* may answer
    questions about their own runs over MCP. *agents* can be asked (default: all), and *mcp_tools* (`"*"`: all) are MCP
    tools of their own. *users* lists, by client, the users that it may ask for (default: any). With *a2a* the agents
    also speak A2A, below `/a2a/NAME`. *hosts* are more host names of `/mcp`: `host`, `host:port`, or `http://host`
    without encryption. *mcp_sampling*: whether agents may ask the model of an MCP host that waits for them.
    """
    clients, hubs, permissions, users = clients or {}, hubs or {}, permissions or {}, users or {}
    named = [(name, token, False) for name, token in clients.items()]
    named += [(name, token, True) for name, token in hubs.items()]
    about = {"users": users, "permissions": permissions, "may_approve": may_approve}
    _refuse_confusion([(name, token) for name, token, _ in named], about)
    known = [
        KnownSender(
            name=name,
            token=token,
            is_hub=is_hub,
            permissions=permissions_of(name, permissions.get(name, ())),
            may_approve=name in may_approve,
            users=names_of(users[name], name, "users") if name in users else None,
        )
        for name, token, is_hub in named
    ]
    exposed = None if agents is None else names_of(agents, "served", "agents")
    with listening(host, port) as bound:
        more = sorted(names_of(hosts, "served", "hosts"))
        names = ConsoleHosts(bound.getsockname()[1], host=host, more=more, advice=_ADVICE)
        api = Api(
            hub,
            Authenticator(known, wall_ms=LoopClock().wall_ms),
            exposed=None if exposed is None else lambda: exposed,
            a2a=Exposure() if a2a is True else a2a or None,
            hosts=names,
            mcp=McpOffer(tools=names_of(mcp_tools, "served", "mcp_tools"), sampling=mcp_sampling),
            pricing=Pricing(price=PriceBook().price),
        )
        async with Server(api, bound=bound) as server:
            yield server.address


def _refuse_confusion(senders: Sequence[tuple[str, str]], about: Mapping[str, Collection[str]]) -> None:
    """Refuse names or tokens that two senders share, and options about unknown senders."""
    owners: dict[str, str] = {}
    names = [name for name, _ in senders]
    for name, token in senders:
        if names.count(name) > 1:
            raise team_invalid(f"`{name}` is a client and a hub; give one of them another name")
        if (owner := owners.setdefault(token, name)) != name:
            raise team_invalid(f"`{owner}` and `{name}` have the same token, so senders cannot be told apart")
    for option, given in about.items():
        for name in given:
            if name not in names:
                near = did_you_mean(name, names)
                raise team_invalid(f"`{option}` speaks of `{name}`, which is neither a client nor a hub{near}")
