"""The airline example of the OpenAI Agents SDK in a hub, against the same conversation in the SDK alone.

The models are one server that speaks the protocol of chat completions; it counts what it is asked.
"""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool, handoff
from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from openai_server import OpenAIServer, Reply, Request, call, say
from remit import ContextFilter, Handover, Hub
from remit.ports.brief import Brief
from remit_models import ModelAgent
from remit_testing import MemoryStore

TURNS = ("I want another seat.", "AB12, seat 7C", "How many bags may I bring?", "And how heavy?", "Thanks!")
DONE = ("Which booking, and which seat?", "AB12 sits in 7C now.", "One bag.", "23 kilos.", "Have a good flight.")
# Triage, seats | seats, tool | seats, triage, questions, tool | questions, tool | questions.
CALLS = 2 + 2 + 4 + 2 + 1


def airline(request: Request) -> Reply:
    """Reply as the model of the agent whose instructions these are."""
    system = next(each["content"] for each in request.messages if each["role"] == "system")
    asked = [each for each in request.messages if each["role"] == "user"][-1]["content"]
    last = request.messages[-1]
    found = str(last["content"]) if last["role"] == "tool" and "assistant" not in str(last["content"]) else ""
    about_bags = "bags" in asked or "heavy" in asked
    if "triage" in system:
        return call(tool(request, "faq" if about_bags else "seat"))
    if "seats" in system:
        if about_bags:
            return call(tool(request, "triage|airline"))
        if "7C" not in asked:
            return say(DONE[0])
        return say(DONE[1]) if "updated" in found else call("update_seat", booking="AB12", seat="7C")
    if not about_bags:
        return say(DONE[4])
    return say(DONE[2 if "bags" in asked else 3]) if "kilos" in found else call("faq_lookup", question=asked)


def tool(request: Request, to: str) -> str:
    return next(name for name in request.tools if re.match(rf"transfer_to_({to})", name))


def update_seat(booking: str, seat: str) -> str:
    """Give a passenger another seat."""
    return f"updated {booking} to {seat}"


def faq_lookup(question: str) -> str:
    """Look something up."""
    return "one bag of 23 kilos"


def client_of(server: OpenAIServer) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0)


def team(client: AsyncOpenAI) -> Agent[Any]:
    """The example as it stands in the SDK: a triage agent and two specialists, which hand back what is not theirs."""
    model = OpenAIChatCompletionsModel("scripted", client)
    faq = Agent(name="FAQ agent", instructions="You answer questions.", tools=[function_tool(faq_lookup)], model=model)
    seats = Agent(name="Seat agent", instructions="You change seats.", tools=[function_tool(update_seat)], model=model)
    triage = Agent(name="Triage agent", instructions="You triage.", handoffs=[faq, handoff(seats)], model=model)
    faq.handoffs.append(triage)
    seats.handoffs.append(triage)
    return triage


async def in_sdk(first: Agent[Any]) -> list[str]:
    """Hold the conversation as the example does: with the last agent, and all items so far."""
    agent, items, answers = first, list[Any](), list[str]()
    for text in TURNS:
        items.append({"role": "user", "content": text})
        result = await Runner.run(agent, items, run_config=RunConfig(tracing_disabled=True))
        agent, items = result.last_agent, result.to_input_list()
        answers.append(result.final_output)
    return answers


async def in_hub(hub: Hub, turns: Sequence[str] = TURNS) -> list[str]:
    async with hub:
        return [(await hub.ask("airline", text, user="u", session="s")).unwrap() for text in turns]


async def test_a_team_of_the_sdk_needs_no_more_model_calls_than_in_the_sdk() -> None:
    with OpenAIServer(airline) as server:
        async with client_of(server) as client:
            assert await in_sdk(team(client)) == list(DONE)
        alone = len(server.requests)
    with OpenAIServer(airline) as server:
        hub = Hub(store=MemoryStore())
        async with client_of(server) as client:
            hub.add("airline", team(client))
            assert await in_hub(hub) == list(DONE)
    assert (len(server.requests), alone) == (CALLS, CALLS)


@pytest.mark.parametrize("kind", ["sdk", "model"])
async def test_the_same_with_an_agent_of_the_hub_for_each(kind: str) -> None:
    """Each specialist is judged, recorded and limited by the hub, and nothing costs a model call more."""
    with OpenAIServer(airline) as server:
        hub = Hub(store=MemoryStore())
        for function in (update_seat, faq_lookup):
            hub.tool(safe_to_repeat=True)(function)
        async with client_of(server) as client:

            def agent(instructions: str) -> Any:
                if kind == "sdk":
                    return Agent(name="x", instructions=instructions, model=OpenAIChatCompletionsModel("x", client))
                provider = OpenAIProvider(openai_client=client)
                return ModelAgent(OpenAIChatModel("scripted", provider=provider), prompt=instructions)

            to = ["seat", "faq"]
            hub.add("airline", agent("You triage."), may_call=to, hands_over_to=to)
            hub.add("seat", agent("You change seats."), tools=["update_seat"])
            hub.add("faq", agent("You answer questions."), tools=["faq_lookup"])
            answers = await in_hub(hub)
    assert answers == list(DONE)
    assert len(server.requests) == CALLS


async def test_the_specialist_sees_the_conversation_as_far_as_its_filter_says() -> None:
    with OpenAIServer(airline) as server:
        hub = Hub(store=MemoryStore())
        hub.tool(safe_to_repeat=True)(faq_lookup)

        @hub.agent("airline", may_call=["faq"])
        async def front(brief: Brief) -> Any:
            from remit import Answer

            users = ContextFilter(roles=frozenset({"user"}))
            return (
                Answer(handover=Handover(to="faq", context=users)) if "bags" in brief.text else Answer("SECRET hello")
            )

        async with client_of(server) as client:
            model = OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=client))
            hub.add("faq", ModelAgent(model, prompt="You answer questions."), tools=["faq_lookup"])
            answers = await in_hub(hub, ["My name is Ada.", "How many bags may I bring?", "And how heavy?"])
    assert answers[1:] == [DONE[2], DONE[3]]
    first, *_, last = server.requests
    assert [each["content"] for each in first.messages if each["role"] != "system"] == ["My name is Ada.", TURNS[2]]
    assert "SECRET" not in "".join(each.text for each in server.requests)
    assert "one bag of 23 kilos" in last.text
    assert last.text.count("My name is Ada.") == 1
