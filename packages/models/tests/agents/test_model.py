"""A language model as an agent: within its remit, over the wire, whatever the model or its provider does."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any, cast

import msgspec
import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RequestUsage

from openai_server import Answer as Served
from openai_server import Drop, Garbage, Hang, OpenAIServer, Reply, Request, call, say
from openai_server import Status as HttpStatus
from remit import Brief, Capability, Code, Delta, Fault, Hub, Limits, RemitError, Response, Status, Usage
from remit.installed import install_command
from remit.ports import Question
from remit_models import ModelAgent, summarizer
from remit_server.model_prices import PriceBook
from remit_testing import ManualClock, MemoryStore
from remit_testing.agents import (
    ARGUMENTS,
    COMPLETION,
    CRASH,
    ERRAND,
    HELPER,
    PATIENCE,
    PIECES,
    PROMPT,
    TOOL,
    AgentConformance,
    Behaviour,
)
from waiting import PATIENCE_S

# ── like every agent ──────────────────────────────────────────────────────────────────────────────────────────────────

NO_OWN_TOOLS = "a model has the hub's tools alone"


class TestModelInProcess(AgentConformance):
    no_own_tools = NO_OWN_TOOLS

    def agent(self, behaviour: Behaviour) -> object:
        async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            usage = RequestUsage(input_tokens=PROMPT, output_tokens=COMPLETION)
            results = [part.content for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
            match behaviour:
                case Behaviour.ANSWERS:
                    part = TextPart(_shown(messages))
                case Behaviour.DELEGATES if not results:
                    part = ToolCallPart("sub_agent", {"agent_name": HELPER, "task": ERRAND})
                case Behaviour.USES_TOOL if not results:
                    part = ToolCallPart(TOOL, ARGUMENTS)
                case Behaviour.LOOPS | Behaviour.SPENDS_AND_HANGS if not results or behaviour is Behaviour.LOOPS:
                    part = ToolCallPart(TOOL, ARGUMENTS)
                case Behaviour.HANGS | Behaviour.SPENDS_AND_HANGS:
                    self.hangs()
                    await asyncio.Event().wait()
                    raise AssertionError
                case Behaviour.CRASHES:
                    raise RuntimeError(CRASH)
                case _:
                    part = TextPart(str(results[-1]) if results else "Done.")
            return ModelResponse(parts=[part], usage=usage)

        async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
            for piece in PIECES:
                yield piece

        # One that speaks piece by piece cannot say what it used.
        if behaviour is Behaviour.STREAMS:
            return ModelAgent(FunctionModel(stream_function=speak))
        return ModelAgent(FunctionModel(answer))


class TestModelOverHttp(AgentConformance):
    no_own_tools = NO_OWN_TOOLS

    def setup_method(self) -> None:
        super().setup_method()
        self.server = OpenAIServer(self.answer).__enter__()
        self.server.on_hang = self.hangs
        self.behaviour = Behaviour.ANSWERS

    def teardown_method(self) -> None:
        self.server.__exit__(None, None, None)

    def agent(self, behaviour: Behaviour) -> object:
        self.behaviour = behaviour
        # Of the client's own attempts at a broken server, the conformance of the agent does not depend.
        return ModelAgent("scripted", base_url=self.server.base_url, settings={"max_retries": 0})

    def answer(self, request: Request) -> Served:
        usage = (PROMPT, COMPLETION)
        results = request.results
        match self.behaviour:
            case Behaviour.ANSWERS:
                return say(request.message_texts)
            case Behaviour.STREAMS:
                return Reply(pieces=PIECES)
            case Behaviour.DELEGATES if not results:
                return call("sub_agent", agent_name=HELPER, task=ERRAND)
            case Behaviour.USES_TOOL | Behaviour.SPENDS_AND_HANGS if not results:
                return Reply(calls=((TOOL, dict(ARGUMENTS)),), usage=usage)
            case Behaviour.LOOPS:
                return Reply(calls=((TOOL, dict(ARGUMENTS)),), usage=usage)
            case Behaviour.HANGS | Behaviour.SPENDS_AND_HANGS:
                return Hang()
            case Behaviour.CRASHES:
                return HttpStatus(400, message=CRASH)
            case _:
                return say(results[-1] if results else "Done.", usage=usage)


def _shown(messages: list[ModelMessage]) -> str:
    parts: list[Any] = [part for message in messages for part in message.parts]
    return "\n".join(str(part.content) for part in parts if isinstance(part, UserPromptPart | TextPart))


# ── over the wire ─────────────────────────────────────────────────────────────────────────────────────────────────────

Serve = Callable[..., OpenAIServer]

# Long enough that it is no remark before a tool is used.
LONG = "The tin stands on the second shelf. " * 8


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a server with a script."""
    with ExitStack() as stack:
        yield lambda *script: stack.enter_context(OpenAIServer(script))


