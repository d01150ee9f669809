"""An orchestrator with a model (K6, K7, K9): what is wanted, and what came of it, over a real socket.

What the model says is scripted; what it is told, may spend, and is believed is what is looked at here.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from msgspec.structs import replace

from openai_server import Answer as Served
from openai_server import Drop, Garbage, Hang, OpenAIServer, call, say
from openai_server import Status as HttpStatus
from remit import Answer, Brief, Capability, Code, Hub, RemitError, Response, Status, Step, Workflow, fault
from remit_models import ModelAgent
from remit_orchestrator import add_orchestrator, add_workflow
from remit_orchestrator import workflow_answer as narrator
from remit_orchestrator.dialogue.commands import Commands, DialogueState, StartCapability, TextSpan
from remit_orchestrator.readers import model as model_reader
from remit_testing import ManualClock

MakeHub = Callable[..., Hub]
Serve = Callable[..., OpenAIServer]

WEATHER = Capability(
    code="SKY_WEATHER",
    description="Say what the weather will be like",
    examples=("will it rain tomorrow", "what is the weather like", "is it sunny outside", "how warm is it today"),
    read_only=True,
)
PIZZA = Capability(
    code="KIT_PIZZA",
    description="Order a pizza",
    examples=("order a pizza", "I want a margherita", "get me some food delivered", "I am hungry, order dinner"),
    # It only reads here, so that a model's choice is carried out at once.
    read_only=True,
)
ASKED = "an umbrella, yes or no? and something with cheese"
TOLD = "Your margherita comes at 19:30, and it is sunny at 21 degrees."
COMES = "A margherita comes at 19:30."


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a server with a script."""
    with ExitStack() as stack:
        yield lambda *script: stack.enter_context(OpenAIServer(script))


def start(code: str, confidence: float = 0.9, *, words: str = "umbrella", piece: int = 1) -> dict[str, Any]:
    """What a model proposes for a piece of a text."""
    return {"command": "start", "piece": piece, "words": words, "capability": code, "confidence": confidence}


def means(
    primary: str | None = "SKY_WEATHER", confidence: float = 0.9, *, also: Sequence[str] = (), words: str = "umbrella"
) -> Served:
    """What a model answers that says what is wanted; *also*: by the pieces after the first, which end with cheese."""
    if primary is None:
        first = {"command": "none", "piece": 1, "words": words, "confidence": confidence}
    else:
        first = start(primary, confidence, words=words)
    rest = [start(code, confidence, words="cheese", piece=place) for place, code in enumerate(also, 2)]
    return call("final_result", commands=[first, *rest])


def quotes(*passages: tuple[int, str]) -> Served:
    """What a model answers that finds its one sentence in results: each with its number and the quote."""
    found = [{"result": result, "quote": quote} for result, quote in passages]
    return call("final_result", passages=[{"sentence": 1, "quotes": found}])


def team(hub: Hub, server: OpenAIServer, **options: Any) -> list[str]:
    """Two agents and an orchestrator; returns who was asked."""
    agents: list[str] = []

    @hub.agent("SKY", capabilities=[WEATHER])
    async def sky(brief: Brief) -> Answer:
        agents.append("SKY")
        return Answer({"sky": "sunny", "degrees": 21}, confidence=0.9)

    @hub.agent("KIT", capabilities=[PIZZA])
    async def kitchen(brief: Brief) -> Answer:
        agents.append("KIT")
        return Answer("A margherita comes at 19:30.", confidence=0.6)

    model = ModelAgent("scripted", base_url=server.base_url, settings={"max_retries": 0})
    wanted: dict[str, Any] = {"reader": "model", **options}
    add_orchestrator(hub, model=model, **wanted)
    return agents


async def ask(hub: Hub, text: str = ASKED, user: str = "u", **options: Any) -> Response:
    async with hub:
        return await hub.ask("orchestrator", text, user=user, **options)


