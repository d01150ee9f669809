"""Put an agent of the OpenAI Agents SDK into a hub: a budget ends its loop, whatever its model asks for."""

import asyncio

from agents import Agent, OpenAIChatCompletionsModel, function_tool
from openai import AsyncOpenAI

from remit import Hub
from remit_testing import MemoryStore
from scripted import scripted_model


@function_tool
def search(word: str) -> str:
    """Search the web."""
    return f"Nothing found for {word}. Try another word."


async def main() -> None:
    endless = ({"search": {"word": f"word {number}"}} for number in range(1_000_000))
    with scripted_model(endless) as url:
        client = AsyncOpenAI(base_url=url, api_key="none")
        model = OpenAIChatCompletionsModel("gpt-5-mini", openai_client=client)
        hub = Hub(store=MemoryStore())
        hub.add("researcher", Agent(name="researcher", model=model, tools=[search]))
        async with client, hub:
            response = await hub.ask("researcher", "Find it", user="ada", max_tokens=2_000)
            fault = response.fault
            print(f"{response.status}: {fault and fault.code}")
            print(f"searched {len(response.tool_calls)} times, within the budget: {response.usage.total <= 2_000}")


if __name__ == "__main__":
    asyncio.run(main())
