"""A step of a workflow of ten, one after another, against the same ten asked for by an agent's own code.

The workflow survives a restart, says what it is at, tells each step what came before, and makes one answer of all. The
floor does none of that: an agent that delegates ten times, to the same agent in the same store. A step that may not be
done twice also waits until the store knows that it has begun, which is one commit. CPU time of all threads counts.
"""

import asyncio
import gc
import tempfile
from pathlib import Path

from harness import Figure, at_most, cpu_seconds, main, sized
from remit import Brief, Capability, Hub, Step, Workflow
from remit_orchestrator import add_workflow
from team import LIMITS

STEPS, RUNS, ROUNDS = sized((10, 40, 7), (2, 2, 1))
# Long enough for the store's writer to finish what it has begun, so that each is measured without the others.
SETTLE_S = 0.1

LOOK_UP, BOOK = "LOOK_UP", "BOOK"
GOALS = {LOOK_UP: at_most(3), BOOK: at_most(5)}
NAMES = {LOOK_UP: "workflow: a step that may be done twice", BOOK: "workflow: a step that may not"}


def hub_in(folder: Path) -> Hub:
    hub = Hub(store=folder / "hub.db", durability="process", limits=LIMITS)

    @hub.agent("desk", capabilities=[Capability(code=LOOK_UP, read_only=True), Capability(code=BOOK)])
    async def desk(_: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        return "constant"

    @hub.agent("by-hand", may_call=["desk"])
    async def by_hand(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        for number in range(STEPS):
            step = brief.delegate(
                "desk", objective=_objective(number), input={"number": number}, capability=brief.input, max_tokens=400
            )
            (await step).unwrap()
        return "done"

    for capability in GOALS:
        add_workflow(
            hub, Workflow(name=capability.lower(), steps=tuple(_step(number, capability) for number in range(STEPS)))
        )
    return hub


def _objective(number: int) -> str:
    return f"Do part {number}"


def _step(number: int, capability: str) -> Step:
    return Step(
        name=f"part_{number}",
        agent="desk",
        capability=capability,
        objective=_objective(number),
        input={"number": number},
        tokens=400,
        after=(f"part_{number - 1}",) if number else (),
    )


async def ask(hub: Hub, agent: str, capability: str) -> None:
    """Have it done so often; what did not happen was not fast."""
    for _ in range(RUNS):
        (await hub.ask(agent, "do it", user="u", input=capability)).unwrap()


async def compare(folder: Path) -> list[Figure]:
    best: dict[tuple[str, str], float] = {}
    async with hub_in(folder) as hub:
        for _ in range(ROUNDS):
            for capability in GOALS:
                for agent in ("by-hand", capability.lower()):
                    gc.collect()
                    await asyncio.sleep(SETTLE_S)
                    start = cpu_seconds()
                    await ask(hub, agent, capability)
                    taken = (cpu_seconds() - start) / RUNS / STEPS * 1e6
                    best[agent, capability] = min(taken, best.get((agent, capability), taken))
    return [
        Figure(
            name=NAMES[capability],
            value=best[capability.lower(), capability],
            floor=best["by-hand", capability],
            unit="µs",
            bound=goal,
        )
        for capability, goal in GOALS.items()
    ]


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(compare(Path(folder)))


if __name__ == "__main__":
    main(measure)
