"""What users reply to an orchestrator's questions (K7, K14), and what else they may say instead."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from remit import Answer, Brief, Capability, Hub, Response, Status
from remit_orchestrator import add_orchestrator
from remit_orchestrator.dialogue.commands import Commands, DialogueState, TextSpan
from scripted_reader import ScriptedReader

MakeHub = Callable[..., Hub]

TEXT = {"type": "string"}
ORDER = Capability(
    code="ORDER",
    description="Order something",
    input_schema={
        "type": "object",
        "properties": {"what": TEXT, "postcode": TEXT, "size": {"enum": ["small", "large"]}},
        "required": ["what", "postcode", "size"],
        "additionalProperties": False,
    },
)
RATE = Capability(
    code="RATE",
    read_only=True,
    description="Work out the rate",
    input_schema={"type": "object", "properties": {"years": {"type": "integer"}}, "required": ["years"]}
    | {"additionalProperties": False},
)
WRITE = Capability(code="write", description="Write it down")

SCRIPT = {
    "order": [("ORDER", 0.9)],
    "please order a pizza": [("ORDER", 0.9)],
    "2 pizzas, please": [("ORDER", 0.9)],
    "rate": [("RATE", 0.9)],
    "write": [("write", 0.9)],
    "perhaps": [("RATE", 0.35), ("write", 0.3)],
    "maybe": [("RATE", 0.45)],
    "order it for me": [("ORDER", 0.9)],
    "rate it for me": [("RATE", 0.9)],
}


def team(hub: Hub, *capabilities: Capability) -> list[tuple[str | None, Any]]:
    """Agents for capabilities, each named after its own in small letters; returns who was given what."""
    seen: list[tuple[str | None, Any]] = []
    for capability in capabilities or (ORDER, RATE, WRITE):

        @hub.agent(capability.code.lower(), capabilities=[capability])
        async def work(brief: Brief) -> Answer:
            seen.append((brief.capability, brief.request.input))
            return Answer(f"{brief.capability} is done", confidence=0.9)

    add_orchestrator(hub, reader=ScriptedReader(SCRIPT))
    return seen


async def say(hub: Hub, *texts: str, **options: Any) -> Response:
    """Say one text after another in one session; what comes with them comes with the first."""
    response = None
    for text in texts:
        response = await hub.ask("orchestrator", text, user="u", session="s", **options)
        options = {}
    assert response is not None
    return response


async def test_what_begins_like_a_yes_may_be_something_else(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        response = await say(hub, "maybe", "please order a pizza")
    assert seen == []
    assert "postcode" in response.result


async def test_what_begins_like_a_number_may_be_something_else(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        response = await say(hub, "perhaps", "2 pizzas, please")
    assert seen == []
    assert "postcode" in response.result


async def test_an_option_can_be_named_in_its_own_words(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        await say(hub, "perhaps", "write it down")
    assert seen == [("write", None)]


async def test_what_came_with_a_request_is_not_lost_by_a_question(hub: Hub) -> None:
    """K14: nothing is asked twice."""
    seen = team(hub)
    async with hub:
        await say(hub, "perhaps", "the first", input={"years": 3})
        await say(hub, "maybe", "yes", input={"years": 4})
    assert seen == [("RATE", {"years": 3}), ("RATE", {"years": 4})]


async def test_who_agrees_and_adds_what_is_no_value_is_asked_again(hub: Hub) -> None:
    """Nothing is done of which the user has not seen all."""
    seen = team(hub)
    async with hub:
        answer = await say(hub, "write", "Yes, but in French")
    assert seen == []
    assert answer.result.endswith("Write it down? Please say yes or no.")


async def test_a_value_is_read_as_what_it_has_to_be(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        await say(hub, "order", "what: tea\nPostcode: 20400\nsize: Large", "yes")
    assert seen == [("ORDER", {"what": "tea", "postcode": "20400", "size": "large"})]


async def test_what_does_not_fit_is_asked_for_again(hub: Hub) -> None:
    """K7: a specific question, and nothing is done before."""
    seen = team(hub)
    async with hub:
        again = await say(hub, "rate", "years: many")
        assert again.result == "I need one more thing: years (a whole number)."
        await say(hub, "7")
    assert seen == [("RATE", {"years": 7})]


async def test_a_number_for_what_was_chosen_is_enough_and_words_are_said_back(hub: Hub) -> None:
    number = {"type": "object", "properties": {"years": {"type": "integer"}}, "required": ["years"]}
    words = {"type": "object", "properties": {"title": TEXT}, "required": ["title"]}
    seen = team(
        hub,
        Capability(code="RATE", description="Set the rate", input_schema=number),
        Capability(code="write", description="Write it down", input_schema=words),
    )
    async with hub:
        asked = await say(hub, "perhaps", "1")
        again = await say(hub, "yes")
        await say(hub, "years: 3")
        assert seen == [("RATE", {"years": 3})]
        back = await say(hub, "perhaps", "2", "title: What a day")
    assert [each.metadata["decision"] for each in (asked, again, back)] == ["asked", "asked", "said_back"]
    assert seen == [("RATE", {"years": 3})]


async def test_what_is_no_value_for_the_only_field_is_something_else(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        response = await say(hub, "rate", "write", "yes")
    assert seen == [("write", None)]
    assert response.ok


async def test_the_first_words_do_not_fill_what_is_still_missing(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        response = await say(hub, "order", "what: tea\nsize: small")
        assert response.result == "I need one more thing: postcode."
        await say(hub, "20400", "yes")
    assert seen == [("ORDER", {"what": "tea", "size": "small", "postcode": "20400"})]


async def test_fields_of_several_things_are_asked_for_at_once_and_each_gets_its_own(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        answer = await say(hub, "order it for me; rate it for me")
        assert answer.result == (
            "I need to know, in your own words: what; postcode; size (small or large); years (a whole number)"
        )
        back = await say(hub, "what: tea\npostcode: 20400\nsize: small\nyears: 2")
        assert (back.metadata["decision"], seen) == ("said_back", [])
        await say(hub, "yes")
    assert sorted(seen, key=lambda each: str(each[0])) == [
        ("ORDER", {"what": "tea", "postcode": "20400", "size": "small"}),
        ("RATE", {"years": 2}),
    ]


async def test_an_input_that_is_no_table_is_none_for_a_capability_that_wants_one(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        response = await say(hub, "rate", "years: 5", input="some text")
    assert response.ok
    assert seen == [("RATE", {"years": 5})]


async def test_personal_data_fits_where_only_the_hub_can_say(hub: Hub) -> None:
    """Schemas are checked with what tokens stand for."""
    schema = {"type": "object", "properties": {"mail": TEXT | {"pattern": "@"}, "n": {"type": "integer"}}}
    mail = Capability(
        code="RATE", read_only=True, input_schema=schema | {"required": ["mail", "n"]}, sees=frozenset({"EMAIL"})
    )
    seen = team(hub, mail)
    async with hub:
        response = await say(hub, "rate", "mail: alice@example.org\nn: 1")
    assert response.ok
    assert seen == [("RATE", {"mail": "alice@example.org", "n": 1})]


async def test_what_nobody_offers_any_more_is_admitted(make_hub: MakeHub) -> None:
    """K7, K13: a reply may come days later."""
    first = make_hub()
    team(first)
    async with first as hub:
        await say(hub, "maybe")
    second = make_hub()
    seen = team(second, WRITE)
    async with second as hub:
        response = await say(hub, "yes")
    assert (seen, response.status) == ([], Status.SUCCESS)
    assert "I cannot do that. What I can do:\n- Write it down" in response.result


async def test_a_capability_with_the_name_of_its_agent_is_asked_for_as_one(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        await say(hub, "write", "yes")
    assert seen == [("write", None)], "and not the agent without a capability"


async def test_two_that_ask_back_in_one_session_at_once_both_do(hub: Hub) -> None:
    """K13: the later question is the open one; no user is shown a conflict."""
    team(hub)
    both = asyncio.Barrier(2)

    class Together(ScriptedReader):
        async def read(self, text: str, pieces: Sequence[TextSpan], state: DialogueState, brief: Brief) -> Commands:
            await both.wait()
            return await super().read(text, pieces, state, brief)

    add_orchestrator(hub, "other", reader=Together(SCRIPT))
    async with hub:
        pair = await asyncio.gather(*(hub.ask("other", text, user="u", session="t") for text in ("maybe", "perhaps")))
    assert all(each.requires_followup for each in pair)
