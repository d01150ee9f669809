"""A model has another agent's answer go out as it is, or goes on with an agent where it stopped."""

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from remit import Answer, Brief, Hub
from remit_models import ModelAgent
from remit_testing import MemoryStore


@pytest.mark.parametrize("several", [False, True])
async def test_an_answer_is_relayed_as_it_is_unless_the_model_called_more_tools(several: bool) -> None:
    calls = 0

    def planner(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        nonlocal calls
        calls += 1
        if calls > 1:
            return ModelResponse(parts=[TextPart("in other words")])
        ask = {"agent_name": "clerk", "task": "count", "relay": "as is"}
        return ModelResponse(
            parts=[ToolCallPart("sub_agent", {**ask, "task": f"count {n}"}) for n in range(1 + several)]
        )

    hub = Hub(store=MemoryStore())
    hub.add("planner", ModelAgent(FunctionModel(planner), sub_agent_arguments="relay"), may_call=["clerk"])

    @hub.agent("clerk")
    async def clerk(_: Brief) -> Answer:
        return Answer("seven", confidence=0.9)

    async with hub:
        response = await hub.ask("planner", "count", user="u", session="s")
        again = await hub.ask("planner", "again", user="u", session="s")
    assert (response.result, response.confidence) == (("in other words", None) if several else ("seven", 0.9))
    assert again.result == "in other words"
    assert calls == (3 if several else 2)


async def test_a_failed_sub_agent_is_not_relayed() -> None:
    read: list[str] = []

    def planner(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        parts = [part for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
        read.extend(part.model_response_str() for part in parts)
        ask = {"agent_name": "clerk", "task": "count", "relay": "as is"}
        return ModelResponse(parts=[TextPart("sorry") if parts else ToolCallPart("sub_agent", ask)])

    hub = Hub(store=MemoryStore())
    hub.add("planner", ModelAgent(FunctionModel(planner)), may_call=["clerk"])

    @hub.agent("clerk")
    async def clerk(_: Brief) -> str:
        raise ValueError("out of order")

    async with hub:
        assert (await hub.ask("planner", "count", user="u")).result == "sorry"
    assert '"success":false' in read[0].replace(" ", "")


async def test_a_sub_agent_goes_on_where_it_stopped_with_the_name_of_its_session() -> None:
    """X16: within the session of its caller."""
    heard: list[list[str]] = []
    asked = iter(["day", "day", "night"])

    def planner(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(
            parts=[ToolCallPart("sub_agent", {"agent_name": "clerk", "task": "go on", "session": next(asked)})]
        )

    hub = Hub(store=MemoryStore())
    hub.add("planner", ModelAgent(FunctionModel(planner)), may_call=["clerk"])

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        heard.append([message.text for message in await brief.history()])
        return "gone on"

    async with hub:
        for text in ("one", "two", "three"):
            await hub.ask("planner", text, user="u", session="s")
    assert heard == [[], ["go on", "gone on"], []]