@pytest.fixture
def hub() -> Hub:
    return Hub(store=MemoryStore(), redaction=False)


def model_at(server: OpenAIServer, **options: Any) -> ModelAgent:
    """Return an agent of the server's model that tries each call once."""
    settings = {"max_retries": 0, **options.pop("settings", {})}
    return ModelAgent("scripted", base_url=server.base_url, settings=settings, **options)


def code_of(response: Response) -> Code | None:
    return None if response.fault is None else response.fault.code


async def ask(hub: Hub, text: str = "Where is the tea?", **options: Any) -> Response:
    async with hub, asyncio.timeout(PATIENCE):
        return await hub.ask("clerk", text, user="u-1", **options)


def with_look_up(hub: Hub, answer: str = "In the green tin.") -> list[str]:
    """Give the hub a tool, and return where its uses are noted."""
    looked_up: list[str] = []

    @hub.tool(safe_to_repeat=True)
    async def look_up(key: str) -> str:
        """Say where something is."""
        looked_up.append(key)
        return answer

    return looked_up


async def test_it_is_told_its_prompt_and_the_task_and_offered_its_tools(hub: Hub, serve: Serve) -> None:
    server = serve(say("In the tin."))
    with_look_up(hub)
    hub.add("clerk", model_at(server), prompt="Be short.", tools=["look_up"])
    response = await ask(hub)
    [request] = server.requests
    assert request.messages == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Where is the tea?"},
    ]
    assert request.tools == ["look_up"]
    assert request.body["tools"][0]["function"]["description"] == "Say where something is."
    assert response.result == "In the tin."


async def test_a_prompt_of_its_own_counts_more_than_the_teams(hub: Hub, serve: Serve) -> None:
    server = serve(say("Yes."))
    hub.add("clerk", model_at(server, prompt="Be exact."), prompt="Be short.")
    await ask(hub)
    assert server.requests[0].messages[0] == {"role": "system", "content": "Be exact."}


async def test_it_sends_its_settings_and_its_key(hub: Hub, serve: Serve) -> None:
    server = serve(say("Yes."))
    agent = ModelAgent(
        "scripted", base_url=server.base_url, api_key="k-123", settings={"temperature": 0.2}, max_output_tokens=300
    )
    hub.add("clerk", agent)
    await ask(hub)
    [request] = server.requests
    assert request.headers["authorization"] == "Bearer k-123"
    assert (request.body["model"], request.body["temperature"]) == ("scripted", 0.2)
    assert request.body["max_tokens"] == 300


async def test_a_proxy_to_openai_is_spoken_to_as_openai_is(hub: Hub, serve: Serve) -> None:
    server = serve(say("Yes."))
    hub.add("clerk", ModelAgent("openai:gpt-5-mini", base_url=server.base_url, max_output_tokens=300))
    await ask(hub)
    [request] = server.requests
    assert (request.body["model"], request.body["max_completion_tokens"]) == ("gpt-5-mini", 300)
    assert "max_tokens" not in request.body


async def test_what_was_said_before_is_shown_as_far_as_there_is_room(hub: Hub, serve: Serve) -> None:
    server = serve(say("Noted."))
    hub.add("clerk", model_at(server, history_tokens=60))
    async with hub:
        first = await hub.ask("clerk", "The first word is apple. " * 20, user="u-1")
        await hub.ask("clerk", "The second word is plum.", user="u-1", session=first.session)
        await hub.ask("clerk", "Which words?", user="u-1", session=first.session)
    messages = [(each["role"], each["content"]) for each in server.requests[-1].messages]
    assert messages == [
        ("assistant", "Noted."),
        ("user", "The second word is plum."),
        ("assistant", "Noted."),
        ("user", "Which words?"),
    ]


async def test_the_same_model_serves_one_hub_after_another(serve: Serve) -> None:
    """The connections are closed with the hub, and opened again by the next."""
    agent = model_at(serve(say("Yes.")))
    for _ in range(2):
        hub = Hub(store=MemoryStore())
        hub.add("clerk", agent)
        assert (await ask(hub)).result == "Yes."


# ── what is heard and kept ────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_is_said_before_a_tool_is_used_is_not_taken_for_the_answer(hub: Hub, serve: Serve) -> None:
    server = serve(Reply("Let me see.", calls=(("look_up", {"key": "tea"}),)), say(LONG))
    with_look_up(hub)
    hub.add("clerk", model_at(server), tools=["look_up"])
    texts: list[str] = []
    async with hub:
        async for record in hub.stream("clerk", "Where is the tea?", user="u-1"):
            if isinstance(record.body, Delta):
                texts.append(record.body.text)
    assert "".join(texts) == LONG
    assert len(texts) > 1


