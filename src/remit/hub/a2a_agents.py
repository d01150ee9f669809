"""Agents that speak A2A, as a hub calls them."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, cast, get_args

from remit.hub.cards import RemoteOptions, refuse_unknown, remote_card
from remit.protocol.card import AgentCard
from remit.protocol.problems import did_you_mean
from remit.runtime.ports import Credential, Remote
from remit.runtime.registry import team_invalid
from remit.transports.a2a.translator import Binding


class A2aOptions(RemoteOptions, total=False):
    """Options of an agent that speaks A2A, besides those of `RemoteOptions`."""

    token: str | None
    """Authenticates this hub to the agent."""
    credential: Credential | None
    """Authenticates each request: given a request and its body, it returns headers."""
    keys: Collection[str]
    """Public keys, one of which must have signed the agent card."""
    hosts: Collection[str]
    """Hosts that the card may refer to besides its own; they may be in a private network."""
    private: bool
    """Whether any host in a private network is accepted."""
    binding: Binding | None
    """How the agent is called; None: the first of its card, in JSON before gRPC."""
    streaming: bool
    """Whether answers are streamed if the agent can; otherwise its tasks are polled."""
    notify: str | None
    """A URL that the agent notifies about every task of this hub."""
    notify_token: str | None
    """What the agent sends there as `X-A2A-Notification-Token`."""


def a2a_agent(
    name: str, card_url: str, options: A2aOptions, max_bytes: int
) -> tuple[AgentCard, Remote, Callable[[], Awaitable[None]]]:
    """Return the card of an agent, the agent, and what closes its connections; answers have at most *max_bytes*."""
    from remit.dialects.a2a.translator import A2aTranslator  # most hubs have no remote agents
    from remit.dialects.a2a.types import PushConfig
    from remit.transports.a2a.agent import A2aAgent
    from remit.transports.a2a.peer import A2aPeer

    refuse_unknown(options, A2aOptions.__optional_keys__)
    binding, notify = options.get("binding"), options.get("notify")
    if binding is not None and binding not in get_args(Binding):
        near = did_you_mean(binding, get_args(Binding))
        raise team_invalid(f"{name}: `{binding}` is not a binding of A2A{near}; known: {', '.join(get_args(Binding))}")
    if notify is not None and not notify.startswith(("http://", "https://")):
        raise team_invalid(f"{name}: `notify` is not a URL: `{notify[:200]}`")
    # Under one id, so that a message that continues a task does not add another receiver to it.
    push = None if notify is None else PushConfig(id="remit", url=notify, token=options.get("notify_token") or "")
    peer = A2aPeer(
        card_url,
        A2aTranslator(binding=binding, streaming=options.get("streaming", True), push=push),
        token=options.get("token"),
        credential=options.get("credential"),
        keys=options.get("keys", ()),
        hosts=options.get("hosts", ()),
        private=options.get("private", False),
        max_bytes=max_bytes,
    )
    on_card: dict[str, Any] = {key: value for key, value in options.items() if key in RemoteOptions.__optional_keys__}
    return remote_card(name, cast("RemoteOptions", on_card)), A2aAgent(peer, name), peer.close
