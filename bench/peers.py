"""One delegation as frameworks make it, with a model that answers at once: for comparison, where they are installed.

Each function returns a coroutine function that has one agent answer one request: what a caller pays for asking a
sub-agent, without guards, deadlines, budgets or records. `.venv-frameworks/bin/python bench/hop.py` prints them.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

Ask = Callable[[], Awaitable[object]]


def pydantic_ai() -> Ask:
    model = import_module("pydantic_ai.models.test").TestModel(custom_output_text="constant")
    agent: Any = import_module("pydantic_ai").Agent(model)
    return lambda: agent.run("x")


def langgraph() -> Ask:
    graphs = import_module("langgraph.graph")

    async def answer(state: dict[str, str]) -> dict[str, str]:
        return {**state, "answer": "constant"}

    graph: Any = graphs.StateGraph(dict)
    graph.add_node("answer", answer)
    graph.add_edge(graphs.START, "answer")
    graph.add_edge("answer", graphs.END)
    compiled = graph.compile()
    return lambda: compiled.ainvoke({"question": "x"})


def autogen() -> Ask:
    replay: Any = import_module("autogen_ext.models.replay")
    agents: Any = import_module("autogen_agentchat.agents")
    # More answers than are ever asked for: it is asked for one at a time.
    model = replay.ReplayChatCompletionClient(["constant"] * 100_000)
    agent = agents.AssistantAgent("b", model)

    async def ask() -> object:
        await agent.on_reset(None)
        return await agent.run(task="x")

    return ask


PEERS: dict[str, Callable[[], Ask]] = {"pydantic-ai": pydantic_ai, "langgraph": langgraph, "autogen": autogen}


def installed() -> dict[str, Ask]:
    """Return the peers that are installed beside Remit, ready to be asked."""
    found: dict[str, Ask] = {}
    for name, make in PEERS.items():
        try:
            found[name] = make()
        except ModuleNotFoundError:
            continue
    return found