async def test_a_short_answer_is_heard_whole_though_tools_are_there(hub: Hub, serve: Serve) -> None:
    server = serve(say("In the tin."))
    with_look_up(hub)
    hub.add("clerk", model_at(server), tools=["look_up"])
    async with hub:
        bodies = [record.body async for record in hub.stream("clerk", "Where?", user="u-1")]
    assert [body.text for body in bodies if isinstance(body, Delta)] == ["In the tin."]


async def test_reasoning_is_neither_heard_nor_kept(hub: Hub, serve: Serve) -> None:
    """O4: reasoning is nobody else's."""
    server = serve(Reply("Yes, in the tin.", thinking="CANARY: I should think of the tin."))
    hub.add("clerk", model_at(server))
    async with hub:
        records = [record async for record in hub.stream("clerk", "Where?", user="u-1")]
        kept = await hub.store.records()
    assert b"CANARY" not in msgspec.json.encode([records, kept])
    assert b"Yes, in the tin." in msgspec.json.encode(kept)


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_call_is_capped_at_what_is_left(hub: Hub, serve: Serve) -> None:
    """X7: a model is never asked for more than the remit has."""
    server = serve(call("look_up", key="tea"), say("In the tin."))
    with_look_up(hub)
    hub.add("clerk", model_at(server), tools=["look_up"])
    await ask(hub, max_tokens=500)
    first, second = (request.body["max_tokens"] for request in server.requests)
    assert 300 < first < 500
    assert second < first - 30


async def test_with_much_left_a_call_asks_for_no_more_than_models_give(hub: Hub, serve: Serve) -> None:
    server = serve(say("Yes."))
    hub.add("clerk", model_at(server))
    await ask(hub, max_tokens=1_000_000)
    assert server.requests[0].body["max_tokens"] == 8_192


async def test_a_model_is_not_called_with_too_little_left_for_an_answer(hub: Hub, serve: Serve) -> None:
    """X7: an estimate over budget is refused before anything runs."""
    server = serve(say("Yes."))
    hub.add("clerk", model_at(server))
    response = await ask(hub, "Tell me. " * 50, max_tokens=120)
    assert server.requests == []
    assert code_of(response) is Code.TOKEN_BUDGET_EXCEEDED
    assert response.usage.total == 0


async def test_a_model_that_goes_round_in_circles_is_stopped_by_its_budget(hub: Hub, serve: Serve) -> None:
    server = serve(Reply(calls=(("look_up", {"key": "tea"}),), usage=(200, 50)))
    looked_up = with_look_up(hub)
    hub.add("clerk", model_at(server, max_tool_rounds=1_000), tools=["look_up"])
    response = await ask(hub, max_tokens=2_000)
    assert code_of(response) is Code.TOKEN_BUDGET_EXCEEDED
    assert response.usage.total <= 2_000
    assert response.usage.overrun == 0
    assert len(looked_up) <= 8


async def test_a_call_waits_for_a_person_where_the_run_has_too_few_tokens_for_it(serve: Serve) -> None:
    async def yes(question: Question) -> bool:
        questions.append(question.text)
        return True

    questions = list[str]()
    server = serve(Reply(calls=(("look_up", {"key": "tea"}),), usage=(2_000, 500)), say("In the tin."))
    hub = Hub(store=MemoryStore(), redaction=False, limits=Limits(at_limit="ask"), approver=yes)
    with_look_up(hub)
    hub.add("clerk", model_at(server), tools=["look_up"])
    response = await ask(hub, max_tokens=2_600)
    assert questions == ["This run has 2,600 tokens and needs more. Grant 2,600 more?"]
    assert (response.result, response.usage.overrun) == ("In the tin.", 0)


@pytest.mark.parametrize("agreed", [True, False])
async def test_a_model_without_a_price_waits_for_a_person_where_money_is_limited(serve: Serve, agreed: bool) -> None:
    async def ann(question: Question) -> bool:
        questions.append(question.text)
        return agreed

    questions = list[str]()
    server = serve(Reply(calls=(("look_up", {"key": "tea"}),), usage=(200, 50)), say("In the tin.", usage=(300, 5)))
    limits = Limits(root_cost=5_000_000, at_limit="ask")
    hub = Hub(store=MemoryStore(), redaction=False, limits=limits, approver=ann, prices=PriceBook().cost)
    with_look_up(hub)
    hub.add("clerk", model_at(server), tools=["look_up"])
    response = await ask(hub)
    [question] = questions
    assert question.startswith(
        "The price of `openai-compatible:scripted` is not known, and this run has a limit of 5.00"
    )
    if agreed:
        assert (response.result, len(server.requests)) == ("In the tin.", 2)
        assert (response.usage.total, response.usage.cost, response.usage.unpriced) == (555, 0, 555)
    else:
        assert not server.requests, "nothing was sent to the model"
        assert response.fault is not None
        assert response.fault.message.endswith(":scripted` is not known, and clerk may spend 5.00 USD at most")


