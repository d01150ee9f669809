"""The endpoints of agents: their cards, the state of one, and the graph of who may call whom and who did."""

from collections.abc import Collection, Iterable, Mapping

from remit.policy.breaker import Phase
from remit.policy.reception import Permission, Sender
from remit.policy.routing import Ranked
from remit.protocol.card import AgentCard
from remit.protocol.envelope import USER
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.runtime.agent_status import AgentStatus
from remit_server.access import visible
from remit_server.delegations import Delegations
from remit_server.documents.api import AGENT, AGENT_CARD, AGENTS, parameters_of
from remit_server.documents.api_values import AgentList, PublicCard
from remit_server.documents.common import shown_as
from remit_server.documents.figures import DAY_MS, HOUR_MS, RecordFigures, Sums, Traffic
from remit_server.documents.spend import (
    AgentGraph,
    AgentLoad,
    AgentPage,
    CallEdge,
    CapabilityRanking,
    FaultLine,
    HostLine,
    PricedSums,
    Pricing,
    RankingLine,
    RateUse,
    success_share,
)
from remit_server.figures_endpoints import CurrentFigures, PeriodQuery, period_of
from remit_server.operations import ApiRequest, answers, get

# The hours of the small chart beside each agent.
HOURS = 24
MOST_EDGES = 2_000


class AgentEndpoints:
    """The endpoints for the state of agents."""

    def __init__(self, delegations: Delegations, figures: CurrentFigures, pricing: Pricing) -> None:
        self._hub = delegations.hub
        self._delegations = delegations
        self._figures = figures
        self._pricing = pricing
        self._wall_ms = delegations.hub.clock.wall_ms

    @answers(AGENTS)
    async def agents(self, call: ApiRequest) -> AgentList:
        return AgentList(agents=tuple(map(public, self._cards(call.sender).values())))

    @answers(AGENT_CARD)
    async def agent(self, call: ApiRequest) -> PublicCard:
        name, known = call.named("name"), self._cards(call.sender)
        card = known.get(name)
        if card is None:
            why = f"no agent `{name[:100]}` is available to {call.sender.name}{did_you_mean(name, known)}"
            raise RemitError(fault(Code.AGENT_NOT_FOUND, why))
        return public(card)

    def _cards(self, sender: Sender) -> dict[str, AgentCard]:
        exposed = self._delegations.exposed()
        return {
            name: card
            for name, card in self._hub.cards.items()
            if name in exposed and (sender.targets is None or name in sender.targets)
        }

    @answers(get("/v1/agents/{name}/status", AGENT, needs=Permission.READ))
    async def agent_status(self, call: ApiRequest) -> AgentPage:
        """The state of one agent: load, breaker, ranking, last errors."""
        roots, name = visible(call.sender, call.operation.needs).agents, call.named("name")
        cards = _reachable(self._hub.cards, roots)
        card = cards.get(name)
        if card is None:
            why = f"there is no agent `{name[:100]}`{did_you_mean(name, cards)}"
            raise RemitError(fault(Code.AGENT_NOT_FOUND, why))
        rankings = [
            CapabilityRanking(
                capability=each.code,
                ranking=_ranking(ranked for ranked in await self._hub.ranking(each.code) if ranked.name in cards),
            )
            for each in card.capabilities
        ]
        now_ms, states = self._wall_ms(), self._hub.agent_status()

        def page(figures: RecordFigures) -> AgentPage:
            recent = _Recent(figures, self._pricing, now_ms, roots)
            faults = [each for each in figures.faults.get(name, ()) if roots is None or each.root in roots]
            return AgentPage(
                load=self._load(card, states.get(name), recent),
                version=card.version,
                capabilities=card.capabilities,
                tools=tuple(sorted(card.tools)),
                may_call=tuple(sorted(card.callees)),
                called_by=tuple(sorted(each.name for each in cards.values() if each.may_reach(name))),
                time_ms=card.time_ms,
                max_tokens=card.tokens,
                isolation=card.isolation,
                rankings=tuple(rankings),
                faults=tuple(shown_as(FaultLine, each) for each in reversed(faults)),
                complete=self._figures.complete,
                through_ms=figures.through_ms,
            )

        return await self._figures.look(page)

    @answers(get("/v1/graph", *parameters_of(PeriodQuery), needs=Permission.READ))
    async def graph(self, call: ApiRequest) -> AgentGraph:
        """The agents with their load, who may call whom, and who did."""
        roots = visible(call.sender, call.operation.needs).agents
        now_ms, cards, states = self._wall_ms(), _reachable(self._hub.cards, roots), self._hub.agent_status()
        since_ms, until_ms = period_of(call.query(PeriodQuery), DAY_MS, now_ms)

        def graph(figures: RecordFigures) -> AgentGraph:
            recent = _Recent(figures, self._pricing, now_ms, roots)
            return AgentGraph(
                agents=tuple(self._load(card, states.get(name), recent) for name, card in cards.items()),
                edges=_edges(cards, _traffic(figures, since_ms, until_ms, roots)),
                since_ms=since_ms,
                until_ms=until_ms,
                currency=self._pricing.currency,
                complete=self._figures.complete,
                through_ms=figures.through_ms,
                from_ms=figures.from_ms,
            )

        return await self._figures.look(graph)

    def _load(self, card: AgentCard, state: AgentStatus | None, recent: "_Recent") -> AgentLoad:
        state = state or AgentStatus(0, 0, Phase.CLOSED)  # it was removed a moment ago
        priced, hours = recent.of(card.name)
        return shown_as(
            AgentLoad,
            state,
            name=card.name,
            description=card.description,
            hosts=tuple(shown_as(HostLine, each) for each in state.hosts),
            model=self._pricing.models.get(card.name, ""),
            queue=card.queue,
            rate=None
            if card.rate is None
            else RateUse(limit=card.rate, calls=state.rate_calls, wait_ms=state.rate_wait_ms),
            delegations=priced.sums.delegations,
            success=success_share(priced.sums),
            p50_ms=priced.sums.percentile_ms(0.5),
            p95_ms=priced.sums.percentile_ms(0.95),
            tokens=priced.sums.tokens,
            cost=priced.cost,
            hours=hours,
        )


