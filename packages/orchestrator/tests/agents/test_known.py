"""What is known in a conversation passes to a callee only as far as the filter of its caller lets it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from remit import Answer, Brief, Capability, ContextFilter, Handoff, Hub, Step, Workflow
from remit_models import ModelAgent
from remit_models.subagent import sub_agent
from remit_models.toolbox import offers
from remit_orchestrator import add_orchestrator, add_workflow
from remit_testing import MemoryStore
from waiting import PATIENCE_S

# Nothing of the conversation is to be seen.
NOTHING: dict[str, Any] = {"last_messages": 0, "roles": [], "max_age_seconds": 0}
DECISION = "We decided to use PostgreSQL."
FACT = "The server is in Oslo."


def printed(messages: Sequence[ModelMessage]) -> str:
    """Return all that a model is sent, as one text."""
    lines: list[str] = []
    for message in messages:
        if isinstance(message, ModelRequest) and message.instructions:
            lines.append(f"instructions: {message.instructions}")
        lines += [f"{message.kind} {part.part_kind}: {getattr(part, 'content', part)}" for part in message.parts]
    return "\n".join(lines)


class Office:
    """A planner that has something found out, and then asks a coder, who is a model, as it is told to."""

    def __init__(self, context: dict[str, Any] | None) -> None:
        self.hub = Hub(store=MemoryStore(), redaction=False)
        self.prompts: list[str] = []
        self.context = context
        self.hub.add("planner", self._plan, may_call=["finder", "coder"])
        self.hub.add("finder", self._find)
        self.hub.add("coder", ModelAgent(FunctionModel(self._code), prompt="You write code."))

    async def _plan(self, brief: Brief) -> str:
        if brief.text == "Write it.":
            await brief.delegate("finder", objective="Where is the server?")
            arguments: dict[str, Any] = {"agent_name": "coder", "task": "Write the config."}
            await sub_agent(brief, arguments if self.context is None else arguments | {"context": self.context})
        return "Noted."

    async def _find(self, brief: Brief) -> Answer:
        return Answer("Found.", new_facts=(FACT,))

    def _code(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.prompts.append(printed(messages))
        return ModelResponse(parts=[TextPart("Done.")])

    async def prompt(self) -> str:
        async with self.hub, asyncio.timeout(PATIENCE_S):
            await self.hub.ask("planner", DECISION, user="u-1", session="s")
            (await self.hub.ask("planner", "Write it.", user="u-1", session="s")).unwrap()
        [prompt] = self.prompts
        return prompt


async def test_a_callee_sees_nothing_of_a_conversation_that_is_filtered_out_whole() -> None:
    """O4: neither a decision of an earlier turn nor a fact that another callee returned."""
    assert await Office(NOTHING).prompt() == (
        "instructions: You write code.\nrequest user-prompt: [Called by: planner]\nTask: Write the config."
    )


async def test_without_a_filter_a_callee_sees_neither_messages_nor_notes() -> None:
    """O4, O11: its own instructions and the task; a model that wants it to see more says so."""
    assert await Office(None).prompt() == await Office(NOTHING).prompt()


async def test_with_an_empty_filter_a_callee_sees_messages_and_no_notes() -> None:
    """O2, O4: what was said between the user and the caller, and not what others found."""
    assert await Office({}).prompt() == (
        "request user-prompt: We decided to use PostgreSQL.\n"
        "response text: Noted.\n"
        "instructions: You write code.\n"
        "request user-prompt: Write it.\n"
        "request user-prompt: [Called by: planner]\nTask: Write the config."
    )


async def test_decisions_pass_where_the_filter_names_them() -> None:
    assert await Office(NOTHING | {"known": "decisions"}).prompt() == (
        "instructions: You write code.\n"
        f"request user-prompt: Decided:\n- {DECISION}\n\n[Called by: planner]\nTask: Write the config."
    )


async def test_facts_pass_where_the_filter_names_all() -> None:
    assert await Office(NOTHING | {"known": "all"}).prompt() == (
        "instructions: You write code.\n"
        f"request user-prompt: Known:\n- {FACT} (according to finder)\n\nDecided:\n- {DECISION}\n\n"
        "[Called by: planner]\nTask: Write the config."
    )


async def test_the_description_of_the_tool_says_what_is_passed() -> None:
    descriptions: list[str] = []
    hub = Hub(store=MemoryStore())

    async def idle(brief: Brief) -> None:
        """Do nothing."""

    hub.add("coder", idle, description="Writes code.")

    @hub.agent("planner", may_call=["coder"])
    async def planner(brief: Brief) -> None:
        descriptions.extend(offer.description for offer in offers(brief) if offer.name == "sub_agent")

    async with hub:
        await hub.ask("planner", "Go", user="u-1")
    [description] = descriptions
    assert "It sees only `task` and `input`.\n" in description


@pytest.mark.parametrize("context", [None, ContextFilter(), ContextFilter(last_messages=0)])
async def test_code_that_does_not_name_notes_passes_none(context: ContextFilter | None) -> None:
    """What one callee found is not for the next one unless somebody says so."""
    assert await known_below(first=context, second=None) == ([], [])


async def test_a_callee_cannot_pass_on_notes_that_it_was_not_let_see() -> None:
    everything = ContextFilter(last_messages=0, known="all")
    assert await known_below(first=None, second=everything) == ([], [])
    decisions = ContextFilter(last_messages=0, known="decisions")
    assert await known_below(first=decisions, second=everything) == ([DECISION], [DECISION])
    assert await known_below(first=everything, second=decisions) == ([DECISION, FACT], [DECISION])


async def known_below(first: ContextFilter | None, second: ContextFilter | None) -> tuple[list[str], list[str]]:
    """Return what a callee and its own callee know, asked with these filters."""
    hub, known = Hub(store=MemoryStore(), redaction=False), dict[str, list[str]]()

    @hub.agent("top", may_call=["middle", "finder"])
    async def top(brief: Brief) -> None:
        brief.note("decision", DECISION)
        await brief.delegate("finder", objective="find")
        (await brief.delegate("middle", objective="go on", context=first)).unwrap()

    @hub.agent("finder")
    async def finder(brief: Brief) -> Answer:
        return Answer("found", new_facts=(FACT,))

    @hub.agent("middle", may_call=["last"])
    async def middle(brief: Brief) -> None:
        known["middle"] = [note.text for note in brief.known]
        (await brief.delegate("last", objective="go on", context=second)).unwrap()

    @hub.agent("last")
    async def last(brief: Brief) -> None:
        known["last"] = [note.text for note in brief.known]

    async with hub:
        (await hub.ask("top", "Go", user="u-1")).unwrap()
    return known["middle"], known["last"]


async def test_the_steps_of_a_workflow_that_an_agent_asks_know_no_more_than_the_agent_hands_on() -> None:
    """K5: the user's words reach them if the user asks, or if whoever asks hands them on."""
    hub, handed = Hub(store=MemoryStore(), redaction=False), list[str]()

    @hub.agent("writer")
    async def writer(brief: Brief) -> str:
        handed.append(brief.handoff.original_request)
        return "written"

    @hub.agent("boss", may_call=["report"])
    async def boss(brief: Brief) -> None:
        await sub_agent(brief, {"agent_name": "report", "task": "Write a report.", "allow_nested_calls": True})
        handoff = Handoff(original_request=brief.original_request)
        await brief.delegate("report", objective="Write another.", handoff=handoff)

    add_workflow(hub, Workflow(name="report", steps=(Step(name="write", agent="writer", objective="Write"),)))
    async with hub:
        (await hub.ask("boss", "My secret plan.", user="u-1")).unwrap()
        (await hub.ask("report", "A report, please.", user="u-1")).unwrap()
    assert handed == ["", "My secret plan.", "A report, please."]


