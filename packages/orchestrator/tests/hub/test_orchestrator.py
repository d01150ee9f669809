"""A user says what they want in their own words (K4, K7): it is routed, asked about, or admitted to be nobody's."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from remit import Answer, Brief, Capability, Hub, Response
from remit.protocol.orchestration import Step, Workflow
from remit_orchestrator import add_orchestrator, add_workflow
from scripted_reader import ScriptedReader

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
    read_only=True,
    input_schema={"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]},
)


SCRIPT = {
    "value it": [("ANL_NPV", 0.9)],
    "write it": [("DOC_GENERATE", 0.9)],
    "write {part1} of {nobody} to {{request}}": [("DOC_GENERATE", 0.9)],
    "write it all down": [("DOC_GENERATE", 0.9)],
    "value it now please": [("ANL_NPV", 0.9)],
    "perhaps": [("ANL_NPV", 0.35), ("DOC_GENERATE", 0.3)],
    "maybe": [("DOC_GENERATE", 0.45)],
    "what is it": [("KNOW", 0.95)],
    "plan a trip": [("trip", 0.95)],
}


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

    add_orchestrator(hub, reader=ScriptedReader(SCRIPT))
    return seen


async def say(hub: Hub, *texts: str, **options: Any) -> Response:
    for text in texts[:-1]:
        await hub.ask("orchestrator", text, user="u", session="s")
    return await hub.ask("orchestrator", texts[-1], user="u", session="s", **options)


async def test_what_only_reads_is_done_at_once_if_it_is_clear(hub: Hub) -> None:
    """K7, K4: routed by capability; neither agent nor code is shown (K6)."""
    seen = team(hub)
    async with hub:
        response = await say(hub, "what is it")
    assert (seen["ANL"], response.requires_followup) == ([{"question": "what is it"}], False)
    assert (response.metadata["decision"], response.metadata["options"]) == ("did", ["KNOW"])
    assert not any(name in response.result for name in ("ANL", "KNOW"))


async def test_what_changes_something_is_said_back_however_clear_it_is(hub: Hub) -> None:
    """Nothing is changed without a yes."""
    seen = team(hub)
    async with hub:
        asked = await say(hub, "write it")
        assert seen["DOC"] == []
        done = await say(hub, "yes")
    assert asked.result == "Write a document or report? Please say yes or no."
    assert (asked.metadata["decision"], asked.metadata["options"]) == ("said_back", ["DOC_GENERATE"])
    assert (done.metadata["decision"], seen["DOC"]) == ("did", ["write it"])


async def test_braces_in_the_users_words_stand_for_themselves(hub: Hub) -> None:
    """K5: the original request in the user's words."""
    seen = team(hub)
    async with hub:
        await say(hub, "write {part1} of {nobody} to {{request}}", "yes")
    assert seen["DOC"] == ["write {part1} of {nobody} to {{request}}"]


async def test_a_field_that_nobody_has_said_is_asked_for_by_name_and_shown_before_it_is_used(hub: Hub) -> None:
    """K7: a specific question; K14: what was said before is not asked again."""
    seen = team(hub)
    async with hub:
        answer = await say(hub, "value it", input={"years": 5})
        back = await say(hub, "rate: 0.12")
        assert seen["ANL"] == []
        done = await say(hub, "yes")
    assert answer.result == (
        "Work out the net present value of an investment? I need one more thing: The discount rate (a number)."
    )
    assert answer.metadata["decision"] == "asked"
    assert back.result == (
        "Work out the net present value of an investment (years: 5, rate: 0.12)? Please say yes or no."
    )
    assert seen["ANL"] == [{"years": 5, "rate": 0.12}]
    assert "24156.72" in done.result


async def test_what_is_not_sure_is_offered_with_none_of_these(hub: Hub) -> None:
    """K7."""
    seen = team(hub)
    async with hub:
        offered = await say(hub, "perhaps")
        await say(hub, "the second")
    assert offered.result == (
        "Which of these do you want? Please say the number.\n"
        "1. Work out the net present value of an investment\n2. Write a document or report\n3. None of these"
    )
    assert offered.metadata["options"] == ["ANL_NPV", "DOC_GENERATE"]
    assert seen["DOC"] == ["perhaps"]


