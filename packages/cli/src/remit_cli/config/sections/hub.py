"""Sections for the hub: what it stores, limits, prices, redacts and asks about, and who reaches it over HTTP."""

from typing import Annotated, Literal

from msgspec import Meta

from remit.policy.breaker import BreakerSettings
from remit.policy.limits import AtRunLimit, BeyondFanOut, Limits, Overrun
from remit.ports.upkeep import Retention
from remit.protocol.card import Authority, Rate
from remit.protocol.remit import Count
from remit.stores import STORE_PATH
from remit_cli.config.values import (
    KEY_PATH,
    REVOKED_PATH,
    TRUSTED_PATH,
    AgentName,
    Amount,
    Between,
    Callee,
    DatabaseUrl,
    Duration,
    HostAndPort,
    HostName,
    Kind,
    ModelName,
    Money,
    Positive,
    PublicKey,
    Region,
    Run,
    Secret,
    Section,
    Url,
    UserName,
    duration,
    duration_ms,
    optional_ms,
)
from remit_server.model_prices import Price
from remit_server.transports.credentials.trusted_files import ALGORITHMS, Algorithm

_LIMITS = Limits()
_BREAKER = BreakerSettings()


class KeepSection(Section, frozen=True, kw_only=True):
    """How long each kind of data is kept; without it, for ever. See `remit docs operations`."""

    records: Duration | None = None
    """Everything about a run; `audit verify` still proves that nothing else was removed."""
    messages: Duration | None = None
    """The texts of runs and conversations; who asked whom, when and how it ended is kept as long as `records`."""
    vault: Duration | None = None
    """The values behind placeholders."""
    facts: Duration | None = None
    """Facts about users."""


class StoreSection(Section, frozen=True, kw_only=True):
    """Where everything is recorded."""

    path: Annotated[str, Meta(min_length=1)] = STORE_PATH
    """The SQLite file, relative to the team file's folder."""
    durability: Literal["power", "process"] = "power"
    """What a delivered answer survives: a power cut (`power`), or the process being killed (`process`)."""
    url: DatabaseUrl | None = None
    """The address of a PostgreSQL database that several hubs share, in place of the file."""
    password: Secret | None = None
    """The password of the database's user."""
    pooler: bool = False
    """Whether PgBouncer in transaction mode is between the hub and the database."""
    keep: Duration | KeepSection | None = None
    """How long data is kept: `"90d"`, or for each kind `{ records = "400d", messages = "90d", vault = "30d", facts =
    "2y" }` (default: for ever)."""

    encrypt: bool = False
    """Whether texts are encrypted, under a key for each user that `remit users erase` destroys. Keywords are then
    searched without an index."""

    def retention(self) -> Retention:
        """Return the rule for the store."""
        if self.keep is None:
            return Retention()
        if isinstance(self.keep, str):
            return Retention(*[duration_ms(self.keep)] * len(Retention._fields))
        return Retention(*(optional_ms(getattr(self.keep, name)) for name in Retention._fields))


class LimitsSection(Section, frozen=True, kw_only=True):
    """Limits of every delegation."""

    max_depth: Count = _LIMITS.max_depth
    """Maximum depth of agents below the one that the user asks."""
    max_chain: Count = _LIMITS.max_chain
    """Maximum agents between the user and a call."""
    max_fan_out: Count = _LIMITS.max_fan_out
    """Maximum delegations that one agent may have in progress at once."""
    beyond_fan_out: BeyondFanOut = _LIMITS.beyond_fan_out
    """Whether further calls of `brief.map` and of the tool `sub_agent` wait for a place (`"queue"`) or are refused."""
    max_agent_delegations: Count = _LIMITS.max_agent_delegations
    """Maximum delegations that one agent may request in a run, including refused ones."""
    max_delegations: Count = _LIMITS.max_delegations
    """Maximum delegations that all agents of a run may request together, including refused ones."""
    max_record_bytes: Count = _LIMITS.max_record_bytes
    """Maximum bytes of the records of one run; requests that would exceed it are refused."""
    max_result_bytes: Count = _LIMITS.max_result_bytes
    """Maximum size of one answer, as JSON."""
    max_progress: Count = _LIMITS.max_progress
    """Maximum progress reports of one delegation; later ones are dropped."""
    grace: Duration = duration(_LIMITS.grace_ms)
    """Time for a cancelled agent to clean up before it is abandoned."""
    authority: Authority = _LIMITS.authority
    """With `"caller"` an agent that is called by another is limited to the tools and targets that its caller also has;
    `authority` of the agent takes precedence."""
    shared_scopes: frozenset[str] = _LIMITS.shared_scopes
    """Owner scopes that every user may refer to."""


