"""A request of several parts: in order, under conditions, and nothing is dropped (K7, K8)."""

from collections.abc import Callable
from typing import Any

from remit import Brief, Capability, Hub, Response
from remit_orchestrator import add_orchestrator
from scripted_reader import ScriptedReader

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


def team(hub: Hub, result: Any) -> list[tuple[str | None, dict[str, Any]]]:
    """Add the agents; returns who was asked, with the results before."""
    seen: list[tuple[str | None, dict[str, Any]]] = []

    @hub.agent("clinic", capabilities=CAPABILITIES)
    async def clinic(brief: Brief) -> Any:
        seen.append((brief.capability, dict(brief.handoff.prior_outputs)))
        return result if brief.capability == "RESULT" else "Done."

    add_orchestrator(hub, reader=ScriptedReader(READER))
    return seen


async def say(hub: Hub, *texts: str) -> Response:
    response = None
    for text in texts:
        response = await hub.ask("orchestrator", text, user="u", session="s")
    assert response is not None
    return response


READER = {
    "Look up the lab result": [("RESULT", 0.9)],
    "look up the lab result": [("RESULT", 0.9)],
    "book an appointment": [("VISIT", 0.9)],
    "cancel the visit": [("CANCEL", 0.9)],
    "sing a song for us": [],
    "send the dragon": [("VISIT", 0.2), ("CANCEL", 0.1)],
}


async def test_what_stands_under_a_condition_is_asked_about_with_the_result_in_hand(hub: Hub) -> None:
    """A yes to the plan is none to what depends on a condition."""
    seen = team(hub, "The test is positive.")
    async with hub:
        first = await say(hub, REQUEST)
        assert [code for code, _ in seen] == ["RESULT"]
        second = await say(hub, "yes")
        assert [code for code, _ in seen] == ["RESULT", "VISIT"]
        last = await say(hub, "no")
    assert "The test is positive." in first.result
    assert first.result.endswith(
        "You said “If it is positive”. Shall I go on with this: Book an appointment? Please say yes or no."
    )
    assert first.metadata["decision"] == "did"
    assert [each["outcome"] for each in first.metadata["parts"]] == ["did", "asked", "waits"]
    assert "".join(each["text"] for each in first.metadata["parts"]) == REQUEST
    assert "Shall I go on with this: Cancel an appointment?" in second.result
    assert "I left this out: “cancel the visit”." in last.result
    assert [code for code, _ in seen] == ["RESULT", "VISIT"]


async def test_a_plan_goes_on_after_a_restart_where_it_was(make_hub: MakeHub) -> None:
    """K13: nothing is done twice."""
    first = make_hub()
    team(first, "The sample was lost.")
    async with first as hub:
        answer = await say(hub, REQUEST)
    assert answer.requires_followup
    second = make_hub()
    seen = team(second, "never asked")
    async with second as hub:
        await say(hub, "no", "yes")
    # As the part before, and as what was done earlier in the conversation.
    assert seen == [("CANCEL", {"part1": "The sample was lost.", "RESULT": "The sample was lost."})]


async def test_a_part_that_nothing_serves_is_named(hub: Hub) -> None:
    seen = team(hub, "The test is positive.")
    async with hub:
        response = await say(hub, "look up the lab result and sing a song for us")
    assert seen == [("RESULT", {})]
    assert "I did not do this, because I cannot do it: “sing a song for us”." in response.result
    assert "sing a song for us" in response.unfinished
    assert [each["outcome"] for each in response.metadata["parts"]] == ["did", "cannot"]


async def test_a_part_that_is_not_clear_is_asked_about_and_may_be_left_out(hub: Hub) -> None:
    seen = team(hub, "The test is positive.")
    async with hub:
        asked = await say(hub, "look up the lab result and send the dragon")
        answer = await say(hub, "none of these")
    assert asked.result == (
        "You said “send the dragon”. Which of these do you want? Please say the number.\n"
        "1. Book an appointment\n2. Cancel an appointment\n3. None of these"
    )
    assert seen == [("RESULT", {})]
    assert "I left this out: “send the dragon”." in answer.result


async def test_who_says_no_to_a_plan_has_nothing_done(hub: Hub) -> None:
    seen = team(hub, "The test is positive.")
    async with hub:
        back = await say(hub, "1. look up the lab result\n2. book an appointment\n3. cancel the visit")
        await say(hub, "no", "yes")
    assert back.result == (
        "I would do this:\n1. Look up a lab result\n2. Book an appointment\n3. Cancel an appointment\n"
        "Shall I? Please say yes or no, or the numbers that you want."
    )
    assert seen == []


