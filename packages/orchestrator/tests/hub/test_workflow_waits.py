"""A workflow waits for the time that a callee gives only if it asks the same callee again."""

import asyncio
from typing import Any

import pytest

from remit import Answer, Brief, Code, Hub, RemitError, Step, Workflow, fault
from remit_orchestrator import add_workflow
from remit_testing import MemoryStore

# No other part of a hub sleeps for exactly this long.
WAIT_S = 20.125


async def test_a_step_without_an_attempt_left_does_not_wait_for_the_time_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A callee says to come back in 20 s: the last attempt goes on to the fallback, or fails, at once."""
    paused: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float, *rest: Any) -> None:
        if seconds == WAIT_S:
            paused.append(seconds)
        await sleep(0 if seconds == WAIT_S else seconds, *rest)

    monkeypatch.setattr("remit_orchestrator.workflow.asyncio.sleep", noted)
    hub = Hub(store=MemoryStore())

    async def busy(_: Brief) -> Answer:
        raise RemitError(fault(Code.RATE_LIMITED, "busy", retry_after_ms=int(WAIT_S * 1_000)))

    async def free(_: Brief) -> str:
        return "done"

    hub.add("busy", busy)
    hub.add("free", free)
    steps = (
        Step(name="one", agent="busy", objective="go", attempts=1, fallback=("free",)),
        Step(name="two", agent="busy", objective="go on", attempts=2, optional=True),
    )
    add_workflow(hub, Workflow(name="trip", steps=steps))
    async with hub:
        response = await hub.ask("trip", "go", user="u-1")
    assert response.ok
    assert paused == [WAIT_S]