class BudgetsSection(Section, frozen=True, kw_only=True):
    """Time and tokens, unless an agent, a capability or a caller sets less."""

    run_tokens: Count = _LIMITS.root_tokens
    """Tokens of a run: of the agent asked and all agents below it."""
    at_limit: AtRunLimit = _LIMITS.at_limit
    """What happens when a run needs more tokens than it has, or a model without a price where money is limited: it
    stops (`stop`), or a person is asked (`ask`)."""
    more_tokens: Positive | None = _LIMITS.more_tokens
    """Tokens that a person's yes adds to a run (default: as many as it began with)."""
    run_cost: Money | None = None
    """Money that the models of a run may cost, with all agents below: `"5 USD"`."""
    delegation_cost: Money | None = None
    """Money of a delegation if neither caller nor agent sets any (default: it shares what its caller has)."""
    delegation_tokens: Count | None = _LIMITS.delegation_tokens
    """Tokens of a delegation if neither caller nor agent sets any (default: a fair share of what the caller has left,
    and more of it when that is spent)."""
    overrun: Overrun = _LIMITS.overrun
    """What stops when an agent spends more than it was granted: with `run` nothing more starts in its run, with `call`
    that call alone ends."""
    context_tokens: Count = _LIMITS.context_tokens
    """Tokens of the conversation that a callee is shown."""
    per_user_per_day: Annotated[int, Meta(ge=1)] | None = None
    """Tokens of all runs of one user in a day (UTC), on all hubs that share the store."""
    cost_per_user_per_day: Money | None = None
    """Money of all runs of one user in a day (UTC), on all hubs that share the store: `"20 USD"`. A run reserves a
    fair share of what is left, and takes more up to its `run_cost`."""
    run_time: Duration = duration(_LIMITS.root_time_ms)
    """Time of a run."""
    delegation_time: Duration = duration(_LIMITS.delegation_time_ms)
    """Time of a delegation if the caller sets none."""


class PriceSection(Section, frozen=True, kw_only=True):
    """The price of a model for each million tokens, from which costs are estimated."""

    input: Amount
    """Price of a million tokens that the model reads."""
    output: Amount
    """Price of a million tokens that it writes."""
    cached: Amount | None = None
    """Price of a million tokens that its provider reads from a cache (default: the same as `input`)."""
    cache_write: Amount | None = None
    """Price of a million tokens that its provider writes to a cache (default: the same as `input`)."""

    def price(self) -> Price:
        """Return the price."""
        return Price(input=self.input, output=self.output, cached=self.cached, cache_write=self.cache_write)


class BreakerSection(Section, frozen=True, kw_only=True):
    """When calls to an agent that keeps failing are refused, and for how long."""

    failures_in_a_row: Positive = _BREAKER.failures_in_a_row
    """Failures in a row that open the breaker."""
    failure_share: Annotated[float, Meta(gt=0, le=1)] = _BREAKER.failure_share
    """Share of failed calls in a window that opens the breaker, given `at_least_calls`."""
    at_least_calls: Positive = _BREAKER.at_least_calls
    """Minimum calls in the window for `failure_share` to apply."""
    window: Duration = duration(_BREAKER.window_s * 1_000)
    """The window in which the share is counted."""
    open: Duration = duration(_BREAKER.open_s * 1_000)
    """How long calls are refused, multiplied by the number of openings."""
    max_open: Duration = duration(_BREAKER.max_open_s * 1_000)
    """Maximum time for which calls are refused."""

    def settings(self) -> BreakerSettings:
        """Return the settings for the runtime."""
        return BreakerSettings(
            failures_in_a_row=self.failures_in_a_row,
            failure_share=self.failure_share,
            at_least_calls=self.at_least_calls,
            window_s=duration_ms(self.window) / 1_000,
            open_s=duration_ms(self.open) / 1_000,
            max_open_s=duration_ms(self.max_open) / 1_000,
        )


