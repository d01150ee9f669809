"""Nothing is asked or analysed twice in a conversation (K14): given values, and what was done before."""

from collections.abc import Callable, Mapping
from typing import Any

from remit import Answer, Brief, Capability, Hub, Response, Step, Workflow
from remit_orchestrator import add_orchestrator, add_workflow
from scripted_reader import Ranking, ScriptedReader

MakeHub = Callable[..., Hub]
TEXT = {"type": "string"}


def form(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


QUOTE = Capability(
    code="QUOTE",
    description="Quote the freight",
    input_schema=form("goods", "weight_kg", goods=TEXT, weight_kg={"type": "number"}),
    read_only=True,
)
BOOK = Capability(
    code="BOOK",
    description="Book the freight",
    input_schema=form("goods", "consignee", goods=TEXT, consignee=TEXT),
)
LABEL = Capability(
    code="LABEL",
    description="Print the label",
    input_schema=form("article", article=TEXT | {"x-same-as": "QUOTE.goods"}),
)
TABLE = Capability(
    code="TABLE",
    description="Book a table",
    input_schema=form(
        "date", "time", "guests", date=TEXT, time=TEXT, guests={"type": "integer", "description": "How many people"}
    ),
)
NEWS = Capability(code="NEWS", description="Tell the news", read_only=True)


def by_first_word(text: str) -> Ranking:
    """Return the capability that the first word names."""
    code = {"quote": "QUOTE", "book": "BOOK", "print": "LABEL", "notify": "BOOK", "table": "TABLE", "news": "NEWS"}
    first = text.split(maxsplit=1)[0].strip(",.?").casefold()
    return [(code[first], 0.9)] if first in code else []


def team(hub: Hub, results: Mapping[str, Any] | None = None, **options: Any) -> list[Brief]:
    """Agents that do what each capability says; returns what they were given."""
    seen: list[Brief] = []
    for capability in (QUOTE, BOOK, LABEL, TABLE, NEWS):

        @hub.agent(f"{capability.code.lower()}-desk", capabilities=[capability])
        async def work(brief: Brief) -> Answer:
            seen.append(brief)
            result = (results or {}).get(brief.capability or "", f"{brief.capability} is done")
            return Answer(result, confidence=0.9)

    add_orchestrator(hub, reader=ScriptedReader(by_first_word), **options)
    return seen


async def say(hub: Hub, *texts: str, user: str = "u", session: str = "s") -> Response:
    *_, last = [await hub.ask("orchestrator", text, user=user, session=session) for text in texts]
    return last


# ── given values ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_words_of_a_request_are_no_value_for_what_is_missing(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        answer = await say(hub, "quote 20 tonnes of coffee", "notify the receiver")
        await say(hub, "Baltic Coffee Ltd", "yes")
    assert answer.result == "For coffee, as before. Book the freight? I need one more thing: consignee."
    assert [brief.input for brief in seen] == [
        {"goods": "coffee", "weight_kg": 20_000},
        {"goods": "coffee", "consignee": "Baltic Coffee Ltd"},
    ]


async def test_what_was_given_for_one_capability_is_used_for_the_next_and_said(make_hub: MakeHub) -> None:
    """Over a restart, and for a field that is declared to be the same."""
    seen = team(first := make_hub())
    async with first as hub:
        await say(hub, "quote 500 kg of coffee")
    seen += team(second := make_hub())
    later: list[Brief] = []
    async with second as hub:
        back = await say(hub, "print it")
        printed = await say(hub, "yes")
        later += seen
    assert back.result == "Print the label (article: coffee)? Please say yes or no."
    assert printed.result.startswith("For coffee, as before.\n\nLABEL is done")
    assert later[0].input == {"goods": "coffee", "weight_kg": 500}


async def test_what_measures_is_offered_and_a_yes_takes_it(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        await say(hub, "quote 500 kg of coffee")
        answer = await say(hub, "quote tea")
        assert "500 as before?" in answer.result
        await say(hub, "yes")
    assert seen[-1].input["weight_kg"] == 500


async def test_another_one_is_asked_for(hub: Hub) -> None:
    team(hub)
    async with hub:
        answer = await say(hub, "quote 500 kg of coffee", "print it for another article")
    assert answer.result == "Print the label? I need one more thing: article."


async def test_several_fields_are_asked_for_and_given_in_one_sentence(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        answer = await say(hub, "table please")
        await say(hub, "tomorrow at ten, for two", "yes")
    assert answer.result.startswith(
        "Book a table? I need to know, in your own words: date; time; guests (How many people; a whole number)"
    )
    assert seen[0].input == {"date": "tomorrow", "time": "10:00", "guests": 2}


async def test_who_asks_for_something_else_in_place_of_an_answer_gets_it(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        response = await say(hub, "table please", "news for tomorrow, which are they?")
    assert [brief.capability for brief in seen] == ["NEWS"]
    assert response.ok


async def test_nothing_is_known_in_another_conversation_or_of_another_user(hub: Hub) -> None:
    team(hub)
    async with hub:
        await say(hub, "quote 500 kg of coffee")
        other = await say(hub, "print it", session="t")
        stranger = await say(hub, "print it", user="v", session="v")
    assert other.result == stranger.result == "Print the label? I need one more thing: article."


async def test_personal_values_are_remembered_as_tokens(hub: Hub) -> None:
    """The next agent that may see the value gets it, and the state holds none."""
    mail = Capability(code="QUOTE", input_schema=form("email", email=TEXT | {"format": "email"}), read_only=True)
    send = Capability(code="BOOK", description="Book it", input_schema=mail.input_schema, sees=frozenset({"EMAIL"}))
    seen: list[Any] = []

    @hub.agent("quoter", capabilities=[mail])
    async def quote(brief: Brief) -> str:
        seen.append(brief.input)
        return "quoted"

    @hub.agent("booker", capabilities=[send])
    async def book(brief: Brief) -> str:
        seen.append(brief.input)
        return "booked"

    add_orchestrator(hub, reader=ScriptedReader(by_first_word))
    async with hub:
        await say(hub, "quote for alice@example.org", "book it", "yes")
    assert seen[0]["email"].startswith("[EMAIL:")
    assert seen[1] == {"email": "alice@example.org"}


# ── what was done before ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_next_agent_is_handed_what_was_done_and_said_before(make_hub: MakeHub) -> None:
    seen = team(first := make_hub(), {"QUOTE": {"price": 4800}})
    async with first as hub:
        await say(hub, "quote 500 kg of coffee")
    assert seen[0].handoff.prior_agents == ()
    seen = team(second := make_hub())
    async with second as hub:
        await say(hub, "news of the harbour")
    handoff = seen[0].handoff
    assert handoff.prior_agents == ("quote-desk",)
    assert handoff.prior_outputs == {"QUOTE": {"price": 4800}}
    assert handoff.history == "s"
    assert [message.text for message in seen[0].messages][:1] == ["quote 500 kg of coffee"]
    assert any("4800" in message.text for message in seen[0].messages)


async def test_what_is_handed_on_is_bounded(hub: Hub) -> None:
    seen = team(hub, {"QUOTE": "word " * 5_000})
    async with hub:
        await say(hub, "quote 500 kg of coffee", "news of the harbour")
    assert len(seen[-1].handoff.prior_outputs["QUOTE"]) <= 700


# ── demands and decisions ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_demand_reaches_every_later_agent_in_the_users_words(make_hub: MakeHub) -> None:
    """K5: without a second reader nothing is claimed about results."""
    team(first := make_hub())
    async with first as hub:
        await say(hub, "news, and the freight may cost at most 5,000 euros.")
    seen = team(second := make_hub(), {"QUOTE": {"price": "6,200 EUR", "weight": 500}})
    async with second as hub:
        dear = await say(hub, "quote 500 kg of coffee")
    assert any("at most 5,000 euros" in note.text for note in seen[0].known)
    assert "Not as you asked" not in dear.result


async def test_what_lifts_a_demand_reaches_later_agents_after_it(hub: Hub) -> None:
    seen = team(hub, {"QUOTE": {"price": "6,200 EUR"}})
    async with hub:
        await say(hub, "quote 500 kg of coffee. It must not cost more than 5,000 euros.")
        await say(hub, "news, please", "Forget the limit.", "quote 500 kg of coffee")
    known = [note.text for note in seen[-1].known]
    assert known.index("It must not cost more than 5,000 euros.") < known.index("Forget the limit.")


async def test_a_constraint_alone_is_noted_and_an_open_question_stays_open(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        alone = await say(hub, "by sea")
        answer = await say(hub, "quote it", "at most 5,000 euros")
        await say(hub, "500 kg of coffee")
        nothing = await say(hub, "tea is fine", session="other")
    assert alone.result == "Noted: “by sea”. It holds for what you ask me from now on."
    assert answer.result.startswith("Noted: “at most 5,000 euros”.")
    assert answer.result.endswith("in your own words: goods; weight kg (a number)")
    assert seen[0].input == {"goods": "coffee", "weight_kg": 500}
    assert {"by sea", "at most 5,000 euros"} <= {note.text for note in seen[0].known}
    assert "Noted" not in nothing.result


async def test_a_follow_up_question_is_read_with_the_question_before(make_hub: MakeHub) -> None:
    """Over a restart, with the other values of before; what changes something is asked about."""
    seen = team(first := make_hub())
    async with first as hub:
        await say(hub, "quote 500 kg of coffee")
    seen = team(second := make_hub())
    async with second as hub:
        await say(hub, "and 800 kg?")
        await say(hub, "what about the weather in Rome?")
        await say(hub, "table for two tomorrow at 10:00", "yes", "and for three?")
    assert [brief.input for brief in seen if brief.capability == "QUOTE"] == [{"goods": "coffee", "weight_kg": 800}]
    assert len([brief for brief in seen if brief.capability == "TABLE"]) == 1


async def test_a_question_with_a_demand_is_answered_from_what_is_known(hub: Hub) -> None:
    seen = team(hub, cache_ms=60_000)
    async with hub:
        again = await say(hub, "news, but no sports", "news, but no sports")
    assert len(seen) == 1
    assert again.metadata["answered_from"] == "conversation"


async def test_a_conflict_that_the_user_settled_stays_settled(make_hub: MakeHub) -> None:
    """The same values are not asked about again, and a new value is."""
    bank = {"lunch": "45.00 EUR"}

    def make() -> Hub:
        hub = make_hub()

        @hub.agent("reader", capabilities=[Capability(code="RECEIPTS", read_only=True)])
        async def reader(_: Brief) -> Answer:
            return Answer({"lunch": "54.00 EUR"}, confidence=0.9)

        @hub.agent("desk", capabilities=[Capability(code="BANK", read_only=True)])
        async def desk(_: Brief) -> Answer:
            return Answer(bank, confidence=0.9)

        steps = (Step(name="the_receipts", capability="RECEIPTS"), Step(name="the_bank", capability="BANK"))
        add_workflow(
            hub, Workflow(name="news", description="Compare", steps=steps, compare=("the_receipts", "the_bank"))
        )

        add_orchestrator(hub, reader=ScriptedReader(lambda text: [("news", 0.9)] if text.startswith("compare") else []))
        return hub

    async with make() as hub:
        first = await say(hub, "compare it")
        await say(hub, "the bank is right")
    async with make() as hub:
        second = await say(hub, "compare it once more")
        bank["lunch"] = "60.00 EUR"
        third = await say(hub, "compare it a third time")
    assert first.requires_followup
    assert not second.requires_followup
    assert "45.00 EUR counts, as you decided." in second.result
    assert third.requires_followup


# ── the same question ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_same_question_is_answered_from_what_is_known_and_says_so(make_hub: MakeHub) -> None:
    """Over a restart; a new look is taken when the user asks for one."""
    seen = team(first := make_hub())
    async with first as hub:
        await say(hub, "news of the harbour")
    later = team(second := make_hub())
    async with second as hub:
        known = await say(hub, "News of the  harbour?")
        assert later == []
        fresh = await say(hub, "look again")
        other = await say(hub, "news of the harbour", session="t")
    assert len(seen) == 1
    assert known.result.startswith(
        "As I found a moment ago (say “look again” to have it looked up anew):\n\nThe analysis is done"
    )
    assert known.metadata["answered_from"] == "conversation"
    assert fresh.result.startswith("The analysis is done")
    assert other.result.startswith("The analysis is done")
    assert len(later) == 2


async def test_what_changes_something_is_done_again_and_makes_what_is_known_old(hub: Hub) -> None:
    seen = team(hub)
    async with hub:
        await say(hub, "news of the harbour", "print it", "coffee", "yes", "news of the harbour")
        await say(hub, "news of the harbour", "please, only by sea.", "news of the harbour")
    assert [brief.capability for brief in seen] == ["NEWS", "LABEL", "NEWS", "NEWS"]


async def test_nothing_is_answered_from_what_is_known_if_the_team_does_not_want_it(hub: Hub) -> None:
    seen = team(hub, cache_ms=0)
    async with hub:
        await say(hub, "news of the harbour", "news of the harbour")
    assert len(seen) == 2


async def test_a_request_is_said_back_with_its_values_and_again_when_a_yes_changes_one(make_hub: MakeHub) -> None:
    """What is done is what the user agreed to."""
    hub = make_hub()
    day = {"enum": ["Monday", "Tuesday", "Thursday"], "description": "Day of the training"}
    schema = {"type": "object", "properties": {"day": day}, "required": ["day"]}
    booked: list[Any] = []

    @hub.agent("school", capabilities=[Capability(code="TRAINING", description="Book a training", input_schema=schema)])
    async def school(brief: Brief) -> str:
        booked.append(brief.input)
        return "Booked."

    add_orchestrator(hub, reader=ScriptedReader(lambda _: [("TRAINING", 0.9)]))
    async with hub:
        answer = await say(hub, "book a training on Thursday")
        changed = await say(hub, "yes, but on Tuesday")
        assert booked == []
        await say(hub, "yes")
    assert answer.result == "Book a training (day: Thursday)? Please say yes or no."
    assert changed.result == "Book a training (day: Tuesday)? Please say yes or no."
    assert booked == [{"day": "Tuesday"}]
