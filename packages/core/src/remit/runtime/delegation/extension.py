"""Asks a person when a run needs more tokens than it has, or a model whose price is not known."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from math import ceil

from msgspec.structs import replace

from remit.policy.budget import amounts, estimate_request, tokens_wanted
from remit.policy.verdict import Ask, Refuse, Rewrite
from remit.protocol.envelope import Call, Request, Usage
from remit.protocol.errors import Code, Fault, RemitError
from remit.runtime import journal
from remit.runtime.context import PersonAsking, RunRecording, RuntimeContext, TaskControl
from remit.runtime.delegation.admission import Heavy, UserBudgets
from remit.runtime.frames import Allowance, Frame, SlotGivenUp
from remit.runtime.purse import price_of, unpriced

_A_TOKEN = Usage(prompt=1)


class RunExtension:
    """Extends runs by more tokens; a run asks for them once at a time, and not again after a no."""

    def __init__(
        self, parts: RuntimeContext, recording: RunRecording, tasks: TaskControl, approval: PersonAsking
    ) -> None:
        self._parts = parts
        self._recording = recording
        self._tasks = tasks
        self._approval = approval
        self._budgets = UserBudgets(parts)

    def extend(self, root: Frame, tokens: int, reason: str) -> None:
        """Grant a run more tokens, on record; a run that is resumed has them, too."""
        run, parts = root.run, self._parts
        root.granted += tokens
        self._recording.notice(root, f"{tokens} more tokens were granted: {reason}")
        if run.steps is not None:
            journal.note_extension(parts.store, run, root.granted - root.request.remit.tokens, parts.redactor.keys)

    async def ask_for_call(
        self, parent: Frame, request: Request, call: Call, verdict: Rewrite | Refuse | Ask | Heavy
    ) -> bool:
        """Ask a person if a run has too few tokens for a call that nothing else forbids; return whether that took time,
        so that the call has to be judged again.
        """
        limits, registry = self._parts.limits, self._parts.registry
        if isinstance(verdict, Ask | Heavy):
            return False
        if isinstance(verdict, Refuse) and verdict.fault.code is not Code.TOKEN_BUDGET_EXCEEDED:
            return False
        entry = registry.agents.get(request.target)
        wanted = tokens_wanted(call, None if entry is None else entry.card, limits)
        if wanted is None and isinstance(verdict, Refuse):
            wanted = estimate_request(request) + 1
        return wanted is not None and request.remit.tokens < wanted and await self.ask(parent, wanted)

    async def ask(self, frame: Frame, wanted: int) -> bool:
        """Ask a person until a run has so many tokens for one of its agents, or nobody agrees; return whether that
        took time.

        Only what the run has left is a limit here: an agent with a number of tokens of its own keeps to it.
        """
        root, run = frame.lineage()[-1], frame.run
        if not self._may_extend(frame, root):
            return False
        took_time = False
        while (lacking := wanted - frame.reach - frame.journaled_tokens) > 0 and not run.keeps_limit:
            took_time = True
            async with self._standing_still(frame):
                if run.more_tokens is None:
                    await self._ask_once(root, lacking)
                else:
                    await asyncio.wait({run.more_tokens})
        return took_time

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
            if self._budgets.applies_to(request):
                allowance = await self._budgets.reserve_more(request, more)
                if allowance is None:
                    run.keeps_limit = True
                    return
                more = more if allowance.tokens is None else allowance.tokens
            # Without what was used so far, which may differ after a restart: the same question has the same answer.
            question = f"This run has {root.granted:,} tokens and needs more. Grant {more:,} more?"
            await self._approval.ask_person(replace(request, act="tokens"), Ask(question), 0, run)
            self.extend(root, more, "a person agreed")
            if allowance is not None:
                run.extensions, allowance = (*run.extensions, allowance), None
        except RemitError as error:
            if error.fault.code is not Code.APPROVAL_DECLINED:
                raise
            run.keeps_limit = True
        finally:
            if allowance is not None:
                await asyncio.shield(self._budgets.settle(allowance, 0, 0))
            run.more_tokens = None
            answered.set_result(None)