class ContextSection(Section, frozen=True, kw_only=True):
    """What callees are shown of a conversation, and how tokens are counted."""

    tokenizer: Literal["auto", "o200k_base", "cl100k_base", "estimate"] = "auto"
    """How tokens are counted: by the encoding of a model family, which needs the extra `tokens`, by an estimate, or as
    exactly as the installed packages allow (`auto`)."""
    workspace: Annotated[str, Meta(min_length=1)] | None = None
    """The folder that callees may be told of, relative to the team file's folder."""
    summary_model: ModelName | None = None
    """The model that summarises conversations (default: summaries are made without a model)."""
    summary_base_url: Url | None = None
    """The server of that model, as for an agent."""
    summary_api_key: Secret | None = None
    """The API key for that model, as for an agent."""


class ApprovalsSection(Section, frozen=True, kw_only=True):
    """Who answers when a call needs approval."""

    allow: tuple[Between, ...] = ()
    """Calls that need no approval: `"callee"` or `"caller -> callee"`; `*` matches anything."""
    otherwise: Literal["deny", "terminal", "inbox"] = "inbox"
    """All other calls: refused (`deny`), asked about on the terminal, or put into the inbox for `remit pending`.
    Without a terminal, `terminal` means the inbox."""
    timeout: Duration = duration(Limits().approval_timeout_ms)
    """How long a question waits for an answer."""


class RedactionSection(Section, frozen=True, kw_only=True):
    """Personal data and secrets that are replaced by placeholders before agents see them."""

    enabled: bool = True
    """Whether anything is redacted."""
    kinds: tuple[Kind, ...] | None = None
    """Built-in kinds to look for (default: all)."""
    regions: tuple[Region, ...] | None = None
    """Countries whose phone numbers are recognised without a prefix."""
    detectors: tuple[Run, ...] = ()
    """Your own detectors: each takes a text and returns a list of `remit.Finding`."""
    patterns: dict[Kind, Annotated[str, Meta(min_length=1)]] = {}
    """Your own kinds, each by a regular expression (RE2: no look-around, no back-references)."""
    key: Secret | None = None
    """32 bytes in hexadecimal or Base64 that encrypt redacted values (default: a key that is created beside the
    store)."""


class IdentitySection(Section, frozen=True, kw_only=True):
    """How this hub authenticates itself, and where it keeps keys of others; see `remit docs credentials`."""

    key: Annotated[str, Meta(min_length=1)] = KEY_PATH
    """The hub's key file, relative to the team file's folder; created by `remit keys init`."""
    trusted: Annotated[str, Meta(min_length=1)] = TRUSTED_PATH
    """The file with further keys of peers; written by `remit keys trust`."""
    revoked: Annotated[str, Meta(min_length=1)] = REVOKED_PATH
    """The file with revoked credentials; written by `remit keys revoke`."""


class PeerSection(Section, frozen=True, kw_only=True):
    """Another hub, under the name that it gives itself. It is authenticated by its keys, or by a shared token."""

    url: Url | None = None
    """The URL of the hub, needed to call its agents."""
    keys: tuple[PublicKey, ...] = ()
    """The hub's public keys, oldest first, in addition to those in `trusted` of `[identity]`."""
    token: Secret | None = None
    """A token that both hubs know; used if there are no keys."""
    agents: frozenset[Callee] = frozenset()
    """Agents here that the hub may call; `"*"` means all."""
    users: frozenset[UserName] = frozenset({"*"})
    """Users for whom it may call; `"*"` means any."""
    permissions: frozenset[Literal["priority"]] = frozenset()
    """With `priority` its requests may have the priority `HIGH`, which is `NORMAL` otherwise."""


