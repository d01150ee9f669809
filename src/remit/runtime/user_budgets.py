"""The tokens that each user may spend in a day, counted in the store for all hubs that share it.

A run reserves its whole grant before it begins and gives the unspent part back at its end, so that runs at once cannot
spend more together. The grant of a run whose hub died stays spent.
"""

from contextlib import suppress
from typing import NamedTuple

from remit.policy.reception import peer_of
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, Fault, fault
from remit.runtime.context import RuntimeContext
from remit.runtime.ports import StoreError

DAY_MS = 24 * 3_600_000


class Allowance(NamedTuple):
    """The tokens that a run has reserved of its user's day."""

    counter: str
    tokens: int


class UserBudgets:
    """Reserves and settles the daily tokens of users."""

    def __init__(self, parts: RuntimeContext) -> None:
        self._parts = parts

    def applies_to(self, request: Request) -> bool:
        """Return whether a request counts: a budget is set, and the request begins a user's run.

        What agents delegate is part of the run that began it, also if another hub began it. A request that another hub
        of this team handed over was counted there.
        """
        if self._parts.limits.user_tokens_per_day is None or request.remit.chain:
            return False
        return peer_of(request) != self._parts.registry.hub

    async def reserve(self, request: Request) -> Allowance | Fault:
        """Reserve the request's tokens, or what is left of the day if that is less; a fault if nothing is left."""
        most = self._parts.limits.user_tokens_per_day
        assert most is not None, "the caller asks whether a budget is set"
        now_ms, wanted = self._parts.clock.wall_ms(), request.remit.tokens
        # The day is part of the key, so that a run that ends after midnight gives nothing back to the next day.
        counter = f"user-tokens/{now_ms // DAY_MS}/{request.remit.user}"
        total = await self._parts.store.incr(counter, wanted, DAY_MS)
        tokens = min(wanted, max(0, most - (total - wanted)))
        if tokens < wanted:
            await self._parts.store.incr(counter, tokens - wanted, DAY_MS)
        if tokens:
            return Allowance(counter, tokens)
        return fault(
            Code.TOKEN_BUDGET_EXCEEDED,
            f"the {most:,} tokens of {request.remit.user} for this day are spent or reserved by runs in progress",
            retry_after_ms=DAY_MS - now_ms % DAY_MS,
            suggestion="Ask again after midnight UTC, or raise `per_user_per_day` in `[budgets]`.",
        )

    async def settle(self, allowance: Allowance, spent: int) -> None:
        """Give back what a run did not spend, or count what it spent beyond its grant."""
        if spent != allowance.tokens:
            # If the store cannot count it, the whole grant stays spent.
            with suppress(StoreError):
                await self._parts.store.incr(allowance.counter, spent - allowance.tokens, DAY_MS)
