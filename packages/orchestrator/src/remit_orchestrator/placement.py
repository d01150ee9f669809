"""An agent that answers a request itself or hands it to another agent, for one of the eight reasons of K4."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.routing import Ranked
from remit.ports.brief import Agent, Brief
from remit.protocol.card import AgentCard, Capability
from remit.protocol.envelope import HANDLING, Answer, Call, Json
from remit.protocol.orchestration import THRESHOLDS, Thresholds
from remit_orchestrator.readers.ngrams import RankedCapability, Scorer


class RouteReason(StrEnum):
    """Why another agent should handle the request."""

    CAPABILITY = "capability"
    INTENT = "intent"
    EXPERTISE = "expertise"
    DATA = "data"


class LocalReason(StrEnum):
    """Why the agent should handle the request itself."""

    SCOPE = "scope"
    LATENCY = "latency"
    SIMPLICITY = "simplicity"
    EQUIVALENCE = "equivalence"


WHY: Mapping[RouteReason | LocalReason, str] = {
    RouteReason.CAPABILITY: "it needs a capability that only another agent has",
    RouteReason.INTENT: "what is asked for is clearly another agent's domain",
    RouteReason.EXPERTISE: "another agent's expertise gives a better result",
    RouteReason.DATA: "another agent has data or context that is missing here",
    LocalReason.SCOPE: "it is within the agent's own scope",
    LocalReason.LATENCY: "routing would take longer than there is time",
    LocalReason.SIMPLICITY: "it is simple enough without a specialist",
    LocalReason.EQUIVALENCE: "nobody else would give a better result",
}


class Route(Struct, frozen=True):
    """Another agent should handle the request."""

    reason: RouteReason


class Local(Struct, frozen=True):
    """The agent should handle the request itself."""

    reason: LocalReason


class Case(Struct, frozen=True, kw_only=True):
    """The facts about a request that an agent has received."""

    own: Collection[str]
    """The codes of the agent's own capabilities."""
    elsewhere: Collection[str]
    """Those of the agents that it may call."""
    needs: str | None = None
    """The capability that the request names."""
    intent: RankedCapability | None = None
    """The capability that it seems to ask for, if it names none."""
    lacks_data: bool = False
    """Whether another agent has data or context for it that is missing here."""
    simple: bool = False
    quality: float | None = None
    quality_elsewhere: float | None = None
    """The share of good results so far, from 0 to 1."""
    time_left_ms: int | None = None
    time_elsewhere_ms: int | None = None
    """How long another agent is expected to take."""


# A smaller difference between two shares of good results is chance, unless there are hundreds of results.
BETTER = 0.1


def place(case: Case, thresholds: Thresholds = THRESHOLDS) -> Route | Local:
    """Return whether to route a request or to handle it here, with the reason."""
    code = case.needs
    # A best guess is enough: whoever it is handed to has guards and questions of its own.
    if code is None and case.intent is not None and case.intent.confidence >= thresholds.say_back:
        code = case.intent.code
    if code is None or code not in case.elsewhere:
        if code in case.own:
            return Local(LocalReason.SCOPE)
        return Local(LocalReason.SIMPLICITY if case.simple else LocalReason.EQUIVALENCE)
    if code not in case.own:
        return Route(RouteReason.CAPABILITY if case.needs else RouteReason.INTENT)
    # Both can handle it.
    if case.lacks_data:
        return Route(RouteReason.DATA)
    if case.simple:
        return Local(LocalReason.SIMPLICITY)
    left, elsewhere = case.time_left_ms, case.time_elsewhere_ms
    if left is not None and elsewhere is not None and elsewhere > left:
        return Local(LocalReason.LATENCY)
    if case.quality is None or case.quality_elsewhere is None:
        return Local(LocalReason.SCOPE)
    if case.quality_elsewhere - case.quality >= BETTER:
        return Route(RouteReason.EXPERTISE)
    return Local(LocalReason.EQUIVALENCE)