async def test_those_that_the_orchestrator_asks_know_what_is_known() -> None:
    """K14: nothing is asked or analysed twice."""
    hub, known = Hub(store=MemoryStore(), redaction=False), list[str]()

    async def weather(brief: Brief) -> Answer:
        known.extend(note.text for note in brief.known)
        return Answer("It rains.", new_facts=(FACT,))

    weather_code = Capability(
        code="WEATHER", description="weather forecast", examples=("What is the weather like?",), read_only=True
    )
    hub.add("weather-ai", weather, capabilities=[weather_code])
    add_orchestrator(hub)
    async with hub:
        await hub.ask("orchestrator", "What is the weather like?", user="u-1", session="s")
        await hub.ask("orchestrator", "What is the weather like in Oslo?", user="u-1", session="s")
    assert known == [FACT]


async def test_the_agent_of_a_session_knows_what_became_known_in_it_unless_the_user_says_otherwise() -> None:
    hub, known = Hub(store=MemoryStore(), redaction=False), list[list[str]]()

    @hub.agent("planner")
    async def planner(brief: Brief) -> str:
        known.append([note.text for note in brief.known])
        return "Noted."

    async with hub:
        await hub.ask("planner", DECISION, user="u-1", session="s")
        await hub.ask("planner", "Go on.", user="u-1", session="s")
        await hub.ask("planner", "Go on, then.", user="u-1", session="s", context=ContextFilter(known="none"))
    assert known == [[], [DECISION], []]