# ── what is wanted ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_model_says_what_is_wanted_for_each_piece_of_a_text(hub: Hub, serve: Serve) -> None:
    """K7: with targets."""
    server = serve(means(also=["KIT_PIZZA"]))
    agents = team(hub, server)
    response = await ask(hub)
    [request] = server.requests
    assert sorted(agents) == ["KIT", "SKY"]
    assert response.metadata["intents"] == [
        {"capability": "SKY_WEATHER", "agent": "SKY"},
        {"capability": "KIT_PIZZA", "agent": "KIT"},
    ]
    assert response.metadata["cache_status"] == "miss"
    assert "- KIT_PIZZA: Order a pizza. People say: “order a pizza”; “I want a margherita”" in request.message_texts
    assert "1. an umbrella, yes or no\n2. something with cheese" in request.message_texts
    assert response.usage.total == 30, "what the model used is the orchestrator's"


async def test_what_a_model_is_not_sure_of_is_offered(hub: Hub, serve: Serve) -> None:
    """K7."""
    agents = team(hub, serve(means(confidence=0.3)))
    response = await ask(hub, "umbrella?")
    assert (agents, response.metadata["decision"]) == ([], "offered")
    assert response.metadata["options"] == ["SKY_WEATHER", "KIT_PIZZA"]


async def test_what_a_model_finds_nobody_for_may_not_be_possible(hub: Hub, serve: Serve) -> None:
    """K7: with what comes nearest by the reader without a model."""
    agents = team(hub, serve(means(None)))
    response = await ask(hub, "umbrella?")
    assert agents == []
    assert response.result.startswith("I may not be able to do that. What comes nearest:\n1. ")


async def test_a_model_reads_nothing_at_once_that_no_other_reader_ranks_among_three(hub: Hub, serve: Serve) -> None:
    """A careless model is always sure."""
    for place in range(3):
        nearer = Capability(
            code=f"NEAR_{place}",
            description=f"Tell about umbrella number {place}",
            examples=(f"umbrella {place}",),
            read_only=True,
        )

        @hub.agent(f"near-{place}", capabilities=[nearer])
        async def near(_: Brief) -> str:
            return "Near."

    agents = team(hub, serve(means("KIT_PIZZA", 1.0)))
    response = await ask(hub, "umbrella")
    assert agents == []
    assert response.metadata["decision"] == "said_back"
    assert response.metadata["options"][0] == "KIT_PIZZA"


async def test_no_model_agrees_for_the_user(hub: Hub, serve: Serve) -> None:
    """A reply counts by what the user says, not by what a model makes of it."""
    done: list[str] = []

    @hub.agent("PAY", capabilities=[Capability(code="PAY_BILL", description="Pay the bill")])
    async def pay(_: Brief) -> str:
        done.append("paid")
        return "Paid."

    agree = call("final_result", commands=[{"command": "agree", "piece": 1, "words": "umbrella"}])
    choose = call("final_result", commands=[{"command": "choose", "piece": 1, "words": "umbrella", "option": 1}])
    team(hub, serve(means("PAY_BILL", 1.0), agree, choose, means("PAY_BILL", 1.0)))
    async with hub:
        answers = [
            await hub.ask("orchestrator", f"{whose} umbrella", user="u", session="s")
            for whose in ("my", "her", "his", "our")
        ]
    assert done == []
    assert [each.metadata["decision"] for each in answers] == ["said_back"] * 4


