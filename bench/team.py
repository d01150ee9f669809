"""The small teams that the benchmarks drive."""

from pathlib import Path
from typing import Literal

from remit import Brief, Call, Hub, Limits
from remit_cli import Rule, guard_of

# No limit of these is what is measured; they only must not stop a run of thousands.
PLENTY = 1_000_000_000
LIMITS = Limits(
    max_fan_out=100,
    max_agent_delegations=PLENTY,
    max_delegations=PLENTY,
    max_record_bytes=PLENTY,
    root_tokens=PLENTY,
)
FAN_OUT = 3


def flat_hub(folder: Path, durability: Literal["power", "process"] = "process") -> Hub:
    """A asks B as often as its input says: one after another, or so many at once as its objective says."""
    hub = Hub(store=folder / "hub.db", durability=durability, limits=LIMITS)

    @hub.agent("b")
    async def b(_: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        return "constant"

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        at_once, count = int(brief.objective), int(brief.input)
        if at_once == 1:
            for index in range(count):
                (await brief.delegate("b", objective=f"errand {index}", max_tokens=400)).unwrap()
        for start in range(0, count if at_once > 1 else 0, at_once):
            wanted = [Call(target="b", objective=f"errand {start + index}", max_tokens=400) for index in range(at_once)]
            for response in await brief.fan_out(wanted):
                response.unwrap()
        return "done"

    return hub


def tool_hub(folder: Path) -> Hub:
    """A uses a tool as often as its input says, under a rule that reads its arguments."""
    rules = [Rule(then="refuse", tool="pay", where={"amount": "> 100"})]
    hub = Hub(store=folder / "tools.db", durability="process", limits=LIMITS, guards=[guard_of(rules)])

    @hub.tool(safe_to_repeat=True)
    async def pay(to: str, amount: int) -> str:  # pyright: ignore[reportUnusedFunction]
        return f"paid {amount} to {to}"

    @hub.agent("a", tools=["pay"])
    async def a(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        for index in range(int(brief.input)):
            await brief.use("pay", to=f"person {index}", amount=5)
        return "done"

    return hub


def tree_hub(folder: Path, depth: int) -> Hub:
    """Every agent asks three on the level below, down to *depth*."""
    hub = Hub(store=folder / "hub.db", durability="process", limits=LIMITS)

    async def ask_below(brief: Brief) -> str:
        level = brief.remit.depth
        if level < depth:
            wanted = [
                Call(target=f"level-{level + 1}", objective=f"branch {index}", max_tokens=1_000_000 // 10**level)
                for index in range(FAN_OUT)
            ]
            for response in await brief.fan_out(wanted):
                response.unwrap()
        return "constant"

    for level in range(depth + 1):
        hub.agent(f"level-{level}", may_call=[f"level-{level + 1}"] if level < depth else [])(ask_below)
    return hub
