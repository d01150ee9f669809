"""A user's day: what the runs of a user reserve of its tokens and money, and give back."""

import asyncio
from contextlib import suppress
from weakref import WeakValueDictionary

from remit.policy.budget import LEAST_COST, LEAST_SHARE, amounts, estimate_request, share_of_day
from remit.policy.reception import peer_of
from remit.policy.weight import LIGHT_TO_ENCODE, is_light_request
from remit.ports import StoreError
from remit.protocol.envelope import Request, Usage
from remit.protocol.errors import Code, Fault, fault
from remit.protocol.lifecycle import Status
from remit.runtime.aside import aside
from remit.runtime.context import RuntimeContext
from remit.runtime.frames import Allowance, Frame, Run

DAY_MS = 24 * 3_600_000
NOTHING = Usage()


class UserBudgets:
    """Reserves and settles the daily tokens and money of users."""

    def __init__(self, parts: RuntimeContext) -> None:
        self._parts = parts
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        self._holders: dict[str, set[Run]] = {}
        """The runs that hold a part of a user's day, by user."""

    def applies_to(self, request: Request) -> bool:
        """Return whether a request counts: a budget is set, and the request begins a user's run.

        What agents delegate is part of the run that began it, also if another hub began it. A request that another hub
        of this team handed over was counted there.
        """
        limits = self._parts.limits
        if (limits.user_tokens_per_day is None and limits.user_cost_per_day is None) or request.remit.chain:
            return False
        return peer_of(request) != self._parts.registry.hub

    async def reserve(self, request: Request, run: Run) -> Allowance | Fault:
        """Reserve tokens and money for a run; return a fault if nothing is left of the day.

        A request with limits of its own reserves these, or what is left if that is less. Without them it gets a fair
        share of what is left, and its run may draw the rest of what the team allows.
        """
        limits, remit, now_ms = self._parts.limits, request.remit, self._parts.clock.wall_ms()
        least = LEAST_SHARE + await estimated_tokens(request)
        is_shared, shares_cost = remit.tokens == limits.root_tokens, remit.cost == limits.root_cost
        wanted_tokens = remit.tokens, (least if is_shared else None)
        taken = await self._take(remit.user, wanted_tokens, (remit.cost, LEAST_COST if shares_cost else None))
        if taken.tokens != 0 and taken.cost != 0:
            if taken.tokens is not None and is_shared:
                run.drawable_tokens = remit.tokens - taken.tokens
            if taken.cost is not None and limits.user_cost_per_day is not None and shares_cost:
                most = limits.user_cost_per_day if remit.cost is None else remit.cost
                run.drawable_cost = most - taken.cost
            run.reserved = (taken,)
            self.hold(run)
            return taken
        await asyncio.shield(self.settle((taken,), NOTHING))
        if taken.tokens == 0:
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

    def hold(self, run: Run) -> None:
        """Note that a run holds what it has reserved, until it ends."""
        if run.reserved:
            self._holders.setdefault(run.request.remit.user, set()).add(run)

    async def _take(
        self, user: str, tokens: tuple[int | None, int | None] | None, cost: tuple[int | None, int | None] | None
    ) -> Allowance:
        """Reserve tokens and money of a user's day, each within a bound and by a share; None: not any.

        If the caller is cancelled meanwhile, all of it is given back.
        """
        day, limits = f"{self._parts.clock.wall_ms() // DAY_MS}/{user}", self._parts.limits

        async def take() -> Allowance:
            taken = Allowance(day, None, None)
            try:
                if tokens is not None:
                    reserved = await self._reserve(f"user-tokens/{day}", limits.user_tokens_per_day, *tokens)
                    taken = Allowance(day, reserved, None)
                if cost is not None:
                    reserved = await self._reserve(f"user-cost/{day}", limits.user_cost_per_day, *cost)
                    taken = Allowance(day, taken.tokens, reserved)
            except StoreError:
                await self.settle((taken,), NOTHING)
                raise
            return taken

        async def give_back() -> None:
            with suppress(StoreError):
                await self.settle((await taking,), NOTHING)

        taking = asyncio.get_running_loop().create_task(take())
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            await asyncio.shield(give_back())
            raise

    async def _reserve(self, counter: str, most: int | None, bound: int | None, share: int | None) -> int | None:
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
        taken = await self._take(request.remit.user, (tokens, None), None)
        return None if taken.tokens == 0 else taken

    async def draw(self, run: Run, tokens: int, cost: int) -> Allowance:
        """Reserve so many tokens and so much money for a run, or a fair share of what is left of the day if that is
        more; never more than its limit or the day leaves.
        """
        return await self._take(
            run.request.remit.user,
            (run.drawable_tokens, max(tokens, LEAST_SHARE)) if tokens else None,
            (run.drawable_cost, max(cost, LEAST_COST)) if cost else None,
        )

    def lock(self, name: str) -> asyncio.Lock:
        """Return the lock of a counter or a run; there is one as long as somebody uses it."""
        return self._locks.setdefault(name, asyncio.Lock())

    def is_held(self, run: Run) -> bool:
        """Return whether another run of the user here holds a part of the day, and goes on."""
        return any(each is not run and self._is_busy(each) for each in self._holders.get(run.request.remit.user, ()))

    def _is_busy(self, run: Run) -> bool:
        """Return whether a run goes on by itself, or has not begun, or has ended and is about to give back."""
        root = self._parts.ledger.frames.get(run.id)
        return root is None or isinstance(root.state, Status) or root.is_busy

    async def end(self, run: Run, root: Frame | None) -> None:
        """Settle what a run has reserved, and wake those of its user that wait for that."""
        others = self._holders.get(run.request.remit.user, set())
        if run not in others:
            return
        try:
            if not run.handed_back:
                await asyncio.shield(self.settle(run.reserved, NOTHING if root is None else root.usage()))
        finally:
            others.discard(run)
            for each in others:
                each.note_return()
            if not others:
                self._holders.pop(run.request.remit.user, None)

    async def settle(self, reserved: tuple[Allowance, ...], spent: Usage) -> None:
        """Give back what a run did not spend of all that it has *reserved*, or count what it spent beyond that."""
        tokens = [(each.day, each.tokens) for each in reserved if each.tokens is not None]
        cost = [(each.day, each.cost) for each in reserved if each.cost is not None]
        await self._settle("user-tokens", tokens, spent.total)
        await self._settle("user-cost", cost, spent.cost)

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
