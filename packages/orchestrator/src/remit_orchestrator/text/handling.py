"""Whether an agent handles a request itself or routes it, and why."""

from collections.abc import Collection, Mapping
from enum import StrEnum

from msgspec import Struct

from remit.protocol.orchestration import THRESHOLDS, Thresholds
from remit_orchestrator.text.classification import ScoredCapability


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
    intent: ScoredCapability | None = None
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
    if code is None and case.intent is not None and case.intent.confidence >= thresholds.act:
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