async def test_use_that_a_provider_does_not_report_is_estimated(hub: Hub, serve: Serve) -> None:
    hub.add("clerk", model_at(serve(say(LONG, usage=None))))
    usage = (await ask(hub, "Where is the tea? " * 20)).usage
    assert usage.estimated
    assert 60 < usage.prompt < 200
    assert 40 < usage.completion < 120


async def test_what_was_said_before_a_deadline_is_counted(hub: Hub, serve: Serve) -> None:
    """X6: a deadline in the middle of a stream ends it, and what it used is settled."""
    server = serve(Hang((LONG, "The ")))
    clock = ManualClock()
    hub = Hub(store=MemoryStore(), clock=clock, redaction=False)
    hub.add("clerk", model_at(server))
    texts: list[str] = []
    ended: object = None
    async with hub, asyncio.timeout(PATIENCE):
        async for record in hub.stream("clerk", "Where?", user="u-1", deadline_ms=3_000):
            if isinstance(record.body, Delta):
                texts.append(record.body.text)
                if texts == [LONG, "The "]:
                    clock.advance(3.1)
            ended = record.body
    assert isinstance(ended, Response)
    assert ended.status is Status.TIMEOUT
    assert ended.usage.estimated
    assert ended.usage.completion > 40


async def test_a_connection_that_breaks_in_the_middle_is_counted_and_said(hub: Hub, serve: Serve) -> None:
    hub.add("clerk", model_at(serve(Drop(LONG))))
    response = await ask(hub)
    assert code_of(response) is Code.DELEGATION_UNAVAILABLE
    assert response.usage.estimated
    assert response.usage.completion > 40


async def test_an_answer_that_is_cut_off_is_a_partial_one(hub: Hub, serve: Serve) -> None:
    hub.add("clerk", model_at(serve(say("The tin is", finish="length"))))
    response = await ask(hub)
    assert response.status is Status.PARTIAL
    assert response.result == "The tin is"
    assert "cut off" in response.unfinished[0]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(thinking="Where could it be?", finish="length"),
        Reply(calls=(("look_up", cast("dict[str, Any]", "cut")),), cut=True, finish="length"),
    ],
)
async def test_an_answer_that_is_cut_off_before_it_says_anything_fails(hub: Hub, serve: Serve, reply: Reply) -> None:
    with_look_up(hub)
    hub.add("clerk", model_at(serve(reply)), tools=["look_up"])
    response = await ask(hub)
    assert code_of(response) is Code.TOKEN_BUDGET_EXCEEDED
    assert response.usage.total == 30


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_after_enough_rounds_it_must_answer_without_tools(hub: Hub, serve: Serve) -> None:
    def answer(request: Request) -> Served:
        if request.body.get("tool_choice") == "none":
            return say("I have not found it.")
        return call("look_up", key=f"shelf {len(request.results)}")

    server = serve(answer)
    looked_up = with_look_up(hub)
    hub.add("clerk", model_at(server, max_tool_rounds=2), tools=["look_up"])
    response = await ask(hub)
    assert looked_up == ["shelf 0", "shelf 1"]
    assert "cannot use them any more" in server.requests[-1].message_texts
    assert response.result == "I have not found it."
    assert response.unfinished == ("it had used tools 2 times, and had to answer with what it had",)


async def test_a_model_that_will_not_stop_using_tools_fails(hub: Hub, serve: Serve) -> None:
    looked_up = with_look_up(hub)
    hub.add("clerk", model_at(serve(call("look_up", key="tea")), max_tool_rounds=2), tools=["look_up"])
    response = await ask(hub)
    assert looked_up == ["tea", "tea"]
    assert code_of(response) is Code.DELEGATION_FAILED
    assert response.fault is not None
    assert "max_tool_rounds" in response.fault.suggestion


async def test_a_model_without_rounds_is_offered_no_tools(hub: Hub, serve: Serve) -> None:
    server = serve(say("I do not know."))
    with_look_up(hub)
    hub.add("clerk", model_at(server, max_tool_rounds=0), tools=["look_up"])
    assert (await ask(hub)).result == "I do not know."
    assert server.requests[0].tools == []


