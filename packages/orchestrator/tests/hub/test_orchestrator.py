"""A user says what they want in their own words (K4, K7): it is routed, asked about, or admitted to be nobody's."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from remit import Answer, Brief, Capability, Hub, Response
from remit.protocol.card import Confirmation
from remit.protocol.orchestration import Step, Workflow
from remit_orchestrator import add_orchestrator, add_workflow
from remit_orchestrator.text.classification import ScoredCapability

MakeHub = Callable[..., Hub]

NPV = Capability(
    code="ANL_NPV",
    description="Work out the net present value of an investment",
    input_schema={
        "type": "object",
        "properties": {"rate": {"type": "number", "description": "The discount rate"}, "years": {"type": "integer"}},
        "required": ["rate", "years"],
    },
)
DOC = Capability(code="DOC_GENERATE", description="Write a document or report")
ASK = Capability(
    code="KNOW",
    description="Answer a question",
    input_schema={"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]},
)


class Script:
    """A classifier that hears what a test says it hears."""

    def __init__(self, capabilities: Sequence[Capability]) -> None:
        self.codes = [each.code for each in capabilities]

    def scores(self, text: str) -> list[ScoredCapability]:
        scores_by_text = {
            "value it": [ScoredCapability("ANL_NPV", 0.9)],
            "write it": [ScoredCapability("DOC_GENERATE", 0.9)],
            "write {part1} of {nobody} to {{request}}": [ScoredCapability("DOC_GENERATE", 0.9)],
            "write it all down": [ScoredCapability("DOC_GENERATE", 0.9)],
            "value it now please": [ScoredCapability("ANL_NPV", 0.9)],
            "perhaps": [ScoredCapability("ANL_NPV", 0.45), ScoredCapability("DOC_GENERATE", 0.4)],
            "maybe": [ScoredCapability("DOC_GENERATE", 0.4)],
            "what is it": [ScoredCapability("KNOW", 0.95)],
            "plan a trip": [ScoredCapability("trip", 0.95)],
        }
        return scores_by_text.get(text, [])


def team(hub: Hub) -> dict[str, list[Any]]:
    seen: dict[str, list[Any]] = {"ANL": [], "DOC": []}

    @hub.agent("ANL", capabilities=[NPV, ASK])
    async def anl(brief: Brief) -> Answer:
        seen["ANL"].append(brief.input)
        return Answer({"value": 24_156.72}, confidence=0.9)

    @hub.agent("DOC", capabilities=[DOC])
    async def doc(brief: Brief) -> Answer:
        seen["DOC"].append(brief.objective)
        return Answer("Dear reader", confidence=0.7)

    add_orchestrator(hub, classifier=Script)
    return seen


async def say(hub: Hub, *texts: str, **options: Any) -> Response:
    for text in texts[:-1]:
        await hub.ask("orchestrator", text, user="u", session="s")
    return await hub.ask("orchestrator", texts[-1], user="u", session="s", **options)


async def test_what_is_clear_is_done_by_who_can(hub: Hub) -> None:
    """K7, K4: routed by capability; neither agent nor code is shown (K6)."""
    seen = team(hub)
    async with hub:
        response = await say(hub, "write it")
    assert (seen["DOC"], response.requires_followup) == (["write it"], False)
    assert response.result.startswith("Dear reader")
    assert not any(name in response.result for name in ("DOC", "DOC_GENERATE"))


async def test_braces_in_the_users_words_stand_for_themselves(hub: Hub) -> None:
    """K5: the original request in the user's words."""
    seen = team(hub)
    async with hub:
        await say(hub, "write {part1} of {nobody} to {{request}}")
    assert seen["DOC"] == ["write {part1} of {nobody} to {{request}}"]


async def test_a_field_that_nobody_has_said_is_asked_for_by_name(hub: Hub) -> None:
    """K7: a specific question; K14: what was said before is not asked again."""
    seen = team(hub)
    async with hub:
        answer = await say(hub, "value it", input={"years": 5})
        done = await say(hub, "rate: 0.12")
    assert answer.requires_followup
    assert answer.result == "Could you tell me the discount rate (a number)?"
    assert seen["ANL"] == [{"years": 5, "rate": 0.12}]
    assert "24156.72" in done.result


