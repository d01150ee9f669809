"""An earlier answer is given again only to a call that gave its callee the same."""

from typing import Any

import pytest

from remit import Brief, Capability, Handoff, Hub
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock

CASES: list[tuple[list[dict[str, Any]], int]] = [
    ([{}, {}], 1),
    ([{"handoff": Handoff(data={"rows": [1]})}, {"handoff": Handoff(data={"rows": [2]})}], 2),
    ([{"handoff": Handoff(data={"rows": [1]})}, {"handoff": Handoff(data={"rows": [1]})}], 1),
    ([{"handoff": Handoff(facts=("write to ann@example.org",))}] * 2, 1),
    ([{"hints": ("in euros",)}, {"hints": ("in dollars",)}], 2),
    ([{"session": "one"}, {"session": "two"}], 2),
]


@pytest.mark.parametrize(("others", "ran"), CASES)
async def test_what_is_handed_over_with_a_call_makes_it_another_question(others: list[Any], ran: int) -> None:
    """X5: two equal calls that only read, with other rows to add up, have two answers."""
    hub, asked = Hub(store=MemoryStore(), clock=ManualClock()), list[Any]()

    @hub.agent("sums", capabilities=[Capability(code="SUM", read_only=True)])
    async def sums(brief: Brief) -> int:
        asked.append(brief.handoff.data)
        return len(asked)

    @hub.agent("boss", may_call=["sums"])
    async def boss(brief: Brief) -> Any:
        calls = [await brief.delegate("sums", capability="SUM", objective="Add up", **other) for other in others]
        return [call.unwrap() for call in calls]

    async with hub:
        assert (await hub.ask("boss", "x", user="u")).unwrap() == [1, ran]