async def test_the_best_guess_is_said_back_with_the_others_beside_it(hub: Hub) -> None:
    seen = team(hub)
    add_orchestrator(hub, "front", reader=ScriptedReader({"it": [("DOC_GENERATE", 0.6), ("KNOW", 0.2)]}))
    async with hub:
        back = await hub.ask("front", "it", user="u", session="s")
        await hub.ask("front", "2", user="u", session="s")
    assert back.result == (
        "Is the first of these right? Then say yes, or else the number.\n"
        "1. Write a document or report\n2. Answer a question (question: it)\n3. None of these"
    ).replace(" (question: it)", "")
    assert (seen["DOC"], seen["ANL"]) == ([], [{"question": "it"}])


@pytest.mark.parametrize(
    "reply",
    [
        "no",
        "never mind",
        "stop",
        "please don't do anything",
        "nein danke",
        "vergiss es",
        "I changed my mind",
        "forget it",
    ],
)
@pytest.mark.parametrize("text", ["write it", "perhaps", "value it", "maybe", "write it all down. value it"])
async def test_a_refusal_changes_nothing_whatever_was_asked(hub: Hub, text: str, reply: str) -> None:
    seen = team(hub)
    async with hub:
        answer = await say(hub, text, reply, "yes", "1")
    assert seen == {"ANL": [], "DOC": []}
    assert not answer.requires_followup


@pytest.mark.parametrize(
    "reply", ["what a lovely day", "perhaps", "sing", "42 elephants", "my thing", "write", "hello"]
)
@pytest.mark.parametrize("text", ["write it", "perhaps", "maybe", "write it all down. value it"])
async def test_whatever_is_no_answer_changes_nothing_and_the_question_is_asked_again(
    hub: Hub, text: str, reply: str
) -> None:
    seen = team(hub)
    async with hub:
        answer = await say(hub, text, reply)
    assert seen == {"ANL": [], "DOC": []}
    assert answer.requires_followup


