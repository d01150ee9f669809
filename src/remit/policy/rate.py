"""Rate limits: the calls of an agent in each window."""

from msgspec import Struct

from remit.policy.verdict import ALLOW, Facts, Verdict, refuse
from remit.protocol.card import Rate
from remit.protocol.envelope import Request
from remit.protocol.errors import Code


class Window(Struct, frozen=True):
    """The calls counted since *start*."""

    start: float = float("-inf")
    calls: int = 0


def wait_ms(window: Window, rate: Rate, now: float) -> int:
    """Return how long to wait before the next call; 0 if it may come now."""
    left = window.start + rate.seconds - now
    return 0 if left <= 0 or window.calls < rate.calls else max(1, round(left * 1_000))


def count(window: Window, rate: Rate, now: float) -> Window:
    """Return the window with one more call, a new one if the last is over."""
    if now >= window.start + rate.seconds:
        return Window(now, 1)
    return Window(window.start, window.calls + 1)


def rate(request: Request, facts: Facts) -> Verdict:
    """Within the callee's rate limit."""
    if not facts.rate_wait_ms:
        return ALLOW
    return refuse(
        Code.RATE_LIMITED,
        f"{request.target} is asked too often",
        retry_after_ms=facts.rate_wait_ms,
    )
