"""Let a node of a LangGraph graph delegate: the graph is an agent of the hub, and so are those that it asks."""

import asyncio
from typing import TypedDict

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph

from remit import Brief, Hub
from remit_testing import MemoryStore

model = GenericFakeChatModel(messages=iter([AIMessage("Dear Ada, your 12 tins of sencha are on their way.")]))


class Order(TypedDict, total=False):
    tea: str
    tins: int
    mail: str


async def stock(_: Brief) -> int:
    return 12


async def fill(state: Order, config: RunnableConfig) -> Order:
    brief: Brief = config["configurable"]["brief"]
    reply = await brief.delegate("stock", objective=f"How much {state['tea']} is there?", deadline_ms=2_000)
    return {"tins": min(state["tins"], reply.unwrap())}


async def write(state: Order) -> Order:
    return {"mail": (await model.ainvoke(f"Tell Ada that {state['tins']} tins come.")).text}


async def main() -> None:
    builder = StateGraph(Order)
    builder.add_sequence([fill, write])
    builder.add_edge(START, "fill")
    hub = Hub(store=MemoryStore())
    hub.add("stock", stock)
    hub.add("orders", builder.compile(), may_call=["stock"])
    async with hub:
        response = await hub.ask("orders", "Fill it", user="ada", input={"tea": "sencha", "tins": 20})
        print(response.unwrap())
        for each in await hub.delegations(response.run):
            print(f"{each.origin} -> {each.target}: {each.status}")


if __name__ == "__main__":
    asyncio.run(main())
