"""Sections for the hub: store, limits, budgets, prices, breaker, context, rules, approvals and redaction."""

from typing import Annotated, Literal

from msgspec import Meta, field

from remit.policy.breaker import BreakerSettings
from remit.policy.limits import Limits, Overrun
from remit.protocol.card import Authority
from remit.protocol.remit import Count
from remit.stores import STORE_PATH
from remit.stores.retention import Retention
from remit_cli.config.rules import Editable, Pattern, Rule
from remit_cli.config.values import (
    Amount,
    Between,
    DatabaseUrl,
    Duration,
    Kind,
    ModelName,
    Positive,
    Region,
    Run,
    Secret,
    Section,
    Url,
    duration,
    duration_ms,
    optional_ms,
)
from remit_server.model_prices import Price

_LIMITS = Limits()
_BREAKER = BreakerSettings()


class KeepSection(Section, frozen=True, kw_only=True):
    """How long each kind of data is kept; without it, for ever. See `remit docs operations`."""

    records: Annotated[
        Duration | None,
        Meta(description="Everything about a run; `audit verify` still proves that nothing else was removed."),
    ] = None
    messages: Annotated[
        Duration | None,
        Meta(
            description="The texts of runs and conversations; who asked whom, when and how it ended is kept as long "
            "as `records`."
        ),
    ] = None
    vault: Annotated[Duration | None, Meta(description="The values behind placeholders.")] = None
    facts: Annotated[Duration | None, Meta(description="Facts about users.")] = None


class StoreSection(Section, frozen=True, kw_only=True):
    """Where everything is recorded."""

    path: Annotated[str, Meta(min_length=1, description="The SQLite file, relative to the team file's folder.")] = (
        STORE_PATH
    )
    durability: Annotated[
        Literal["power", "process"],
        Meta(
            description="What a delivered answer survives: a power cut (`power`), or the process being killed "
            "(`process`)."
        ),
    ] = "power"
    url: Annotated[
        DatabaseUrl | None,
        Meta(description="The address of a PostgreSQL database that several hubs share, in place of the file."),
    ] = None
    password: Annotated[Secret | None, Meta(description="The password of the database's user.")] = None
    pooler: Annotated[
        bool, Meta(description="Whether PgBouncer in transaction mode is between the hub and the database.")
    ] = False
    keep: Annotated[
        Duration | KeepSection | None,
        Meta(
            description='How long data is kept: `"90d"`, or for each kind '
            '`{ records = "400d", messages = "90d", vault = "30d", facts = "2y" }` (default: for ever).'
        ),
    ] = None

    encrypt: Annotated[
        bool,
        Meta(
            description="Whether texts are encrypted, under a key for each user that `remit users erase` destroys. "
            "Keywords are then searched without an index."
        ),
    ] = False

    def retention(self) -> Retention:
        """Return the rule for the store."""
        if self.keep is None:
            return Retention()
        if isinstance(self.keep, str):
            return Retention(*[duration_ms(self.keep)] * len(Retention._fields))
        return Retention(*(optional_ms(getattr(self.keep, name)) for name in Retention._fields))


