"""Adds agents that live elsewhere to a hub: at other hubs, and those that speak A2A."""

from collections.abc import Collection
from typing import Any, Unpack, cast, get_args

from remit.agents.cards import RemoteOptions, refuse_unknown, remote_card
from remit.hub.hub import Hub
from remit.ports import Credential
from remit.protocol.problems import did_you_mean
from remit.runtime.registry import team_invalid
from remit_server.dialects.a2a.types import Binding, PushConfig
from remit_server.transports.http import HubPeer


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


def connect(
    hub: Hub,
    name: str,
    url: str,
    *,
    remote: str | None = None,
    token: str | None = None,
    credential: Credential | None = None,
    **options: Unpack[RemoteOptions],
) -> None:
    """Add to a hub an agent of another hub, at *url*, where its name is *remote*; it is asked like any other.

    *token* authenticates this hub to the other; *credential* does so for each request: it takes the request and the
    body, and returns headers. `RemoteOptions` lists the options.
    """
    peer = HubPeer(url, token=token, credential=credential, max_bytes=hub.limits.max_result_bytes)
    hub.register(remote_card(name, options), peer.agent(remote or name), peer.close)


def connect_a2a(hub: Hub, name: str, card_url: str, **options: Unpack[A2aOptions]) -> None:
    """Add to a hub an agent that speaks A2A, by the URL of its card; it is asked like any other.

    *token* authenticates this hub to it, and *credential* does so for each request. With *keys* one of them must have
    signed the card. The card may refer to its own host and to *hosts*. A host in a private network is accepted only if
    *hosts* names it, or with *private*. `A2aOptions` lists the options.
    """
    from remit_server.a2a.agent import A2aAgent, A2aPeer
    from remit_server.dialects.a2a.translator import A2aTranslator  # most hubs have no agents that speak A2A

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
        max_bytes=hub.limits.max_result_bytes,
    )
    on_card: dict[str, Any] = {key: value for key, value in options.items() if key in RemoteOptions.__optional_keys__}
    hub.register(remote_card(name, cast("RemoteOptions", on_card)), A2aAgent(peer, name), peer.close)
