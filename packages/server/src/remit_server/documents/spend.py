"""What was spent and how it went, as tables and as series; the state, calls and budgets of a team."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from remit.policy.breaker import Phase
from remit.protocol.card import Capability, Rate
from remit.protocol.lifecycle import Status
from remit_server.documents.common import AtMs, DelegationId, RunId, shown_as
from remit_server.documents.figures import DAY_MS, HOUR_MS, Period, SumKey, Sums
from remit_server.model_prices import PER, Price, cost_of

SpendBy = Literal["user", "agent", "capability", "day", "model"]
SeriesOf = Literal["success", "latency", "tokens", "cost", "runs", "refusals"]
SeriesStep = Literal["hour", "day"]

STEP_MS: dict[SeriesStep, int] = {"hour": HOUR_MS, "day": DAY_MS}

Cost = Annotated[
    float | None, Meta(description="Estimated cost of the tokens whose price is known; null: no price is known.")
]
Complete = Annotated[
    bool, Meta(description="Whether the whole record has been read. If not, ask again: each request reads on.")
]
Through = Annotated[AtMs, Meta(description="The time of the newest record that has been read.")]
From = Annotated[AtMs, Meta(description="Since when the figures are whole; 0: from the beginning of the record.")]


class SpendRow(Struct, frozen=True, kw_only=True):
    """What one user, agent, capability, day or model spent, and how it went."""

    key: Annotated[str, Meta(description="The user, agent, capability, day (`2026-11-17`, UTC) or model.")]
    runs: Annotated[int, Meta(description="Requests of users that ended, including refused ones.")]
    delegations: Annotated[int, Meta(description="Delegations that ended, including refused ones.")]
    succeeded: Annotated[int, Meta(description="Delegations that ended with a success, in full or in part.")]
    failed: Annotated[int, Meta(description="Delegations that failed or ran out of time.")]
    cancelled: Annotated[int, Meta(description="Delegations that were cancelled.")]
    refused: Annotated[int, Meta(description="Delegations that were refused.")]
    prompt: Annotated[int, Meta(description="Tokens read by the agents themselves.")]
    completion: Annotated[int, Meta(description="Tokens written by the agents themselves.")]
    cached: Annotated[int, Meta(description="Tokens of `prompt` that providers read from their cache.")]
    tokens: Annotated[int, Meta(description="`prompt` and `completion`, without the agents below.")]
    total_tokens: Annotated[int, Meta(description="Tokens with those of all agents below, which count there again.")]
    overrun: Annotated[int, Meta(description="Tokens spent beyond a grant.")]
    cost: Cost
    unpriced_tokens: Annotated[int, Meta(description="Tokens of `tokens` that are not in `cost`: no price is known.")]
    p50_ms: Annotated[int | None, Meta(description="Half of the delegations took no longer, to within 9 %.")]
    p95_ms: Annotated[int | None, Meta(description="95 % of the delegations took no longer, to within 9 %.")]
    codes: Annotated[dict[str, int], Meta(description="Failures and refusals by error code.")]


class SpendTable(Struct, frozen=True, kw_only=True):
    """Spend by user, agent, capability, day or model."""

    by: SpendBy
    since_ms: Annotated[AtMs, Meta(description="Begin of the period, at a whole hour or day (UTC).")]
    until_ms: AtMs
    currency: Annotated[str, Meta(description="Currency of all costs, which are estimates.")]
    rows: Annotated[tuple[SpendRow, ...], Meta(description="Most tokens first; days in order.")]
    totals: Annotated[SpendRow, Meta(description="All rows together, including those on other pages.")]
    next: Annotated[int | None, Meta(description="The value of `after` for the next page; null: there is none.")]
    complete: Complete
    through_ms: Through
    from_ms: From


class SeriesLine(Struct, frozen=True, kw_only=True):
    """One line of a series."""

    name: Annotated[str, Meta(description="`share`, `p50_ms`, `p95_ms`, `prompt`, `completion`, `cost`, `runs`, …")]
    values: Annotated[tuple[float | None, ...], Meta(description="One value for each time; null: nothing is known.")]


class Series(Struct, frozen=True, kw_only=True):
    """Figures over time."""

    what: SeriesOf
    step: SeriesStep
    currency: Annotated[str, Meta(description="Currency of costs, which are estimates.")]
    at_ms: Annotated[tuple[int, ...], Meta(description="The begin of each hour or day (UTC).")]
    lines: tuple[SeriesLine, ...]
    complete: Complete
    through_ms: Through
    from_ms: From


Wanted = Callable[[SumKey], bool]
Prices = Callable[[str], Price | None]


class PricedSums(Struct):
    """Sums with their estimated cost."""

    sums: Sums
    cost: float | None = None
    unpriced: int = 0

    def add(self, sums: Sums, price: Price | None) -> None:
        """Add sums of one model. *price* is for records without a cost: of a hub that knew no prices then."""
        self.sums.add(sums)
        if sums.priced or sums.cost:
            self.cost = (self.cost or 0.0) + sums.cost / PER
            self.unpriced += max(0, sums.tokens - sums.priced)
        elif not sums.tokens:
            return
        elif price is None:
            self.unpriced += sums.tokens
        else:
            spent = cost_of(price, prompt=sums.prompt, completion=sums.completion, cached=sums.cached)
            self.cost = (self.cost or 0.0) + spent

    def row(self, key: str) -> SpendRow:
        """Return these sums as a row of a table."""
        sums = self.sums
        return shown_as(
            SpendRow,
            sums,
            key=key,
            total_tokens=sums.total,
            cost=self.cost,
            unpriced_tokens=self.unpriced,
            p50_ms=sums.percentile_ms(0.5),
            p95_ms=sums.percentile_ms(0.95),
            codes=dict(sorted(sums.codes.items())),
        )


class Pricing(Struct, frozen=True, kw_only=True):
    """The models of agents, and the prices of models."""

    price: Prices = lambda _: None
    models: Mapping[str, str] = {}
    """The model of each agent in the team file: for records that do not name one."""
    currency: str = "USD"

    def cost(self, agent: str, model: str, prompt: int, completion: int, cached: int) -> float | None:
        """Return what tokens of an agent cost; *model* is empty if it was not recorded. None: not known."""
        price = self.price(known) if (known := model or self.models.get(agent, "")) else None
        return None if price is None else cost_of(price, prompt=prompt, completion=completion, cached=cached)

    def model_of(self, key: SumKey) -> str:
        """Return the model that spent the tokens of a sum; empty if it is not known."""
        return key.model or self.models.get(key.agent, "")


def spend_rows(periods: Iterable[Period], by: SpendBy, wanted: Wanted, pricing: Pricing) -> list[SpendRow]:
    """Return the rows of a table: days in order, else those with the most tokens first."""
    groups: dict[str, PricedSums] = {}
    for period in periods:
        day = day_of(period.start_ms)
        for key, sums in period.sums.items():
            if wanted(key):
                model = pricing.model_of(key)
                group = _group(by, key, day, model)
                groups.setdefault(group, PricedSums(Sums())).add(sums, pricing.price(model) if model else None)
    rows = [each.row(group) for group, each in groups.items()]
    return sorted(rows, key=lambda row: (0, 0, row.key) if by == "day" else (-row.tokens, -row.delegations, row.key))


def total_of(periods: Iterable[Period], wanted: Wanted, pricing: Pricing) -> PricedSums:
    """Return everything wanted in one sum."""
    total = PricedSums(Sums())
    for period in periods:
        for key, sums in period.sums.items():
            if wanted(key):
                model = pricing.model_of(key)
                total.add(sums, pricing.price(model) if model else None)
    return total


def series_lines(
    periods: Iterable[Period],
    times: tuple[int, ...],
    what: SeriesOf,
    step: SeriesStep,
    wanted: Wanted,
    pricing: Pricing,
) -> tuple[SeriesLine, ...]:
    """Return the lines of a series at these *times*, each the begin of a step."""
    step_ms = STEP_MS[step]
    within: dict[int, list[Period]] = {}
    for period in periods:
        within.setdefault(period.start_ms - period.start_ms % step_ms, []).append(period)
    sums = [total_of(within.get(at_ms, ()), wanted, pricing) for at_ms in times]
    return tuple(SeriesLine(name=name, values=tuple(map(value, sums))) for name, value in _LINES[what].items())


def day_of(at_ms: int) -> str:
    """Return the day of a moment, as in `2026-11-17` (UTC)."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).date().isoformat()


