"""The conformance suite for agents: tests that anyone can run on their own agents.

    class TestMyAgents(AgentConformance):
        no_own_tools = "its tools are all given to it by the hub"

        def agent(self, behaviour: Behaviour) -> object:
            return MyAgent(model=ScriptedModel(behaviour, self))

Run it with pytest and pytest-asyncio (`asyncio_mode = "auto"`). A scripted model, which most
frameworks have for tests, is enough: the suite tests everything between the hub and that model. If an agent cannot do
something, set the attribute for it to the reason; its tests are then skipped.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any
from unittest import SkipTest

# The public `Hub`: these tests must not depend on its internals.
import remit
from remit.ports.brief import Brief
from remit.protocol.codec import text_of
from remit.protocol.envelope import Response
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Delta, Kind, Record
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock

__all__ = ["AgentConformance", "Behaviour"]

TESTED = "tested"

HELPER = "helper"
ERRAND = "Count the cups"
HELPED = "There are seven cups."
HELPER_TOKENS = 70

TOOL = "look_up"
ARGUMENTS = {"key": "tea"}
FOUND = "It is in the green tin."

OWN_TOOL = "own_tool"
OWN_FOUND = "It was in the drawer."

# Long enough not to be mistaken for the text before a tool call.
PIECES = (
    "The kettle is on, and the water in it is drawn fresh, because what has boiled once tastes of nothing any more. ",
    "The cups are out, seven of them, each warmed with water that was poured away again before the leaves went in. ",
    "The leaves have had their three minutes, not one more, for after the fourth they turn bitter. ",
    "Tea is served, in the garden, under the chestnut.",
)
CRASH = "the kettle has exploded"

# The usage that one model call reports.
PROMPT, COMPLETION = 400, 100

# Only an agent that hangs takes this long.
PATIENCE = 10.0


class Behaviour(StrEnum):
    """The behaviour of an agent in a test; names in capitals are constants of this module."""

    ANSWERS = "answers"
    """Answers with everything in its model's input, as one text: the conversation so far, and the task."""
    STREAMS = "streams"
    """Streams `PIECES` one by one; its answer is all of them."""
    DELEGATES = "delegates"
    """Asks the agent `HELPER` to do `ERRAND`, and answers with the result."""
    USES_TOOL = "uses tool"
    """Uses the hub's tool `TOOL` with `ARGUMENTS`, and answers with the result."""
    USES_OWN_TOOL = "uses own tool"
    """Uses a tool of its own, named `OWN_TOOL`, which returns `suite.own_tool()`, and answers with the result."""
    HANGS = "hangs"
    """Calls `suite.hangs()` and waits for ever; in a thread of its own, for `suite.released`."""
    CRASHES = "crashes"
    """Its model raises `RuntimeError(CRASH)`."""
    SPENDS = "spends"
    """Answers something; its one call of a model reports `PROMPT` and `COMPLETION` tokens."""
    SPENDS_AND_HANGS = "spends and hangs"
    """Uses a tool, as the first call of its model says, which reports as much; the second call hangs as in `HANGS`."""
    LOOPS = "loops"
    """Uses a tool again and again, without end; each call of its model reports as much."""