async def test_the_users_own_words_stand_for_a_field_that_is_meant_for_them(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        await say(hub, "what is it")
    assert seen["ANL"] == [{"question": "what is it"}]


async def test_routes_that_are_close_are_offered_and_the_user_chooses(hub: Hub) -> None:
    """K7."""
    seen = team(hub)
    async with hub:
        offered = await say(hub, "perhaps")
        await say(hub, "the second")
    assert offered.requires_followup
    assert "1. Work out the net present value of an investment\n2. Write a document or report" in offered.result
    assert seen["DOC"] == ["perhaps"]


async def test_what_is_not_sure_is_asked_about_and_a_yes_is_enough(hub: Hub) -> None:
    """K7."""
    seen = team(hub)
    async with hub:
        answer = await say(hub, "maybe")
        await say(hub, "Yes, please")
    assert "Write a document or report" in answer.result
    assert seen["DOC"] == ["maybe"]


async def test_who_says_in_other_words_what_was_offered_has_it_done_with_both_texts(hub: Hub) -> None:
    """K14: a reply is read together with the words that led to the question."""
    seen = team(hub)
    async with hub:
        await say(hub, "maybe", "write it")
        last = await say(hub, "Yes")
    assert seen["DOC"] == ["maybe\nwrite it"]
    assert "cannot do that" in last.result


async def test_who_wants_something_else_instead_of_answering_gets_it(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        await say(hub, "maybe", "what is it")
    assert (seen["DOC"], seen["ANL"]) == ([], [{"question": "what is it"}])


VISITS = (
    Capability(
        code="CANCEL",
        description="Cancel an appointment",
        examples=("cancel my appointment", "please cancel the visit", "I cannot come to my appointment"),
    ),
    Capability(
        code="MOVE",
        description="Move an appointment to another day",
        examples=("move my appointment", "reschedule my visit", "can I come on another day"),
    ),
    Capability(
        code="HOURS",
        description="Tell the opening hours",
        examples=("when do you open", "what are your opening hours"),
        read_only=True,
    ),
)


async def test_the_reply_to_a_clarification_is_read_with_the_words_before(hub: Hub) -> None:
    """K14: neither text says it alone, and the agent gets both."""
    done: list[tuple[str | None, str]] = []

    @hub.agent("desk", capabilities=VISITS)
    async def desk(brief: Brief) -> str:
        done.append((brief.capability, brief.objective))
        return "Done."

    add_orchestrator(hub)
    async with hub:
        answer = await say(hub, "my appointment on Monday")
        assert (answer.requires_followup, done) == (True, [])
        await say(hub, "cancel it")
    assert done == [("CANCEL", "my appointment on Monday\ncancel it")]


@pytest.mark.parametrize("no", ["neither of these, thanks", "None of them.", "nichts davon, danke", "keins davon"])
async def test_who_wants_none_of_the_options_is_asked_again(hub: Hub, no: str) -> None:
    seen = team(hub)
    async with hub:
        answer = await say(hub, "perhaps", no)
    assert answer.requires_followup
    assert answer.result == "Please say in other words what you want."
    assert seen == {"ANL": [], "DOC": []}


async def test_after_a_no_the_next_words_are_read_with_those_before(hub: Hub) -> None:
    done: list[tuple[str | None, str]] = []

    @hub.agent("desk", capabilities=VISITS)
    async def desk(brief: Brief) -> str:
        done.append((brief.capability, brief.objective))
        return "Done."

    add_orchestrator(hub)
    async with hub:
        await say(hub, "please cancel the appointment on Monday", "no")
        answer = await say(hub, "when do you open")
    assert answer.ok
    assert [code for code, _ in done] == ["HOURS"]


async def test_what_nobody_can_do_is_admitted_with_what_can_be_done(hub: Hub) -> None:
    """K7."""
    seen = team(hub)
    async with hub:
        response = await say(hub, "sing")
    assert (seen["ANL"], seen["DOC"]) == ([], [])
    assert "I cannot do that." in response.result
    assert "Write a document or report" in response.result


async def test_a_request_of_several_parts_is_done_in_one_run_and_told_as_one(hub: Hub) -> None:
    """K7, K8: secondary intents."""
    seen = team(hub)
    async with hub:
        answer = await say(hub, "value it now please, then write it all down")
        response = await say(hub, "rate: 0.1\nyears: 2")
    assert answer.requires_followup
    assert (len(seen["ANL"]), len(seen["DOC"])) == (1, 1)
    assert "24156.72" in response.result
    assert "Dear reader" in response.result


async def test_a_reply_may_come_after_a_restart(make_hub: MakeHub) -> None:
    """K13: what was asked survives, and nothing is held in memory meanwhile."""
    first = make_hub()
    team(first)
    async with first as hub:
        await say(hub, "maybe")
    second = make_hub()
    seen = team(second)
    async with second as hub:
        await say(hub, "yes")
    assert seen["DOC"] == ["maybe"]


async def test_a_workflow_can_be_asked_for_like_a_capability(hub: Hub) -> None:
    seen = team(hub)
    add_workflow(
        hub,
        Workflow(name="trip", description="Plan a whole trip", steps=(Step(name="one", capability="DOC_GENERATE"),)),
    )
    async with hub:
        response = await say(hub, "plan a trip")
    assert len(seen["DOC"]) == 1
    assert response.ok


async def test_with_its_own_classifier_it_learns_from_examples_and_confirms_what_changes_something(hub: Hub) -> None:
    """K7: trained from the capabilities' own utterances, without a network."""
    agents: list[str] = []
    for name, examples in {
        "weather": ("will it rain tomorrow", "what is the weather like", "is it sunny outside", "how warm is it today"),
        "pizza": ("order a pizza", "I want a margherita", "get me some food delivered", "I am hungry, order dinner"),
    }.items():
        reads = name == "weather"
        capability = Capability(code=name.upper(), description=f"About {name}", examples=examples, read_only=reads)

        @hub.agent(name, capabilities=[capability])
        async def answer(brief: Brief, name: str = name) -> str:
            agents.append(name)
            return name

    add_orchestrator(hub)
    async with hub:
        await hub.ask("orchestrator", "is it going to rain today?", user="u")
        confirmed = await hub.ask("orchestrator", "please order me a margherita pizza", user="u", session="s")
        assert agents == ["weather"]
        await hub.ask("orchestrator", "yes", user="u", session="s")
    assert (confirmed.result, confirmed.requires_followup) == ("About pizza? Please say yes or no.", True)
    assert agents == ["weather", "pizza"]


# ── confirming ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("own", "team", "read_only", "must_agree"),
    [
        (None, "unsure", False, False),
        (None, "always", False, True),
        (None, "always", True, False),
        ("always", "never", False, True),
        ("always", "never", True, True),
        ("never", "always", False, False),
    ],
)
async def test_a_capability_or_its_team_says_when_a_user_has_to_agree(
    hub: Hub, own: Confirmation | None, team: Confirmation, read_only: bool, must_agree: bool
) -> None:
    """K7: here the classifier is sure."""
    done: list[str] = []

    @hub.agent("DOC", capabilities=[replace(DOC, confirm=own, read_only=read_only)])
    async def doc(brief: Brief) -> str:
        done.append(brief.objective)
        return "Dear reader"

    add_orchestrator(hub, classifier=Script, confirm=team)
    async with hub:
        first = await say(hub, "write it")
        assert first.requires_followup == must_agree
        assert done == ([] if must_agree else ["write it"])
        if must_agree:
            assert first.result == "Write a document or report? Please say yes or no."
            await say(hub, "yes")
    assert done == ["write it"]


async def test_nothing_but_a_yes_agrees_to_what_was_said_back(hub: Hub) -> None:
    seen = team(hub)
    add_orchestrator(hub, "careful", classifier=Script, confirm="always")
    async with hub:
        for text in ("write it", "write it", "write it all down"):
            answer = await hub.ask("careful", text, user="u", session="s")
            assert answer.result == "Write a document or report? Please say yes or no."
    assert seen["DOC"] == []


async def test_who_says_no_has_nothing_done(hub: Hub) -> None:
    seen = team(hub)
    add_orchestrator(hub, "careful", classifier=Script, confirm="always")
    async with hub:
        await hub.ask("careful", "write it", user="u", session="s")
        again = await hub.ask("careful", "no", user="u", session="s")
    assert (seen["DOC"], again.requires_followup) == ([], True)


async def test_a_workflow_is_as_strict_as_the_strictest_of_its_steps(hub: Hub) -> None:
    @hub.agent("DOC", capabilities=[replace(DOC, confirm="always")])
    async def doc(_: Brief) -> str:
        return "Dear reader"

    steps = (Step(name="one", capability="DOC_GENERATE"),)
    add_workflow(hub, Workflow(name="trip", description="Plan a whole trip", steps=steps))
    add_orchestrator(hub, classifier=Script)
    async with hub:
        answer = await say(hub, "plan a trip")
    assert answer.result == "Plan a whole trip? Please say yes or no."


async def test_whoever_gives_what_is_missing_agrees_to_it(hub: Hub) -> None:
    """K14: nothing is asked twice."""
    seen = team(hub)
    add_orchestrator(hub, "careful", classifier=Script, confirm="always")
    async with hub:
        answer = await hub.ask("careful", "value it", user="u", session="s")
        await hub.ask("careful", "rate: 0.1\nyears: 2", user="u", session="s")
    assert answer.result.startswith(
        "Work out the net present value of an investment? Could you tell me the discount rate (a number) and the years"
    )
    assert seen["ANL"] == [{"rate": 0.1, "years": 2}]


# ── state (K13) ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_agents_state_is_its_own_in_each_conversation_and_survives(make_hub: MakeHub) -> None:
    """K13."""

    def make() -> Hub:
        hub = make_hub()

        @hub.agent("a")
        async def a(brief: Brief) -> Any:
            kept = await brief.state()
            await brief.update_state(count=kept.get("count", 0) + 1, mail="alice@example.org")
            return kept

        @hub.agent("b")
        async def b(brief: Brief) -> Any:
            return await brief.state()

        return hub

    async with make() as hub:
        assert (await hub.ask("a", "x", user="u", session="s")).result == {}
    async with make() as hub:
        again = await hub.ask("a", "x", user="u", session="s")
        other = await hub.ask("a", "x", user="u", session="t")
        stored = await hub.store.get("state s a")
    assert again.result == {"count": 1, "mail": "alice@example.org"}
    assert other.result == {}
    assert stored is not None
    assert b"alice@" not in stored[1]


async def test_two_runs_of_one_session_do_not_overwrite_each_other(hub: Hub) -> None:
    """K13: merged where they change different things, refused where they change the same."""
    import asyncio

    both = asyncio.Barrier(2)

    @hub.agent("a")
    async def a(brief: Brief) -> Any:
        await brief.state()
        await both.wait()
        return await brief.update_state(**{brief.text: brief.request.id})

    async with hub:
        merged = await asyncio.gather(*(hub.ask("a", name, user="u", session="s") for name in ("x", "y")))
        clash = await asyncio.gather(*(hub.ask("a", "z", user="u", session="s") for _ in range(2)))
        kept = await hub.store.get("state s a")
    assert all(response.ok for response in merged)
    assert kept is not None
    assert sorted(response.ok for response in clash) == [False, True]
    assert {response.fault.code for response in clash if response.fault} == {"STATE_CONFLICT"}
    assert b'"x"' in kept[1]
    assert b'"y"' in kept[1]