class ClientSection(Section, frozen=True, kw_only=True):
    """A program that calls over HTTP, authenticated by its own token or by tokens of its users' identity provider."""

    token: Secret | None = None
    """The client's token. A client has this or `issuer`."""
    issuer: Annotated[str, Meta(min_length=1)] | None = None
    """The identity provider (OpenID Connect) of its users, as in the claim `iss` of its tokens."""
    audience: Annotated[str, Meta(min_length=1)] | None = None
    """The claim `aud` of a token for this hub."""
    jwks: Annotated[str, Meta(min_length=1)] | None = None
    """The provider's public keys: an `https` URL, or a file from the team file's folder."""
    algorithms: Annotated[tuple[Algorithm, ...], Meta(min_length=1)] = ALGORITHMS
    """The provider's signature algorithms; no others are accepted."""
    user_claim: Annotated[str, Meta(min_length=1)] = "sub"
    """The claim of a token that names the user."""
    permissions: frozenset[Literal["metrics", "read", "control", "reveal", "erase", "priority"]] = frozenset()
    """Further permissions: `metrics` reads the metrics, `read` the runs and records of all users, `control` cancels the
    runs of all users, `reveal` reads personal values in clear, in answers and questions, which is recorded each time,
    `erase` erases users, `priority` sends requests with the priority `HIGH`, which is `NORMAL` otherwise."""
    may_approve: bool = False
    """Whether its users may approve or deny questions about their own runs over MCP."""
    agents: frozenset[Callee]
    """Agents that the client may call; `"*"` means all."""
    users: frozenset[UserName] | None = None
    """Users for whom it may call; `"*"` means any. With `issuer` the default is all users of the provider."""


class ServeSection(Section, frozen=True, kw_only=True):
    """How the hub is served over HTTP: `remit serve`; see `remit docs serving`."""

    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    """The address to listen on; `0.0.0.0` means all."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8_080
    """The port to listen on; 0 means any free port."""
    agents: frozenset[Callee] = frozenset({"*"})
    """Agents that can be called from outside; `"*"` means all."""
    drain: Duration = "20s"
    """How long requests in progress may continue after the server is told to stop."""
    connections: Positive = 900
    """Maximum open connections of each worker process."""
    workers: Positive = 1
    """Worker processes that serve the address together, with one store."""
    proxies: frozenset[str] = frozenset()
    """Addresses or networks of trusted proxies; `X-Forwarded-For` is accepted from no one else."""
    certificate: str | None = None
    """The certificate for https, a PEM file relative to the team file's folder."""
    private_key: str | None = None
    """The private key of that certificate, a PEM file."""
    access_log: bool | str = False
    """Where to write a line of JSON for each request: `true` for standard error, or a file relative to the team file's
    folder."""
    console: bool = False
    """Whether to serve the console for browsers, too; see `remit docs console`."""
    console_hosts: frozenset[str] = frozenset()
    """Further host names that browsers use for the console and MCP hosts for `/mcp`, such as that of an https proxy:
    `host`, `host:port`, or `http://host` for a name without encryption."""
    mcp_tools: frozenset[Callee] = frozenset()
    """Agents that MCP hosts get as tools of their own, over HTTP and from `remit mcp`; `"*"` means all. See `remit docs
    mcp`."""
    mcp_sampling: bool = True
    """Whether agents may ask the model of an MCP host that offers it (`brief.sample`)."""


class A2aSection(Section, frozen=True, kw_only=True):
    """Serves agents over A2A as well; see `remit docs a2a`."""

    agents: frozenset[Callee] = frozenset({"*"})
    """Which of the served agents speak A2A; `"*"` means all."""
    default: Callee | None = None
    """The agent whose card is at `/.well-known/agent-card.json`."""
    url: Url | None = None
    """The public URL of the server (default: the address that each client uses)."""
    grpc_port: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    """The port for gRPC at the `host` and with the certificate of `[serve]`, which needs the extra `a2a`; 0 means any
    free port. Without it there is no gRPC."""
    grpc_address: HostAndPort | None = None
    """`host:port` for gRPC in agent cards (default: the host of `url` or of the address that each client uses, and
    `grpc_port`)."""
    require_remit: bool = False
    """Whether clients must use the extension that carries a remit."""
    push: bool = True
    """Whether clients may subscribe to push notifications."""
    push_hosts: frozenset[HostName] = frozenset()
    """Hosts in private networks that may receive push notifications."""
    open: Annotated[int, Meta(ge=1, le=100_000)] = 256
    """How many tasks of one client may be at work at once."""
    public: frozenset[AgentName] = frozenset()
    """Agents that everybody may ask, without a token: see `remit docs a2a`."""
    public_rate: Rate = Rate(60, 60)
    """How many messages without a token one address may send: `{ calls = 60, seconds = 60 }`."""
    public_open: Annotated[int, Meta(ge=1, le=1_000)] = 4
    """How many tasks of one address without a token may be at work at once."""
    public_tokens: Count | None = None
    """Tokens of a task without a token (default: those of a run)."""
    public_time: Duration | None = None
    """Time of a task without a token (default: that of a run)."""
