"""Other hubs, programs that ask over HTTP, and how this hub is served to them."""

from typing import Annotated, Literal

from msgspec import Meta

from remit.config.sections.base import Section
from remit.config.values import (
    KEY_PATH,
    REVOKED_PATH,
    TRUSTED_PATH,
    Callee,
    Duration,
    HostName,
    Positive,
    PublicKey,
    Secret,
    Url,
    UserName,
)
from remit.transports.credentials.algorithms import ALGORITHMS, Algorithm


class IdentitySection(Section, frozen=True, kw_only=True):
    """How this hub proves to others who it is, and what it keeps of others; see [credentials.md](credentials.md)."""

    key: Annotated[
        str, Meta(min_length=1, description="The file of its key, from the team file's folder: `remit keys init`.")
    ] = KEY_PATH
    trusted: Annotated[
        str, Meta(min_length=1, description="The file of further keys of peers: `remit keys trust`.")
    ] = TRUSTED_PATH
    revoked: Annotated[
        str, Meta(min_length=1, description="The file of credentials that no longer count: `remit keys revoke`.")
    ] = REVOKED_PATH


class PeerSection(Section, frozen=True, kw_only=True):
    """Another hub, under the name that it gives itself. It is known by its keys, or by a token that both share."""

    url: Annotated[Url | None, Meta(description="Where it is, if agents of it are asked.")] = None
    keys: Annotated[
        tuple[PublicKey, ...], Meta(description="Its public keys, oldest first; besides those in `[identity]` trusted.")
    ] = ()
    token: Annotated[Secret | None, Meta(description="A token that both hubs know; used where there are no keys.")] = (
        None
    )
    agents: Annotated[frozenset[Callee], Meta(description='Agents here that it may ask; `"*"` names all of them.')] = (
        frozenset()
    )
    users: Annotated[frozenset[UserName], Meta(description='Users for whom it may ask; `"*"` is anyone.')] = frozenset(
        {"*"}
    )


class ClientSection(Section, frozen=True, kw_only=True):
    """A program that asks over HTTP: known by a token of its own, or by tokens of its users' identity provider."""

    token: Annotated[Secret | None, Meta(description="Its token. A client has this or `issuer`.")] = None
    issuer: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The identity provider (OpenID Connect) of its users, as its tokens name it in `iss`."),
    ] = None
    audience: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="What a token for this hub holds in `aud`."),
    ] = None
    jwks: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The provider's public keys: an `https` address, or a file from the team file's folder."),
    ] = None
    algorithms: Annotated[
        tuple[Algorithm, ...], Meta(min_length=1, description="How the provider signs; nothing else counts.")
    ] = ALGORITHMS
    user_claim: Annotated[
        Annotated[str, Meta(min_length=1)], Meta(description="Which claim of a token names the user.")
    ] = "sub"
    may: Annotated[
        frozenset[Literal["metrics", "read", "control"]],
        Meta(
            description="What else it may do: `metrics` reads the figures, `read` everyone's runs and the record, "
            "`control` cancels everyone's runs."
        ),
    ] = frozenset()
    answers: Annotated[
        bool,
        Meta(
            description="Whether its users may answer through it, over MCP, what a person is asked about their own "
            "runs."
        ),
    ] = False
    agents: Annotated[frozenset[Callee], Meta(description='Agents that it may ask; `"*"` names all of them.')]
    users: Annotated[
        frozenset[UserName] | None,
        Meta(description='Users for whom it may ask, `"*"` is anyone; with `issuer`, all that the provider knows.'),
    ] = None


class ServeSection(Section, frozen=True, kw_only=True):
    """How the hub is served over HTTP: `remit serve`; see [serving.md](serving.md)."""

    host: Annotated[str, Meta(min_length=1, description="The address that is listened at; `0.0.0.0` is all.")] = (
        "127.0.0.1"
    )
    port: Annotated[
        Annotated[int, Meta(ge=0, le=65_535)], Meta(description="The port that is listened at; 0 is any that is free.")
    ] = 8_080
    agents: Annotated[
        frozenset[Callee], Meta(description='Agents that can be asked from outside; `"*"` names all of them.')
    ] = frozenset({"*"})
    drain: Annotated[
        Duration, Meta(description="How long a server that is told to end lets go on what is under way.")
    ] = "20s"
    connections: Annotated[Positive, Meta(description="How many connections may be open at once.")] = 900
    proxies: Annotated[
        frozenset[str],
        Meta(
            description="Addresses or networks of proxies before the server, whose `X-Forwarded-For` says where a "
            "request comes from; nobody else's counts."
        ),
    ] = frozenset()
    certificate: Annotated[
        str | None, Meta(description="The certificate for https, a PEM file from the team file's folder.")
    ] = None
    private_key: Annotated[str | None, Meta(description="The key of that certificate, a PEM file.")] = None


class A2aSection(Section, frozen=True, kw_only=True):
    """That the agents which are served speak A2A, too; see [a2a.md](a2a.md)."""

    agents: Annotated[
        frozenset[Callee], Meta(description='Agents that do, of those that are served; `"*"` names all of them.')
    ] = frozenset({"*"})
    default: Annotated[
        Callee | None, Meta(description="The agent whose card is at `/.well-known/agent-card.json`.")
    ] = None
    url: Annotated[
        Url | None, Meta(description="Where the server is reached from outside; else as each client addresses it.")
    ] = None
    require_remit: Annotated[
        bool, Meta(description="Whether clients have to use the extension that carries a remit.")
    ] = False
    push: Annotated[bool, Meta(description="Whether clients may have themselves notified.")] = True
    push_hosts: Annotated[
        frozenset[HostName],
        Meta(description="Hosts where they may be notified though these are not in the public network."),
    ] = frozenset()