async def test_a_model_is_shown_the_last_turns_and_may_say_what_is_different(hub: Hub, serve: Serve) -> None:
    """ "And Paul?" is a new value for what was done last."""
    asked: list[Any] = []
    name = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}
    capability = Capability(code="FIND", description="Find a person", input_schema=name, read_only=True)

    @hub.agent("FIND", capabilities=[capability])
    async def find(brief: Brief) -> str:
        asked.append(brief.input)
        return "Found."

    first = {"command": "start", "piece": 1, "words": "Anna", "capability": "FIND", "values": {"who": "Anna"}}
    then = {"command": "set_field", "piece": 1, "words": "Paul", "field": "who", "values": {"who": "Paul"}}
    server = serve(call("final_result", commands=[first]), call("final_result", commands=[then]))
    add_orchestrator(hub, reader="model", model=ModelAgent("scripted", base_url=server.base_url))
    async with hub:
        await hub.ask("orchestrator", "where is Anna now", user="u", session="s")
        await hub.ask("orchestrator", "where would Paul be", user="u", session="s")
    assert asked == [{"who": "Anna"}, {"who": "Paul"}]
    assert "where is Anna now" in server.requests[1].message_texts
    assert '"who":"Anna"' in server.requests[1].message_texts


async def test_a_value_that_a_model_makes_up_is_not_used(hub: Hub, serve: Serve) -> None:
    asked: list[Any] = []
    schema = {"type": "object", "properties": {"where": {"type": "string"}, "day": {"type": "string"}}}

    @hub.agent("SKY", capabilities=[replace(WEATHER, input_schema=schema)])
    async def sky(brief: Brief) -> str:
        asked.append(brief.input)
        return "Sunny."

    made = start("SKY_WEATHER") | {"values": {"where": "Rome", "day": "Monday", "how": "umbrella"}}
    server = serve(call("final_result", commands=[made]))
    add_orchestrator(hub, reader="model", model=ModelAgent("scripted", base_url=server.base_url))
    await ask(hub, "umbrella in Rome?")
    assert asked == [{"where": "Rome"}]


async def test_a_model_is_given_tokens_in_place_of_personal_data(hub: Hub, serve: Serve) -> None:
    server = serve(means())
    team(hub, server)
    await ask(hub, "umbrella for alice@example.org")
    assert "alice@example.org" not in server.requests[0].message_texts
    assert "[EMAIL:" in server.requests[0].message_texts


