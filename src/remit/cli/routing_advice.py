"""Decides from team and record whether an agent should delegate a request or handle it itself."""

from collections.abc import Iterable, Mapping

from remit.cli.places import reading
from remit.config.team import Team
from remit.documents.policy import Placing
from remit.hub.orchestration import trainer
from remit.policy.routing import TrackRecord
from remit.protocol.card import AgentCard, Capability
from remit.protocol.codec import text_of
from remit.protocol.envelope import USER, Call, Request
from remit.protocol.records import Record
from remit.runtime.ports import StoreError
from remit.runtime.track_record import NEWEST, tracks
from remit.stores.reader import recent
from remit.text.intent import THRESHOLDS, WHY, Case, Route, ScoredCapability, place


def placed(
    team: Team, cards: Mapping[str, AgentCard], call: Call, request: Request, *, simple: bool, lacks_data: bool
) -> Placing | None:
    """Return what the agent that would have the request should do with it; None if it is not known what it asks for.

    For a request of a user's that is the agent that is asked, which may hand it on to all that it may call; for one of
    an agent's it is that agent, which could do the work itself instead of asking.
    """
    asked = request.origin == USER
    agent = cards.get(request.target if asked else request.origin)
    if agent is None:
        return None
    names = (cards.keys() if asked else {request.target}) - {agent.name}
    offered = [card for name, card in cards.items() if name in names and agent.may_reach(name)]
    thresholds = THRESHOLDS if team.orchestrator is None else team.orchestrator.thresholds()
    intent = None if call.capability is not None else _best_capability(team, cards, call)
    if intent is not None and intent.confidence < thresholds.act:
        intent = None
    code = intent.code if intent is not None else call.capability
    if code is None or code not in _codes(cards.values()):
        return None
    past = _tracks(team, code)
    elsewhere = [track for card in offered if (track := past.get(card.name)) is not None]
    best = max(elsewhere, key=lambda track: track.quality, default=None)
    own = past.get(agent.name)
    decision = place(
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


def _best_capability(team: Team, cards: Mapping[str, AgentCard], call: Call) -> ScoredCapability | None:
    """Return the capability that a text most likely asks for."""
    offered: dict[str, Capability] = {each.code: each for card in cards.values() for each in card.capabilities}
    said = call.objective or text_of(call.input or "")
    if not offered or not said:
        return None
    train = trainer("words" if team.orchestrator is None else team.orchestrator.classifier)
    return next(iter(train(tuple(offered.values())).scores(said)), None)


# ── how it went so far ────────────────────────────────────────────────────────────────────────────────────────────────


def _tracks(team: Team, capability: str) -> dict[str, TrackRecord]:
    """Return how each agent did at a capability, by the newest records; nothing of those that were never asked."""
    # However long ago: what is asked here is how good they are, and not who is to be asked this minute.
    found = tracks(_newest(team), lambda _: 0.0)
    return {
        name: each for (code, name), each in found.items() if code == capability and (each.successes or each.failures)
    }


def _newest(team: Team) -> list[Record]:
    if not team.store_path.exists():
        return []
    try:
        with reading(team.store_path) as connection:
            return recent(NEWEST)(connection)
    except StoreError:  # what the guards say can be told without it
        return []