# A request of so few words names an action and its object, and nothing that needs a specialist.
_FEW_WORDS = 6


class PlacedAgent:
    """Decides for each request whether its agent answers it or another one that it may call."""

    def __init__(
        self,
        agent: Agent,
        card: AgentCard,
        offered: Callable[[], Sequence[Capability]],
        ranking: Callable[[str], Awaitable[tuple[Ranked, ...]]],
        train: Callable[[Sequence[Capability]], Scorer],
    ) -> None:
        self._agent = agent
        self._card = card
        self._offered = offered
        self._ranking = ranking
        self._train = train
        self._trained: tuple[tuple[Capability, ...], Scorer] | None = None

    async def __call__(self, brief: Brief) -> Answer:
        async def decide() -> Json:
            return await self._decide(brief)

        # After a restart, a resumed run takes the same way.
        decided = cast("dict[str, Json]", await brief.once("remit-handling", decide))
        if decided["decision"] == "local":
            answer = await self._agent(brief)
            return replace(answer, metadata=answer.metadata | {HANDLING: decided})
        request = brief.request
        call = Call(
            objective=request.objective,
            input=request.input,
            capability=cast("str", decided["capability"]),
            handoff=request.handoff,
            files=request.files,
            context=request.context,
            reason=cast("str", decided["why"]),
            # It does nothing itself, so the other agent gets all that is left.
            deadline_ms=brief.time_left_ms(),
            max_tokens=brief.tokens_left(),
        )
        return Answer(calls=(call,), metadata={HANDLING: decided})

    async def _decide(self, brief: Brief) -> Json:
        elsewhere = {code: each.name for each in brief.delegates for code in each.capabilities}
        own = [each.code for each in self._card.capabilities]
        intent = None if brief.capability is not None else self._best(brief, {*own, *elsewhere})
        code = brief.capability if intent is None else intent.code
        case = Case(own=own, elsewhere=elsewhere, needs=brief.capability, intent=intent)
        if code is not None and code in own and code in elsewhere:
            case = await self._compared(brief, code, case)
        decision = place(replace(case, simple=_is_simple(brief, case)))
        decided: dict[str, Json] = {
            "decision": "route" if isinstance(decision, Route) else "local",
            "reason": decision.reason.value,
            "why": WHY[decision.reason],
        }
        return decided if code is None else decided | {"capability": code}

    def _best(self, brief: Brief, codes: set[str]) -> RankedCapability | None:
        """Return the capability that a text most likely asks for."""
        offered = tuple(each for each in self._offered() if each.code in codes)
        text = brief.objective or brief.text
        if not offered or not text:
            return None
        if self._trained is None or self._trained[0] != offered:
            self._trained = offered, self._train(offered)
        return next(iter(self._trained[1].score(text).ranked), None)

    async def _compared(self, brief: Brief, code: str, case: Case) -> Case:
        """Return the case with the track records at a capability that the agent and others offer."""
        ranked = {each.name: each for each in await self._ranking(code) if each.ago_ms is not None}
        others = [each for each in brief.delegates if code in each.capabilities]
        known = [ranked[each.name] for each in others if each.name in ranked]
        best = max(known, key=lambda each: each.quality, default=None)
        own, before = ranked.get(self._card.name), brief.handoff.prior_agents
        return replace(
            case,
            # Whoever has worked on it in this conversation has what came of it.
            lacks_data=self._card.name not in before and any(each.name in before for each in others),
            quality=None if own is None else own.quality,
            quality_elsewhere=None if best is None else best.quality,
            time_left_ms=brief.time_left_ms(),
            time_elsewhere_ms=None if best is None else best.latency_ms,
        )


def _is_simple(brief: Brief, case: Case) -> bool:
    """Return whether a request is short and without data, and no other agent is known to do it better."""
    if brief.request.input is not None or len(brief.objective.split()) > _FEW_WORDS:
        return False
    return case.quality is None or (case.quality_elsewhere or 0.0) - case.quality < BETTER
