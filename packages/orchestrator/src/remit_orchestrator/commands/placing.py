"""Advises whether an agent should delegate a hypothetical request, for `remit policy explain`."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from remit.policy.routing import TrackRecord
from remit.ports import StoreError
from remit.protocol.card import AgentCard, Capability
from remit.protocol.codec import text_of
from remit.protocol.envelope import USER, Call, Request
from remit.protocol.orchestration import THRESHOLDS
from remit.protocol.records import Record
from remit.runtime.delegation.routing import NEWEST, tracks
from remit_cli.config.team import Team
from remit_cli.places import place_of, reading
from remit_orchestrator.placement import WHY, Case, Route
from remit_orchestrator.placement import place as decide_place
from remit_orchestrator.readers.ngrams import NgramScorer, RankedCapability
from remit_server.documents.verdicts import Placing


def placed(
    team: Team, cards: Mapping[str, AgentCard], call: Call, request: Request, *, simple: bool, lacks_data: bool
) -> Placing | None:
    """Return whether the responsible agent should delegate a request; None if its capability is unknown.

    For a user's request that is the callee, which may delegate it to any agent that it may call. For an agent's request
    it is that agent, which could do the work itself.
    """
    by_user = request.origin == USER
    agent = cards.get(request.target if by_user else request.origin)
    if agent is None:
        return None
    names = (cards.keys() if by_user else {request.target}) - {agent.name}
    offered = [card for name, card in cards.items() if name in names and agent.may_reach(name)]
    thresholds = THRESHOLDS if team.orchestrator is None else team.orchestrator.thresholds()
    intent = None if call.capability is not None else _best_capability(cards, call)
    if intent is not None and intent.confidence < thresholds.do:
        intent = None
    code = intent.code if intent is not None else call.capability
    if code is None or code not in _codes(cards.values()):
        return None
    past = _tracks(team, code)
    elsewhere = [track for card in offered if (track := past.get(card.name)) is not None]
    best = max(elsewhere, key=lambda track: track.quality, default=None)
    own = past.get(agent.name)
    decision = decide_place(
        Case(
            own=_codes([agent]),
            elsewhere=_codes(offered),
            needs=call.capability,
            intent=intent,
            lacks_data=lacks_data,
            simple=simple,
            quality=None if own is None else own.quality,
            quality_elsewhere=None if best is None else best.quality,
            time_left_ms=request.remit.time_ms,
            time_elsewhere_ms=None if best is None else round(best.latency_s * 1_000),
        ),
        thresholds,
    )
    return Placing(
        agent=agent.name,
        decision="route" if isinstance(decision, Route) else "local",
        reason=decision.reason.value,
        why=WHY[decision.reason],
        capability=code,
        confidence=None if intent is None else round(intent.confidence, 2),
    )


def _codes(cards: Iterable[AgentCard]) -> frozenset[str]:
    return frozenset(capability.code for card in cards for capability in card.capabilities)


def _best_capability(cards: Mapping[str, AgentCard], call: Call) -> RankedCapability | None:
    """Return the capability that a text most likely asks for."""
    offered: dict[str, Capability] = {each.code: each for card in cards.values() for each in card.capabilities}
    text = call.objective or text_of(call.input or "")
    if not offered or not text:
        return None
    return next(iter(NgramScorer(offered.values()).score(text).ranked), None)


def _tracks(team: Team, capability: str) -> dict[str, TrackRecord]:
    """Return the track record of each agent at a capability, from the newest records; none for agents never called."""
    # Undecayed: the question here is how good the agents are, and not which one to call this minute.
    records = tracks(_newest(team), lambda _: 0.0)
    return {
        name: each for (code, name), each in records.items() if code == capability and (each.successes or each.failures)
    }


def _newest(team: Team) -> list[Record]:
    place = place_of(team)
    if isinstance(place, Path) and not place.exists():
        return []
    try:
        with reading(place) as view:
            return view.recent(NEWEST)
    except StoreError:  # the guards can be explained without it
        return []