def public(card: AgentCard) -> PublicCard:
    """Return what others may know of an agent."""
    return shown_as(PublicCard, card)


class _Recent:
    """The figures of each agent in the last 24 hours."""

    def __init__(self, figures: RecordFigures, pricing: Pricing, now_ms: int, roots: Collection[str] | None) -> None:
        self._first_ms = now_ms - now_ms % HOUR_MS - (HOURS - 1) * HOUR_MS
        self._sums: dict[str, PricedSums] = {}
        self._hours: dict[str, list[tuple[int, int]]] = {}
        for period in figures.between(self._first_ms, now_ms + 1):
            hour = (period.start_ms - self._first_ms) // HOUR_MS
            for key, sums in period.sums.items():
                if roots is not None and key.root not in roots:
                    continue
                model = pricing.model_of(key)
                priced = self._sums.setdefault(key.agent, PricedSums(Sums()))
                priced.add(sums, pricing.price(model) if model else None)
                hours = self._hours.setdefault(key.agent, [(0, 0)] * HOURS)
                if 0 <= hour < HOURS:
                    succeeded, failed = hours[hour]
                    hours[hour] = succeeded + sums.succeeded, failed + sums.failed

    def of(self, agent: str) -> tuple[PricedSums, tuple[tuple[int, int], ...]]:
        return self._sums.get(agent, PricedSums(Sums())), tuple(self._hours.get(agent, [(0, 0)] * HOURS))


def _reachable(cards: Mapping[str, AgentCard], roots: Collection[str] | None) -> dict[str, AgentCard]:
    """Return the agents that a reader of the runs of *roots* may know: those, and whom they may have called."""
    if roots is None:
        return dict(cards)
    reachable = {name: cards[name] for name in sorted(roots) if name in cards}
    new = reachable
    while new:
        new = {
            name: card
            for name, card in cards.items()
            if name not in reachable and any(caller.may_reach(name) for caller in new.values())
        }
        reachable |= new
    return reachable


def _traffic(
    figures: RecordFigures, since_ms: int, until_ms: int, roots: Collection[str] | None
) -> dict[tuple[str, str], Traffic]:
    edges: dict[tuple[str, str], Traffic] = {}
    for period in figures.between(since_ms, until_ms):
        for call, traffic in period.traffic.items():
            if roots is None or call.root in roots:
                edges.setdefault((call.origin, call.target), Traffic()).add(traffic)
    return edges


def _edges(cards: Mapping[str, AgentCard], did: Mapping[tuple[str, str], Traffic]) -> tuple[CallEdge, ...]:
    """Return who called whom, most calls first, then who may and did not."""
    may = {(USER, name) for name in cards} | {
        (caller, callee)
        for caller, card in cards.items()
        for callee in cards
        if caller != callee and card.may_reach(callee)
    }
    known = [ends for ends in did if ends[1] in cards]
    return tuple(
        _edge(ends, ends in may, did.get(ends, Traffic()))
        for ends in sorted({*known, *may}, key=lambda ends: (-did[ends].calls if ends in did else 0, ends))[:MOST_EDGES]
    )


def _edge(ends: tuple[str, str], may: bool, traffic: Traffic) -> CallEdge:
    worked = traffic.calls - traffic.refused
    return shown_as(
        CallEdge,
        traffic,
        origin=ends[0],
        target=ends[1],
        may=may,
        mean_ms=round(traffic.time_ms / worked) if worked else None,
    )


def _ranking(ranked: Iterable[Ranked]) -> tuple[RankingLine, ...]:
    return tuple(shown_as(RankingLine, each, agent=each.name, place=place) for place, each in enumerate(ranked, 1))