class AgentConformance:
    """The promises of an agent to its hub, one test each."""

    no_streaming = ""
    """Why the answer is not streamed."""
    no_history = ""
    """Why the agent does not see earlier messages of its session."""
    no_usage = ""
    """Why its tokens are estimated, and not what its model reports."""
    no_tools = ""
    """Why it cannot use the hub's tools; those behaviours that need a tool then use one of its own."""
    no_own_tools = ""
    """Why it has no tools of its own."""
    no_delegation = ""
    """Why it cannot ask other agents."""
    no_stop = ""
    """Why it continues after cancellation, and is abandoned."""
    refuses_restriction = ""
    """Why it cannot be limited to some of its own tools, and so refuses a remit that allows only some."""

    def agent(self, behaviour: Behaviour) -> object:
        """Return an agent for `Hub.add` with the given behaviour."""
        raise NotImplementedError

    def hub(self, **options: Any) -> "remit.Hub":
        """Return the hub that the agent is tested in, not open yet."""
        return remit.Hub(store=MemoryStore(), **options)

    # ── for the agent under test ──────────────────────────────────────────────────────────────────────────────────────

    def setup_method(self) -> None:
        """Reset the suite; pytest calls this before each test."""
        self.released = threading.Event()
        """Set once a test is over: a thread that hangs waits for it."""
        self.helped: list[Brief] = []
        self.looked_up: list[str] = []
        self.own_calls = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hanging = asyncio.Event()

    def hangs(self) -> None:
        """Report that the agent hangs now; may be called in any thread."""
        assert self._loop is not None, "a test is under way"
        self._loop.call_soon_threadsafe(self._hanging.set)

    def own_tool(self) -> str:
        """Do what the agent's own tool does."""
        self.own_calls += 1
        return OWN_FOUND

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_it_answers_what_it_is_asked(self) -> None:
        async with self.opened(Behaviour.ANSWERS) as hub:
            response = await hub.ask(TESTED, "Where is the sugar?", user="u-1")
        assert response.status is Status.SUCCESS, response.fault
        assert "Where is the sugar?" in text_of(response.result)

    async def test_it_is_shown_the_input_beside_the_objective(self) -> None:
        async with self.opened(Behaviour.ANSWERS) as hub:
            response = await hub.ask(TESTED, "Brew it", user="u-1", input={"leaves": "sencha", "cups": 3})
        assert response.ok, response.fault
        assert "Brew it" in text_of(response.result)
        assert "sencha" in text_of(response.result)

    async def test_many_at_once_do_not_hear_each_other(self) -> None:
        questions = [f"Who drank cup number {number}?" for number in range(8)]
        answers: dict[str, str] = {}

        async def ask(hub: "remit.Hub", question: str) -> None:
            answers[question] = text_of((await hub.ask(TESTED, question, user="u-1")).unwrap())

        async with self.opened(Behaviour.ANSWERS) as hub, asyncio.TaskGroup() as group:
            for question in questions:
                group.create_task(ask(hub, question))
        for prompt, answer in answers.items():
            assert [question for question in questions if question in answer] == [prompt]

    async def test_it_knows_what_was_said_before_in_its_session(self) -> None:
        self._unless(self.no_history)
        async with self.opened(Behaviour.ANSWERS) as hub:
            first = await hub.ask(TESTED, "I take it with lemon.", user="u-1")
            second = await hub.ask(TESTED, "How do I take it?", user="u-1", session=first.session)
            other = await hub.ask(TESTED, "How do I take it?", user="u-1")
        assert "with lemon" in text_of(second.unwrap())
        assert "with lemon" not in text_of(other.unwrap())

    async def test_its_answer_is_heard_as_it_comes(self) -> None:
        """X15: streamed responses."""
        self._unless(self.no_streaming)
        records: list[Record] = []
        async with self.opened(Behaviour.STREAMS, redaction=False) as hub:
            async for record in hub.stream(TESTED, "Make tea", user="u-1"):
                records.append(record)
        texts = [record.body.text for record in records if isinstance(record.body, Delta)]
        assert len(texts) > 1, "it came in one piece"
        assert "".join(texts) == "".join(PIECES)
        assert records[-1].kind is Kind.RESULT
        assert isinstance(records[-1].body, Response)
        assert records[-1].body.result == "".join(PIECES)

    # ── faults ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_when_it_crashes_the_hub_says_so_and_goes_on(self) -> None:
        """K12: one agent crashing takes no other down."""
        async with self.opened(Behaviour.CRASHES) as hub:
            crashed = await hub.ask(TESTED, "Make tea", user="u-1")
            other = await hub.ask(HELPER, ERRAND, user="u-1")
        assert crashed.status is Status.FAILED
        assert _code(crashed) is Code.DELEGATION_FAILED
        assert crashed.fault is not None
        assert CRASH in crashed.fault.message
        assert other.result == HELPED

    # ── stopping ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_its_deadline_stops_it(self) -> None:
        """X6: the delegate is really cancelled, not abandoned."""
        clock = ManualClock()
        async with self.opened(Behaviour.HANGS, clock=clock) as hub:
            asking = asyncio.create_task(hub.ask(TESTED, "Wait", user="u-1", deadline_ms=2_000))
            await self._until_it_hangs()
            clock.advance(2.5)
            response = await self._ended(asking)
        assert response.status is Status.TIMEOUT
        assert _code(response) is Code.TIMEOUT

    async def test_cancelling_stops_it(self) -> None:
        """X15: cancellation."""
        async with self.opened(Behaviour.HANGS) as hub:
            asking = asyncio.create_task(hub.ask(TESTED, "Wait", user="u-1"))
            await self._until_it_hangs()
            [run] = await hub.store.runs()
            assert hub.cancel(run.run)
            response = await self._ended(asking)
        assert response.status is Status.CANCELLED
        assert _code(response) is Code.CANCELLED

    async def test_what_it_spent_before_it_was_stopped_is_settled(self) -> None:
        self._unless(self.no_tools and self.no_own_tools)
        clock = ManualClock()
        async with self.opened(Behaviour.SPENDS_AND_HANGS, clock=clock) as hub:
            asking = asyncio.create_task(hub.ask(TESTED, "Look, then wait", user="u-1", deadline_ms=2_000))
            await self._until_it_hangs()
            clock.advance(2.5)
            response = await self._ended(asking)
        assert response.status is Status.TIMEOUT
        if self.no_usage:
            assert response.usage.estimated
        else:
            assert response.usage.total >= PROMPT + COMPLETION

    # ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_what_its_model_used_is_in_the_response(self) -> None:
        async with self.opened(Behaviour.SPENDS) as hub:
            response = await hub.ask(TESTED, "Think", user="u-1")
        assert response.ok, response.fault
        if self.no_usage:
            assert response.usage.estimated
            assert response.usage.total > 0
        else:
            assert (response.usage.prompt, response.usage.completion) == (PROMPT, COMPLETION)
            assert not response.usage.estimated

    async def test_to_spend_more_than_it_was_granted_ends_it(self) -> None:
        """X7: real use is metered."""
        self._unless(self.no_usage)
        granted = PROMPT + COMPLETION - 100
        async with self.opened(Behaviour.SPENDS) as hub:
            response = await hub.ask(TESTED, "Think", user="u-1", max_tokens=granted)
        assert _code(response) is Code.TOKEN_BUDGET_EXCEEDED
        # Either the model was called and used too much, or it was not called because it would have.
        assert response.usage.total in (0, PROMPT + COMPLETION)

    async def test_its_budget_ends_a_loop(self) -> None:
        self._unless(self.no_tools and self.no_own_tools)
        async with self.opened(Behaviour.LOOPS) as hub:
            response = await self._ended(
                asyncio.create_task(
                    hub.ask(TESTED, "Look everywhere", user="u-1", max_tokens=3 * (PROMPT + COMPLETION))
                )
            )
        assert _code(response) is Code.TOKEN_BUDGET_EXCEEDED
        if not self.no_usage:
            assert 0 < len(self.looked_up) + self.own_calls <= 3

    # ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_it_uses_a_tool_of_the_hub(self) -> None:
        self._unless(self.no_tools)
        async with self.opened(Behaviour.USES_TOOL) as hub:
            response = await hub.ask(TESTED, "Where is the tea?", user="u-1")
        assert response.ok, response.fault
        assert FOUND in text_of(response.result)
        assert self.looked_up == ["tea"]
        assert response.tool_calls == (TOOL,)

    async def test_a_tool_that_its_remit_does_not_name_is_not_run(self) -> None:
        """O6, X11: the caller can restrict the callee's tools."""
        self._unless(self.no_tools)
        async with self.opened(Behaviour.USES_TOOL) as hub:
            response = await hub.ask(TESTED, "Where is the tea?", user="u-1", tools=())
        assert self.looked_up == []
        assert FOUND not in text_of(response.result)

    async def test_a_tool_that_its_card_does_not_name_is_not_run(self) -> None:
        """X11: a tool that is not in the target's tools cannot be used, by any path."""
        self._unless(self.no_tools)
        async with self.opened(Behaviour.USES_TOOL, tools=()) as hub:
            await hub.ask(TESTED, "Where is the tea?", user="u-1")
        assert self.looked_up == []

    async def test_it_uses_a_tool_of_its_own_and_the_record_says_so(self) -> None:
        self._unless(self.no_own_tools)
        async with self.opened(Behaviour.USES_OWN_TOOL) as hub:
            response = await hub.ask(TESTED, "Where is the tea?", user="u-1")
        assert response.ok, response.fault
        assert OWN_FOUND in text_of(response.result)
        assert self.own_calls == 1
        assert response.tool_calls == (OWN_TOOL,)

    async def test_a_tool_of_its_own_that_its_remit_does_not_name_is_not_run(self) -> None:
        """O6: the caller can restrict the callee's tools, including those that the hub does not know."""
        self._unless(self.no_own_tools)
        async with self.opened(Behaviour.USES_OWN_TOOL) as hub:
            response = await hub.ask(TESTED, "Where is the tea?", user="u-1", tools=(TOOL,))
        assert self.own_calls == 0
        if self.refuses_restriction:
            assert _code(response) is Code.TOOL_NOT_ALLOWED
        assert OWN_FOUND not in text_of(response.result)

    # ── delegation ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_it_asks_another_agent_within_its_remit(self) -> None:
        """O1, O4: the callee works under what is left of the caller's remit, one level down."""
        self._unless(self.no_delegation)
        granted = 20_000
        async with self.opened(Behaviour.DELEGATES) as hub:
            response = await hub.ask(TESTED, "How many cups are there?", user="u-1", max_tokens=granted)
        assert response.ok, response.fault
        assert HELPED in text_of(response.result)
        [brief] = self.helped
        assert (brief.objective, brief.user) == (ERRAND, "u-1")
        assert (brief.remit.depth, brief.remit.chain) == (1, (f"{TESTED}@local",))
        assert 0 < brief.remit.tokens < granted
        assert response.usage.total >= HELPER_TOKENS

    async def test_it_cannot_ask_who_is_not_named_for_it(self) -> None:
        """O5: only an agent that may call others can."""
        self._unless(self.no_delegation)
        async with self.opened(Behaviour.DELEGATES, may_call=()) as hub:
            await hub.ask(TESTED, "How many cups are there?", user="u-1")
        assert self.helped == []

    async def test_it_cannot_ask_anyone_where_its_caller_forbids_it(self) -> None:
        """O1: `allow_nested_calls` is false unless the caller says otherwise."""
        self._unless(self.no_delegation)
        async with self.opened(Behaviour.DELEGATES) as hub:
            await hub.ask(TESTED, "How many cups are there?", user="u-1", may_delegate=False)
        assert self.helped == []

    # ── helpers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def opened(
        self,
        behaviour: Behaviour,
        *,
        tools: Collection[str] = (TOOL,),
        may_call: Collection[str] = (HELPER,),
        **options: Any,
    ) -> AsyncGenerator["remit.Hub"]:
        """Open a hub with the agent, a tool and another agent; at the end, no task or thread may be left."""
        self._loop = asyncio.get_running_loop()
        before = asyncio.all_tasks()
        hub = self.hub(**options)

        @hub.agent(HELPER, description="Counts things.")
        async def helper(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
            self.helped.append(brief)
            brief.spend(prompt=HELPER_TOKENS)
            return HELPED

        @hub.tool(TOOL, description="Says where something is.", safe_to_repeat=True)
        async def look_up(key: str) -> str:  # pyright: ignore[reportUnusedFunction]
            self.looked_up.append(key)
            return FOUND

        hub.add(TESTED, self.agent(behaviour), description="Is tested.", tools=tools, may_call=may_call)
        try:
            async with hub:
                yield hub
        finally:
            self.released.set()
        left = asyncio.all_tasks() - before
        if left:
            _, left = await asyncio.wait(left, timeout=PATIENCE)
        assert not left, f"these are left behind: {left}"

    async def _until_it_hangs(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._hanging.wait()

    async def _ended(self, asking: asyncio.Task[Response]) -> Response:
        async with asyncio.timeout(PATIENCE):
            return await asking

    def _unless(self, reason: str) -> None:
        if reason:
            raise SkipTest(reason)


def _code(response: Response) -> Code | None:
    return None if response.fault is None else response.fault.code
