"""Which agent a fault counts against: the one in which it began, if it had its usual time."""

from collections.abc import Collection
from typing import cast

from remit.policy.breaker import is_failure
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, Fault, RemitError
from remit.protocol.lifecycle import Status

FaultKey = tuple[Code, str]
"""What identifies a fault that an agent passes on: its code and its words."""

# A caller keeps up to a tenth of its time in reserve (`policy/budget.py`), so a callee that was given all of the rest
# had its usual time.
FAIR_SHARE = 0.9

# Causes of an exception that are followed; longer chains are made by recursion, not by passing on.
MOST_CAUSES = 100


def key_of(why: Fault) -> FaultKey:
    """Return what identifies a fault on its way up."""
    return why.code, why.message


def is_from_below(error: BaseException, below: Collection[FaultKey]) -> bool:
    """Say whether an exception is, or was caused by, a fault that one of the agent's own delegations ended with.

    Of a group, as a `TaskGroup` raises it, every part must be: a part that began here is the agent's own.
    """
    current: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if current is None:
            return False
        if isinstance(current, RemitError) and key_of(current.fault) in below:
            return True
        if isinstance(current, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", current)
            return all(is_from_below(each, below) for each in group.exceptions)
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)
    return False


def usual_time_s(known_s: float | None, card: AgentCard, capability: str | None, default_ms: int) -> float:
    """Return how long an agent may be expected to take: as its successes did, else as its card says, else the default.

    *known_s* is None while the agent has not succeeded yet.
    """
    if known_s is not None:
        return known_s
    offered = card.capability(capability) if capability is not None else None
    for said_ms in (offered.time_ms if offered is not None else None, card.time_ms):
        if said_ms is not None:
            return said_ms / 1_000
    return default_ms / 1_000


def counts_against(response: Response, *, passed_on: bool, had_s: float, usual_s: float) -> bool | None:
    """Say whether a response counts against the callee; None: it says nothing about it.

    A fault that was *passed_on* began in another agent. A time-out counts only if the callee had its usual time.
    """
    why = response.fault
    if why is None:
        return False
    if passed_on or (why.code is Code.TIMEOUT and had_s < FAIR_SHARE * usual_s):
        return None
    return is_failure(response)


def is_late(response: Response, failed: bool | None) -> bool:
    """Say whether all that is known of a callee is that it takes longer than it had: a time-out that does not count."""
    return failed is None and response.status is Status.TIMEOUT
