"""A request that runs out of time still gives what was finished."""

import asyncio

import pytest
from msgspec.structs import replace

from remit import Answer, Brief, Capability, Hub, Status

DOC = Capability(
    code="DOC_GENERATE",
    description="Write a document or report",
    examples=("write a report", "write a document"),
    read_only=True,
)


@pytest.mark.parametrize(("of_capability", "of_request"), [(300, 20_000), (None, 1_500)])
async def test_a_single_intent_that_times_out_is_partial_with_the_finished_part(
    hub: Hub, of_capability: int | None, of_request: int
) -> None:
    """K10: whoever runs out of time first."""

    @hub.agent("DOC", capabilities=[replace(DOC, time_ms=of_capability)])
    async def doc(brief: Brief) -> str:
        brief.progress("writing", partial=lambda: Answer("Chapter one is written.", unfinished=("chapter two",)))
        await asyncio.Event().wait()
        return ""

    assert doc
    hub.orchestrator()
    async with hub:
        response = await hub.ask("orchestrator", "write a report", user="u", deadline_ms=of_request)
    assert (response.status, response.fault) == (Status.PARTIAL, None)
    assert response.result.startswith("Chapter one is written.")
    assert "it took too long" in response.result
    assert not any(name in response.result for name in ("DOC", "TIMEOUT"))