async def test_it_is_told_what_is_wrong_with_its_arguments_and_goes_on(hub: Hub, serve: Serve) -> None:
    server = serve(call("look_up", keys=3), call("look_up", key="tea"), say("In the tin."))
    looked_up = with_look_up(hub)
    hub.add("clerk", model_at(server), tools=["look_up"])
    response = await ask(hub)
    assert "INPUT_VALIDATION_FAILED" in server.requests[1].results[0]
    assert looked_up == ["tea"]
    assert response.result == "In the tin."


async def test_a_tool_that_it_makes_up_is_not_run(hub: Hub, serve: Serve) -> None:
    """X11: a tool that is not its own cannot be used by any path."""
    server = serve(call("delete_everything"), say("Then not."))
    with_look_up(hub)
    hub.add("clerk", model_at(server), tools=["look_up"])
    assert (await ask(hub)).result == "Then not."


async def test_arguments_that_are_no_table_are_said_to_be_wrong(hub: Hub, serve: Serve) -> None:
    server = serve(Reply(calls=(("look_up", cast("dict[str, Any]", ["tea"])),)), say("Then not."))
    looked_up = with_look_up(hub)
    hub.add("clerk", model_at(server), tools=["look_up"])
    assert (await ask(hub)).result == "Then not."
    assert looked_up == []


async def test_several_agents_that_it_asks_at_once_work_at_once(hub: Hub, serve: Serve) -> None:
    """X8: parallel fan-out, by a model."""
    both = asyncio.Barrier(2)
    wanted = tuple(("sub_agent", {"agent_name": name, "task": "Look"}) for name in ("left", "right"))
    server = serve(Reply(calls=wanted), say("Both looked."))
    hub.add("clerk", model_at(server), may_call=["left", "right"])
    for name in ("left", "right"):

        @hub.agent(name)
        async def look(brief: Brief) -> str:
            await both.wait()
            return f"{brief.request.target} looked"

    response = await ask(hub)
    assert response.result == "Both looked."
    assert "left looked" in server.requests[1].results[0]
    assert "right looked" in server.requests[1].results[1]


async def test_more_agents_at_once_than_the_limit_are_refused_and_it_is_told(serve: Serve) -> None:
    """X4: the limit holds for a model's calls too."""
    hub = Hub(store=MemoryStore(), limits=Limits(max_fan_out=1, beyond_fan_out="refuse"))
    wanted = tuple(("sub_agent", {"agent_name": name, "task": "Look"}) for name in ("left", "right"))
    server = serve(Reply(calls=wanted), say("One looked."))
    hub.add("clerk", model_at(server), may_call=["left", "right"])
    for name in ("left", "right"):
        hub.add(name, _after_a_while)
    assert (await ask(hub)).result == "One looked."
    assert sum("FAN_OUT_EXCEEDED" in result for result in server.requests[1].results) == 1


async def _after_a_while(brief: Brief) -> str:
    await asyncio.sleep(0)
    return "looked"


# ── results that must fit ─────────────────────────────────────────────────────────────────────────────────────────────

PLACE = {
    "type": "object",
    "properties": {"shelf": {"type": "integer"}, "tin": {"type": "string"}},
    "required": ["shelf", "tin"],
}


def _result(request: Request, value: dict[str, Any]) -> Served:
    """Give a result by the tool that is there for it."""
    return call(request.tools[-1], **value)


async def test_a_result_is_given_by_the_schema_of_its_capability(hub: Hub, serve: Serve) -> None:
    """K1: the result fits the capability's schema."""
    server = serve(lambda request: _result(request, {"shelf": 2, "tin": "green"}))  # pyright: ignore
    hub.add("clerk", model_at(server), capabilities=[Capability(code="FIND", result_schema=PLACE)])
    response = await ask(hub, capability="FIND")
    assert response.result == {"shelf": 2, "tin": "green"}
    assert hub.cards["clerk"].capabilities[0].result_schema == PLACE
    assert "title" not in PLACE


async def test_a_result_that_does_not_fit_is_corrected(hub: Hub, serve: Serve) -> None:
    def answer(request: Request) -> Served:
        return _result(request, {"shelf": 2, "tin": "green"} if request.results else {"shelf": "two"})

    server = serve(answer)
    hub.add("clerk", model_at(server), capabilities=[Capability(code="FIND", result_schema=PLACE)])
    response = await ask(hub, capability="FIND")
    assert response.result == {"shelf": 2, "tin": "green"}
    assert "$.shelf" in server.requests[1].results[0]


async def test_a_result_that_never_fits_fails(hub: Hub, serve: Serve) -> None:
    server = serve(lambda request: _result(request, {"shelf": "two"}))  # pyright: ignore
    hub.add("clerk", model_at(server), capabilities=[Capability(code="FIND", result_schema=PLACE)])
    response = await ask(hub, capability="FIND")
    assert code_of(response) is Code.RESULT_VALIDATION_FAILED
    assert len(server.requests) == 3