async def test_who_wants_something_else_instead_of_answering_gets_it(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        await say(hub, "maybe", "what is it", "yes")
    assert (seen["DOC"], seen["ANL"]) == ([], [{"question": "what is it"}])


async def test_a_part_of_a_name_is_only_said_back(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        back = await say(hub, "perhaps", "a document")
        assert seen["DOC"] == []
        await say(hub, "yes")
    assert back.result == "Write a document or report? Please say yes or no."
    assert seen["DOC"] == ["perhaps"]


@pytest.mark.parametrize("no", ["neither of these, thanks", "None of them.", "nichts davon, danke", "keins davon", "3"])
async def test_who_wants_none_of_the_options_is_asked_to_say_it_in_other_words(hub: Hub, no: str) -> None:
    seen = team(hub)
    async with hub:
        answer = await say(hub, "perhaps", no)
    assert answer.result == "Please say in other words what you want."
    assert seen == {"ANL": [], "DOC": []}


async def test_what_is_sent_is_what_was_said_back_whatever_has_come_in_between(make_hub: MakeHub) -> None:
    """Value by value, over a restart."""
    schema = {
        "type": "object",
        "properties": {"consignee": {"type": "string"}, "day": {"enum": ["Monday", "Tuesday"]}},
        "required": ["consignee", "day"],
    }
    book = Capability(code="BOOK", description="Book the freight", input_schema=schema)
    sent: list[Any] = []

    def make() -> Hub:
        hub = make_hub()

        @hub.agent("freight", capabilities=[book])
        async def freight(brief: Brief) -> str:
            sent.append(brief.input)
            return "Booked."

        add_orchestrator(hub, reader=ScriptedReader(lambda text: [("BOOK", 0.9)] if "book" in text else []))
        return hub

    async with make() as hub:
        back = await say(hub, "book it for Monday", input={"consignee": "Baltic Coffee"})
        other = await say(hub, "no, on Tuesday")
    async with make() as hub:
        await say(hub, "yes", input={"day": "Monday"})
    assert back.result == "Book the freight (day: Monday, consignee: Baltic Coffee)? Please say yes or no."
    assert other.result == "Book the freight (consignee: Baltic Coffee, day: Tuesday)? Please say yes or no."
    assert sent == [{"day": "Tuesday", "consignee": "Baltic Coffee"}]


async def test_what_is_far_from_everything_may_not_be_possible_and_what_comes_nearest_is_named(hub: Hub) -> None:
    """K7."""
    seen = team(hub)
    reader = ScriptedReader({"sing": [("DOC_GENERATE", 0.05), ("KNOW", 0.04), ("ANL_NPV", 0.03)]})
    reader.far = 0.9
    add_orchestrator(hub, "front", reader=reader)
    async with hub:
        response = await hub.ask("front", "sing", user="u", session="s")
        none = await hub.ask("front", "none of these", user="u", session="s")
        unknown = await hub.ask("orchestrator", "sing", user="u", session="t")
    assert response.result.startswith(
        "I may not be able to do that. What comes nearest:\n1. Write a document or report"
    )
    assert response.result.endswith("4. None of these")
    assert response.metadata["decision"] == "cannot"
    assert none.metadata["decision"] == "noted"
    assert "I cannot do that. What I can do:" in unknown.result
    assert (seen["ANL"], seen["DOC"]) == ([], [])


@pytest.mark.parametrize("text", ["hello", "Hello, can you help me?", "Guten Tag!", "what can you do?", "hilfe"])
async def test_a_greeting_gets_one_and_what_can_be_done(hub: Hub, text: str) -> None:
    team(hub)
    async with hub:
        answer = await say(hub, text)
    assert answer.result.startswith("Hello! What I can do:\nI can tell you:\n- Answer a question\nI can do for you:")
    assert answer.metadata["decision"] == "greeted"


async def test_a_request_of_several_parts_is_said_back_whole_and_done_in_one_run(hub: Hub) -> None:
    """K7, K8: secondary intents."""
    seen = team(hub)
    async with hub:
        asked = await say(hub, "value it now please. write it all down")
        back = await say(hub, "rate: 0.1\nyears: 2")
        assert seen == {"ANL": [], "DOC": []}
        response = await say(hub, "yes")
    assert (asked.metadata["decision"], back.metadata["decision"]) == ("asked", "said_back")
    assert back.result.startswith(
        "I would do this:\n1. Work out the net present value of an investment (rate: 0.1, years: 2)\n"
        "2. Write a document or report"
    )
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
    steps = (Step(name="one", capability="DOC_GENERATE"),)
    add_workflow(hub, Workflow(name="trip", description="Plan a whole trip", steps=steps))
    async with hub:
        asked = await say(hub, "plan a trip")
        response = await say(hub, "yes")
    assert asked.result == "Plan a whole trip? Please say yes or no."
    assert len(seen["DOC"]) == 1
    assert response.ok


async def test_by_default_it_learns_from_examples_and_confirms_what_changes_something(hub: Hub) -> None:
    """K7: from the capabilities' own utterances, without a network."""
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
        await hub.ask("orchestrator", "what is the weather like today?", user="u")
        confirmed = await hub.ask("orchestrator", "please order me a margherita pizza", user="u", session="s")
        assert agents == ["weather"]
        await hub.ask("orchestrator", "yes", user="u", session="s")
    assert confirmed.result.startswith(
        "Is the first of these right? Then say yes, or else the number.\n1. About pizza\n"
    )
    assert agents == ["weather", "pizza"]


@pytest.mark.parametrize(
    ("read_only", "confirm", "must_agree"), [(True, False, False), (True, True, True), (False, False, True)]
)
async def test_a_capability_says_whether_a_user_has_to_agree_although_it_only_reads(
    hub: Hub, read_only: bool, confirm: bool, must_agree: bool
) -> None:
    """K7: here the reader is sure."""
    done: list[str] = []

    @hub.agent("DOC", capabilities=[replace(DOC, confirm=confirm, read_only=read_only)])
    async def doc(brief: Brief) -> str:
        done.append(brief.objective)
        return "Dear reader"

    add_orchestrator(hub, reader=ScriptedReader(SCRIPT))
    async with hub:
        first = await say(hub, "write it")
        assert (first.requires_followup, done) == (must_agree, [] if must_agree else ["write it"])
        if must_agree:
            await say(hub, "yes")
    assert done == ["write it"]


async def test_a_workflow_is_as_strict_as_the_strictest_of_its_steps(hub: Hub) -> None:
    @hub.agent("DOC", capabilities=[replace(DOC, read_only=True, confirm=True)])
    async def doc(_: Brief) -> str:
        return "Dear reader"

    steps = (Step(name="one", capability="DOC_GENERATE"),)
    add_workflow(hub, Workflow(name="trip", description="Plan a whole trip", steps=steps))
    add_orchestrator(hub, reader=ScriptedReader(SCRIPT))
    async with hub:
        answer = await say(hub, "plan a trip")
    assert answer.result == "Plan a whole trip? Please say yes or no."


# ── after an act ──────────────────────────────────────────────────────────────────────────────────────────────────────

DAY = {"type": "object", "properties": {"day": {"enum": ["Monday", "Tuesday", "Friday"]}}, "required": ["day"]}


def lessons(hub: Hub, *, undo: str | None) -> list[tuple[str | None, Any]]:
    done: list[tuple[str | None, Any]] = []
    capabilities = [
        Capability(code="LESSON", description="Book a lesson", input_schema=DAY, undo=undo),
        Capability(code="UNBOOK", description="Cancel a lesson", input_schema=DAY),
        Capability(code="FREE", description="Tell which teachers are free", input_schema=DAY, read_only=True),
    ]

    @hub.agent("school", capabilities=capabilities)
    async def school(brief: Brief) -> str:
        done.append((brief.capability, brief.input))
        return "Done."

    reader = ScriptedReader(
        lambda text: (
            [({"book": "LESSON", "who": "FREE"}[text.split()[0]], 0.9)] if text.split()[0] in {"book", "who"} else []
        )
    )
    add_orchestrator(hub, reader=reader)
    return done


async def test_what_was_done_is_undone_after_a_yes_where_a_capability_says_how(hub: Hub) -> None:
    done = lessons(hub, undo="UNBOOK")
    async with hub:
        await say(hub, "book a lesson on Friday", "yes")
        back = await say(hub, "undo that")
        assert len(done) == 1
        await say(hub, "yes")
    assert back.result == "Cancel a lesson (day: Friday)? Please say yes or no."
    assert done == [("LESSON", {"day": "Friday"}), ("UNBOOK", {"day": "Friday"})]


async def test_what_nothing_undoes_is_admitted_with_who_can_be_asked(hub: Hub) -> None:
    done = lessons(hub, undo=None)
    async with hub:
        answer = await say(hub, "book a lesson on Friday", "yes", "take it back")
    assert answer.result == "I cannot undo that. It was done by school: please ask there."
    assert done == [("LESSON", {"day": "Friday"})]


async def test_a_correction_after_an_act_is_said_back_with_the_other_value(hub: Hub) -> None:
    done = lessons(hub, undo=None)
    async with hub:
        back = await say(hub, "book a lesson on Friday", "yes", "no, on Tuesday")
        assert len(done) == 1
        await say(hub, "yes")
    assert back.result == "Book a lesson (day: Tuesday)? Please say yes or no."
    assert done[1] == ("LESSON", {"day": "Tuesday"})


async def test_again_and_what_about_repeat_what_only_reads_at_once(hub: Hub) -> None:
    done = lessons(hub, undo=None)
    async with hub:
        await say(hub, "who is free on Friday", "and on Monday?", "again")
        again = await say(hub, "book a lesson on Friday", "yes", "once more")
    assert done == [
        ("FREE", {"day": "Friday"}),
        ("FREE", {"day": "Monday"}),
        ("FREE", {"day": "Monday"}),
        ("LESSON", {"day": "Friday"}),
    ]
    assert again.result == "Book a lesson (day: Friday)? Please say yes or no."


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
