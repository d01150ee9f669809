"""The state of a team: its agents, who may call whom and who did, and its budgets."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remit.policy.breaker import Phase
from remit.protocol.card import Capability, Rate
from remit.protocol.lifecycle import Status
from remit_server.documents.common import AtMs, DelegationId, RunId
from remit_server.documents.spend import Complete, Cost, From, Through


class HostLine(Struct, frozen=True, kw_only=True):
    """A hub that hosts an agent."""

    hub: Annotated[str, Meta(description="Its name in the team.")]
    free: Annotated[int, Meta(description="How many more requests it could start there when it was last heard of.")]


class RateUse(Struct, frozen=True, kw_only=True):
    """The rate limit of an agent, and how much of it is used on this hub."""

    limit: Rate
    calls: Annotated[int, Meta(description="Calls in the current window.")]
    wait_ms: Annotated[int, Meta(description="How long calls are refused; 0: they are not.")]


class AgentLoad(Struct, frozen=True, kw_only=True):
    """The load of an agent at one moment, and how its delegations of the last 24 hours went."""

    name: str
    description: str
    is_remote: Annotated[bool, Meta(description="Whether it runs elsewhere than in this hub.")]
    hosts: Annotated[tuple[HostLine, ...], Meta(description="The other hubs that host it, where that is known.")]
    model: Annotated[str, Meta(description="Its model in the team file; empty: it names none.")]
    running: Annotated[int, Meta(description="Delegations in progress.")]
    slots: Annotated[int, Meta(description="How many delegations it can work on at once.")]
    free: Annotated[int, Meta(description="How many more it could start now.")]
    queued: Annotated[int, Meta(description="Delegations that wait for a slot.")]
    queue: Annotated[int, Meta(description="How many may wait.")]
    breaker: Annotated[Phase, Meta(description="`closed`: called as usual; `open`: not called; `probing`: on trial.")]
    probe_ms: Annotated[
        int,
        Meta(description="How long calls are refused until one may test whether it has recovered; 0: they are not."),
    ]
    openings: Annotated[int, Meta(description="How often its breaker has opened of late.")]
    rate: Annotated[RateUse | None, Meta(description="Its rate limit; null: it has none.")]
    delegations: Annotated[int, Meta(description="Delegations of the last 24 hours that ended.")]
    success: Annotated[float | None, Meta(description="Share of successes among those it worked on; null: none.")]
    p50_ms: int | None
    p95_ms: int | None
    tokens: Annotated[int, Meta(description="Tokens it spent itself.")]
    cost: Cost
    hours: Annotated[
        tuple[tuple[int, int], ...], Meta(description="Successes and failures of each of these hours, oldest first.")
    ]


class CallEdge(Struct, frozen=True, kw_only=True):
    """One agent that may call another, or did."""

    origin: Annotated[str, Meta(description="The caller; `user` for requests of users.")]
    target: str
    may: Annotated[bool, Meta(description="Whether the team lets it, as far as the cards say.")]
    calls: Annotated[int, Meta(description="Calls in the period, including refused ones.")]
    failed: int
    refused: int
    tokens: Annotated[int, Meta(description="Tokens of these calls with all below.")]
    mean_ms: Annotated[int | None, Meta(description="Mean time of a call; null: there was none.")]


class AgentGraph(Struct, frozen=True, kw_only=True):
    """The agents of a team with their load, who may call whom, and who did."""

    agents: tuple[AgentLoad, ...]
    edges: tuple[CallEdge, ...]
    since_ms: AtMs
    until_ms: AtMs
    currency: str
    complete: Complete
    through_ms: Through
    from_ms: From


class RankingLine(Struct, frozen=True, kw_only=True):
    """An agent in the ranking for a capability."""

    agent: str
    place: Annotated[int, Meta(description="1: it is asked first.")]
    quality: Annotated[float, Meta(description="Probability of a success; one half if nothing is known.")]
    latency_ms: int
    tokens: int
    in_flight: int
    ago_ms: Annotated[int | None, Meta(description="How long ago it was last heard of; null: never.")]
    why: Annotated[str, Meta(description="The reason for its place, as a sentence.")]


class CapabilityRanking(Struct, frozen=True, kw_only=True):
    """The agents that offer a capability, in the order in which they are asked."""

    capability: str
    ranking: tuple[RankingLine, ...]


class FaultLine(Struct, frozen=True, kw_only=True):
    """A delegation that failed or was refused."""

    at_ms: AtMs
    run: RunId
    delegation: DelegationId
    origin: Annotated[str, Meta(description="The caller.")]
    user: str
    status: Status
    code: str
    message: str


class AgentPage(Struct, frozen=True, kw_only=True):
    """Everything about one agent: its card, its load, its ranking and its last errors."""

    load: AgentLoad
    version: str
    capabilities: tuple[Capability, ...]
    tools: tuple[str, ...]
    may_call: Annotated[tuple[str, ...], Meta(description="The agents that it may call; `*`: all.")]
    called_by: Annotated[tuple[str, ...], Meta(description="The agents that may call it.")]
    time_ms: Annotated[int | None, Meta(description="Time of a delegation to it; null: the default of the team.")]
    max_tokens: Annotated[int | None, Meta(description="Tokens of a delegation to it; null: the default of the team.")]
    isolation: Literal["task", "process"]
    rankings: tuple[CapabilityRanking, ...]
    faults: Annotated[tuple[FaultLine, ...], Meta(description="Its newest failures and refusals, newest first.")]
    complete: Complete
    through_ms: Through


class LimitLine(Struct, frozen=True, kw_only=True):
    """A limit in force."""

    name: Annotated[str, Meta(description="The key in the team file: `budgets.run_tokens`.")]
    value: int
    unit: Literal["tokens", "ms", "delegations", "bytes", "levels"]


class UserDay(Struct, frozen=True, kw_only=True):
    """What a user has spent of the day."""

    user: str
    spent: Annotated[int, Meta(description="Tokens of runs of this day (UTC) that ended, as recorded.")]
    reserved: Annotated[int, Meta(description="Tokens granted to runs in progress on this hub.")]
    limit: Annotated[int | None, Meta(description="`per_user_per_day` of the team file; null: there is no limit.")]


class RunBudget(Struct, frozen=True, kw_only=True):
    """A run in progress on this hub, and what it has left."""

    run: RunId
    user: str
    agent: str
    granted: Annotated[int, Meta(description="Tokens of the run.")]
    used: int
    left: Annotated[int, Meta(description="Tokens that are neither spent nor reserved for delegations in progress.")]
    time_left_ms: int
    delegations: Annotated[int, Meta(description="Delegations in progress, with the root.")]


class AgentRate(Struct, frozen=True, kw_only=True):
    """An agent with a rate limit."""

    agent: str
    rate: RateUse


class BudgetState(Struct, frozen=True, kw_only=True):
    """The limits in force, and what is used of them now."""

    limits: tuple[LimitLine, ...]
    day_ms: Annotated[AtMs, Meta(description="Begin of the current day (UTC).")]
    users: Annotated[tuple[UserDay, ...], Meta(description="Users with runs of this day, most tokens first.")]
    runs: Annotated[tuple[RunBudget, ...], Meta(description="Runs in progress on this hub, oldest first.")]
    rates: Annotated[tuple[AgentRate, ...], Meta(description="The agents with a rate limit.")]
    complete: Complete
    through_ms: Through
