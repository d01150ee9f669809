"""Serves a hub over HTTP to the clients and hubs that a program names."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from remit.agents.model_prices import PriceBook
from remit.documents.spend import Pricing
from remit.hub.cards import names_of, permissions_of
from remit.protocol.problems import did_you_mean
from remit.runtime.clock import LoopClock
from remit.runtime.engine import Engine
from remit.runtime.registry import team_invalid
from remit.server.a2a.routes import Exposure
from remit.server.app import Api
from remit.server.console.hosts import ConsoleHosts
from remit.server.mcp.offer import McpOffer
from remit.server.server import Server
from remit.transports.credentials.incoming import Authenticator, KnownSender
from remit.transports.listening import listening

_ADVICE = "Another name has to be in `hosts` of `Hub.serve`."


@asynccontextmanager
async def serving(
    hub: Engine,
    clients: Mapping[str, str],
    hubs: Mapping[str, str],
    permissions: Mapping[str, Collection[str]],
    may_approve: Collection[str],
    agents: Collection[str] | None,
    users: Mapping[str, Collection[str]],
    a2a: Exposure | bool,
    host: str,
    port: int,
    hosts: Collection[str] = (),
    mcp_tools: Collection[str] = (),
    mcp_sampling: bool = True,
) -> AsyncGenerator[str, None]:
    """Serve a hub until the block ends, and yield its address; `Hub.serve` describes the arguments."""
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
            exposed=lambda: hub.cards if exposed is None else exposed,
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
