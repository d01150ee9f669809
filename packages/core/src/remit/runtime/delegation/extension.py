"""Finds more tokens for what needs them: from others of its run that hold them, or from a person who is asked."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from math import ceil

from msgspec.structs import replace

from remit.policy.budget import LEAST_COST, LEAST_SHARE, amounts, grant_time_ms, tokens_wanted
from remit.policy.verdict import Ask, Refuse, Rewrite
from remit.ports import Remote
from remit.protocol.envelope import Call, Request, Usage
from remit.protocol.errors import Code, Fault, RemitError
from remit.runtime import journal
from remit.runtime.context import PersonAsking, RunRecording, RuntimeContext, TaskControl
from remit.runtime.delegation.admission import Heavy
from remit.runtime.delegation.user_budgets import NOTHING, UserBudgets, estimated_tokens
from remit.runtime.frames import Allowance, Frame, SlotGivenUp
from remit.runtime.purse import Purse, cost_wanted, price_of, unpriced

_A_TOKEN = Usage(prompt=1)
# An agent whose callee has just ended, or that was just woken, waits for so many turns of the event loop at most.
_TURNS = 3


class RunExtension:
    """Extends runs by more tokens; a run asks for them once at a time, and not again after a no."""

    def __init__(
        self, parts: RuntimeContext, recording: RunRecording, tasks: TaskControl, approval: PersonAsking
    ) -> None:
        self._parts = parts
        self._recording = recording
        self._tasks = tasks
        self._approval = approval
        self.budgets = UserBudgets(parts)

    def extend(self, root: Frame, tokens: int, reason: str, cost: int = 0) -> None:
        """Grant a run more tokens or money, on record; a run that is resumed has them, too."""
        parts, granted = self._parts, [f"{tokens} more tokens were granted"] if tokens else []
        root.granted += tokens
        if cost and root.purse is not None:
            root.purse.extend(cost)
            granted.append(f"{amounts(cost)[0]} {parts.limits.currency} more was granted")
        root.run.note_return()
        for each in granted:
            self._recording.notice(root, f"{each}: {reason}")
        self._note(root)

    def _note(self, root: Frame) -> None:
        remit, keys = root.request.remit, self._parts.redactor.keys
        cost = 0 if root.purse is None else root.purse.granted - (remit.cost or 0)
        journal.note_extension(self._parts.store, root.run, root.granted - remit.tokens, cost, keys)

    async def afford(
        self, parent: Frame, request: Request, call: Call, verdict: Rewrite | Refuse | Ask | Heavy, known: int
    ) -> int | None:
        """Return the tokens that a call needs at least, if it has to be judged again; None: its verdict stands.

        It is judged again if its share was too small, once others gave back what they held, or if a person granted
        more tokens. That it needs so many may be *known* already.
        """
        is_refused = isinstance(verdict, Refuse)
        if is_refused and (verdict.fault.code is not Code.TOKEN_BUDGET_EXCEEDED or parent.run.overrun):
            return None
        if isinstance(verdict, Ask | Heavy):
            return None
        entry, granted, least = self._parts.registry.agents.get(request.target), request.remit.tokens, 0
        card = None if entry is None else entry.card
        wanted = tokens_wanted(call, card, self._parts.limits)
        if is_refused:
            if request.remit.cost == 0:
                if await self._draw_on_day(parent, 0, 1, 1, begins=True):
                    return 0
                if cost_wanted(call, card, self._parts.limits) is not None:
                    return None
                return 0 if await self._wait_for_return(parent, 0, begins=True, money=True) else None
            least = 1 + await estimated_tokens(request)
            if wanted is None:
                if entry is not None and isinstance(entry.agent, Remote):
                    least = min(least + LEAST_SHARE, parent.request.remit.tokens)  # it cannot take more later
                if granted < least and await self._draw_on_day(parent, least, begins=True):
                    return least
                has_waited = granted < least and await self._wait_for_return(parent, least, begins=True)
                if max(granted, parent.reach) >= least:
                    # One that is refused all the same is refused for something else.
                    return least if has_waited or least > known else None
        if wanted is None:
            wanted = least
        if granted < wanted and await self._draw_on_day(parent, wanted, begins=True):
            return least
        return least if granted < wanted and await self._ask_person(parent, wanted) else None

    async def ask(self, frame: Frame, wanted: int) -> None:
        """Take so many tokens for an agent of its user's day, wait until others of its run gave them back, or ask a
        person until the run has them, or nobody agrees.

        Only what the run has left is a limit here: an agent with a number of tokens of its own keeps to it.
        """
        cost = least_cost = 0
        if frame.run.drawable_cost and (prices := self._parts.prices) is not None:
            # At most as if the agent's model wrote all of them, at least as if it read them.
            cost = prices(frame.card.name, "", Usage(completion=wanted)) or LEAST_COST
            least_cost = prices(frame.card.name, "", Usage(prompt=wanted)) or 1
        await self._draw_on_day(frame, wanted, cost, least_cost)
        if frame.reach + frame.journaled_tokens < wanted:
            await self._wait_for_return(frame, wanted)
            await self._ask_person(frame, wanted)

    async def draw_for(self, frame: Frame, usage: Usage) -> None:
        """Take what an agent has spent of its user's day, before it is charged."""
        await self._draw_on_day(frame, usage.total, usage.cost, usage.cost)

    async def _draw_on_day(
        self, frame: Frame, wanted: int, cost: int = 0, least_cost: int = 0, *, begins: bool = False
    ) -> bool:
        """Take more of the user's day for a run, if a frame of it lacks tokens or money; return whether it has more.

        If the day does not have as much, it waits until other runs of the user give back what they hold.
        """
        root, run, clock, has_more = frame.lineage()[-1], frame.run, self._parts.clock, False
        quiet = 0
        if not (run.drawable_tokens or run.drawable_cost):
            return False
        draws = all(each.draws for each in frame.lineage()[:-1])
        purse = root.purse if frame.purse is root.purse else None

        def lacking(cost: int) -> tuple[int, int]:
            tokens = wanted - frame.reach - frame.journaled_tokens if draws and run.drawable_tokens else 0
            money = cost - purse.left if purse is not None and run.drawable_cost else 0
            return max(0, tokens), max(0, money)

        left_ms = frame.time_left_ms(clock.now())
        until = clock.now() + grant_time_ms(left_ms, left_ms) / 1_000
        while not run.overrun and any(before := lacking(cost)):
            async with self.budgets.lock(run.id):
                tokens, money = lacking(cost)
                has_more = has_more or (tokens, money) != before
                has_more = await self._draw(root, purse, tokens, money) or has_more
            if not any(lacking(least_cost)) or frame.stopping is not None or clock.now() >= until:
                break
            if not self.budgets.is_held(run):
                quiet += 1
                if quiet > _TURNS:
                    break
                await asyncio.sleep(0)
                continue
            quiet = 0
            run.returned = run.returned or asyncio.get_running_loop().create_future()
            take_back = clock.call_at(until, run.note_return)
            frame.lacking += begins
            try:
                async with SlotGivenUp(frame):
                    await asyncio.wait({run.returned})
            finally:
                frame.lacking -= begins
                take_back()
        return has_more

    async def _draw(self, root: Frame, purse: Purse | None, tokens: int, cost: int) -> bool:
        run = root.run
        taken = await self.budgets.draw(run, tokens, cost)
        got_tokens, got_cost = taken.tokens or 0, taken.cost or 0
        if not (got_tokens or got_cost):
            return False
        run.reserved = (*run.reserved, taken)
        run.drawable_tokens -= got_tokens
        run.drawable_cost -= got_cost
        root.granted += got_tokens
        if purse is not None:
            purse.extend(got_cost)
        run.note_return()
        self._note(root)
        return True

    async def _ask_person(self, frame: Frame, wanted: int) -> bool:
        """Return whether a person was asked, or the answer to another question awaited."""
        root, run, took_time = frame.lineage()[-1], frame.run, False
        if not self._may_extend(frame, root):
            return False
        while (lacking := wanted - frame.reach - frame.journaled_tokens) > 0 and not run.keeps_limit:
            took_time = True
            async with self._standing_still(frame):
                if run.more_tokens is None:
                    await self._ask_once(root, lacking)
                else:
                    await asyncio.wait({run.more_tokens})
        return took_time

    async def _wait_for_return(self, frame: Frame, wanted: int, *, begins: bool = False, money: bool = False) -> bool:
        """Wait until a frame can reach so many tokens, or has money, while others hold them that may give them back.

        *begins* is set if a call of it cannot begin before. Return whether another one has ended meanwhile.

        Only while one of those goes on by itself, so that no two wait for each other, and no longer than leaves the
        time to use the answer of a call.
        """
        run, clock, quiet, has_waited = frame.run, self._parts.clock, 0, False
        left_ms = frame.time_left_ms(clock.now())
        until = clock.now() + grant_time_ms(left_ms, left_ms) / 1_000
        while not run.overrun and frame.stopping is None and clock.now() < until:
            holders = frame.holders()
            if money:
                lacks = frame.purse is not None and frame.purse.left <= 0 < frame.purse.left + frame.purse.reserved
            else:
                lacking = wanted - frame.reach - frame.journaled_tokens
                lacks = 0 < lacking <= sum(max(0, each.reservation - each.used) for each in holders)
            if not lacks or quiet > _TURNS:
                break
            if not any(each.is_busy for each in holders):
                quiet += 1
                await asyncio.sleep(0)
                continue
            quiet, run.returned = 0, run.returned or asyncio.get_running_loop().create_future()
            take_back = clock.call_at(until, run.note_return)
            frame.lacking += begins
            try:
                async with SlotGivenUp(frame):
                    await asyncio.wait({run.returned})
            finally:
                frame.lacking -= begins
                take_back()
            has_waited = True
        return has_waited

    async def allow_unpriced(self, frame: Frame, model: str) -> Fault | None:
        """Ask a person whether a run may go on with a model without a price, where money is limited and nobody was
        asked before; return why it may not.
        """
        parts, run, agent = self._parts, frame.run, frame.card.name
        if frame.purse is None or (parts.prices and parts.prices(agent, model, _A_TOKEN) is not None):
            return None
        root, what = frame.lineage()[-1], price_of(agent, model)
        while self._may_ask(root) and ((answer := run.unpriced.get(what)) is None or not answer.done()):
            async with self._standing_still(frame):
                if answer is None:
                    await self._ask_about_price(frame, root, what)
                else:
                    await asyncio.wait({answer})
        if frame.may_be_unpriced(model):
            return None
        return unpriced(agent, model, frame.purse.granted, parts.limits.currency)

    def _may_ask(self, root: Frame) -> bool:
        """Return whether a person may be asked about a run: one that began here, if the team says so."""
        limits = self._parts.limits
        return limits.at_limit == "ask" and self._parts.approver is not None and not root.request.remit.chain

    def _may_extend(self, frame: Frame, root: Frame) -> bool:
        """Return whether a person may grant more tokens for a frame: if it and those above it draw on their run.

        A run that an agent elsewhere began has its tokens from there.
        """
        return self._may_ask(root) and not frame.run.overrun and all(each.draws for each in frame.lineage()[:-1])

    @asynccontextmanager
    async def _standing_still(self, frame: Frame) -> AsyncGenerator[None]:
        """While a person is asked, a frame gives its slot to others, and its clock stands still."""
        async with SlotGivenUp(frame):
            self._tasks.pause(frame)
            try:
                yield
            finally:
                self._tasks.unpause(frame)

    async def _ask_about_price(self, frame: Frame, root: Frame, what: str) -> None:
        run, request, agreed = root.run, root.recorded or root.request, False
        run.unpriced[what] = answer = asyncio.get_running_loop().create_future()
        purse, limited = (frame.purse, frame.card.name) if root.purse is None else (root.purse, "this run")
        most = f"{amounts(0 if purse is None else purse.granted)[0]} {self._parts.limits.currency}"
        why = f"{what[0].upper()}{what[1:]} is not known, and {limited} has a limit of {most}"
        try:
            ask = Ask(f"{why}. Let it go on unpriced?")
            await self._approval.ask_person(replace(request, act="price"), ask, 0, run)
            agreed = True
            self._recording.notice(root, f"{what} is not known: a person let it go on, and its tokens are not counted")
        except BaseException as error:
            if not isinstance(error, RemitError) or error.fault.code is not Code.APPROVAL_DECLINED:
                del run.unpriced[what]  # another call may ask
                raise
        finally:
            answer.set_result(agreed)

    async def _ask_once(self, root: Frame, lacking: int) -> None:
        run, request = root.run, root.recorded or root.request
        run.more_tokens = answered = asyncio.get_running_loop().create_future()
        allowance: Allowance | None = None
        try:
            more = self._parts.limits.more_tokens or request.remit.tokens or lacking
            more *= ceil(lacking / more)
            if self.budgets.applies_to(request):
                allowance = await self.budgets.reserve_more(request, more)
                if allowance is None:
                    run.keeps_limit = True
                    return
                more = more if allowance.tokens is None else allowance.tokens
            # Without what was used so far, which may differ after a restart: the same question has the same answer.
            question = f"This run has {root.granted:,} tokens and needs more. Grant {more:,} more?"
            await self._approval.ask_person(replace(request, act="tokens"), Ask(question), 0, run)
            if allowance is not None:
                run.reserved, allowance = (*run.reserved, allowance), None
            self.extend(root, more, "a person agreed")
        except RemitError as error:
            if error.fault.code is not Code.APPROVAL_DECLINED:
                raise
            run.keeps_limit = True
        finally:
            run.more_tokens = None
            answered.set_result(None)
            if allowance is not None:
                await asyncio.shield(self.budgets.settle((allowance,), NOTHING))
