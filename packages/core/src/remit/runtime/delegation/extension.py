"""Asks a person for more tokens when a run needs more than it has."""

import asyncio
from math import ceil

from msgspec.structs import replace

from remit.policy.budget import estimate_request, tokens_wanted
from remit.policy.verdict import Ask, Refuse, Rewrite
from remit.protocol.envelope import Call, Request
from remit.protocol.errors import Code, RemitError
from remit.runtime import journal
from remit.runtime.context import PersonAsking, RunRecording, RuntimeContext, TaskControl
from remit.runtime.delegation.admission import Heavy, UserBudgets
from remit.runtime.frames import Allowance, Frame, SlotGivenUp


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
        if not self._may_ask(frame, root):
            return False
        took_time = False
        while (lacking := wanted - frame.reach - frame.journaled_tokens) > 0 and not run.keeps_limit:
            took_time = True
            async with SlotGivenUp(frame):
                self._tasks.pause(frame)
                try:
                    if run.more_tokens is None:
                        await self._ask_once(root, lacking)
                    else:
                        await asyncio.wait({run.more_tokens})
                finally:
                    self._tasks.unpause(frame)
        return took_time

    def _may_ask(self, frame: Frame, root: Frame) -> bool:
        """Return whether a person may extend the run of a frame: one that began here, and for agents that draw on it.

        A run that an agent elsewhere began has its tokens from there.
        """
        if self._parts.limits.at_limit != "ask" or self._parts.approver is None or root.request.remit.chain:
            return False
        return not frame.run.overrun and all(each.draws for each in frame.lineage()[:-1])

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
