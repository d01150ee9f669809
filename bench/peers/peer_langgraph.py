"""LangGraph, with LangChain's middleware and the checkpointer of SQLite."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from operator import add
from pathlib import Path
from typing import Annotated, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import PIIMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from measuring import CALLS, DEADLINE_S, TEXT, Ask, main

PACKAGES = ("langgraph", "langchain", "langgraph-checkpoint-sqlite")
REPEATS = 500
MEANS = {
    "loop": "`recursion_limit`, set to 25; the default is 10,007",
    "budget": "none for tokens",
    "deadline": "`step_timeout`",
    "crash": "a checkpointer",
    "personal_data": "`PIIMiddleware`",
}
THREAD = {"configurable": {"thread_id": "1"}}


class State(TypedDict, total=False):
    done: Annotated[list[str], add]


def graph_of(*nodes, loops=False):
    graph = StateGraph(State)
    graph.add_sequence(list(nodes))
    graph.add_edge(START, nodes[0].__name__)
    if loops:
        graph.add_edge(nodes[-1].__name__, nodes[0].__name__)
    return graph


async def hop(measured: Callable[[Ask], Awaitable[None]]) -> None:
    async def worker(state: State) -> State:
        return {"done": ["constant"]}

    compiled = graph_of(worker).compile()
    await measured(lambda: compiled.ainvoke({"done": []}))


async def loop(turn: Callable[[], None]) -> None:
    async def a(state: State) -> State:
        turn()
        return {}

    async def b(state: State) -> State:
        turn()
        return {}

    await graph_of(a, b, loops=True).compile().ainvoke({"done": []}, {"recursion_limit": 25})


async def budget(spend: Callable[[], None]) -> None:
    async def worker(state: State) -> State:
        spend()
        return {}

    async def boss(state: State) -> State:
        for _ in range(CALLS):
            await below.ainvoke({"done": []})
        return {}

    below = graph_of(worker).compile()
    await graph_of(boss).compile().ainvoke({"done": []})


async def deadline(work: Ask) -> bool:
    async def first(state: State) -> State:
        return {"done": ["first"]}

    async def second(state: State) -> State:
        await work()
        return {"done": ["second"]}

    compiled = graph_of(first, second).compile(checkpointer=InMemorySaver())
    compiled.step_timeout = DEADLINE_S
    try:
        await compiled.ainvoke({"done": []}, THREAD)
    except TimeoutError:
        return (await compiled.aget_state(THREAD)).values["done"] == ["first"]
    return False


async def steps(folder: Path, pay: Callable[[], None], ship: Callable[[], None]) -> None:
    async def first(state: State) -> State:
        pay()
        return {"done": ["first"]}

    async def second(state: State) -> State:
        await asyncio.sleep(0.2)  # the checkpoint of the first step is written beside the second
        ship()
        return {"done": ["second"]}

    async with AsyncSqliteSaver.from_conn_string(str(folder / "graph.db")) as saver:
        compiled = graph_of(first, second).compile(checkpointer=saver)
        known = await compiled.aget_state(THREAD)
        await compiled.ainvoke(None if known.next else {"done": []}, THREAD)


async def personal_data(seen: list[str]) -> str:
    class Listening(GenericFakeChatModel):
        def _generate(self, messages, *args, **options):
            seen.append(" ".join(message.text for message in messages))
            return super()._generate(messages, *args, **options)

    model = Listening(messages=iter([AIMessage("Sent.")]))
    agent = create_agent(model, middleware=[PIIMiddleware("email")])
    answer = await agent.ainvoke({"messages": [("user", TEXT)]})
    return answer["messages"][-1].text


if __name__ == "__main__":
    main(sys.modules[__name__], __file__)