def success_share(sums: Sums) -> float | None:
    """Return the share of successes among the delegations that agents worked on; None if there were none."""
    judged = sums.succeeded + sums.failed
    return sums.succeeded / judged if judged else None


def _group(by: SpendBy, key: SumKey, day: str, model: str) -> str:
    match by:
        case "user":
            return key.user
        case "agent":
            return key.agent
        case "capability":
            return key.capability
        case "day":
            return day
        case "model":
            return model


_LINES: dict[SeriesOf, dict[str, Callable[[PricedSums], float | None]]] = {
    "success": {
        "share": lambda each: success_share(each.sums),
        "succeeded": lambda each: each.sums.succeeded,
        "failed": lambda each: each.sums.failed,
    },
    "latency": {
        "p50_ms": lambda each: each.sums.percentile_ms(0.5),
        "p95_ms": lambda each: each.sums.percentile_ms(0.95),
    },
    "tokens": {"prompt": lambda each: each.sums.prompt, "completion": lambda each: each.sums.completion},
    "cost": {"cost": lambda each: each.cost},
    "runs": {"runs": lambda each: each.sums.runs, "delegations": lambda each: each.sums.delegations},
    "refusals": {"refused": lambda each: each.sums.refused},
}


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
    unit: Literal["tokens", "millionths", "ms", "delegations", "bytes", "levels"]


class UserDay(Struct, frozen=True, kw_only=True):
    """What a user has spent of the day."""

    user: str
    spent: Annotated[int, Meta(description="Tokens of the delegations of this day (UTC) that ended, as recorded.")]
    reserved: Annotated[int, Meta(description="Tokens that runs in progress on this hub hold besides those.")]
    limit: Annotated[int | None, Meta(description="`per_user_per_day` of the team file; null: there is no limit.")]
    cost_spent: Annotated[int, Meta(description="Money of the delegations that ended, as recorded, in millionths.")]
    cost_reserved: Annotated[int, Meta(description="Money that runs in progress on this hub hold besides it.")]
    cost_limit: Annotated[
        int | None,
        Meta(description="`cost_per_user_per_day` of the team file, in millionths; null: there is no limit."),
    ]


class RunBudget(Struct, frozen=True, kw_only=True):
    """A run in progress on this hub, and what it has left."""

    run: RunId
    user: str
    agent: str
    granted: Annotated[int, Meta(description="Tokens of the run.")]
    used: int
    left: Annotated[int, Meta(description="Tokens that are neither spent nor reserved for delegations in progress.")]
    cost: Annotated[int | None, Meta(description="Money of the run, in millionths; null: there is no limit.")]
    cost_used: Annotated[int, Meta(description="Money spent so far, in millionths.")]
    cost_left: Annotated[int | None, Meta(description="Money that is neither spent nor reserved; null: no limit.")]
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
