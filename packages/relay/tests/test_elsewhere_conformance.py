"""What holds between a caller and its callee wherever the callee lives, over a gateway."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import SkipTest

from devices import gateway
from neighbours import Neighbour
from remit import Answer, Artifact, Brief, Hub
from remit.protocol.card import Rate
from remit.protocol.lifecycle import Status
from remit_testing import TransportConformance
from remit_testing.transports.conformance import USER

OFTEN = Rate(calls=1_000, seconds=60)


class TestOverTheRelay(TransportConformance):
    no_streaming = no_progress = "A message is the whole answer: nothing of it is sent before its end."
    no_persons = "The other side is not told that a person is asked here, so that its time goes on."
    no_way_back = "What would come back to the device where it began is a loop, whichever agent it is for."
    no_nesting = "Names of agents and tools stay on their device; time, tokens, depth and leave to delegate go along."

    @asynccontextmanager
    async def joined(self, near: Hub, far: Hub) -> AsyncGenerator[None]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            here, there = Neighbour(path, "here", near), Neighbour(path, "there", far)
            for name, card in far.cards.items():
                there.shares(name, here, rate=OFTEN)
                about = {"capabilities": card.capabilities}
                here.knows(name, there, remote=name, rate=OFTEN, card=about)
            async with far, near, gateway(path) as serving, there.at_work(serving.url), here.at_work(serving.url):
                yield

    async def test_all_parts_of_an_answer_come_back(self) -> None:
        """All but its sources, which belong to users whom only the other hub knows."""
        answer = Answer(
            "done",
            summary="All of it.",
            confidence=0.75,
            artifacts=(Artifact(type="json", value={"a": 1}, label="figures"),),
            new_facts=("likes tea",),
            requires_followup=True,
            warnings=("two receipts are unreadable",),
            finished=("January",),
            unfinished=("February",),
            metadata={"k": ["v"]},
        )

        async def helper(_: Brief) -> Answer:
            return answer

        response = await self.answered(helper)
        assert response.status is Status.PARTIAL
        for field in Answer.__struct_fields__:
            if field not in ("usage", "calls", "strategy", "sources", "handover"):
                assert getattr(response, field) == getattr(answer, field), field

    async def test_the_callee_is_told_all_that_its_caller_says(self) -> None:
        """For a user of its own, who is named after the device that asks."""
        seen: list[Brief] = []

        async def helper(brief: Brief) -> str:
            seen.append(brief)
            return "ok"

        await self.answered(helper, objective="Sort", input={"n": [1, 2]}, hints=("table",), reason="knows tax")
        request = seen[0].request
        assert (request.objective, request.input) == ("Sort", {"n": [1, 2]})
        assert (request.hints, request.reason) == (("table",), "knows tax")
        device, _, user = request.remit.user.partition("/")
        assert (device, user) == (request.via, USER)

    async def test_a_callee_that_takes_too_long_is_really_cancelled_and_its_part_kept(self) -> None:
        raise SkipTest("Who withdraws a question does not wait for what was finished; test_elsewhere has the rest.")

    async def test_depth_counts_on_through_the_callee(self) -> None:
        self.no_nesting = ""
        await super().test_depth_counts_on_through_the_callee()

    async def test_the_remit_only_narrows(self) -> None:
        seen: list[Any] = []

        async def helper(brief: Brief) -> str:
            seen.append(brief.remit)
            return "ok"

        await self.answered(helper, max_tokens=300, deadline_ms=5_000, may_delegate=False)
        (remit,) = seen
        assert (remit.depth, remit.tokens, remit.may_delegate) == (1, 300, False)
        assert remit.time_ms <= 5_000
        assert remit.chain == ()