class LimitsSection(Section, frozen=True, kw_only=True):
    """Limits of every delegation."""

    max_depth: Annotated[Count, Meta(description="Maximum depth of agents below the one that the user asks.")] = (
        _LIMITS.max_depth
    )
    max_chain: Annotated[Count, Meta(description="Maximum agents between the user and a call.")] = _LIMITS.max_chain
    max_fan_out: Annotated[
        Count, Meta(description="Maximum delegations that one agent may have in progress at once.")
    ] = _LIMITS.max_fan_out
    max_agent_delegations: Annotated[
        Count, Meta(description="Maximum delegations that one agent may request in a run, including refused ones.")
    ] = _LIMITS.max_agent_delegations
    max_delegations: Annotated[
        Count,
        Meta(description="Maximum delegations that all agents of a run may request together, including refused ones."),
    ] = _LIMITS.max_delegations
    max_record_bytes: Annotated[
        Count, Meta(description="Maximum bytes of the records of one run; requests that would exceed it are refused.")
    ] = _LIMITS.max_record_bytes
    max_result_bytes: Annotated[Count, Meta(description="Maximum size of one answer, as JSON.")] = (
        _LIMITS.max_result_bytes
    )
    max_progress: Annotated[
        Count, Meta(description="Maximum progress reports of one delegation; later ones are dropped.")
    ] = _LIMITS.max_progress
    grace: Annotated[Duration, Meta(description="Time for a cancelled agent to clean up before it is abandoned.")] = (
        duration(_LIMITS.grace_ms)
    )
    authority: Annotated[
        Authority,
        Meta(
            description='With `"caller"` an agent that is called by another is limited to the tools and '
            "targets that its caller also has; `authority` of the agent takes precedence."
        ),
    ] = _LIMITS.authority
    shared_scopes: Annotated[frozenset[str], Meta(description="Owner scopes that every user may refer to.")] = (
        _LIMITS.shared_scopes
    )


class BudgetsSection(Section, frozen=True, kw_only=True):
    """Time and tokens, unless an agent, a capability or a caller sets less."""

    run_tokens: Annotated[Count, Meta(description="Tokens of a run: of the agent asked and all agents below it.")] = (
        _LIMITS.root_tokens
    )
    delegation_tokens: Annotated[Count, Meta(description="Tokens of a delegation if the caller sets none.")] = (
        _LIMITS.delegation_tokens
    )
    overrun: Annotated[
        Overrun,
        Meta(
            description="What stops when an agent spends more than it was granted: with `run` nothing more starts in "
            "its run, with `call` that call alone ends."
        ),
    ] = _LIMITS.overrun
    context_tokens: Annotated[Count, Meta(description="Tokens of the conversation that a callee is shown.")] = (
        _LIMITS.context_tokens
    )
    per_user_per_day: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Tokens of all runs of one user in a day (UTC), on all hubs that share the store."),
    ] = None
    run_time: Annotated[Duration, Meta(description="Time of a run.")] = duration(_LIMITS.root_time_ms)
    delegation_time: Annotated[Duration, Meta(description="Time of a delegation if the caller sets none.")] = duration(
        _LIMITS.delegation_time_ms
    )


class PriceSection(Section, frozen=True, kw_only=True):
    """The price of a model for each million tokens, from which costs are estimated."""

    input: Annotated[Amount, Meta(description="Price of a million tokens that the model reads.")]
    output: Annotated[Amount, Meta(description="Price of a million tokens that it writes.")]
    cached: Annotated[
        Amount | None,
        Meta(
            description="Price of a million tokens that its provider reads from a cache (default: the same as `input`)."
        ),
    ] = None

    def price(self) -> Price:
        """Return the price."""
        return Price(input=self.input, output=self.output, cached=self.cached)


class BreakerSection(Section, frozen=True, kw_only=True):
    """When calls to an agent that keeps failing are refused, and for how long."""

    failures_in_a_row: Annotated[Positive, Meta(description="Failures in a row that open the breaker.")] = (
        _BREAKER.failures_in_a_row
    )
    failure_share: Annotated[
        float,
        Meta(
            gt=0, le=1, description="Share of failed calls in a window that opens the breaker, given `at_least_calls`."
        ),
    ] = _BREAKER.failure_share
    at_least_calls: Annotated[
        Positive, Meta(description="Minimum calls in the window for `failure_share` to apply.")
    ] = _BREAKER.at_least_calls
    window: Annotated[Duration, Meta(description="The window in which the share is counted.")] = duration(
        _BREAKER.window_s * 1_000
    )
    open: Annotated[Duration, Meta(description="How long calls are refused, multiplied by the number of openings.")] = (
        duration(_BREAKER.open_s * 1_000)
    )
    max_open: Annotated[Duration, Meta(description="Maximum time for which calls are refused.")] = duration(
        _BREAKER.max_open_s * 1_000
    )

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

    tokenizer: Annotated[
        Literal["auto", "o200k_base", "cl100k_base", "estimate"],
        Meta(
            description="How tokens are counted: by the encoding of a model family, which needs the extra "
            "`tokens`, by an estimate, or as exactly as the installed packages allow (`auto`)."
        ),
    ] = "auto"
    workspace: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The folder that callees may be told of, relative to the team file's folder."),
    ] = None
    summary_model: Annotated[
        ModelName | None,
        Meta(description="The model that summarises conversations (default: summaries are made without a model)."),
    ] = None
    summary_base_url: Annotated[Url | None, Meta(description="The server of that model, as for an agent.")] = None
    summary_api_key: Annotated[Secret | None, Meta(description="The API key for that model, as for an agent.")] = None


