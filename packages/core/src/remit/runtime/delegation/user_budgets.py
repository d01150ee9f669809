"""A user's day: what the runs of a user reserve of its tokens and money, and give back."""

import asyncio
from contextlib import suppress
from typing import Protocol
from weakref import WeakValueDictionary

from remit.policy.budget import LEAST_COST, LEAST_SHARE, amounts, estimate_request, share_of_day
from remit.policy.reception import peer_of
from remit.policy.weight import LIGHT_TO_ENCODE, is_light_request
from remit.ports import StoreError
from remit.protocol.envelope import Request, Usage
from remit.protocol.errors import Code, Fault, fault
from remit.runtime.aside import aside
from remit.runtime.context import RuntimeContext
from remit.runtime.frames import Allowance, Frame, Run

DAY_MS = 24 * 3_600_000


class DayHolder(Protocol):
    """A user's request, which may hold a part of its user's day until its run ends."""

    request: Request
    run: Run
    allowance: Allowance | None
    frame: Frame | None

    @property
    def is_busy(self) -> bool: ...

    def allow(self, allowance: Allowance) -> None: ...


class UserBudgets:
    """Reserves and settles the daily tokens and money of users."""

    def __init__(self, parts: RuntimeContext) -> None:
        self._parts = parts
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        self._holders: dict[str, set[DayHolder]] = {}
        """Those that hold a part of a user's day, by user."""

    def applies_to(self, request: Request) -> bool:
        """Return whether a request counts: a budget is set, and the request begins a user's run.

        What agents delegate is part of the run that began it, also if another hub began it. A request that another hub
        of this team handed over was counted there.
        """
        limits = self._parts.limits
        if (limits.user_tokens_per_day is None and limits.user_cost_per_day is None) or request.remit.chain:
            return False
        return peer_of(request) != self._parts.registry.hub

    async def reserve(self, attempt: DayHolder) -> Fault | None:
        """Reserve tokens and money for a request; return a fault if nothing is left of the day.

        A request with limits of its own reserves these, or what is left if that is less. Without them it gets a fair
        share of what is left, and its run may draw the rest of what the team allows.
        """
        request, run = attempt.request, attempt.run
        limits, remit, now_ms = self._parts.limits, request.remit, self._parts.clock.wall_ms()
        day = f"{now_ms // DAY_MS}/{remit.user}"
        least = LEAST_SHARE + await estimated_tokens(request)
        most = limits.user_tokens_per_day
        share = least if remit.tokens == limits.root_tokens else None
        tokens = await self._reserve(f"user-tokens/{day}", remit.tokens, most, share)
        wanted, most = remit.cost, limits.user_cost_per_day
        share = LEAST_COST if wanted == limits.root_cost else None
        cost = await self._reserve(f"user-cost/{day}", wanted, most, share)
        if tokens != 0 and cost != 0:
            if tokens is not None and remit.tokens == limits.root_tokens:
                run.drawable_tokens = remit.tokens - tokens
            if cost is not None and most is not None and wanted == limits.root_cost:
                run.drawable_cost = (most if wanted is None else wanted) - cost
            attempt.allow(Allowance(day, tokens, cost))
            self._holders.setdefault(remit.user, set()).add(attempt)
            return None
        await self.settle(Allowance(day, tokens, cost), 0, 0)
        if tokens == 0:
            what, key = f"{limits.user_tokens_per_day:,} tokens", "per_user_per_day"
        else:
            (most,) = amounts(limits.user_cost_per_day or 0)
            what, key = f"{most} {limits.currency}", "cost_per_user_per_day"
        return fault(
            Code.TOKEN_BUDGET_EXCEEDED,
            f"the {what} of {remit.user} for this day are spent or reserved by runs in progress",
            retry_after_ms=DAY_MS - now_ms % DAY_MS,
            suggestion=f"Ask again after midnight UTC, or raise `{key}` in `[budgets]`.",
        )

    async def _reserve(self, counter: str, bound: int | None, most: int | None, share: int | None = None) -> int | None:
        """Return how much is reserved of *most*; without a *bound* of the run, all that is left.

        With a *share*, only a fair share of what is left, and at least so much.
        """
        if most is None:
            return None
        wanted, store = most if bound is None else bound, self._parts.store
        # One after another, so that requests at once do not take for spent what another is about to give back.
        async with self.lock(counter):
            if share is not None:
                left = most - await store.incr(counter, 0, DAY_MS)
                wanted = share_of_day(left, wanted, share, slots=self._parts.limits.max_fan_out)
            total = await store.incr(counter, wanted, DAY_MS) if wanted else most
            reserved = min(wanted, max(0, most - (total - wanted)))
            if reserved < wanted:
                await store.incr(counter, reserved - wanted, DAY_MS)
        return reserved

    async def reserve_more(self, request: Request, tokens: int) -> Allowance | None:
        """Reserve further tokens for a run, or what is left of the day; None if nothing is left."""
        day = f"{self._parts.clock.wall_ms() // DAY_MS}/{request.remit.user}"
        reserved = await self._reserve(f"user-tokens/{day}", tokens, self._parts.limits.user_tokens_per_day)
        return None if reserved == 0 else Allowance(day, reserved, None)

    async def draw(self, run: Run, tokens: int, cost: int) -> Allowance:
        """Reserve so many tokens and so much money for a run, or a fair share of what is left of the day if that is
        more; never more than its limit or the day leaves.
        """
        day = f"{self._parts.clock.wall_ms() // DAY_MS}/{run.request.remit.user}"
        limits = self._parts.limits
        got_tokens = got_cost = None
        if tokens:
            share, most = max(tokens, LEAST_SHARE), limits.user_tokens_per_day
            got_tokens = await self._reserve(f"user-tokens/{day}", run.drawable_tokens, most, share)
        if cost:
            share, most = max(cost, LEAST_COST), limits.user_cost_per_day
            got_cost = await self._reserve(f"user-cost/{day}", run.drawable_cost, most, share)
        return Allowance(day, got_tokens, got_cost)

    def lock(self, name: str) -> asyncio.Lock:
        """Return the lock of a counter or a run; there is one as long as somebody uses it."""
        return self._locks.setdefault(name, asyncio.Lock())

    def is_held(self, run: Run) -> bool:
        """Return whether another run of the user here holds a part of the day, and goes on."""
        return any(each.run is not run and each.is_busy for each in self._holders.get(run.request.remit.user, ()))

    async def end(self, attempt: DayHolder) -> None:
        """Settle what a run has reserved, and wake those of its user that wait for that."""
        if attempt.allowance is None:
            return
        try:
            if not attempt.run.handed_back:
                usage = Usage() if attempt.frame is None else attempt.frame.usage()
                await self.settle(attempt.allowance, usage.total, usage.cost, attempt.run.extensions)
        finally:
            user = attempt.request.remit.user
            others = self._holders[user]
            others.discard(attempt)
            for each in others:
                each.run.note_return()
            if not others:
                del self._holders[user]

    async def settle(
        self, allowance: Allowance, tokens: int, cost: int, extensions: tuple[Allowance, ...] = ()
    ) -> None:
        """Give back what a run did not spend, or count what it spent beyond its grant and its *extensions*."""
        parts = (allowance, *extensions)
        await self._settle(
            "user-tokens", [(each.day, each.tokens) for each in parts if each.tokens is not None], tokens
        )
        await self._settle("user-cost", [(each.day, each.cost) for each in parts if each.cost is not None], cost)

    async def _settle(self, counter: str, reserved: list[tuple[str, int]], spent: int) -> None:
        unspent = sum(each for _, each in reserved) - spent
        for place, (day, each) in reversed(list(enumerate(reserved))):
            back = unspent if place == 0 else max(0, min(unspent, each))
            unspent -= back
            await self._add(f"{counter}/{day}", -back)

    async def _add(self, counter: str, spent: int) -> None:
        if spent:
            # If the store cannot count it, the whole grant stays spent.
            with suppress(StoreError):
                await self._parts.store.incr(counter, spent, DAY_MS)


async def estimated_tokens(request: Request) -> int:
    """Return an estimate of the tokens of a request; that of a large one is made outside the event loop."""
    light = is_light_request(request, LIGHT_TO_ENCODE)
    return estimate_request(request) if light else await aside.run(estimate_request, request)
