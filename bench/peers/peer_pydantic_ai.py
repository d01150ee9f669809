"""pydantic-ai, with DBOS for what must survive a crash."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from measuring import BUDGET, CALLS, COST, DEADLINE_S, TEXT, Ask, main
from pydantic_ai import Agent, ModelResponse, RunContext, TextPart, ToolCallPart, UsageLimits
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

PACKAGES = ("pydantic-ai-slim", "dbos")
REPEATS = 300
MEANS = {
    "loop": "`request_limit`, by default, if `usage` is passed on",
    "budget": "`total_tokens_limit`, if `usage` is passed on",
    "deadline": "`timeout` of a run",
    "crash": "`DBOSAgent` (also Temporal, Prefect)",
    "personal_data": "none",
}


def model_of(*tools: str, cost: int = 1) -> FunctionModel:
    """Return a model that calls one tool after another, then answers."""

    def answer(messages, info) -> ModelResponse:
        used = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
        part = ToolCallPart(tools[used], {}) if used < len(tools) else TextPart("done")
        return ModelResponse(parts=[part], usage=RequestUsage(input_tokens=cost))

    return FunctionModel(answer)


async def hop(measured: Callable[[Ask], Awaitable[None]]) -> None:
    agent = Agent(TestModel(custom_output_text="constant"))
    await measured(lambda: agent.run("x"))


async def loop(turn: Callable[[], None]) -> None:
    a, b = Agent(model_of("ask_b")), Agent(model_of("ask_a"))

    @a.tool
    async def ask_b(context: RunContext) -> str:
        turn()
        return (await b.run("Go", usage=context.usage)).output

    @b.tool
    async def ask_a(context: RunContext) -> str:
        turn()
        return (await a.run("Go", usage=context.usage)).output

    await a.run("Go")


async def budget(spend: Callable[[], None]) -> None:
    worker = Agent(model_of(cost=COST))
    boss = Agent(model_of(*["ask"] * CALLS))
    limits = UsageLimits(total_tokens_limit=BUDGET, request_limit=None)

    @boss.tool
    async def ask(context: RunContext) -> str:
        spend()
        return (await worker.run("Go", usage=context.usage, usage_limits=limits)).output

    await boss.run("Go", usage_limits=limits)


async def deadline(work: Ask) -> bool:
    agent = Agent(model_of("wait"))

    @agent.tool_plain
    async def wait() -> str:
        await work()
        return "done"

    await agent.run("Go", timeout=DEADLINE_S)
    return False


async def steps(folder: Path, pay: Callable[[], None], ship: Callable[[], None]) -> None:
    from dbos import DBOS, SetWorkflowID
    from pydantic_ai.durable_exec.dbos import DBOSAgent

    agent = Agent(model_of("first", "second"), name="order")

    @agent.tool_plain
    @DBOS.step()
    async def first() -> str:
        pay()
        return "paid"

    @agent.tool_plain
    @DBOS.step()
    async def second() -> str:
        ship()
        return "shipped"

    durable = DBOSAgent(agent)
    DBOS(config={"name": "order", "system_database_url": f"sqlite:///{folder / 'dbos.db'}"})
    DBOS.launch()  # takes up what was left behind
    with SetWorkflowID("order-1"):
        await durable.run("Go")
    DBOS.destroy()


async def personal_data(seen: list[str]) -> str:
    def answer(messages, info) -> ModelResponse:
        seen.append(str(messages))
        return ModelResponse(parts=[TextPart("Sent.")])

    return (await Agent(FunctionModel(answer)).run(TEXT)).output


if __name__ == "__main__":
    main(sys.modules[__name__], __file__)
