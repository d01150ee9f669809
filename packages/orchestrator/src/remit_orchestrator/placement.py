"""An agent that answers a request itself or hands it to another agent, for one of the eight reasons of K4."""

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from msgspec.structs import replace

from remit.policy.routing import Ranked
from remit.protocol.card import AgentCard, Capability
from remit.protocol.envelope import HANDLING, Answer, Call, Json
from remit.runtime.brief import Agent, Brief
from remit_orchestrator.text.classification import ScoredCapability, Scorer
from remit_orchestrator.text.handling import BETTER, WHY, Case, Route, place

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
        told: dict[str, Json] = {
            "decision": "route" if isinstance(decision, Route) else "local",
            "reason": decision.reason.value,
            "why": WHY[decision.reason],
        }
        return told if code is None else told | {"capability": code}

    def _best(self, brief: Brief, codes: set[str]) -> ScoredCapability | None:
        """Return the capability that a text most likely asks for."""
        offered = tuple(each for each in self._offered() if each.code in codes)
        said = brief.objective or brief.text
        if not offered or not said:
            return None
        if self._trained is None or self._trained[0] != offered:
            self._trained = offered, self._train(offered)
        return next(iter(self._trained[1].scores(said)), None)

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
