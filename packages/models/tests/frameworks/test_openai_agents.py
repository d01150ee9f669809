"""Agents of the OpenAI Agents SDK in a hub."""

import itertools
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from agents import Agent, ModelResponse, Usage, WebSearchTool, function_tool, handoff
from agents.mcp import MCPServer
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as MCPTool
from pydantic import BaseModel

from frameworks.suite import FrameworkConformance, Say, Script, Seen, Use, say, use_once
from remit import Code, Hub, Response
from remit_testing.agents import COMPLETION, HELPED, HELPER, PROMPT
from remit_testing.memory import MemoryStore

NUMBERS = itertools.count()


class FollowsScript(ScriptedModel):
    """The SDK's own model for tests, with a step for every call."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    async def step(self, call: ModelCall) -> ModelStep:
        taken = await self.script(seen_by(call))
        used = taken.usage or (0, 0)
        usage = Usage(requests=1, input_tokens=used[0], output_tokens=used[1], total_tokens=sum(used))
        if isinstance(taken, Say):
            return ModelStep(output=[assistant_message(taken.text)], usage=usage)
        call_id = f"call-{next(NUMBERS)}"
        return ModelStep(output=[function_call(taken.tool, taken.arguments, call_id=call_id)], usage=usage)

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        self.enqueue(ModelStep.respond(self.step))
        return await super().get_response(*args, **options)

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        self.enqueue(ModelStep.respond(self.step))
        async for event in super().stream_response(*args, **options):
            if event.type == "response.output_text.delta" and ". " in event.delta:
                for piece in event.delta.replace(". ", ". |").split("|"):
                    yield event.model_copy(update={"delta": piece})
            else:
                yield event


class OnlyWhole(FollowsScript):
    """A model that cannot stream, as many that are written for tests cannot."""

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def seen_by(call: ModelCall) -> Seen:
    items = call.input if isinstance(call.input, list) else [{"content": call.input}]
    outputs = [str(item["output"]) for item in items if item.get("type") == "function_call_output"]
    last_is_output = items[-1].get("type") == "function_call_output"
    return Seen(
        text="\n".join((call.system_instructions or "", *(str(item.get("content", "")) for item in items))),
        tool_results=outputs[-1:] if last_is_output else [],
        tools=[tool.name for tool in call.tools],
        max_tokens=call.model_settings.max_tokens,
    )


def made(script: Script, tools: Sequence[Callable[..., Any]] = (), **options: Any) -> Agent[Any]:
    return Agent(name="tea", model=FollowsScript(script), tools=[function_tool(each) for each in tools], **options)


class TestOpenAIAgents(FrameworkConformance):
    no_judging = no_questions = "its tools are recorded after the fact"
    swallows_tool_errors = True

    def make(self, script: Script, tools: Sequence[Callable[..., Any]], instructions: str = "") -> Any:
        return made(script, tools, instructions=instructions or None)

    def make_typed(self, answer: BaseModel) -> Any:
        return made(say(answer.model_dump_json()), output_type=type(answer))

    def state_of(self, agent: Any) -> object:
        return list(agent.tools), list(agent.handoffs), agent.model, agent.instructions, agent.hooks


async def ask(agent: object, **options: Any) -> Response:
    hub = Hub(store=MemoryStore())

    @hub.agent(HELPER)
    async def helper(brief: Any) -> str:
        return HELPED

    hub.add("tea", agent, may_call=[HELPER])
    async with hub:
        return await hub.ask("tea", "Make tea", user="u-1", **options)


class Cups(BaseModel):
    count: int
    where: list[str]


async def test_a_structured_output_comes_back_as_json() -> None:
    response = await ask(made(say('{"count": 7, "where": ["shelf"]}'), output_type=Cups))
    assert response.unwrap() == {"count": 7, "where": ["shelf"]}


async def test_an_agent_of_a_subclass_is_known_too_and_its_description_is_that_of_the_card() -> None:
    class Mine(Agent[Any]):
        pass

    hub = Hub(store=MemoryStore())
    hub.add("tea", Mine(name="tea", model=FollowsScript(say("yes")), handoff_description="Makes tea."))
    assert hub.cards["tea"].description == "Makes tea."


async def test_a_model_that_cannot_stream_is_asked_for_the_whole() -> None:
    agent = Agent(name="tea", model=OnlyWhole(use_once("sub_agent", {"agent_name": HELPER, "task": "count"})))
    response = await ask(agent)
    assert HELPED in response.unwrap()
    assert response.usage.total == 2 * (PROMPT + COMPLETION)


async def test_delegation_and_restriction_follow_a_handoff() -> None:
    """The two hand over to each other, one of them by an object that says how."""
    ran: list[str] = []
    seen: list[Seen] = []

    def brew() -> str:
        """Brew it."""
        ran.append("brew")
        return "brewed"

    async def front_desk(given: Seen) -> Say | Use:
        return Use("transfer_to_brewer")

    async def brewer(given: Seen) -> Say | Use:
        seen.append(given)
        asks = Use("sub_agent", {"agent_name": HELPER, "task": "count"})
        return Say(given.tool_results) if HELPED in given.tool_results[0] else asks

    second = Agent(name="brewer", model=FollowsScript(brewer), tools=[function_tool(brew)])
    first = Agent(name="desk", model=FollowsScript(front_desk), handoffs=[handoff(second)])
    second.handoffs.append(first)
    response = await ask(first, tools=[])
    assert HELPED in response.unwrap()
    assert list(seen[0].tools) == ["sub_agent"]
    assert [each.name for each in second.tools] == ["brew"]
    assert second.handoffs == [first]
    assert response.usage.total == 3 * (PROMPT + COMPLETION)


async def test_a_tool_that_openai_runs_is_held_to_the_remit_and_a_stored_prompt_cannot_be() -> None:
    offered: list[list[str]] = []

    async def script(seen: Seen) -> Say:
        offered.append(list(seen.tools))
        return Say(["yes"])

    searcher = Agent(name="tea", model=FollowsScript(script), tools=[WebSearchTool()])
    for tools in (None, ["web_search"], []):
        (await ask(searcher, tools=tools, may_delegate=False)).unwrap()
    assert offered == [["web_search"], ["web_search"], []]
    stored = Agent(name="tea", model=FollowsScript(script), prompt={"id": "pmpt_1"})
    assert (await ask(stored)).ok
    refused = (await ask(stored, tools=[])).fault
    assert refused is not None
    assert refused.code is Code.TOOL_NOT_ALLOWED
    assert "prompt is kept by OpenAI" in refused.message


class Cupboard(MCPServer):
    """An MCP server without a process."""

    name = "cupboard"

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, *args: Any, **options: Any) -> list[MCPTool]:
        schema = {"type": "object", "properties": {}}
        return [MCPTool(name=name, input_schema=schema) for name in ("open", "burn")]

    async def call_tool(self, tool_name: str, *args: Any, **options: Any) -> CallToolResult:
        self.called.append(tool_name)
        return CallToolResult(content=[TextContent(type="text", text=f"{tool_name} done")])

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


async def test_tools_of_an_mcp_server_are_held_to_the_remit() -> None:
    cupboard = Cupboard()
    seen: list[Seen] = []

    async def script(given: Seen) -> Say | Use:
        seen.append(given)
        return Say(given.tool_results) if given.tool_results else Use("open")

    agent = Agent(name="tea", model=FollowsScript(script), mcp_servers=[cupboard])
    response = await ask(agent, tools=["open"], may_delegate=False)
    assert "open done" in response.unwrap()
    assert response.tool_calls == ("open",)
    assert list(seen[0].tools) == ["open"]
    assert cupboard.called == ["open"]
    assert agent.mcp_servers == [cupboard]


async def test_what_an_agent_that_is_a_tool_used_is_metered() -> None:
    inner = Agent(name="inner", model=FollowsScript(say("seven")))
    outer = Agent(
        name="outer",
        model=FollowsScript(use_once("ask_inner", {"input": "count"})),
        tools=[inner.as_tool("ask_inner", "Asks.")],
    )
    response = await ask(outer)
    assert response.unwrap() == "seven"
    assert response.usage.total == 3 * (PROMPT + COMPLETION)


async def test_a_call_that_waits_for_approval_is_no_answer() -> None:
    @function_tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    response = await ask(Agent(name="tea", model=FollowsScript(use_once("pay", {})), tools=[pay]))
    assert response.fault is not None
    assert response.fault.code is Code.DELEGATION_FAILED
    assert "pay" in response.fault.message


async def test_nothing_is_traced() -> None:
    """By default every run is sent to OpenAI by a thread, prompts and all."""
    before = set(threading.enumerate())
    inner = Agent(name="inner", model=FollowsScript(say("seven")))
    tools = [inner.as_tool("ask_inner", "Asks.")]
    outer = Agent(name="outer", model=FollowsScript(use_once("ask_inner", {"input": "count"})), tools=tools)
    (await ask(outer)).unwrap()
    assert [thread for thread in set(threading.enumerate()) - before if not thread.name.startswith("remit")] == []


async def test_a_tool_that_may_not_be_used_is_told_to_the_model_if_it_names_it() -> None:
    """The SDK would end the run: it does not know the tool."""
    used: list[str] = []
    errors: list[str] = []

    def shred() -> str:
        used.append("shred")
        return "shredded"

    async def script(seen: Seen) -> Say | Use:
        errors.extend(seen.tool_results)
        assert "shred" not in seen.tools
        return Say(["Then not."]) if seen.tool_results else Use("shred", {})

    response = await ask(Agent(name="tea", model=FollowsScript(script), tools=[function_tool(shred)]), tools=())
    assert response.unwrap() == "Then not."
    assert (used, response.tool_calls) == ([], ())
    assert errors == ["Error TOOL_NOT_ALLOWED: shred may not be used here"]
