"""An agent asks a person to fill in a form: what they are shown, what they may answer, and what the agent gets."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from remit import Brief, Hub, RemitError
from remit.policy.verdict import Finding
from remit.ports import Decision, Question
from remit_redaction import detector_pipeline
from waiting import PATIENCE_S

MakeHub = Callable[..., Hub]


class Booking(Struct):
    name: Annotated[str, Meta(min_length=1, description="Who travels")]
    seat: Literal["aisle", "window"] = "aisle"
    extras: list[Literal["bag", "bike"]] = []


def booking(make_hub: MakeHub, approver: Any, form: Any = Booking) -> Hub:
    hub = make_hub(approver=approver)

    @hub.agent("travel")
    async def travel(brief: Brief) -> Any:
        return await brief.fill("Which seat?", form)

    assert travel
    return hub


async def test_an_agent_gets_the_fields_that_a_person_filled_in(make_hub: MakeHub) -> None:
    questions: list[Question] = []

    async def person(question: Question) -> Decision:
        questions.append(question)
        return Decision(agreed=True, by="ann", edits={"input": {"name": "Bo", "seat": "window", "extras": ["bike"]}})

    async with booking(make_hub, person) as hub:
        answer = await hub.ask("travel", "book", user="ann")
    assert answer.result == {"name": "Bo", "seat": "window", "extras": ["bike"]}
    (question,) = questions
    assert question.text == "Which seat?"
    assert question.request.input == {"name": None, "seat": "aisle", "extras": []}
    assert question.form is not None
    assert question.form["properties"]["seat"]["enum"] == ["aisle", "window"]


@pytest.mark.parametrize(
    "decision",
    [
        Decision(agreed=False, by="ann"),
        Decision(agreed=True, by="ann"),
        Decision(agreed=True, by="ann", edits={"input": {"name": "Bo", "seat": "roof"}}),
    ],
)
async def test_a_no_a_missing_field_and_a_wrong_choice_are_no_answer(make_hub: MakeHub, decision: Decision) -> None:
    async def person(_: Question) -> Decision:
        return decision

    async with booking(make_hub, person) as hub:
        assert (await hub.ask("travel", "book", user="ann")).result is None


async def test_without_anybody_to_ask_there_is_no_answer(make_hub: MakeHub) -> None:
    async with booking(make_hub, None) as hub:
        assert (await hub.ask("travel", "book", user="ann")).result is None


async def test_whoever_answers_in_the_inbox_is_told_what_is_wrong(make_hub: MakeHub) -> None:
    async with booking(make_hub, "inbox") as hub, asyncio.timeout(PATIENCE_S):
        asking = asyncio.ensure_future(hub.ask("travel", "book", user="ann"))
        while not (pending := await hub.pending()):
            await asyncio.sleep(0.01)
        assert pending[0].form is not None, "the store keeps the form"
        for edits in ({}, {"input": {"name": "Bo", "extras": ["cat"]}}, {"input": "Bo"}):
            with pytest.raises(RemitError, match="the form is not filled in"):
                await hub.decide(pending[0].id, agreed=True, by="ann", edits=edits)
        await hub.decide(pending[0].id, agreed=True, by="ann", edits={"input": {"name": "Bo"}})
        assert (await asking).result == {"name": "Bo"}


async def test_a_question_that_is_asked_again_is_answered_again(make_hub: MakeHub) -> None:
    """An answer in the inbox counts for the question that it was given to, and for no later one of the same words."""
    hub = make_hub(approver="inbox")

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> Any:
        names = [await brief.fill("Who comes next?", Booking) for _ in range(2)]
        return names, [await brief.confirm("Book it?") for _ in range(2)]

    assert clerk
    edits: list[Any] = [{"input": {"name": "Bo"}}, {"input": {"name": "Al"}}, {}, {}]
    async with hub, asyncio.timeout(PATIENCE_S):
        asking = asyncio.ensure_future(hub.ask("clerk", "book", user="ann"))
        for number, each in enumerate(edits):
            while not (pending := await hub.pending()):
                await asyncio.sleep(0.01)
            await hub.decide(pending[0].id, agreed=number != 2, by="ann", edits=each)
        assert (await asking).result == [[{"name": "Bo"}, {"name": "Al"}], [False, True]]


async def test_what_is_withheld_from_those_who_are_shown_the_form_can_be_accepted(make_hub: MakeHub) -> None:
    mail = "ann@example.com"
    choices: dict[str, Any] = {
        "type": "object",
        "properties": {
            "mail": {"type": "string", "enum": [mail, "none"], "default": mail},
            "phone": {"type": "integer", "default": 4915112345678},
        },
    }
    shown: list[Any] = []

    async def person(question: Question) -> Decision:
        shown.append((question.form, question.request.input))
        return Decision(agreed=True, by="ann", edits={"input": {**question.request.input, "phone": 1}})  # type: ignore[dict-item]

    async with booking(make_hub, person, choices) as hub:
        answer = await hub.ask("travel", "book", user="ann")
    assert mail not in str(shown)
    assert answer.result == {"mail": mail, "phone": 1}


async def test_what_a_person_fills_in_reaches_an_agent_as_a_request_does(make_hub: MakeHub) -> None:
    """An agent gets tokens for personal data, unless its team lets it see a kind, and the user gets it back."""
    mail, seen = "ann@example.com", dict[str, Any]()

    async def person(_: Question) -> Decision:
        return Decision(agreed=True, by="ann", edits={"input": {"name": mail}})

    hub = make_hub(approver=person)

    async def ask(brief: Brief) -> Any:
        seen[brief.request.target] = await brief.fill("Whom shall I write to?", Booking)
        return seen[brief.request.target]["name"]

    hub.add("blind", ask)
    hub.add("clerk", ask, sees=["EMAIL"])
    async with hub:
        assert (await hub.ask("blind", "write", user="ann")).result == mail
        assert (await hub.ask("clerk", "write", user="ann")).result == mail
    assert seen["blind"]["name"].startswith("[EMAIL:")
    assert seen["clerk"]["name"] == mail


async def test_what_cannot_be_redacted_is_withheld_from_the_agent(make_hub: MakeHub) -> None:
    def failing(text: str) -> list[Finding]:
        if "Zoe" in text:
            raise ValueError(text)
        return []

    async def person(_: Question) -> Decision:
        return Decision(agreed=True, by="ann", edits={"input": {"name": "Zoe"}})

    hub = make_hub(approver=person, redaction=detector_pipeline(extra=[failing]))

    @hub.agent("travel")
    async def travel(brief: Brief) -> Any:
        return await brief.fill("Who?", Booking)

    assert travel
    async with hub:
        answer = await hub.ask("travel", "book", user="ann")
    assert answer.fault is not None
    assert "could not be redacted (ValueError), so it is withheld" in answer.fault.message


@pytest.mark.parametrize(
    ("form", "places"),
    [
        ({"type": "object", "properties": {"who": {"type": "object", "properties": {}}}}, ["$.who"]),
        ({"type": "object", "properties": {"who": {"type": "string", "pattern": "(["}}}, ["$"]),
        ({"type": "object", "properties": {"who": {"type": "string"}}, "required": 5}, ["$"]),
    ],
)
async def test_a_form_that_cannot_be_shown_fails_the_agent(make_hub: MakeHub, form: Any, places: list[str]) -> None:
    async with booking(make_hub, "inbox", form) as hub, asyncio.timeout(PATIENCE_S):
        answer = await hub.ask("travel", "book", user="ann")
    assert answer.fault is not None
    assert [each.path for each in answer.fault.problems] == places
