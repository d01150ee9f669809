"""Put a crew of CrewAI behind a hub: its agents share one budget, and what they ask others for is guarded."""

import asyncio

from crewai import LLM, Agent, Crew, Task

from remit import Brief, Hub
from remit_testing import MemoryStore
from scripted import scripted_model

STEPS = (
    {"sub_agent": {"agent_name": "stock", "task": "How much sencha is there?"}},
    "There are 12 tins of sencha.",
    "Dear Ada, we have 12 tins of sencha for you.",
)


async def stock(brief: Brief) -> str:
    """Knows how much there is of each tea."""
    return f"12 tins (asked for {brief.user} at depth {brief.remit.depth})"


async def main() -> None:
    with scripted_model(STEPS) as url:
        llm = LLM(model="openai/gpt-5-mini", base_url=url, api_key="none")
        seller = Agent(role="Seller", goal="Know the stock", backstory="You run a tea shop.", llm=llm)
        writer = Agent(role="Writer", goal="Write short letters", backstory="You are polite.", llm=llm)
        tasks = [
            Task(description="{task}", expected_output="A number of tins", agent=seller),
            Task(description="Write a letter to the customer.", expected_output="A letter", agent=writer),
        ]
        hub = Hub(store=MemoryStore())
        hub.add("stock", stock)
        hub.add("shop", Crew(agents=[seller, writer], tasks=tasks), may_call=["stock"])
        async with hub:
            response = await hub.ask("shop", "How much sencha is there?", user="ada")
            print(response.unwrap())
            for each in await hub.delegations(response.run):
                print(f"{each.origin} -> {each.target}: {each.status}")


if __name__ == "__main__":
    asyncio.run(main())
