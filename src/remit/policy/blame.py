"""The agent that a fault counts against: the one where it began, if it had its usual time."""

from collections.abc import Collection
from typing import cast

from remit.policy.breaker import is_failure
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, Fault, RemitError
from remit.protocol.lifecycle import Status

FaultKey = tuple[Code, str]
"""Identifies a fault that an agent passes on: its code and its message."""

# A caller keeps up to a tenth of its time in reserve (`policy/budget.py`), so a callee that got all of the rest had its
# usual time.
FAIR_SHARE = 0.9

# How many causes of an exception are followed; longer chains come from recursion, not from passing on.
MOST_CAUSES = 100


def key_of(why: Fault) -> FaultKey:
    """Return the key of a fault on its way up."""
    return why.code, why.message


def is_from_below(error: BaseException, below: Collection[FaultKey]) -> bool:
    """Return whether an exception is, or was caused by, a fault of one of the agent's own delegations.

    Every part of a group, as a `TaskGroup` raises it, must be one: a part that began here is the agent's own.
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
    """Return the expected time of an agent: from its successes, else its card, else the default.

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
    """Return whether a response counts against the callee; None: it says nothing about the callee.

    A fault that was *passed_on* began in another agent. A timeout counts only if the callee had its usual time.
    """
    why = response.fault
    if why is None:
        return False
    if passed_on or (why.code is Code.TIMEOUT and had_s < FAIR_SHARE * usual_s):
        return None
    return is_failure(response)


def is_late(response: Response, failed: bool | None) -> bool:
    """Return whether it is only known that a callee takes longer than it had: a timeout that does not count."""
    return failed is None and response.status is Status.TIMEOUT
