"""Microsoft's Agent Governance Toolkit: it judges what agents of other frameworks do, and runs none itself."""

import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

warnings.simplefilter("ignore")

from agent_os import ContextScheduler, CredentialRedactor, ExecutionContext, StatelessKernel
from agent_os.lite import govern
from hypervisor.saga.orchestrator import SagaOrchestrator
from measuring import BUDGET, CALLS, COST, DEADLINE_S, TEXT, Ask, main

PACKAGES = ("agent-governance-toolkit-core",)
REPEATS = 500
MEANS = {
    "loop": "`govern(max_calls=50)`",
    "budget": "`ContextScheduler`",
    "deadline": "`timeout_seconds` of a saga's step",
    "crash": "none: a saga is kept in memory",
    "personal_data": "`CredentialRedactor.contains_pii`",
}


async def hop(measured: Callable[[Ask], Awaitable[None]]) -> None:
    kernel = StatelessKernel()
    context = ExecutionContext(agent_id="boss", policies=["read_only", "no_pii"])

    async def worker() -> str:
        return "constant"

    async def ask() -> str:
        judged = await kernel.execute("ask_worker", {"task": "x"}, context)
        assert judged.success
        return await worker()

    await measured(ask)


async def loop(turn: Callable[[], None]) -> None:
    check = govern(max_calls=50, log=False)

    async def ask(name: str, other: str) -> None:
        check(f"ask_{name}")
        turn()
        await ask(other, name)

    await ask("a", "b")


async def budget(spend: Callable[[], None]) -> None:
    scheduler = ContextScheduler(total_budget=BUDGET)
    scheduler.allocate("worker", "Go", max_tokens=BUDGET)
    for _ in range(CALLS):
        spend()
        scheduler.record_usage("worker", lookup_tokens=COST)


async def deadline(work: Ask) -> bool:
    sagas = SagaOrchestrator()
    saga = sagas.create_saga("session")
    step = sagas.add_step(saga.saga_id, "work", "did:worker", "/work", timeout_seconds=int(DEADLINE_S))
    await sagas.execute_step(saga.saga_id, step.step_id, work)
    return False


async def steps(folder: Path, pay: Callable[[], None], ship: Callable[[], None]) -> None:
    async def first() -> None:
        pay()

    async def second() -> None:
        ship()

    sagas = SagaOrchestrator()
    saga = sagas.create_saga("order-1")
    for name, run in (("pay", first), ("ship", second)):
        step = sagas.add_step(saga.saga_id, name, "did:worker", f"/{name}")
        await sagas.execute_step(saga.saga_id, step.step_id, run)


async def personal_data(seen: list[str]) -> str:
    if CredentialRedactor.contains_pii(TEXT):
        raise PermissionError
    seen.append(TEXT)
    return "Sent."


if __name__ == "__main__":
    main(sys.modules[__name__], __file__)