BROKEN: dict[str, Served] = {
    "a code that was not offered": means("DELETE_ALL", words="weather"),
    "a number that is no share": means(confidence=1.7, words="weather"),
    "another form": call("final_result", intent="SKY_WEATHER"),
    "words that do not stand there": means(words="umbrella"),
    "a piece that there is not": call("final_result", commands=[start("SKY_WEATHER", words="weather", piece=7)]),
    "words": say("The weather, I think."),
    "an error": HttpStatus(500),
    "a key that is not accepted": HttpStatus(401),
    "something else": Garbage(),
    "nothing": Drop(),
}


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
async def test_what_a_model_must_not_say_is_not_believed_and_another_reader_reads(
    hub: Hub, serve: Serve, reply: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """K7: it falls back, says so, and does not keep what was decided that way."""
    server = serve(reply, means(words="weather"))
    agents = team(hub, server)
    with caplog.at_level(logging.WARNING, "remit"):
        async with hub:
            first = await hub.ask("orchestrator", "what is the weather like", user="u")
            second = await hub.ask("orchestrator", "what is the weather like", user="u")
    assert agents == ["SKY", "SKY"]
    assert first.warnings == ("Your request was read without the model, and may have been misunderstood.",)
    assert first.metadata["notice"]
    assert "could not read a request" in caplog.text
    assert "weather" not in caplog.text
    assert (second.warnings, second.metadata["cache_status"]) == ((), "miss")
    assert len(server.requests) == 2


async def test_a_model_that_hangs_is_not_waited_for_long(
    hub: Hub, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K10: nothing hangs on what cannot come."""
    monkeypatch.setattr(model_reader, "PATIENCE_MS", 1_000)
    agents = team(hub, serve(Hang()))
    response = await ask(hub, "what is the weather like")
    assert agents == ["SKY"]
    assert "did not answer within 1000 ms" in response.metadata["notice"]
    assert response.usage.estimated, "what it had read by then was read"


@pytest.mark.parametrize(
    ("settings", "waited_ms"), [({}, 15_000), ({"timeout": 2.5}, 2_500), ({"timeout": 60}, 60_000)]
)
def test_a_slow_model_may_be_waited_for_longer(settings: dict[str, Any], waited_ms: int) -> None:
    assert ModelAgent("any", settings=settings).patience_ms(15_000) == waited_ms


async def test_a_model_is_not_asked_where_too_little_is_left(hub: Hub, serve: Serve) -> None:
    server = serve(means())
    agents = team(hub, server)
    async with hub:
        poor = await hub.ask("orchestrator", "what is the weather like", user="u", max_tokens=900)
        late = await hub.ask("orchestrator", "what is the weather like", user="u", deadline_ms=3_000)
    assert (agents, server.requests) == (["SKY", "SKY"], [])
    assert "too few tokens are left" in poor.metadata["notice"]
    assert "too little time is left" in late.metadata["notice"]


async def test_what_a_model_may_say_is_capped_beforehand(hub: Hub, serve: Serve) -> None:
    """At most a quarter of the tokens go into finding out what they are for."""
    server = serve(means())
    team(hub, server)
    response = await ask(hub, "umbrella?", max_tokens=4_000)
    assert response.ok
    assert 100 <= server.requests[0].body["max_tokens"] <= 900


@pytest.mark.parametrize(("tokens", "examples"), [(40_000, 5), (5_500, 2), (3_300, 0)])
async def test_many_capabilities_are_told_with_fewer_examples_rather_than_not_at_all(
    hub: Hub, serve: Serve, tokens: int, examples: int
) -> None:
    server = serve(means())
    shared_examples = tuple(f"please do the work that has number {n} for me today" for n in range(5))
    for number in range(12):

        @hub.agent(f"worker-{number}", capabilities=[Capability(code=f"WORK_{number}", examples=shared_examples)])
        async def work(brief: Brief) -> str:
            return brief.objective

    team(hub, server)
    response = await ask(hub, "umbrella?", max_tokens=tokens)
    assert response.metadata["options"][0] == "SKY_WEATHER"
    assert server.requests[0].message_texts.count("“please do the work") == 12 * examples


async def test_a_run_that_is_stopped_is_stopped_while_its_model_thinks(hub: Hub, serve: Serve) -> None:
    """X15: cancellation reaches the model's call."""
    server = serve(Hang())
    agents = team(hub, server)
    async with hub:
        going = asyncio.create_task(hub.ask("orchestrator", "what is the weather like", user="u", request_id="r"))
        await asyncio.to_thread(server.hanging.wait, 20)
        hub.cancel("r", "enough")
        response = await going
    assert (response.status, agents) == (Status.CANCELLED, [])


async def test_without_a_model_nothing_is_made_that_needs_one(hub: Hub) -> None:
    with pytest.raises(RemitError, match='reader="model" needs a `model`'):
        add_orchestrator(hub, reader="model")
    with pytest.raises(RemitError, match='narrate="model" needs a `model`'):
        add_orchestrator(hub, narrate="model")
    with pytest.raises(RemitError, match="nothing uses its `model`"):
        add_orchestrator(hub, model="openai:gpt-5-mini")


async def test_a_reader_of_ones_own_is_asked_within_the_brief(hub: Hub) -> None:
    """All stand behind one port."""
    objectives: list[str] = []

    class Own:
        async def read(self, text: str, pieces: Sequence[TextSpan], state: DialogueState, brief: Brief) -> Commands:
            brief.spend(prompt=7)
            code = state.capabilities[0].code
            return Commands(((StartCapability(capability=code, confidence=1.0, span=pieces[0]),),))

    @hub.agent("SKY", capabilities=[WEATHER])
    async def sky(brief: Brief) -> str:
        objectives.append(brief.objective)
        return "Sunny."

    add_orchestrator(hub, reader=Own())
    response = await ask(hub, "whatever")
    assert (objectives, response.usage.prompt) == (["whatever"], 7)


# ── what was decided before ───────────────────────────────────────────────────────────────────────────────────────────


async def test_equal_words_are_understood_once_for_each_user(hub: Hub, serve: Serve) -> None:
    """C10: decisions are cached, and never across users."""
    server = serve(means())
    agents = team(hub, server)
    async with hub:
        first = await hub.ask("orchestrator", "Umbrella?", user="u", session="s")
        again = await hub.ask("orchestrator", " umbrella? ", user="u", session="t")
        other = await hub.ask("orchestrator", "Umbrella?", user="v")
    assert [each.metadata["cache_status"] for each in (first, again, other)] == ["miss", "hit", "miss"]
    assert (len(server.requests), agents) == (2, ["SKY", "SKY", "SKY"])
    assert (first.usage.total, again.usage.total) == (30, 0)


async def test_a_decision_counts_for_a_while(make_hub: MakeHub, serve: Serve) -> None:
    """C10."""
    server, clock = serve(means()), ManualClock()
    hub = make_hub(clock=clock)
    team(hub, server, cache_ms=60_000)
    statuses: list[str] = []
    async with hub:
        for seconds in (0, 59, 2):
            clock.advance(seconds)
            response = await hub.ask("orchestrator", "umbrella?", user="u")
            statuses.append(response.metadata["cache_status"])
    assert statuses == ["miss", "hit", "miss"]


async def test_no_decision_is_kept_if_the_team_does_not_want_it(hub: Hub, serve: Serve) -> None:
    server = serve(means())
    team(hub, server, cache_ms=0)
    async with hub:
        for _ in range(2):
            assert (await hub.ask("orchestrator", "umbrella?", user="u")).metadata["cache_status"] == "miss"
    assert len(server.requests) == 2


async def test_words_with_personal_data_are_known_in_their_own_conversation_alone(hub: Hub, serve: Serve) -> None:
    """C10: tokens of one conversation mean nothing in another."""
    team(hub, serve(means()))
    text = "does alice@example.org need an umbrella?"
    async with hub:
        statuses = [
            (await hub.ask("orchestrator", text, user="u", session=session)).metadata["cache_status"]
            for session in ("s", "t")
        ]
    assert statuses == ["miss", "miss"]


async def test_what_is_offered_to_one_caller_does_not_answer_another(hub: Hub, serve: Serve) -> None:
    server = serve(means("KIT_PIZZA"), means("SKY_WEATHER"))
    agents = team(hub, server)

    @hub.agent("boss", may_call=["orchestrator"])
    async def boss(brief: Brief) -> Any:
        reply = await brief.delegate("orchestrator", objective="umbrella?", targets=["orchestrator", "SKY"])
        return reply.metadata["cache_status"]

    async with hub:
        await hub.ask("orchestrator", "umbrella?", user="u")
        assert (await hub.ask("boss", "go", user="u")).result == "miss"
    assert agents == ["KIT", "SKY"]


async def test_decisions_are_forgotten_when_something_else_is_offered(hub: Hub, serve: Serve) -> None:
    """C10."""
    server = serve(means())
    team(hub, server)
    async with hub:
        await hub.ask("orchestrator", "umbrella?", user="u")
        sky = replace(WEATHER, description="Say how the sky looks")
        hub.reconfigure(cards=[replace(hub.cards["SKY"], capabilities=(sky,))])
        response = await hub.ask("orchestrator", "umbrella?", user="u")
    assert response.metadata["cache_status"] == "miss"
    assert "Say how the sky looks" in server.requests[1].message_texts


# ── what came of it ───────────────────────────────────────────────────────────────────────────────────────────────────


def narrated(hub: Hub, server: OpenAIServer) -> list[str]:
    return team(hub, server, narrate="model")


async def test_several_results_are_told_as_one(hub: Hub, serve: Serve) -> None:
    """K9: one narrative, with a confidence for each component."""
    server = serve(means(also=["KIT_PIZZA"]), say(TOLD), quotes((1, "Sky: sunny"), (1, "Degrees: 21"), (2, COMES)))
    narrated(hub, server)
    response = await ask(hub)
    assert response.result.startswith(TOLD)
    assert "## How sure this is" in response.result
    assert "high" in response.result
    assert response.metadata["narrated"] == "model"
    assert response.usage.total == 90
    assert f"Sentence 1: {TOLD}" in server.requests[2].message_texts
    prompt = server.requests[1].message_texts
    assert f"Request:\n{ASKED}" in prompt
    assert "- Degrees: 21" in prompt
    assert "(MEDIUM confidence):\nA margherita comes at 19:30." in prompt
    assert not any(name in prompt for name in ("SKY", "KIT_PIZZA"))


@pytest.mark.parametrize(
    ("text", "made_up"),
    [
        ("Your margherita comes at 20:30, and it is sunny at 21 degrees.", ["20:30"]),
        ("It is sunny at 25 degrees, says Alice.", ["25 degrees", "Alice"]),
        ("", []),
    ],
)
async def test_a_text_that_says_what_nobody_said_is_rejected(
    hub: Hub, serve: Serve, text: str, made_up: list[str]
) -> None:
    """K9: then the template tells it."""
    narrated(hub, serve(means(also=["KIT_PIZZA"]), say(text)))
    response = await ask(hub)
    assert "A margherita comes at 19:30." in response.result
    assert "- Degrees: 21" in response.result
    assert response.metadata["narrated"] == "template"
    if text:
        assert response.metadata["rejected"] == made_up


async def test_names_and_codes_do_not_show_whoever_tells_it(hub: Hub, serve: Serve) -> None:
    """K6."""

    @hub.agent("GOS", capabilities=[Capability(code="GOS_TALK", description="Tell what others do", read_only=True)])
    async def gossip(brief: Brief) -> str:
        return "SKY and KIT_PIZZA are at work."

    narration = say(f"{COMES} SKY and KIT_PIZZA are at work. The sky is sunny; the degrees are 21.")
    agents = narrated(hub, serve(means(also=["KIT_PIZZA", "GOS_TALK"]), narration))
    response = await ask(hub, f"{ASKED}\ntalk about cheese")
    assert sorted(agents) == ["KIT", "SKY"]
    assert response.metadata["narrated"] == "model"
    assert "A margherita comes at 19:30." in response.result
    assert not any(name in response.result for name in ("KIT_PIZZA", "SKY", "GOS"))


async def test_the_glossary_holds_for_a_model_too(hub: Hub, serve: Serve) -> None:
    """K9: one terminology."""
    server = serve(means(also=["KIT_PIZZA"]), say("A margherita comes at 19:30, and it is sunny at 21 degrees."))
    team(hub, server, narrate="model", glossary={"margherita": "pizza"})
    response = await ask(hub)
    assert "- pizza, not margherita" in server.requests[1].message_texts
    assert "A pizza comes at 19:30" in response.result


async def test_conflicts_are_shown_though_a_model_hides_them(hub: Hub, serve: Serve) -> None:
    """K9: conflicts are not hidden, and the more confident source is preferred."""
    for name, departure, confidence in (("a", "9:40", 0.9), ("b", "10:40", 0.4)):

        @hub.agent(name)
        async def when(brief: Brief, departure: str = departure, confidence: float = confidence) -> Answer:
            return Answer({"departure": departure}, confidence=confidence)

    server = serve(say("The departure is 9:40."))
    steps = (Step(name="one", agent="a", title="Timetable"), Step(name="two", agent="b", title="Notice board"))
    trip = Workflow(name="trip", steps=steps, compare=("one", "two"))
    add_workflow(hub, trip, model=ModelAgent("scripted", base_url=server.base_url))
    async with hub:
        response = await hub.ask("trip", "When does it leave?", user="u")
    assert response.metadata["narrated"] == "model"
    assert response.result.startswith("The departure is 9:40.")
    assert "## Where the results differ" in response.result
    assert "10:40" in response.result
    assert "They disagree on:\n- departure: 9:40 or 10:40; more certain: 9:40" in server.requests[0].message_texts


async def test_one_result_is_given_as_it_is(hub: Hub, serve: Serve) -> None:
    server = serve(means("KIT_PIZZA", words="cheese"), say("Never said."))
    narrated(hub, server)
    response = await ask(hub, "something with cheese")
    assert response.result.startswith("A margherita comes at 19:30.")
    assert "narrated" not in response.metadata
    assert len(server.requests) == 1


@pytest.mark.parametrize("reply", [HttpStatus(500), Garbage(), Drop("Your"), say("Your", finish="length")])
async def test_what_a_model_fails_to_tell_the_template_tells(hub: Hub, serve: Serve, reply: Served) -> None:
    """K10: nothing that was found is lost."""
    narrated(hub, serve(means(also=["KIT_PIZZA"]), reply))
    response = await ask(hub)
    assert response.status is Status.SUCCESS
    assert "A margherita comes at 19:30." in response.result
    assert response.metadata["narrated"] == "template"
    assert response.metadata["not_told"]


async def test_a_model_that_hangs_keeps_nothing_from_the_user(
    hub: Hub, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(narrator, "PATIENCE_MS", 1_000)
    narrated(hub, serve(means(also=["KIT_PIZZA"]), Hang()))
    response = await ask(hub)
    assert "A margherita comes at 19:30." in response.result
    assert "did not answer within 1000 ms" in response.metadata["not_told"]


async def test_where_too_little_is_left_nothing_is_asked_of_a_model(hub: Hub, serve: Serve) -> None:
    """K9: within the budget and the deadline."""
    server = serve(say(TOLD))
    for name in ("a", "b"):

        @hub.agent(name)
        async def work(brief: Brief, name: str = name) -> str:
            brief.spend(prompt=400)
            return f"part {name}"

    steps = (Step(name="one", agent="a"), Step(name="two", agent="b"))
    add_workflow(hub, Workflow(name="trip", steps=steps), model=ModelAgent("scripted", base_url=server.base_url))
    async with hub:
        poor = await hub.ask("trip", "go", user="u", max_tokens=1_000)
        late = await hub.ask("trip", "go", user="u", deadline_ms=1_000)
    assert [each.metadata["not_told"] for each in (poor, late)] == [
        "too few tokens are left",
        "too little time is left",
    ]
    assert server.requests == []


async def test_a_result_of_one_step_is_summed_up_by_the_model(hub: Hub, serve: Serve) -> None:
    server = serve(say("Part a\nPart b"))
    for name in ("a", "b"):

        @hub.agent(name)
        async def work(brief: Brief, name: str = name) -> str:
            return f"part {name}"

    steps = (Step(name="one", agent="a"), Step(name="two", agent="b"))
    flow = Workflow(name="trip", steps=steps, result="two")
    add_workflow(hub, flow, model=ModelAgent("scripted", base_url=server.base_url))
    async with hub:
        response = await hub.ask("trip", "go", user="u")
    assert response.result == "part b"
    assert response.summary.startswith("Part a\nPart b")


async def test_what_is_missing_is_said_though_a_model_tells_the_rest(hub: Hub, serve: Serve) -> None:
    """K8: a partial failure still yields a unified answer."""
    server = serve(say("Part a\nPart b"))
    for name in ("a", "b", "c"):

        @hub.agent(name)
        async def work(brief: Brief, name: str = name) -> str:
            if name == "c":
                raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, "closed"))
            return f"part {name}"

    steps = tuple(Step(name=name, agent=name, title=f"Doing {name}") for name in "abc")
    add_workflow(hub, Workflow(name="trip", steps=steps), model=ModelAgent("scripted", base_url=server.base_url))
    async with hub:
        response = await hub.ask("trip", "go", user="u")
    assert response.status is Status.PARTIAL
    assert response.result.startswith("Part a\nPart b")
    assert "Doing c: not done" in response.result