async def test_a_list_is_asked_for_as_the_field_of_an_object(hub: Hub, serve: Serve) -> None:
    schema = {"type": "array", "items": {"$ref": "#/$defs/place"}, "$defs": {"place": PLACE}}
    value = [{"shelf": 2, "tin": "green"}]
    server = serve(lambda request: _result(request, {"result": value}))  # pyright: ignore
    hub.add("clerk", model_at(server), capabilities=[Capability(code="FIND", result_schema=schema)])
    assert (await ask(hub, capability="FIND")).result == value


async def test_a_list_that_never_comes_is_no_result(hub: Hub, serve: Serve) -> None:
    server = serve(lambda request: _result(request, {"list": []}))  # pyright: ignore
    capability = Capability(code="FIND", result_schema={"type": "array"})
    hub.add("clerk", model_at(server), capabilities=[capability])
    assert code_of(await ask(hub, capability="FIND")) is Code.RESULT_VALIDATION_FAILED


async def test_a_schema_that_refers_to_itself_cannot_be_asked_for(hub: Hub, serve: Serve) -> None:
    tree = {"type": "object", "properties": {"below": {"$ref": "#/$defs/tree"}}}
    schema = tree | {"$defs": {"tree": tree}}
    hub.add("clerk", model_at(serve(say("No."))), capabilities=[Capability(code="FIND", result_schema=schema)])
    response = await ask(hub, capability="FIND")
    assert response.fault is not None
    assert (response.fault.code, "recursive" in response.fault.message) == (Code.TEAM_INVALID, True)


async def test_a_text_is_asked_for_as_a_text(hub: Hub, serve: Serve) -> None:
    server = serve(say("In the tin."))
    capability = Capability(code="FIND", result_schema={"type": "string", "minLength": 3})
    hub.add("clerk", model_at(server), capabilities=[capability])
    assert (await ask(hub, capability="FIND")).result == "In the tin."
    assert server.requests[0].tools == []


async def test_every_result_fits_the_schema_that_the_agent_is_given(hub: Hub, serve: Serve) -> None:
    server = serve(lambda request: _result(request, {"shelf": 2, "tin": "green"}))  # pyright: ignore
    hub.add("clerk", model_at(server, output_schema=PLACE))
    assert (await ask(hub)).result == {"shelf": 2, "tin": "green"}


async def test_a_result_is_not_the_use_of_a_tool(hub: Hub, serve: Serve) -> None:
    def answer(request: Request) -> Served:
        is_found = any("tin" in result for result in request.results)
        return _result(request, {"shelf": 2, "tin": "green"}) if is_found else call("look_up", key="tea")

    with_look_up(hub)
    server = serve(answer)
    capability = Capability(code="FIND", result_schema=PLACE)
    hub.add("clerk", model_at(server, max_tool_rounds=1), tools=["look_up"], capabilities=[capability])
    response = await ask(hub, capability="FIND")
    assert response.result == {"shelf": 2, "tin": "green"}
    assert response.tool_calls == ("look_up",)


# ── what goes wrong with a provider ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (HttpStatus(401), Code.DELEGATION_UNAVAILABLE, "does not accept the key"),
        (HttpStatus(403), Code.DELEGATION_UNAVAILABLE, "does not accept the key"),
        (HttpStatus(404), Code.DELEGATION_UNAVAILABLE, "knows no model scripted"),
        (HttpStatus(429), Code.RATE_LIMITED, "asked too often"),
        (HttpStatus(429, error_code="insufficient_quota"), Code.DELEGATION_UNAVAILABLE, "is used up"),
        (HttpStatus(400, error_code="context_length_exceeded"), Code.TOO_LARGE, "more than scripted can read"),
        (HttpStatus(500), Code.DELEGATION_UNAVAILABLE, "cannot be reached, or cannot answer (HTTP 500)"),
        (HttpStatus(503), Code.DELEGATION_UNAVAILABLE, "HTTP 503"),
        (Garbage(), Code.RESULT_VALIDATION_FAILED, "scripted"),
        (Drop(), Code.DELEGATION_UNAVAILABLE, "cannot be reached"),
    ],
)
async def test_what_a_provider_says_is_translated(
    hub: Hub, serve: Serve, reply: Served, code: Code, words: str
) -> None:
    hub.add("clerk", model_at(serve(reply)))
    response = await ask(hub)
    assert response.fault is not None
    assert response.fault.code is code
    assert words in response.fault.message


async def test_when_to_come_back_is_handed_on(hub: Hub, serve: Serve) -> None:
    hub.add("clerk", model_at(serve(HttpStatus(429, retry_after=2))))
    response = await ask(hub)
    assert response.fault is not None
    assert response.fault.retry_after_ms == 2_000
    assert response.usage.total == 0


