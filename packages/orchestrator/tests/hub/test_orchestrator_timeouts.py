"""A request that runs out of time still gives what was finished."""

import asyncio

import pytest
from msgspec.structs import replace

from remit import Answer, Brief, Capability, Hub, Status
from remit.protocol.envelope import Json
from remit.protocol.orchestration import Step, Workflow
from remit_orchestrator import add_orchestrator, add_workflow

DOC = Capability(
    code="DOC_GENERATE",
    description="Write a document or report",
    examples=("write a report", "write a document"),
    read_only=True,
)


@pytest.mark.parametrize(("of_capability", "of_request"), [(300, 20_000), (None, 6_000)])
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
    add_orchestrator(hub)
    async with hub:
        response = await hub.ask("orchestrator", "write a report", user="u", deadline_ms=of_request)
    assert (response.status, response.fault) == (Status.PARTIAL, None)
    assert response.result.startswith("Chapter one is written.")
    assert "it took too long" in response.result
    assert not any(name in response.result for name in ("DOC", "TIMEOUT"))


SUM = Capability(
    code="LEDGER_SUM",
    description="Sum up the ledger",
    examples=("sum up the ledger", "what is the sum of the ledger"),
    read_only=True,
)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(
    ("agent", "text"),
    [
        ("alone", "the year"),
        ("chosen", "the year"),
        ("together", "the year"),
        ("orchestrator", "write a report, then sum up the ledger"),
        ("orchestrator", "write a report and sum up the ledger"),
    ],
)
async def test_a_finished_part_is_given_by_workflows_plans_and_several_intents(
    hub: Hub, agent: str, text: str, *, both: bool
) -> None:
    async def slow(brief: Brief) -> str:
        brief.progress("writing", partial=lambda: Answer("Chapter one is written.", unfinished=("chapter two",)))
        await asyncio.Event().wait()
        return ""

    async def quick(brief: Brief) -> str:
        return "12 entries."

    hub.add("DOC", slow, capabilities=[replace(DOC, time_ms=300)])
    hub.add("FIN", slow if both else quick, capabilities=[replace(SUM, time_ms=300)])
    write = Step(name="write", agent="DOC", capability="DOC_GENERATE", title="Write the report")
    add = Step(name="add", agent="FIN", capability="LEDGER_SUM", title="Sum up")
    add_workflow(hub, Workflow(name="alone", steps=(write,)))
    add_workflow(hub, Workflow(name="chosen", steps=(add, write), result="write"))
    add_workflow(hub, Workflow(name="together", steps=(write, add)))
    add_orchestrator(hub)
    async with hub:
        response = await hub.ask(agent, text, user="u", deadline_ms=20_000)
    assert (response.status, response.fault) == (Status.PARTIAL, None)
    assert "Chapter one is written." in response.result
    assert "it took too long" in response.result


async def test_the_finished_part_of_what_timed_out_is_handed_to_the_next_agent(hub: Hub) -> None:
    """K14: nothing is analysed twice."""
    handed: list[Json] = []

    @hub.agent("DOC", capabilities=[replace(DOC, time_ms=300)])
    async def doc(brief: Brief) -> str:
        brief.progress("writing", partial=lambda: Answer("Chapter one is written.", unfinished=("chapter two",)))
        await asyncio.Event().wait()
        return ""

    @hub.agent("SUM", capabilities=[Capability(code="SUM", description="Count the pages", read_only=True)])
    async def count(brief: Brief) -> str:
        assert brief.handoff is not None
        handed.append(brief.handoff.prior_outputs)
        return "12 pages"

    assert doc
    assert count
    add_orchestrator(hub)
    async with hub:
        for text in ("write a report", "count the pages"):
            await hub.ask("orchestrator", text, user="u", session="s", deadline_ms=20_000)
    assert handed == [{"DOC_GENERATE": "Chapter one is written."}]
