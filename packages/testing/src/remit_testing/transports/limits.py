"""What every transport must keep to: time, tokens, depth and the chain of callers."""

import asyncio
from unittest import SkipTest

# The public `Hub`: these tests must not depend on its internals.
from remit.policy.limits import Limits
from remit.protocol.envelope import Answer, Request, Usage
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.runtime.brief import Brief
from remit_testing.transports.case import PATIENCE, USER, TransportCase


class LimitConformance(TransportCase):
    """The limits that a caller sets hold for its callee, wherever it runs."""

    async def test_a_callee_that_takes_too_long_is_really_cancelled_and_its_part_kept(self) -> None:
        """X6: the delegate is really cancelled, not abandoned; K10: with what was finished."""
        cancelled = asyncio.Event()

        async def helper(brief: Brief) -> str:
            brief.progress("half", partial=Answer("half of it", finished=("one",), unfinished=("two",)))
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return "never"

        response = await self.answered(helper, deadline_ms=400)
        assert response.fault is not None
        assert (response.status, response.fault.code) == (Status.TIMEOUT, Code.TIMEOUT)
        async with asyncio.timeout(PATIENCE):
            await cancelled.wait()
        if not self.no_envelope:
            assert (response.result, response.finished, response.unfinished) == ("half of it", ("one",), ("two",))

    async def test_a_cancel_reaches_the_callee(self) -> None:
        """X15: cancellation."""
        near, far = self.hubs()
        began, cancelled = asyncio.Event(), asyncio.Event()

        async def helper(_: Brief) -> str:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return "never"

        async def boss(brief: Brief) -> str:
            return (await brief.delegate("helper", objective="Help")).unwrap()

        far.add("helper", helper)
        near.add("boss", boss, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            asking = asyncio.create_task(near.ask("boss", "Go", user=USER, request_id="mine"))
            await began.wait()
            assert near.cancel("mine")
            response = await asking
            await cancelled.wait()
        assert response.status is Status.CANCELLED

    async def test_what_the_callee_spends_counts_for_its_caller(self) -> None:
        """X7: real use is metered."""
        if self.no_envelope:
            raise SkipTest(self.no_envelope)

        async def helper(brief: Brief) -> str:
            brief.spend(prompt=70, completion=30)
            return "ok"

        async def boss(brief: Brief) -> list[int]:
            response = await brief.delegate("helper", objective="Help", max_tokens=500)
            return [response.usage.total, brief.remit.tokens - brief.tokens_left()]

        response = await self.asked(helper, boss)
        assert (response.unwrap(), response.usage.total) == ([100, 100], 100)

    async def test_a_callee_that_spends_more_than_it_was_granted_fails(self) -> None:
        if self.no_envelope:
            raise SkipTest(self.no_envelope)

        async def helper(_: Brief) -> Answer:
            return Answer("dear", usage=Usage(prompt=900))

        response = await self.answered(helper, max_tokens=500)
        assert response.fault is not None
        assert (response.status, response.fault.code) == (Status.FAILED, Code.TOKEN_BUDGET_EXCEEDED)

    async def test_the_remit_only_narrows(self) -> None:
        """DESIGN: everything a hop may do travels with the hop."""
        if self.no_nesting:
            raise SkipTest(self.no_nesting)
        seen: list[Request] = []

        async def helper(brief: Brief) -> str:
            seen.append(brief.request)
            return "ok"

        await self.answered(helper, max_tokens=300, deadline_ms=5_000, may_delegate=False, tools=[], targets=["x"])
        remit = seen[0].remit
        assert (remit.depth, remit.tokens, remit.may_delegate) == (1, 300, False)
        assert (remit.tools, remit.targets) == (frozenset(), frozenset({"x"}))
        assert remit.time_ms <= 5_000
        assert [address.partition("@")[0] for address in remit.chain] == ["boss"]

    async def test_depth_counts_on_through_the_callee(self) -> None:
        """C6: depth."""
        if self.no_nesting:
            raise SkipTest(self.no_nesting)
        near, far = self.hubs(limits=Limits(max_depth=1))

        async def colleague(_: Brief) -> str:
            return "too deep"

        async def helper(brief: Brief) -> str:
            response = await brief.delegate("colleague", objective="Help")
            assert response.fault is not None
            return response.fault.code

        async def boss(brief: Brief) -> str:
            return (await brief.delegate("helper", objective="Help")).unwrap()

        far.add("colleague", colleague)
        far.add("helper", helper, may_call=["colleague"])
        near.add("boss", boss, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            assert (await near.ask("boss", "Go", user=USER)).unwrap() == Code.MAX_DEPTH_EXCEEDED

    async def test_nobody_is_asked_who_is_in_the_chain_already(self) -> None:
        """C6: no agent twice in a chain."""
        if self.no_way_back:
            raise SkipTest(self.no_way_back)
        near, far = self.hubs()

        async def helper(brief: Brief) -> str:
            response = await brief.delegate("boss", objective="You do it")
            assert response.fault is not None, response
            return response.fault.code

        async def boss(brief: Brief) -> str:
            return (await brief.delegate("helper", objective="Help")).unwrap()

        far.add("helper", helper, may_call=["*"])
        near.add("boss", boss, may_call=["*"])
        async with self.joined(near, far), asyncio.timeout(PATIENCE):
            assert (await near.ask("boss", "Go", user=USER)).unwrap() == Code.LOOP_DETECTED
