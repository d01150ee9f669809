"""Put an agent of pydantic-ai into a hub: it uses a tool of its own and asks an agent of the hub, within its remit."""

import asyncio

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from remit import Brief, Hub
from remit_testing import MemoryStore
from scripted import scripted_model

STEPS = (
    {"price": {"tea": "sencha"}},
    {"sub_agent": {"agent_name": "stock", "task": "How much sencha is there?"}},
    "Sencha costs 4.20 euros, and there are 12 tins.",
)


def price(tea: str) -> float:
    """Look up the price of a tea."""
    return {"sencha": 4.2}[tea]


async def stock(brief: Brief) -> str:
    """Knows how much there is of each tea."""
    return f"12 tins (asked for {brief.user} at depth {brief.remit.depth})"


async def main() -> None:
    with scripted_model(STEPS) as url:
        client = AsyncOpenAI(base_url=url, api_key="none")
        model = OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))
        hub = Hub(store=MemoryStore())
        hub.add("stock", stock)
        hub.add("shop", Agent(model, tools=[price], instructions="You run a tea shop."), may_call=["stock"])
        async with client, hub:
            response = await hub.ask("shop", "What does sencha cost, and is it there?", user="ada", max_tokens=5_000)
            print(response.unwrap())
            print("tools:", ", ".join(response.tool_calls))
            for each in await hub.delegations(response.run):
                print(f"{each.origin} -> {each.target}: {each.status}")


if __name__ == "__main__":
    asyncio.run(main())
