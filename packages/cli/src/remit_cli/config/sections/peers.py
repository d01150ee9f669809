"""Sections for peers, clients and serving over HTTP."""

from typing import Annotated, Literal

from msgspec import Meta

from remit.protocol.card import Rate
from remit.protocol.remit import Count
from remit_cli.config.values import (
    KEY_PATH,
    REVOKED_PATH,
    TRUSTED_PATH,
    AgentName,
    Callee,
    Duration,
    HostAndPort,
    HostName,
    Positive,
    PublicKey,
    Secret,
    Section,
    Url,
    UserName,
)
from remit_server.transports.credentials.trusted_files import ALGORITHMS, Algorithm


class IdentitySection(Section, frozen=True, kw_only=True):
    """How this hub authenticates itself, and where it keeps keys of others; see `remit docs credentials`."""

    key: Annotated[
        str,
        Meta(
            min_length=1,
            description="The hub's key file, relative to the team file's folder; created by `remit keys init`.",
        ),
    ] = KEY_PATH
    trusted: Annotated[
        str, Meta(min_length=1, description="The file with further keys of peers; written by `remit keys trust`.")
    ] = TRUSTED_PATH
    revoked: Annotated[
        str, Meta(min_length=1, description="The file with revoked credentials; written by `remit keys revoke`.")
    ] = REVOKED_PATH


class PeerSection(Section, frozen=True, kw_only=True):
    """Another hub, under the name that it gives itself. It is authenticated by its keys, or by a shared token."""

    url: Annotated[Url | None, Meta(description="The URL of the hub, needed to call its agents.")] = None
    keys: Annotated[
        tuple[PublicKey, ...],
        Meta(description="The hub's public keys, oldest first, in addition to those in `trusted` of `[identity]`."),
    ] = ()
    token: Annotated[Secret | None, Meta(description="A token that both hubs know; used if there are no keys.")] = None
    agents: Annotated[frozenset[Callee], Meta(description='Agents here that the hub may call; `"*"` means all.')] = (
        frozenset()
    )
    users: Annotated[frozenset[UserName], Meta(description='Users for whom it may call; `"*"` means any.')] = frozenset(
        {"*"}
    )
    permissions: Annotated[
        frozenset[Literal["priority"]],
        Meta(description="With `priority` its requests may have the priority `HIGH`, which is `NORMAL` otherwise."),
    ] = frozenset()


class ClientSection(Section, frozen=True, kw_only=True):
    """A program that calls over HTTP, authenticated by its own token or by tokens of its users' identity provider."""

    token: Annotated[Secret | None, Meta(description="The client's token. A client has this or `issuer`.")] = None
    issuer: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The identity provider (OpenID Connect) of its users, as in the claim `iss` of its tokens."),
    ] = None
    audience: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The claim `aud` of a token for this hub."),
    ] = None
    jwks: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The provider's public keys: an `https` URL, or a file from the team file's folder."),
    ] = None
    algorithms: Annotated[
        tuple[Algorithm, ...],
        Meta(min_length=1, description="The provider's signature algorithms; no others are accepted."),
    ] = ALGORITHMS
    user_claim: Annotated[
        Annotated[str, Meta(min_length=1)], Meta(description="The claim of a token that names the user.")
    ] = "sub"
    permissions: Annotated[
        frozenset[Literal["metrics", "read", "control", "reveal", "erase", "priority"]],
        Meta(
            description="Further permissions: `metrics` reads the metrics, `read` the runs and records of all "
            "users, `control` cancels the runs of all users, `reveal` reads personal values in clear, which is "
            "recorded each time, `erase` erases users, `priority` sends requests with "
            "the priority `HIGH`, which is `NORMAL` otherwise."
        ),
    ] = frozenset()
    may_approve: Annotated[
        bool,
        Meta(description="Whether its users may approve or deny questions about their own runs over MCP."),
    ] = False
    agents: Annotated[frozenset[Callee], Meta(description='Agents that the client may call; `"*"` means all.')]
    users: Annotated[
        frozenset[UserName] | None,
        Meta(
            description='Users for whom it may call; `"*"` means any. With `issuer` the default is all users '
            "of the provider."
        ),
    ] = None


