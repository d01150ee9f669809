"""A request of several parts: in order, under conditions, and nothing is dropped (K7, K8)."""

from collections.abc import Callable
from typing import Any

import pytest

from remit import Brief, Capability, Hub, Response
from remit_orchestrator import add_orchestrator

MakeHub = Callable[..., Hub]

CAPABILITIES = (
    Capability(
        code="RESULT",
        description="Look up a lab result",
        examples=("look up the lab result", "is my blood test back", "check the test of a patient"),
        read_only=True,
    ),
    Capability(
        code="VISIT",
        description="Book an appointment",
        examples=("book an appointment", "make an appointment with the doctor", "arrange a check-up"),
    ),
    Capability(
        code="CANCEL",
        description="Cancel an appointment",
        examples=("cancel my appointment", "call off the visit", "please cancel the visit"),
    ),
)
REQUEST = "Look up the lab result. If it is positive, book an appointment, otherwise cancel the visit"
PLAN = (
    "Look up a lab result, then, if it is positive, book an appointment, otherwise cancel an appointment?"
    " Please say yes or no."
)


def team(hub: Hub, result: Any) -> list[tuple[str | None, dict[str, Any]]]:
    """Add the agents; returns who was asked, with the results before."""
    seen: list[tuple[str | None, dict[str, Any]]] = []

    @hub.agent("clinic", capabilities=CAPABILITIES)
    async def clinic(brief: Brief) -> Any:
        seen.append((brief.capability, dict(brief.handoff.prior_outputs)))
        return result if brief.capability == "RESULT" else "Done."

    add_orchestrator(hub)
    return seen


async def say(hub: Hub, *texts: str) -> Response:
    response = None
    for text in texts:
        response = await hub.ask("orchestrator", text, user="u", session="s")
    assert response is not None
    return response


@pytest.mark.parametrize(("result", "done"), [("The test is positive.", "VISIT"), ({"outcome": "negative"}, "CANCEL")])
async def test_a_condition_is_decided_from_the_result_before(hub: Hub, result: Any, done: str) -> None:
    seen = team(hub, result)
    async with hub:
        answer = await say(hub, REQUEST)
        assert (answer.result, seen) == (PLAN, [])
        response = await say(hub, "yes")
    assert seen == [("RESULT", {}), (done, {"part1": result})]
    assert "You said “If it is positive”: the result says “" in response.result
    assert "so I did not do this: “" in response.result


async def test_what_no_rule_decides_is_asked_and_goes_on_there_after_a_restart(make_hub: MakeHub) -> None:
    """K13: nothing is done twice."""
    first = make_hub()
    team(first, "The sample was lost.")
    async with first as hub:
        answer = await say(hub, REQUEST, "yes")
    assert answer.requires_followup
    assert "I cannot tell whether this is so: “it is positive”." in answer.result
    second = make_hub()
    seen = team(second, "never asked")
    async with second as hub:
        response = await say(hub, "it is negative")
    # As the part before, and as what was done earlier in the conversation.
    assert seen == [("CANCEL", {"part1": "The sample was lost.", "RESULT": "The sample was lost."})]
    assert "As you said, this is not so: “it is positive”" in response.result


async def test_a_part_that_nothing_serves_is_named(hub: Hub) -> None:
    seen = team(hub, "The test is positive.")
    async with hub:
        response = await say(hub, "look up the lab result and sing a song for us")
    assert seen == [("RESULT", {})]
    assert "I did not do this, because I cannot do it: “sing a song for us”." in response.result
    assert "sing a song for us" in response.unfinished


async def test_who_says_no_to_a_plan_has_nothing_done(hub: Hub) -> None:
    seen = team(hub, "The test is positive.")
    async with hub:
        await say(hub, REQUEST, "no")
    assert seen == []
