"""What holds for a hub: where it records, its limits and budgets, what callees are shown, where its spans go."""

from typing import Annotated, Literal

from msgspec import Meta

from remit.config.sections.base import Section
from remit.config.values import (
    Duration,
    HeaderName,
    ModelName,
    Positive,
    Secret,
    Url,
    duration,
    duration_ms,
)
from remit.policy.breaker import BreakerSettings
from remit.policy.limits import Limits
from remit.policy.plan import Share
from remit.protocol.card import Authority
from remit.protocol.remit import Count
from remit.stores import STORE_PATH

_LIMITS = Limits()
_BREAKER = BreakerSettings()


class StoreSection(Section, frozen=True, kw_only=True):
    """Where everything is recorded."""

    path: Annotated[str, Meta(min_length=1, description="The SQLite file, from the team file's folder.")] = STORE_PATH
    durability: Annotated[
        Literal["power", "process"],
        Meta(description="What an answer survives once it is given: a power cut, or the process being killed."),
    ] = "power"


class LimitsSection(Section, frozen=True, kw_only=True):
    """What no delegation may exceed."""

    max_depth: Annotated[Count, Meta(description="How deep agents may stand below the one that the user asks.")] = (
        _LIMITS.max_depth
    )
    max_chain: Annotated[Count, Meta(description="How many agents may stand between the user and a call.")] = (
        _LIMITS.max_chain
    )
    max_fan_out: Annotated[Count, Meta(description="How many delegations one agent may have under way at once.")] = (
        _LIMITS.max_fan_out
    )
    max_agent_delegations: Annotated[
        Count, Meta(description="How many delegations one agent may ask for in a run, refused ones included.")
    ] = _LIMITS.max_agent_delegations
    max_delegations: Annotated[
        Count, Meta(description="How many delegations all agents of a run together may ask for, refused ones included.")
    ] = _LIMITS.max_delegations
    max_record_bytes: Annotated[
        Count, Meta(description="How many bytes the records of one run may take; what would add to them is refused.")
    ] = _LIMITS.max_record_bytes
    max_result_bytes: Annotated[Count, Meta(description="How large one answer may be, as JSON.")] = (
        _LIMITS.max_result_bytes
    )
    max_progress: Annotated[
        Count, Meta(description="How many progress reports one delegation may make; later ones are dropped.")
    ] = _LIMITS.max_progress
    grace: Annotated[
        Duration, Meta(description="How long a cancelled agent may take to clean up before it is abandoned.")
    ] = duration(_LIMITS.grace_ms)
    authority: Annotated[
        Authority,
        Meta(
            description='With `"caller"` agents that another agent asks have only the tools and targets which that one '
            "has, too; an agent's own `authority` counts more."
        ),
    ] = _LIMITS.authority
    shared_scopes: Annotated[frozenset[str], Meta(description="Owner scopes that every user may refer to.")] = (
        _LIMITS.shared_scopes
    )


class BudgetsSection(Section, frozen=True, kw_only=True):
    """Time and tokens, unless an agent, a capability or a caller says less."""

    run_tokens: Annotated[Count, Meta(description="Tokens of a run: of the agent asked and all below it.")] = (
        _LIMITS.root_tokens
    )
    delegation_tokens: Annotated[Count, Meta(description="Tokens of one delegation whose caller says nothing.")] = (
        _LIMITS.delegation_tokens
    )
    context_tokens: Annotated[Count, Meta(description="Tokens of what a callee is shown of the conversation.")] = (
        _LIMITS.context_tokens
    )
    run_time: Annotated[Duration, Meta(description="Time of a run.")] = duration(_LIMITS.root_time_ms)
    delegation_time: Annotated[Duration, Meta(description="Time of one delegation whose caller says nothing.")] = (
        duration(_LIMITS.delegation_time_ms)
    )


class BreakerSection(Section, frozen=True, kw_only=True):
    """When an agent that keeps failing is left alone, and for how long."""

    failures_in_a_row: Annotated[Positive, Meta(description="So many failures in a row are enough.")] = (
        _BREAKER.failures_in_a_row
    )
    failure_share: Annotated[
        float, Meta(gt=0, le=1, description="Or this share of the calls in a window, if there were enough of them.")
    ] = _BREAKER.failure_share
    at_least_calls: Annotated[Positive, Meta(description="A share of fewer calls than this says nothing.")] = (
        _BREAKER.at_least_calls
    )
    window: Annotated[Duration, Meta(description="The window in which the share is counted.")] = duration(
        _BREAKER.window_s * 1_000
    )
    open: Annotated[Duration, Meta(description="How long calls are refused, times the number of openings.")] = duration(
        _BREAKER.open_s * 1_000
    )
    max_open: Annotated[Duration, Meta(description="How long at most.")] = duration(_BREAKER.max_open_s * 1_000)

    def settings(self) -> BreakerSettings:
        """Return these settings as the runtime takes them."""
        return BreakerSettings(
            failures_in_a_row=self.failures_in_a_row,
            failure_share=self.failure_share,
            at_least_calls=self.at_least_calls,
            window_s=duration_ms(self.window) / 1_000,
            open_s=duration_ms(self.open) / 1_000,
            max_open_s=duration_ms(self.max_open) / 1_000,
        )


class ContextSection(Section, frozen=True, kw_only=True):
    """What callees are shown of a conversation, and how its length is told."""

    tokens: Annotated[
        Literal["auto", "o200k_base", "cl100k_base", "estimate"],
        Meta(
            description="How tokens are counted: by the encoding of a family of models, which needs the extra "
            "`tokens`, by an estimate, or as exactly as what is installed can."
        ),
    ] = "auto"
    workspace: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The folder that callees may be told of, from the team file's folder."),
    ] = None
    summary_model: Annotated[
        ModelName | None,
        Meta(description="The model that makes summaries of conversations; else they are made without one."),
    ] = None
    summary_base_url: Annotated[Url | None, Meta(description="The server of that model, as for an agent.")] = None
    summary_api_key: Annotated[Secret | None, Meta(description="The key for that model, as for an agent.")] = None


class TelemetrySection(Section, frozen=True, kw_only=True):
    """Spans and metrics for an OpenTelemetry collector, with the extra `otel`; see [tracing.md](tracing.md)."""

    endpoint: Annotated[
        Url | None,
        Meta(
            description="Where the collector is: OTLP over HTTP, as in `http://localhost:4318`; "
            "else what `OTEL_EXPORTER_OTLP_ENDPOINT` says."
        ),
    ] = None
    headers: Annotated[
        dict[HeaderName, Annotated[str, Meta(min_length=1)]],
        Meta(description='Headers that it wants, each a text or a secret: `{ authorization = "$OTLP_AUTH" }`.'),
    ] = {}
    service: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The service that the spans are of; else `OTEL_SERVICE_NAME`, else the team's name."),
    ] = None
    content: Annotated[
        bool, Meta(description="Whether what is said goes along: objectives, inputs and results, redacted.")
    ] = False
    sample: Annotated[
        Share,
        Meta(description="The share of the runs that begin here that is traced; of others, who sent them decides."),
    ] = 1.0
    metrics: Annotated[bool, Meta(description="Whether metrics are sent, too.")] = True
    interval: Annotated[Duration, Meta(description="How often metrics are sent.")] = "60s"