_RULE = Rule(then="ask")


class RuleSection(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens to calls that match. The first rule that matches decides; `*` in a name matches anything."""

    then: Annotated[
        Literal["allow", "ask", "refuse"], Meta(description="Allow the call, ask a person first, or refuse it.")
    ]
    from_: Annotated[Pattern, Meta(description="The caller; `user` is the user.")] = field(
        default=_RULE.from_, name="from"
    )
    to: Annotated[Pattern, Meta(description="The callee.")] = _RULE.to
    capability: Annotated[Pattern | None, Meta(description="The capability that is asked for.")] = _RULE.capability
    user: Annotated[Pattern, Meta(description="The user on whose behalf the call is made.")] = _RULE.user
    mentions: Annotated[
        tuple[Pattern, ...],
        Meta(
            description="Words of which at least one occurs in what the callee is told (objective, input, hand-off, "
            "hints, names, files that are text), in any case, also disguised: see `remit docs approvals`."
        ),
    ] = _RULE.mentions
    say: Annotated[str, Meta(description="The question to the person, or the reason for the refusal.")] = _RULE.say
    edit: Annotated[frozenset[Editable], Meta(description="What the person may change before approving.")] = _RULE.edit


class ApprovalsSection(Section, frozen=True, kw_only=True):
    """Who answers when a call needs approval."""

    allow: Annotated[
        tuple[Between, ...],
        Meta(description='Calls that need no approval: `"callee"` or `"caller -> callee"`; `*` matches anything.'),
    ] = ()
    otherwise: Annotated[
        Literal["deny", "terminal", "inbox"],
        Meta(
            description="All other calls: refused (`deny`), asked about on the terminal, or put into the "
            "inbox for `remit pending`. Without a terminal, `terminal` means the inbox."
        ),
    ] = "inbox"
    timeout: Annotated[Duration, Meta(description="How long a question waits for an answer.")] = duration(
        Limits().approval_timeout_ms
    )


class RedactionSection(Section, frozen=True, kw_only=True):
    """Personal data and secrets that are replaced by placeholders before agents see them."""

    enabled: Annotated[bool, Meta(description="Whether anything is redacted.")] = True
    kinds: Annotated[tuple[Kind, ...] | None, Meta(description="Built-in kinds to look for (default: all).")] = None
    regions: Annotated[
        tuple[Region, ...] | None, Meta(description="Countries whose phone numbers are recognised without a prefix.")
    ] = None
    detectors: Annotated[
        tuple[Run, ...],
        Meta(description="Your own detectors: each takes a text and returns a list of `remit.Finding`."),
    ] = ()
    patterns: Annotated[
        dict[Kind, Annotated[str, Meta(min_length=1)]],
        Meta(description="Your own kinds, each by a regular expression (RE2: no look-around, no back-references)."),
    ] = {}
    key: Annotated[
        Secret | None,
        Meta(
            description="32 bytes in hexadecimal or Base64 that encrypt redacted values (default: a key that "
            "is created beside the store)."
        ),
    ] = None