async def test_whatever_is_no_answer_to_a_plan_changes_nothing(hub: Hub) -> None:
    seen = team(hub, "The test is positive.")
    async with hub:
        answer = await say(
            hub, "book an appointment. cancel the visit", "what a day", "2 days", "7", "perhaps later, yes or no"
        )
    assert seen == []
    assert answer.requires_followup


async def test_sentences_that_ask_for_one_thing_together_are_one_request_and_quoted(hub: Hub) -> None:
    done: list[str] = []
    text = "Call off the visit of my son. Take back what we said."
    read = {text: [("CANCEL", 0.8)], "Call off the visit of my son": [("CANCEL", 0.3)]}

    @hub.agent("clinic", capabilities=CAPABILITIES)
    async def clinic(brief: Brief) -> str:
        done.append(brief.objective)
        return "Done."

    add_orchestrator(hub, reader=ScriptedReader(read | {"Take back what we said": [("CANCEL", 0.1)]}))
    async with hub:
        back = await say(hub, text)
        await say(hub, "yes")
    assert back.metadata["decision"] == "said_back"
    assert f"I took all of this as one request: “{text}”." in back.result
    assert done == [text]


async def test_a_part_that_the_reader_is_not_sure_of_is_said_back_with_its_words(hub: Hub) -> None:
    team(hub, "The test is positive.")
    add_orchestrator(hub, "front", reader=ScriptedReader(READER | {"drop the visit": [("CANCEL", 0.3)]}))
    async with hub:
        back = await hub.ask("front", "1. book an appointment\n2. drop the visit", user="u", session="f")
    assert "1. Book an appointment\n2. Cancel an appointment – “drop the visit”\n" in back.result


async def test_what_has_left_the_team_meanwhile_is_no_longer_offered_for_a_part(make_hub: MakeHub) -> None:
    team(first := make_hub(), "The test is positive.")
    async with first as hub:
        await say(hub, "look up the lab result and send the dragon")
    second, reader = make_hub(), ScriptedReader(READER)

    @second.agent("clinic", capabilities=CAPABILITIES[:1])
    async def clinic(brief: Brief) -> str:
        return "The test is positive."

    add_orchestrator(second, reader=reader)
    async with second as hub:
        answer = await say(hub, "2")
    assert answer.ok, answer.fault


async def test_of_a_plan_only_the_parts_are_carried_out_whose_numbers_are_said(hub: Hub) -> None:
    seen = team(hub, "The test is positive.")
    async with hub:
        await say(hub, "1. look up the lab result\n2. book an appointment\n3. cancel the visit")
        answer = await say(hub, "only 1 and 3, please")
    assert [code for code, _ in seen] == ["RESULT", "CANCEL"]
    assert "I left this out: “book an appointment”." in answer.result


async def test_what_a_part_lacks_is_given_to_it_alone(hub: Hub) -> None:
    given: list[Any] = []
    capabilities = [
        Capability(code="BILL", description="Show the bill", read_only=True, examples=("show the bill",)),
        Capability(code="TAKE", description="Take a slot", input_schema=SLOT, examples=("take a slot",)),
    ]

    @hub.agent("desk", capabilities=capabilities)
    async def desk(brief: Brief) -> str:
        given.append((brief.capability, brief.input))
        return "Done."

    add_orchestrator(hub, reader=ScriptedReader({"show the bill": [("BILL", 0.9)], "take a slot": [("TAKE", 0.9)]}))
    async with hub:
        asked = await say(hub, "1. show the bill\n2. take a slot")
        again = await say(hub, "yes")
        await say(hub, "slot: noon", "yes")
    assert (asked.metadata["decision"], again.metadata["decision"]) == ("asked", "asked")
    assert sorted(given, key=str) == [("BILL", "show the bill"), ("TAKE", {"slot": "noon"})]


SLOT = {"type": "object", "properties": {"slot": {"type": "string"}}, "required": ["slot"]}


async def test_a_value_that_comes_from_a_result_is_shown_before_anything_is_changed_with_it(hub: Hub) -> None:
    booked: list[Any] = []
    capabilities = [
        Capability(code="FIND", description="Find a slot", read_only=True, result_schema=SLOT),
        Capability(code="TAKE", description="Take a slot", input_schema=SLOT),
    ]

    @hub.agent("desk", capabilities=capabilities)
    async def desk(brief: Brief) -> Any:
        if brief.capability == "FIND":
            return {"slot": "Friday at nine"}
        booked.append(brief.input)
        return "Taken."

    reader = ScriptedReader({"find a slot": [("FIND", 0.9)], "book it": [("TAKE", 0.9)]})
    add_orchestrator(hub, reader=reader)
    async with hub:
        await say(hub, "find a slot and book it")
        shown = await say(hub, "yes")
        assert booked == []
        await say(hub, "yes")
    assert "Take a slot (slot: Friday at nine)? Please say yes or no." in shown.result
    assert booked == [{"slot": "Friday at nine"}]