async def test_nothing_of_a_providers_page_is_shown(hub: Hub, serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "remit")
    hub.add("clerk", model_at(serve(HttpStatus(500, message="CANARY: the prompt was this"))))
    async with hub:
        await hub.ask("clerk", "Where?", user="u-1")
        kept = await hub.store.records()
    assert b"CANARY" not in msgspec.json.encode(kept)
    assert "CANARY" not in caplog.text


async def test_where_no_server_is_the_agent_is_unavailable(hub: Hub) -> None:
    with OpenAIServer([say("Hello.")]) as server:
        pass
    hub.add("clerk", model_at(server))
    assert code_of(await ask(hub)) is Code.DELEGATION_UNAVAILABLE


async def test_a_provider_that_fails_once_is_asked_again(hub: Hub, serve: Serve) -> None:
    """The client of a provider tries again by itself unless it is told not to; nothing was spent by then."""
    server = serve(HttpStatus(500), say("Hello."))
    hub.add("clerk", ModelAgent("scripted", base_url=server.base_url))
    assert (await ask(hub)).result == "Hello."


async def test_of_several_models_that_fail_the_last_one_counts(hub: Hub, serve: Serve) -> None:
    models = [model_at(serve(HttpStatus(code))) for code in (500, 401)]
    hub.add("clerk", ModelAgent(FallbackModel(*[await each.opened() for each in models])))
    response = await ask(hub)
    assert response.fault is not None
    assert "does not accept the key" in response.fault.message
    for each in models:
        await each.aclose()


async def test_an_answer_that_a_filter_holds_back_is_no_answer(hub: Hub, serve: Serve) -> None:
    hub.add("clerk", model_at(serve(Reply(finish="content_filter"))))
    response = await ask(hub)
    assert response.fault is not None
    assert "content filter" in response.fault.message


async def test_a_model_that_cannot_stream_is_heard_all_the_same(hub: Hub) -> None:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("In the tin.")])

    hub.add("clerk", ModelAgent(WrapperModel(FunctionModel(answer))))
    async with hub:
        bodies = [record.body async for record in hub.stream("clerk", "Where?", user="u-1")]
    assert [body.text for body in bodies if isinstance(body, Delta)] == ["In the tin."]


# ── finding a model ───────────────────────────────────────────────────────────────────────────────────────────────────


def refusal(agent: ModelAgent) -> Fault:
    with pytest.raises(RemitError) as raised:
        agent.check()
    return raised.value.fault


def test_a_missing_key_is_said_by_the_variable_that_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    why = refusal(ModelAgent("openai:gpt-5-mini"))
    assert (why.code, why.message) == (Code.TEAM_INVALID, "the model `openai:gpt-5-mini` needs a key")
    assert why.suggestion == "Put it into the environment variable OPENAI_API_KEY."


def test_with_a_key_a_model_can_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ModelAgent("openai:gpt-5-mini", api_key="k").check()
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    ModelAgent("openai:gpt-5-mini").check()


def test_a_missing_package_is_said_with_what_installs_it() -> None:
    why = refusal(ModelAgent("anthropic:claude-sonnet-4-5", api_key="k"))
    assert why.code is Code.TEAM_INVALID
    assert why.suggestion == "Install what it takes: pip install 'pydantic-ai-slim[anthropic]'"


def test_a_missing_extra_is_said_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    why = refusal(ModelAgent("openai:gpt-5-mini"))
    assert (why.code, why.suggestion) == (Code.TEAM_INVALID, f"Install what it takes: {install_command('llm')}")


@pytest.mark.parametrize("name", ["gpt-5-mini", "nobody:gpt-5-mini", ""])
def test_a_name_that_no_provider_has_is_refused(name: str) -> None:
    why = refusal(ModelAgent(name))
    assert why.code is Code.TEAM_INVALID
    assert "openai:gpt-5-mini" in why.suggestion


def test_a_setting_that_is_misspelt_is_refused_and_one_of_a_provider_is_not(serve: Serve) -> None:
    why = refusal(model_at(serve(say("Yes.")), settings={"temprature": 0.5}))
    assert why.message == "models have no setting `temprature`; did you mean `temperature`?"
    model_at(serve(say("Yes.")), settings={"openai_reasoning_effort": "low", "anthropic_betas": []}).check()


def test_what_is_no_model_is_refused() -> None:
    assert refusal(ModelAgent(cast("Any", object()))).code is Code.TEAM_INVALID


def test_an_address_belongs_to_a_name() -> None:
    with pytest.raises(RemitError, match="given by its name"):
        ModelAgent(FunctionModel(stream_function=_silent), base_url="http://127.0.0.1")


