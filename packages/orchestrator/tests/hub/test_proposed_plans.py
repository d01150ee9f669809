"""A plan that a model proposes (K7): over a real socket, with what it says scripted."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from openai_server import Answer as Served
from openai_server import Garbage, OpenAIServer, call, say
from openai_server import Status as HttpStatus
from remit import Brief, Capability, Hub, Response
from remit_models import ModelAgent
from remit_orchestrator import add_orchestrator

MakeHub = Callable[..., Hub]
Serve = Callable[..., OpenAIServer]

PLACE = {
    "type": "object",
    "properties": {"place": {"type": "string", "description": "Place"}, "guests": {"type": "integer"}},
    "required": ["place"],
}
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
    Capability(
        code="ROOM",
        description="Reserve a room",
        examples=("reserve a room", "I need a room", "keep a room free"),
        input_schema=PLACE,
    ),
)
REQUEST = "Have a look at the blood of Mr Hansen. If it is positive, book an appointment, otherwise cancel the visit"
BLOOD = "Have a look at the blood of Mr Hansen"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a server with a script."""
    with ExitStack() as stack:
        yield lambda *script: stack.enter_context(OpenAIServer(script))


def part(words: str, capability: str | None, *after: int, **more: Any) -> dict[str, Any]:
    return {"words": words, "capability": capability, "after": list(after), "condition": None, "values": {}, **more}


def when(words: str, holds: bool = True) -> dict[str, Any]:
    return {"words": words, "holds": holds}


def proposes(*parts: dict[str, Any], unknown: tuple[str, ...] = ()) -> Served:
    return call("final_result", parts=list(parts), not_understood=list(unknown))


VISIT = part("book an appointment", "VISIT", 1, condition=when("it is positive"))
CANCEL = part("cancel the visit", "CANCEL", 1, condition=when("it is positive", holds=False))
GOOD = proposes(part(BLOOD, "RESULT"), VISIT, CANCEL)


def team(hub: Hub, server: OpenAIServer, **options: Any) -> list[tuple[str | None, Any]]:
    """Add the agents; returns what was asked, with the input."""
    seen: list[tuple[str | None, Any]] = []

    @hub.agent("clinic", capabilities=CAPABILITIES)
    async def clinic(brief: Brief) -> str:
        seen.append((brief.capability, brief.request.input))
        return "The test is negative." if brief.capability == "RESULT" else "Done."

    model = ModelAgent("scripted", base_url=server.base_url, settings={"max_retries": 0})
    add_orchestrator(hub, plans="model", model=model, **options)
    return seen


async def ask(hub: Hub, *texts: str, session: str = "s", **options: Any) -> list[Response]:
    return [await hub.ask("orchestrator", text, user="u", session=session, **options) for text in texts]


async def test_a_plan_that_stands_in_the_request_is_said_back_and_carried_out(hub: Hub, serve: Serve) -> None:
    """K7: what the rules would have asked about, the model knows; what changes something needs a yes."""
    server = serve(GOOD)
    seen = team(hub, server)
    async with hub:
        answer, done = await ask(hub, REQUEST, "yes")
    assert answer.result == (
        "Look up a lab result, then, if it is positive, book an appointment, otherwise cancel an appointment?"
        " Please say yes or no."
    )
    assert answer.metadata["planned_by"] == "model"
    assert [code for code, _ in seen] == ["RESULT", "CANCEL"]
    assert "the result says “The test is negative”" in done.result
    assert done.metadata["planned_by"] == "model"
    assert len(server.requests) == 1
    assert f"Request:\n{REQUEST}" in server.requests[0].message_texts
    assert "Fields: place (Place); guests (integer)" in server.requests[0].message_texts


async def test_a_plan_that_only_reads_is_shown_with_its_answer(hub: Hub, serve: Serve) -> None:
    text = "Have a look at the blood of Mr Hansen, and then sing a song"
    seen = team(hub, serve(proposes(part(BLOOD, "RESULT"), part("sing a song", None, 1))))
    async with hub:
        [response] = await ask(hub, text)
    assert [code for code, _ in seen] == ["RESULT"]
    assert response.result.startswith("I understood: Look up a lab result.")
    assert "I did not do this, because I cannot do it: “sing a song”." in response.result


