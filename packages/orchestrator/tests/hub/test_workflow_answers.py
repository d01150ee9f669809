"""What a workflow's answer tells of steps that came to little, and of workflows within it (K8, K9, K10)."""

import asyncio
from collections.abc import Callable

from remit import Answer, Brief, Call, Capability, Code, Hub, RemitError, Status, Step, Workflow, fault
from remit.policy.limits import Limits
from remit_orchestrator import add_workflow


def worker(hub: Hub, name: str) -> list[Brief]:
    briefs: list[Brief] = []

    @hub.agent(name)
    async def work(brief: Brief) -> Answer:
        briefs.append(brief)
        return Answer({name: brief.objective}, confidence=0.9)

    return briefs


async def test_steps_that_begin_together_share_what_is_left(make_hub: Callable[..., Hub]) -> None:
    """K8: none takes what another needs."""
    hub = make_hub(limits=Limits(max_fan_out=4))
    briefs = worker(hub, "a")
    steps = (*(Step(name=name, agent="a") for name in "xyz"), Step(name="small", agent="a", tokens=600))
    add_workflow(hub, Workflow(name="trip", steps=steps))
    async with hub:
        response = await hub.ask("trip", "go", user="u", max_tokens=6_600)
    assert response.status is Status.SUCCESS
    assert sorted(brief.remit.tokens for brief in briefs) == [600, 1_320, 1_320, 1_320]


async def test_of_a_step_that_ran_out_of_time_what_was_finished_is_told(hub: Hub) -> None:
    """K10: with what was finished and what was not."""
    worker(hub, "a")

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        brief.progress("1 of 3", partial=Answer("The first is right.", finished=("one",), unfinished=("two", "three")))
        await asyncio.Event().wait()
        return "never"

    times = (50, 3_000, 60_000)  # a busy machine may begin a step only after the shorter ones
    for time_ms in times:
        steps = (Step(name="quick", agent="a"), Step(name="checked", agent="slow", time_ms=time_ms))
        add_workflow(hub, Workflow(name=f"trip-{time_ms}", steps=steps))
    text = ""
    async with hub:
        for time_ms in times:
            response = await hub.ask(f"trip-{time_ms}", "go", user="u")
            assert response.status is Status.PARTIAL
            text = response.result
            if "The first" in text:
                break
    assert "## Checked\n\nThe first is right." in text
    assert "- Checked: not finished; it took too long. It can be tried again." in text
    assert "- Checked: without two, three." in text


async def test_if_the_step_that_matters_is_not_done_only_that_is_told(hub: Hub) -> None:
    """K8: what the others came to is not what was asked for."""
    worker(hub, "a")

    @hub.agent("office", capabilities=[Capability(code="FILE", input_schema={"required": ["account"]})])
    async def office(brief: Brief) -> str:
        raise RemitError(fault(Code.DELEGATION_FAILED, "no"))

    steps = (
        Step(name="sorted", agent="a"),
        Step(name="filed", agent="office", capability="FILE", input={"sorted": "{sorted}"}),
    )
    add_workflow(hub, Workflow(name="claim", steps=steps, result="filed"))
    async with hub:
        response = await hub.ask("claim", "go", user="u")
    assert response.status is Status.PARTIAL
    assert response.result == (
        "This could not be finished.\n\n## What is missing\n\n"
        "- Filed: not done; something that it needs to know was not said: account."
    )


async def test_what_is_missing_in_a_workflow_within_is_missing_in_the_whole(hub: Hub) -> None:
    """K8: and it is told once."""
    worker(hub, "a")

    @hub.agent("broken")
    async def broken(_: Brief) -> str:
        raise ValueError("no")

    inner = (Step(name="one", agent="a"), Step(name="two", agent="broken"))
    add_workflow(hub, Workflow(name="inner", steps=inner))
    add_workflow(
        hub, Workflow(name="outer", steps=(Step(name="all_of_it", agent="inner"), Step(name="more", agent="a")))
    )
    async with hub:
        response = await hub.ask("outer", "go", user="u")
    assert (response.status, response.unfinished) == (Status.PARTIAL, ("Two",))
    assert response.finished == ("One", "More")
    assert response.result.count("something went wrong on the way") == 1
    assert response.result.count("Confidence: high.") == 2


async def test_a_question_that_the_user_does_not_read_is_not_asked(hub: Hub) -> None:
    """K9: only one result is given, so nothing in it can be answered."""
    for name, hour in (("a", "9:40"), ("b", "10:40")):

        @hub.agent(name)
        async def answer(_: Brief, hour: str = hour) -> Answer:
            return Answer({"departure": hour}, confidence=0.9)

    worker(hub, "c")
    steps = (*(Step(name=name, agent=name) for name in "ab"), Step(name="last", agent="c", after=("a", "b")))
    add_workflow(hub, Workflow(name="trip", steps=steps, result="last", compare=("a", "b")))
    async with hub:
        response = await hub.ask("trip", "go", user="u")
    assert not response.requires_followup
    assert [each["question"] for each in response.metadata["conflicts"]] == [None]
    assert "9:40" in response.summary


# ── which results are compared ────────────────────────────────────────────────────────────────────────────────────────

DEPARTURE: dict[str, object] = {"type": "object", "properties": {"departure": {"type": "string"}}}
LEAVES: dict[str, object] = {
    "type": "object",
    "properties": {"train": {"properties": {"leaves": {"type": "string", "x-same-as": "TIMETABLE.departure"}}}},
}


def two_sources(hub: Hub) -> tuple[Step, Step]:
    @hub.agent("rail", capabilities=[Capability(code="TIMETABLE", result_schema=DEPARTURE)])
    async def rail(_: Brief) -> Answer:
        return Answer({"departure": "9:40", "price": 20}, confidence=0.9)

    @hub.agent("shop", capabilities=[Capability(code="TICKET", result_schema=LEAVES)])
    async def shop(_: Brief) -> Answer:
        return Answer({"train": {"leaves": "10:40"}, "price": 35}, confidence=0.4)

    return Step(name="one", capability="TIMETABLE"), Step(name="two", capability="TICKET")


async def test_fields_whose_schemas_name_the_same_thing_are_compared_and_no_others(hub: Hub) -> None:
    """K9: two prices of two capabilities are two prices."""
    add_workflow(hub, Workflow(name="trip", steps=two_sources(hub)))
    async with hub:
        response = await hub.ask("trip", "go", user="u")
    (conflict,) = response.metadata["conflicts"]
    assert (conflict["path"], conflict["preferred"]) == ("departure", "9:40")
    assert [each["sources"] for each in conflict["values"]] == [["One"], ["Two"]]


async def test_combined_answers_are_compared_by_the_schemas_of_their_capabilities(hub: Hub) -> None:
    two_sources(hub)

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> list[str]:
        calls = [Call(capability="TIMETABLE"), Call(capability="TICKET")]
        return [each.path for each in (await brief.combine(calls, about="when")).conflicts]

    async with hub:
        assert (await hub.ask("boss", "go", user="u")).result == ["departure"]
