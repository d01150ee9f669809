"""The team file: the sections of the core by key; plugins bring the others.

Their structs are the only source: the loader validates files against them, editors use the JSON Schema that is
generated from them, and `docs/reference/team.md` is generated from that schema.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from remit.policy.limits import Limits
from remit_cli.config.sections.agents import AgentSection, CapabilitySection, ToolSection
from remit_cli.config.sections.hub import (
    ApprovalsSection,
    BreakerSection,
    BudgetsSection,
    ContextSection,
    LimitsSection,
    PriceSection,
    RedactionSection,
    RuleSection,
    StoreSection,
)
from remit_cli.config.sections.orchestration import OrchestratorSection, WorkflowSection
from remit_cli.config.sections.peers import A2aSection, ClientSection, IdentitySection, PeerSection, ServeSection
from remit_cli.config.values import AgentName, Code, Currency, ModelName, Section, duration_ms

Names = Mapping[str, Collection[str]]
"""The names of agents, tools, capabilities and workflows in a file, including those with invalid sections."""


class TeamFile(Section, frozen=True, kw_only=True):
    """The team of a Remit hub: its agents and their settings."""

    name: Annotated[AgentName, Meta(description="The hub's name; it follows the `@` in chains.")] = "local"
    version: Annotated[Literal[1], Meta(description="The version of this format.")] = 1
    store: Annotated[StoreSection, Meta(description="Where everything is recorded.")] = StoreSection()
    limits: Annotated[LimitsSection, Meta(description="Limits of every delegation.")] = LimitsSection()
    budgets: Annotated[BudgetsSection, Meta(description="Time and tokens.")] = BudgetsSection()
    prices: Annotated[
        dict[ModelName, PriceSection],
        Meta(description="What models cost, by name as in `model`; see `remit docs budgets`."),
    ] = {}
    currency: Annotated[Currency, Meta(description="The currency of all `prices`.")] = "USD"
    breaker: Annotated[BreakerSection, Meta(description="When calls to a failing agent are refused.")] = (
        BreakerSection()
    )
    agents: Annotated[dict[AgentName, AgentSection], Meta(description="The agents, by name.")] = {}
    capabilities: Annotated[dict[Code, CapabilitySection], Meta(description="Capabilities of agents, by code.")] = {}
    tools: Annotated[dict[AgentName, ToolSection], Meta(description="Tools for agents, by name.")] = {}
    workflows: Annotated[dict[AgentName, WorkflowSection], Meta(description="Workflows, by name.")] = {}
    orchestrator: Annotated[
        OrchestratorSection | None, Meta(description="The agent that routes any request of a user: `remit ask`.")
    ] = None
    glossary: Annotated[
        dict[str, str], Meta(description='The preferred term for each variant: `turnover = "revenue"`.')
    ] = {}
    rules: Annotated[tuple[RuleSection, ...], Meta(description="Which calls are refused or need approval.")] = ()
    approvals: Annotated[ApprovalsSection, Meta(description="Who answers when a call needs approval.")] = (
        ApprovalsSection()
    )
    redaction: Annotated[RedactionSection, Meta(description="Data that is kept from agents.")] = RedactionSection()
    context: Annotated[ContextSection, Meta(description="What callees are shown of a conversation.")] = ContextSection()
    identity: Annotated[IdentitySection, Meta(description="How this hub authenticates itself.")] = IdentitySection()
    peers: Annotated[dict[AgentName, PeerSection], Meta(description="Other hubs, by name.")] = {}
    clients: Annotated[dict[AgentName, ClientSection], Meta(description="Programs that call over HTTP, by name.")] = {}
    serve: Annotated[ServeSection, Meta(description="How the hub is served over HTTP.")] = ServeSection()
    a2a: Annotated[A2aSection | None, Meta(description="Serves agents over A2A as well.")] = None


class Team(TeamFile, frozen=True, kw_only=True):
    """A loaded team: the file with overrides applied and JSON Schemas read, and the path of the file."""

    file: Path
    overrides: tuple[str, ...] = ()
    """Overrides from the command line; they take precedence over the file."""

    @property
    def folder(self) -> Path:
        """The folder that relative paths start from, and that agents' code is imported from."""
        return self.file.parent

    @property
    def workspace(self) -> Path | None:
        """The folder that callees may be told of."""
        return None if self.context.workspace is None else self.folder / self.context.workspace

    @property
    def store_path(self) -> Path:
        """The SQLite file."""
        return self.folder / self.store.path

    @property
    def everyone(self) -> tuple[str, ...]:
        """All names that can be asked: agents, workflows and the orchestrator."""
        return (*self.agents, *self.workflows, *([] if self.orchestrator is None else [self.orchestrator.name]))

    def settled_limits(self) -> Limits:
        """Return limits, budgets and the approval timeout for the runtime."""
        limits, budgets = self.limits, self.budgets
        return Limits(
            max_depth=limits.max_depth,
            max_chain=limits.max_chain,
            max_fan_out=limits.max_fan_out,
            max_agent_delegations=limits.max_agent_delegations,
            max_delegations=limits.max_delegations,
            max_record_bytes=limits.max_record_bytes,
            root_time_ms=duration_ms(budgets.run_time),
            delegation_time_ms=duration_ms(budgets.delegation_time),
            root_tokens=budgets.run_tokens,
            user_tokens_per_day=budgets.per_user_per_day,
            delegation_tokens=budgets.delegation_tokens,
            overrun=budgets.overrun,
            context_tokens=budgets.context_tokens,
            max_result_bytes=limits.max_result_bytes,
            max_progress=limits.max_progress,
            grace_ms=duration_ms(limits.grace),
            approval_timeout_ms=duration_ms(self.approvals.timeout),
            authority=limits.authority,
            shared_scopes=limits.shared_scopes,
        )