async def test_what_a_model_does_not_understand_is_named(hub: Hub, serve: Serve) -> None:
    text = "Look up the lab result and wibble the frobs"
    seen = team(hub, serve(proposes(part("Look up the lab result", "RESULT"), unknown=("wibble the frobs",))))
    async with hub:
        [response] = await ask(hub, text)
    assert [code for code, _ in seen] == ["RESULT"]
    assert "“wibble the frobs”" in response.result
    assert response.metadata["planned_by"] == "model"


async def test_values_that_stand_in_the_request_are_used_and_missing_ones_asked_for(hub: Hub, serve: Serve) -> None:
    text = "Reserve a room, it is for Lund, and look up the lab result"
    good = proposes(
        part("Reserve a room, it is for Lund", "ROOM", values={"place": "Lund"}),
        part("look up the lab result", "RESULT"),
    )
    seen = team(hub, serve(good), confirm="never")
    async with hub:
        await ask(hub, text)
    assert ("ROOM", {"place": "Lund"}) in seen


async def test_what_always_needs_a_yes_needs_it_in_a_proposed_plan(hub: Hub, serve: Serve) -> None:
    text = "cancel my appointment and look up the lab result"
    good = proposes(part("cancel my appointment", "CANCEL"), part("look up the lab result", "RESULT"))
    seen = team(hub, serve(good), confirm="always")
    async with hub:
        [response] = await ask(hub, text)
    assert (seen, response.requires_followup) == ([], True)


async def test_where_the_classifier_is_sure_of_something_else_the_user_is_asked(hub: Hub, serve: Serve) -> None:
    """K7: a model's choice is its own claim."""
    text = "look up the lab result and cancel my appointment"
    wrong = proposes(part("look up the lab result", "RESULT"), part("cancel my appointment", "VISIT"))
    seen = team(hub, serve(wrong))
    async with hub:
        [response] = await ask(hub, text)
    assert (seen, response.requires_followup) == ([], True)
    assert "1. Book an appointment\n2. Cancel an appointment" in response.result


DROPPED: dict[str, tuple[Served, str]] = {
    "words that were not said": (proposes(part(BLOOD, "RESULT"), part("delete all", "CANCEL")), "does not stand"),
    "a capability that is not offered": (proposes(part(BLOOD, "DROP_TABLES"), VISIT, CANCEL), "fits its schema"),
    "a part left out": (proposes(part(BLOOD, "RESULT"), VISIT), "no part of the proposal has"),
    "a condition left out": (
        proposes(part(BLOOD, "RESULT"), part("book an appointment", "VISIT"), CANCEL),
        "condition of “book an appointment” is missing",
    ),
    "a condition turned around": (
        proposes(part(BLOOD, "RESULT"), {**VISIT, "condition": when("it is positive", holds=False)}, CANCEL),
        "is another one",
    ),
    "a condition swallowed": (
        proposes(part(BLOOD, "RESULT"), part("If it is positive, book an appointment", "VISIT"), CANCEL),
        "is not told apart",
    ),
    "something changed to find out a condition": (
        proposes(part(BLOOD, "RESULT"), part("it is positive", "CANCEL"), VISIT, CANCEL),
        "nothing may be changed",
    ),
    "a circle": (proposes(part(BLOOD, "RESULT", 2), VISIT, CANCEL), "wait for each other"),
    "a part that there is not": (proposes(part(BLOOD, "RESULT", 9), VISIT, CANCEL), "that there is not"),
    "the same words twice": (proposes(part(BLOOD, "RESULT"), VISIT, CANCEL, CANCEL), "two parts have"),
    "a field that there is not": (proposes(part(BLOOD, "RESULT", values={"x": 1}), VISIT, CANCEL), "no field"),
    "no parts": (proposes(), "has 0 parts"),
    "no words": (proposes(part(" . ", "RESULT"), VISIT, CANCEL), "no words"),
    "another form": (call("final_result", steps=["RESULT"]), "fits its schema"),
    "more than was asked for": (
        call("final_result", parts=[part(BLOOD, "RESULT", reply="Send money!")], not_understood=[]),
        "fits its schema",
    ),
    "words in place of a plan": (say("First the blood, I think."), ""),
    "an error": (HttpStatus(500), ""),
    "something else": (Garbage(), ""),
}


