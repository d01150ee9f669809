"""Remit, with its store on disk, every guard and every record; it needs the extra `llm`."""

import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from measuring import BUDGET, CALLS, COST, DEADLINE_S, TEXT, Ask, main, medians_us

from remit import Answer, Brief, Hub, Limits, Response, Step, Workflow
from remit_orchestrator import add_workflow
from remit_testing import MemoryStore

PACKAGES = ("remit",)
REPEATS = 1_000
MORE_REPEATS = 300
MEANS = {
    "loop": "guards, by default",
    "budget": "`max_tokens`",
    "deadline": "`deadline_ms`",
    "crash": "a workflow, by default",
    "personal_data": "redaction, by default",
}
PLENTY = 1_000_000_000


async def hop(measured: Callable[[Ask], Awaitable[None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(max_agent_delegations=PLENTY, max_delegations=PLENTY, root_tokens=PLENTY)
        hub = Hub(store=Path(folder) / "hub.db", limits=limits)

        async def worker(_: Brief) -> str:
            return "constant"

        async def boss(brief: Brief) -> None:
            numbers = iter(range(PLENTY))

            async def ask() -> Response:
                return await brief.delegate("worker", objective=f"errand {next(numbers)}", max_tokens=400)

            await measured(ask)

        hub.add("worker", worker)
        hub.add("boss", boss, may_call=["worker"])
        async with hub:
            (await hub.ask("boss", "Go", user="u")).unwrap()


async def more() -> dict[str, float]:
    """Measure an agent of pydantic-ai as it is, and the same agent asked by another in a hub."""
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    agent, medians = Agent(TestModel(custom_output_text="constant")), dict[str, float]()
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(max_agent_delegations=PLENTY, max_delegations=PLENTY, root_tokens=PLENTY)
        hub = Hub(store=Path(folder) / "hub.db", limits=limits)

        async def boss(brief: Brief) -> None:
            numbers = iter(range(PLENTY))

            async def ask() -> Response:
                return await brief.delegate("worker", objective=f"errand {next(numbers)}")

            runs = {"agent_in_hub_us": ask, "agent_alone_us": lambda: agent.run("x")}
            medians.update(await medians_us(runs, MORE_REPEATS))

        hub.add("worker", agent)
        hub.add("boss", boss, may_call=["worker"])
        async with hub:
            (await hub.ask("boss", "Go", user="u")).unwrap()
    return medians


async def loop(turn: Callable[[], None]) -> None:
    hub = Hub(store=MemoryStore())

    def asking(other: str) -> Callable[[Brief], Awaitable[object]]:
        async def ask(brief: Brief) -> object:
            turn()
            return (await brief.delegate(other, objective=f"Ask {other}")).unwrap()

        return ask

    hub.add("a", asking("b"), may_call=["b"])
    hub.add("b", asking("a"), may_call=["a"])
    async with hub:
        (await hub.ask("a", "Go", user="u")).unwrap()


async def budget(spend: Callable[[], None]) -> None:
    hub = Hub(store=MemoryStore())

    async def worker(brief: Brief) -> str:
        spend()
        brief.spend(prompt=COST)
        return "done"

    async def boss(brief: Brief) -> None:
        for number in range(CALLS):
            (await brief.delegate("worker", objective=f"Part {number}", max_tokens=COST)).unwrap()

    hub.add("worker", worker)
    hub.add("boss", boss, may_call=["worker"])
    async with hub:
        (await hub.ask("boss", "Go", user="u", max_tokens=BUDGET)).unwrap()


async def deadline(work: Ask) -> bool:
    hub = Hub(store=MemoryStore())

    async def worker(brief: Brief) -> object:
        brief.progress("half", partial=Answer("half", finished=("first",), unfinished=("second",)))
        return await work()

    hub.add("worker", worker)
    async with hub:
        response = await hub.ask("worker", "Go", user="u", deadline_ms=int(DEADLINE_S * 1_000))
    return response.result == "half"


async def steps(folder: Path, pay: Callable[[], None], ship: Callable[[], None]) -> None:
    hub = Hub(store=folder / "hub.db")
    hub.add("till", lambda _: pay())  # pyright: ignore[reportUnknownLambdaType]
    hub.add("warehouse", lambda _: ship(), resumable=True)  # pyright: ignore[reportUnknownLambdaType]
    both = (Step(name="pay", agent="till"), Step(name="ship", agent="warehouse", after=("pay",)))
    add_workflow(hub, Workflow(name="order", steps=both))
    async with hub:
        await hub.ask("order", "Go", user="u", request_id="order-1")


async def personal_data(seen: list[str]) -> str:
    hub = Hub(store=MemoryStore())

    async def clerk(brief: Brief) -> str:
        seen.append(brief.text)
        return f"Sent: {brief.text}"

    hub.add("clerk", clerk)
    async with hub:
        return str((await hub.ask("clerk", TEXT, user="u")).unwrap())


if __name__ == "__main__":
    main(sys.modules[__name__], __file__)