class ServeSection(Section, frozen=True, kw_only=True):
    """How the hub is served over HTTP: `remit serve`; see `remit docs serving`."""

    host: Annotated[str, Meta(min_length=1, description="The address to listen on; `0.0.0.0` means all.")] = "127.0.0.1"
    port: Annotated[
        Annotated[int, Meta(ge=0, le=65_535)], Meta(description="The port to listen on; 0 means any free port.")
    ] = 8_080
    agents: Annotated[
        frozenset[Callee], Meta(description='Agents that can be called from outside; `"*"` means all.')
    ] = frozenset({"*"})
    drain: Annotated[
        Duration, Meta(description="How long requests in progress may continue after the server is told to stop.")
    ] = "20s"
    connections: Annotated[Positive, Meta(description="Maximum open connections of each worker process.")] = 900
    workers: Annotated[
        Positive, Meta(description="Worker processes that serve the address together, with one store.")
    ] = 1
    proxies: Annotated[
        frozenset[str],
        Meta(description="Addresses or networks of trusted proxies; `X-Forwarded-For` is accepted from no one else."),
    ] = frozenset()
    certificate: Annotated[
        str | None, Meta(description="The certificate for https, a PEM file relative to the team file's folder.")
    ] = None
    private_key: Annotated[str | None, Meta(description="The private key of that certificate, a PEM file.")] = None
    access_log: Annotated[
        bool | str,
        Meta(
            description="Where to write a line of JSON for each request: `true` for standard error, or a file relative "
            "to the team file's folder."
        ),
    ] = False
    console: Annotated[
        bool, Meta(description="Whether to serve the console for browsers, too; see `remit docs console`.")
    ] = False
    console_hosts: Annotated[
        frozenset[str],
        Meta(
            description="Further host names that browsers use for the console and MCP hosts for `/mcp`, such as that "
            "of an https proxy: `host`, `host:port`, or `http://host` for a name without encryption."
        ),
    ] = frozenset()
    mcp_tools: Annotated[
        frozenset[Callee],
        Meta(
            description='Agents that MCP hosts get as tools of their own, over HTTP and from `remit mcp`; `"*"` means '
            "all. See `remit docs mcp`."
        ),
    ] = frozenset()
    mcp_sampling: Annotated[
        bool, Meta(description="Whether agents may ask the model of an MCP host that offers it (`brief.sample`).")
    ] = True


class A2aSection(Section, frozen=True, kw_only=True):
    """Serves agents over A2A as well; see `remit docs a2a`."""

    agents: Annotated[frozenset[Callee], Meta(description='Which of the served agents speak A2A; `"*"` means all.')] = (
        frozenset({"*"})
    )
    default: Annotated[
        Callee | None, Meta(description="The agent whose card is at `/.well-known/agent-card.json`.")
    ] = None
    url: Annotated[
        Url | None, Meta(description="The public URL of the server (default: the address that each client uses).")
    ] = None
    grpc_port: Annotated[
        Annotated[int, Meta(ge=0, le=65_535)] | None,
        Meta(
            description="The port for gRPC at the `host` and with the certificate of `[serve]`, which needs the extra "
            "`a2a`; 0 means any free port. Without it there is no gRPC."
        ),
    ] = None
    grpc_address: Annotated[
        HostAndPort | None,
        Meta(
            description="`host:port` for gRPC in agent cards (default: the host of `url` or of the address that each "
            "client uses, and `grpc_port`)."
        ),
    ] = None
    require_remit: Annotated[bool, Meta(description="Whether clients must use the extension that carries a remit.")] = (
        False
    )
    push: Annotated[bool, Meta(description="Whether clients may subscribe to push notifications.")] = True
    push_hosts: Annotated[
        frozenset[HostName],
        Meta(description="Hosts in private networks that may receive push notifications."),
    ] = frozenset()
    open: Annotated[int, Meta(ge=1, le=100_000, description="How many tasks of one client may be at work at once.")] = (
        256
    )
    public: Annotated[
        frozenset[AgentName],
        Meta(description="Agents that everybody may ask, without a token: see `remit docs a2a`."),
    ] = frozenset()
    public_rate: Annotated[
        Rate,
        Meta(description="How many messages without a token one address may send: `{ calls = 60, seconds = 60 }`."),
    ] = Rate(60, 60)
    public_open: Annotated[
        int, Meta(ge=1, le=1_000, description="How many tasks of one address without a token may be at work at once.")
    ] = 4
    public_tokens: Annotated[
        Count | None, Meta(description="Tokens of a task without a token (default: those of a run).")
    ] = None
    public_time: Annotated[
        Duration | None, Meta(description="Time of a task without a token (default: that of a run).")
    ] = None
