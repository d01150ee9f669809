"""The circuit breaker: when a failing agent is no longer called, and the agent that a fault counts against."""

from collections.abc import Collection
from enum import StrEnum
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.card import AgentCard
from remit.protocol.envelope import Response
from remit.protocol.errors import TABLE, Blame, Code, Fault, RemitError
from remit.protocol.lifecycle import Status


class Phase(StrEnum):
    """Closed lets calls through, open refuses them, probing has let one through and waits for it."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


# Bound once, because every hop needs them: looking up an enum member costs as much as a guard.
_PROBING = Phase.PROBING
_NEVER = float("-inf")

# The usual time of an agent decays with time, not with calls: otherwise a few trivial calls would make its usual work
# look too slow, and a few impatient requests would then open the breaker for everybody.
USUAL_HALF_LIFE_S = 600.0


PROBE_NOTICE = "sent as a probe: the breaker of this agent is open, and lets one call through"
"""What is recorded about a call that is let through while the breaker is open."""


class BreakerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When to open and for how long."""

    failures_in_a_row: int = 5
    """It opens after this many failures in a row."""
    failure_share: float = 0.5
    """It also opens if this share of the calls in a window fails."""
    # A failure rate of fewer calls than this says nothing.
    at_least_calls: int = 20
    """The share counts from this many calls in a window."""
    window_s: float = 60.0
    """The length of a window, in seconds."""
    open_s: float = 30.0
    """How long it stays open before a probe; the second time in a row twice as long, and so on."""
    max_open_s: float = 300.0
    """The longest that it stays open before a probe."""


class Breaker(Struct, frozen=True, kw_only=True):
    """The recent calls of an agent."""

    phase: Phase = Phase.CLOSED
    in_a_row: int = 0
    window_start: float = _NEVER
    calls: int = 0
    failures: int = 0
    opened_at: float = _NEVER
    probed_at: float = _NEVER
    """When the last probe was let through."""
    openings: int = 0
    usual_s: float | None = None
    """The longest recent time of a success; None: no success yet."""
    usual_at: float = 0.0
    """When that time was measured: it decays from then on."""


def is_failure(response: Response) -> bool | None:
    """Return whether a response counts against the callee; None: it says nothing (refusals, caller's errors)."""
    if response.fault is None:
        return False
    return True if TABLE[response.fault.code].blame is Blame.PEER else None


def after(
    breaker: Breaker, failed: bool | None, now: float, settings: BreakerSettings, seconds: float | None = None
) -> Breaker:
    """Return the breaker after one more call; *seconds* is how long the callee worked on it, if known."""
    if failed is None:
        # A probe without a verdict leaves the question open: the next call may probe.
        return replace(breaker, phase=Phase.OPEN, probed_at=_NEVER) if breaker.phase is Phase.PROBING else breaker
    usual_s, usual_at = breaker.usual_s, breaker.usual_at
    if not failed and seconds is not None:
        # Up at once and down slowly: one slow answer is enough to be careful.
        if usual_s is not None and seconds <= usual_s:
            known_s = usual_s * 0.5 ** ((now - usual_at) / USUAL_HALF_LIFE_S)  # as `usual_now_s`
            seconds = seconds if seconds > known_s else known_s
        usual_s, usual_at = seconds, now
    if breaker.phase is _PROBING:
        if failed:
            return _opened(breaker, now)
        return Breaker(opened_at=breaker.opened_at, openings=breaker.openings, usual_s=usual_s, usual_at=usual_at)
    fresh = now >= breaker.window_start + settings.window_s
    if not failed and not fresh and not breaker.openings:
        return replace(breaker, in_a_row=0, calls=breaker.calls + 1, usual_s=usual_s, usual_at=usual_at)
    counted = Breaker(
        phase=breaker.phase,
        in_a_row=breaker.in_a_row + 1 if failed else 0,
        window_start=now if fresh else breaker.window_start,
        calls=1 if fresh else breaker.calls + 1,
        failures=failed if fresh else breaker.failures + failed,
        opened_at=breaker.opened_at,
        openings=0 if now >= breaker.opened_at + settings.max_open_s + settings.window_s else breaker.openings,
        usual_s=usual_s,
        usual_at=usual_at,
    )
    # A success opens nothing, whatever the failure rate before it.
    opens = failed and counted.phase is Phase.CLOSED and _too_many(counted, settings)
    return _opened(counted, now) if opens else counted


def usual_now_s(breaker: Breaker, now: float) -> float | None:
    """Return the usual time of an agent, decayed to now; None: no success yet."""
    known_s = breaker.usual_s
    return None if known_s is None else known_s * 0.5 ** ((now - breaker.usual_at) / USUAL_HALF_LIFE_S)


def wait_ms(breaker: Breaker, now: float, settings: BreakerSettings) -> int:
    """Return how long calls are refused; 0 if one may come now, possibly as the probe."""
    match breaker.phase:
        case Phase.CLOSED:
            return 0
        case Phase.OPEN:
            pause = min(settings.open_s * breaker.openings, settings.max_open_s)
            return max(0, round((breaker.opened_at + pause - now) * 1_000))
        case Phase.PROBING:
            # A probe that takes longer than a pause says nothing about short calls: another call may probe beside it.
            return max(0, round((breaker.probed_at + settings.open_s - now) * 1_000))


def admitted(breaker: Breaker, now: float) -> Breaker:
    """Return the breaker after a call was let through: the first after an opening is the probe."""
    return breaker if breaker.phase is Phase.CLOSED else replace(breaker, phase=Phase.PROBING, probed_at=now)


def _too_many(breaker: Breaker, settings: BreakerSettings) -> bool:
    if breaker.in_a_row >= settings.failures_in_a_row:
        return True
    return breaker.calls >= settings.at_least_calls and breaker.failures >= settings.failure_share * breaker.calls


def _opened(breaker: Breaker, now: float) -> Breaker:
    return Breaker(
        phase=Phase.OPEN,
        opened_at=now,
        openings=breaker.openings + 1,
        usual_s=breaker.usual_s,
        usual_at=breaker.usual_at,
    )


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
    for expected_ms in (offered.time_ms if offered is not None else None, card.time_ms):
        if expected_ms is not None:
            return expected_ms / 1_000
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