async def test_an_agent_whose_model_cannot_be_called_says_so(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    hub.add("clerk", ModelAgent("openai:gpt-5-mini"))
    assert code_of(await ask(hub)) is Code.TEAM_INVALID


def test_a_model_agent_costs_nothing_before_it_is_asked() -> None:
    code = "import sys, remit_models; remit_models.ModelAgent('openai:gpt-5-mini'); print('pydantic_ai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.strip() == "False"


def test_a_model_is_shown_without_its_key() -> None:
    assert repr(ModelAgent("openai:gpt-5-mini", api_key="k-123")) == "ModelAgent('openai:gpt-5-mini')"


async def _silent(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    yield ""


# ── summaries ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_model_makes_a_summary_and_says_what_it_used(serve: Serve) -> None:
    server = serve(say("Tea is wanted.", usage=(90, 4)))
    summarize = summarizer("scripted", base_url=server.base_url)
    async with closing_with(summarize):
        assert await summarize("user: I want tea", 60) == ("Tea is wanted.", Usage(prompt=90, completion=4))
    [request] = server.requests
    assert request.messages[-1] == {"role": "user", "content": "user: I want tea"}
    assert "at most 40 words" in request.messages[0]["content"]
    assert request.body["max_tokens"] == 60


async def test_a_summary_that_fails_is_a_fault(serve: Serve) -> None:
    server = serve(HttpStatus(401))
    summarize = summarizer("scripted", base_url=server.base_url)
    async with closing_with(summarize):
        with pytest.raises(RemitError, match="DELEGATION_UNAVAILABLE"):
            await summarize("user: I want tea", 60)


@asynccontextmanager
async def closing_with(summarize: Any) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await summarize.aclose()


# ── what a callee is sent ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_callees_model_is_sent_nothing_of_its_callers_work(hub: Hub, serve: Serve) -> None:
    """O4: its own prompt, the filtered messages, the task with who calls, and the input; nothing else."""
    arguments = {"agent_name": "expert", "task": "Judge the tea.", "input": {"leaves": "sencha"}}
    above = serve(
        Reply(calls=(("look_up", {"key": "tea"}),), thinking="CANARY-REASONING"),
        Reply("CANARY-REMARK", calls=(("sub_agent", arguments),), thinking="CANARY-REASONING"),
        say("It is good."),
    )
    below = serve(say("Good."))
    with_look_up(hub, answer="CANARY-RESULT")
    hub.add("clerk", model_at(above), prompt="CANARY-PROMPT", tools=["look_up"], may_call=["expert"])
    hub.add("expert", model_at(below), prompt="You know tea.")
    response = await ask(hub, "Is this tea good?")
    [request] = below.requests
    assert "CANARY" not in request.text
    assert "look_up" not in request.text
    assert request.messages == [
        {"role": "system", "content": "You know tea."},
        {"role": "user", "content": '[Called by: clerk]\nTask: Judge the tea.\nInput: {"leaves":"sencha"}'},
    ]
    assert "CANARY-RESULT" in above.requests[1].text
    assert response.result == "It is good."


async def test_the_callers_model_is_told_how_it_went(hub: Hub, serve: Serve) -> None:
    """O7: agent, success, output, tool calls, tokens, duration, errors."""
    above = serve(call("sub_agent", agent_name="expert", task="Judge the tea."), say("It is good."))
    below = serve(call("look_up", key="tea"), say("Good.", usage=(50, 5)))
    with_look_up(hub)
    hub.add("clerk", model_at(above), may_call=["expert"])
    hub.add("expert", model_at(below), tools=["look_up"])
    await ask(hub, "Is this tea good?")
    result = json.loads(above.requests[1].results[0])
    assert result.pop("duration_seconds") >= 0
    assert result == {
        "agent_name": "expert",
        "success": True,
        "output": "Good.",
        "tool_calls": ["look_up"],
        "tokens_used": 20 + 10 + 50 + 5,
        "errors": [],
    }


async def test_a_model_can_ask_who_there_is(hub: Hub, serve: Serve) -> None:
    server = serve(call("list_agents"), say("There is one."))
    hub.add("clerk", model_at(server), may_call=["expert"])
    knows = "Knows tea. " * 20
    hub.add("expert", _after_a_while, description=knows, capabilities=["TASTE"])
    await ask(hub)
    assert json.loads(server.requests[1].results[0]) == [
        {"name": "expert", "description": knows, "capabilities": ["TASTE"]}
    ]
    offered = next(each["function"] for each in server.requests[0].body["tools"] if "sub" in each["function"]["name"])
    assert f"- expert: {knows[:199]}… (can TASTE)" in offered["description"]
