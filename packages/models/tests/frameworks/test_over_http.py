"""The frameworks that come with a client for OpenAI's protocol, with a model behind a real socket."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from frameworks.conftest import installed
from openai_server import OpenAIServer, call, say
from remit import Hub, Response
from remit.protocol.records import Delta, Record
from remit_testing.memory import MemoryStore

pytestmark = pytest.mark.filterwarnings("ignore")  # frameworks warn of much that they do themselves


Closer = Callable[[], Awaitable[None]]


def pydantic_ai(url: str) -> tuple[object, Closer]:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(base_url=url, api_key="k")
    return Agent(OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))), client.close


def openai_agents(url: str) -> tuple[object, Closer]:
    from agents import Agent, OpenAIChatCompletionsModel
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=url, api_key="k")
    return Agent(name="tea", model=OpenAIChatCompletionsModel("gpt-5-mini", openai_client=client)), client.close


def crewai(url: str) -> tuple[object, Closer]:
    from crewai import LLM, Agent

    llm = LLM(model="openai/gpt-5-mini", base_url=url, api_key="k", stream=True)
    return Agent(role="Seller", goal="Sell tea", backstory="You run a tea shop.", llm=llm), nothing


async def nothing() -> None: ...


MADE = [
    pytest.param(make, id=make.__name__)
    for make, package in ((pydantic_ai, "pydantic_ai"), (openai_agents, "agents"), (crewai, "crewai"))
    if installed(package)
]


@pytest.mark.parametrize("make", MADE)
async def test_a_real_client_delegates_streams_and_is_metered(
    make: Callable[[str], tuple[object, Closer]], capfd: pytest.CaptureFixture[str]
) -> None:
    script = [
        call("sub_agent", agent_name="stock", task="How much is there?"),
        say("There are twelve tins of it.", usage=(50, 20)),
    ]
    records: list[Record] = []
    with OpenAIServer(script) as server:
        hub = Hub(store=MemoryStore(), redaction=False)

        @hub.agent("stock")
        async def stock(brief: Any) -> str:
            return f"12 tins at depth {brief.remit.depth}"

        agent, close = make(server.base_url)
        hub.add("tea", agent, may_call=["stock"])
        async with hub:
            async for record in hub.stream("tea", "Sell me sencha", user="u-1", max_tokens=5_000):
                records.append(record)
        requests = server.requests
        await close()
    response = records[-1].body
    assert isinstance(response, Response)
    assert response.unwrap() == "There are twelve tins of it."
    assert len(requests) == 2
    assert "12 tins at depth 1" in str(requests[1].messages)
    texts = [record.body.text for record in records if isinstance(record.body, Delta)]
    assert "".join(texts) == "There are twelve tins of it."
    assert len(texts) > 1
    assert response.usage.total >= 100 or response.usage.estimated
    assert capfd.readouterr() == ("", "")
