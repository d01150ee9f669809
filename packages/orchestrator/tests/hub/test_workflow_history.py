"""A step whose context is filtered is not given the whole conversation beside what the filter lets it see."""

from typing import Any

import pytest

from remit import Brief, ContextFilter, Hub, Step, Workflow
from remit_orchestrator import add_workflow
from remit_testing.memory import MemoryStore


@pytest.mark.parametrize(("context", "handed"), [(None, "s"), (ContextFilter(last_messages=1, known="none"), None)])
async def test_a_step_is_given_the_conversation_unless_it_says_what_its_callee_sees(
    context: ContextFilter | None, handed: Any
) -> None:
    """K5, O2."""
    hub, seen = Hub(store=MemoryStore()), list[Any]()

    @hub.agent("writer")
    async def writer(brief: Brief) -> str:
        seen.append(brief.handoff.history)
        return "written"

    step = Step(name="write", agent="writer", objective="Write", context=context)
    add_workflow(hub, Workflow(name="report", steps=(step,)))
    async with hub:
        (await hub.ask("report", "A report, please", user="anna", session="s")).unwrap()
    assert seen == [handed]