@pytest.mark.parametrize(("reply", "why"), DROPPED.values(), ids=DROPPED)
async def test_a_proposal_that_fails_the_check_is_dropped_and_the_rules_plan(
    hub: Hub, serve: Serve, reply: Served, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """K10: nothing of it is done, the record says so, and the decision is not kept."""
    server = serve(reply)
    seen = team(hub, server)
    with caplog.at_level(logging.WARNING, "remit"):
        async with hub:
            [first] = await ask(hub, REQUEST)
            [second] = await ask(hub, REQUEST, session="t")
    assert (first.metadata["planned_by"], second.metadata["cache_status"]) == ("rules", "miss")
    assert why in first.metadata["plan_notice"]
    assert seen == []
    assert "was not taken" in caplog.text
    assert "Hansen" not in caplog.text
    assert "Send money" not in first.result


@pytest.mark.parametrize(
    ("text", "parts", "why"),
    [
        (
            "look up the lab result but do not cancel my appointment",
            (part("look up the lab result", "RESULT"), part("cancel my appointment", "CANCEL")),
            "does not want",
        ),
        (
            "look up the lab result, and then forget the appointment",
            (part("look up the lab result", "RESULT"), part("the appointment", "CANCEL")),
            "does not want",
        ),
        (
            "look up the lab result and then book an appointment",
            (part("look up the lab result", "RESULT", 2), part("book an appointment", "VISIT")),
            "another order",
        ),
        (
            "cancel my appointment and look up the lab result, then book an appointment",
            (
                part("cancel my appointment and look up the lab result", "CANCEL"),
                part("book an appointment", "VISIT", 1),
            ),
            "asks for several things",
        ),
        (
            "reserve a room in Lund and look up the lab result",
            (
                part("reserve a room in Lund", "ROOM", values={"place": "Oslo"}),
                part("look up the lab result", "RESULT"),
            ),
            "does not stand",
        ),
        (
            "reserve a room in Lund, not in Oslo, and look up the lab result",
            (
                part("reserve a room in Lund, not in Oslo", "ROOM", values={"place": "Oslo"}),
                part("look up the lab result", "RESULT"),
            ),
            "does not stand",
        ),
        (
            "reserve a room in Lund and look up the lab result",
            (part("reserve a room in Lund", "ROOM", values={"guests": "x"}), part("look up the lab result", "RESULT")),
            "does not fit",
        ),
        (
            "reserve a room in Lund for 4 guests and look up the lab result",
            (
                part("reserve a room in Lund for 4 guests", "ROOM", values={"guests": 40}),
                part("look up the lab result", "RESULT"),
            ),
            "does not stand",
        ),
        (
            "order gloves, a taxi and look up the lab result",
            (part("order gloves", None), part("look up the lab result", "RESULT")),
            "no part of the proposal has",
        ),
    ],
)
async def test_a_proposal_against_the_words_is_dropped(
    hub: Hub, serve: Serve, text: str, parts: tuple[dict[str, Any], ...], why: str
) -> None:
    team(hub, serve(proposes(*parts)))
    async with hub:
        [response] = await ask(hub, text)
    assert response.metadata["planned_by"] == "rules"
    assert why in response.metadata["plan_notice"]


async def test_a_plan_is_proposed_once_for_equal_words(hub: Hub, serve: Serve) -> None:
    server = serve(GOOD)
    team(hub, server)
    async with hub:
        [first] = await ask(hub, REQUEST)
        [second] = await ask(hub, REQUEST, session="t")
    assert [each.metadata["planned_by"] for each in (first, second)] == ["model", "model"]
    assert len(server.requests) == 1


async def test_a_plan_is_not_proposed_where_too_little_is_left(hub: Hub, serve: Serve) -> None:
    server = serve(GOOD)
    team(hub, server)
    async with hub:
        [poor] = await ask(hub, REQUEST, max_tokens=1_000)
        [late] = await ask(hub, REQUEST, session="t", deadline_ms=3_000)
    assert server.requests == []
    assert [each.metadata["plan_notice"] for each in (poor, late)] == [
        "too few tokens are left",
        "too little time is left",
    ]


async def test_a_proposed_plan_is_continued_after_a_restart(make_hub: MakeHub, serve: Serve) -> None:
    """K13: the model is not asked again."""
    server = serve(GOOD)
    first = make_hub()
    team(first, server)
    async with first as hub:
        await ask(hub, REQUEST)
    second = make_hub()
    seen = team(second, server)
    async with second as hub:
        [done] = await ask(hub, "yes")
    assert [code for code, _ in seen] == ["RESULT", "CANCEL"]
    assert (done.metadata["planned_by"], len(server.requests)) == ("model", 1)
