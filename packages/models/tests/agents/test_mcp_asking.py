"""What MCP servers ask for while an agent uses their tools: a person, a model, and where their progress goes."""

import asyncio
import json
import sys
from typing import Any, cast

import mcp_types as types
import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from checkout import TESTS
from remit import Brief, Hub
from remit.ports import Decision, Question
from remit.protocol.records import Approval, Progress
from remit.runtime.lent_models import ToolCaller
from remit_models import ModelAgent
from remit_models.mcp import add_mcp
from remit_models.mcp.server_requests import DECLINED, fill_form
from remit_testing.memory import MemoryStore

SERVER = str(TESTS / "asking_server.py")
TOOLS = ("book", "write", "count", "open_page")
era = pytest.mark.parametrize("era", ["legacy", "modern"])


class Approver:
    """A person who does the same with every question."""

    def __init__(self, *, agreed: bool = True, **edits: Any) -> None:
        self._decision = Decision(agreed=agreed, by="ann", edits={"input": edits} if edits else {})
        self.questions: list[Question] = []

    async def __call__(self, question: Question) -> Decision:
        self.questions.append(question)
        return self._decision


def hub_with(era: str, approver: Any = None, **options: Any) -> Hub:
    hub = Hub(store=MemoryStore(), approver=approver)
    add_mcp(hub, "desk", sys.executable, [SERVER, era], allow=[*TOOLS, "offers"], **options)

    @hub.agent("clerk", tools=[f"desk.{each}" for each in (*TOOLS, "offers")])
    async def clerk(brief: Brief) -> object:
        if brief.objective == "offers":
            return next(card.description for card in brief.tool_cards if card.name == "desk.offers")
        return await brief.use(f"desk.{brief.objective}")

    assert clerk
    return hub


async def used(hub: Hub, tool: str, agent: str = "clerk") -> Any:
    return (await hub.ask(agent, tool, user="u")).unwrap()


# ── a person ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@era
async def test_a_person_who_approves_sends_the_defaults_of_the_form(era: str) -> None:
    person = Approver()
    async with hub_with(era, person) as hub:
        given = json.loads(await used(hub, "book"))
        records = [each.body for each in await hub.store.records()]
    assert given == {"action": "accept", "content": {"name": "Ann", "seats": 2}}
    (question,) = person.questions
    assert question.text.startswith("MCP server desk asks: For whom?\n- name: Your name\n- seats: How many\n")
    assert question.request.input == {"name": "Ann", "seats": 2}
    assert [each.agreed for each in records if isinstance(each, Approval)] == [None, True]


@era
async def test_a_person_may_fill_in_the_form(era: str) -> None:
    async with hub_with(era, Approver(name="Bob", seats=None)) as hub:
        given = json.loads(await used(hub, "book"))
    assert given == {"action": "accept", "content": {"name": "Bob"}}


@era
@pytest.mark.parametrize("person", [Approver(agreed=False), Approver(name=None), Approver(name="Bob", seats="many")])
async def test_a_form_that_is_declined_or_filled_in_wrongly_is_declined(era: str, person: Approver) -> None:
    async with hub_with(era, person) as hub:
        assert json.loads(await used(hub, "book")) == {"action": "decline"}


async def test_the_words_of_a_server_about_choices_hide_nothing_and_are_short() -> None:
    hidden, long = "First\u202e\x1b[2J", "x" * 1_000
    titled = [{"const": "a", "title": hidden}, {"const": "b", "title": long}]
    fields = {
        "one": {"type": "string", "title": hidden, "oneOf": titled},
        "old": {"type": "string", "enum": ["a", "b"], "enumNames": [hidden, long]},
        "many": {"type": "array", "items": {"anyOf": titled}},
    }
    forms: list[Any] = []

    class Caller:
        async def fill(self, _: str, form: Any) -> None:
            forms.append(form)

    request: Any = {"message": "Which?", "requestedSchema": {"type": "object", "properties": fields}}
    params = types.ElicitRequestFormParams.model_validate(request)
    assert await fill_form(cast("ToolCaller", Caller()), "desk", params) == DECLINED
    (form,) = forms
    shown = form["properties"]
    titles = [each["title"] for each in (*shown["one"]["oneOf"], *shown["many"]["items"]["anyOf"])]
    for title in (shown["one"]["title"], *titles, *shown["old"]["enumNames"]):
        assert title in ("First[2J", "x" * 200 + "…")
    assert [each["const"] for each in shown["one"]["oneOf"]] == ["a", "b"]


async def test_a_page_is_never_opened_for_a_server() -> None:
    person = Approver()
    async with hub_with("legacy", person) as hub:
        assert json.loads(await used(hub, "open_page"))["action"] == "decline"
    assert person.questions == []


async def test_what_nobody_can_answer_is_not_offered() -> None:
    async with hub_with("legacy") as nobody, hub_with("legacy", Approver()) as somebody:
        hubs = nobody, somebody
        offered = [await used(hub, "offers") for hub in hubs]
        assert "action" not in await used(nobody, "book")
    assert offered == ["[MCP server desk]", "[MCP server desk] elicitation"]


async def test_a_server_that_asks_for_what_it_was_not_offered_gets_nothing() -> None:
    async with hub_with("modern") as hub:
        answer = await hub.ask("clerk", "book", user="u")
    assert not answer.ok
    assert answer.fault is not None
    assert "it asks for something that it was not offered" in f"{answer.fault.message} {answer.fault.detail}"


async def test_the_time_of_a_tool_stands_still_while_a_person_is_asked() -> None:
    async def slow(_: Question) -> Decision:
        await asyncio.sleep(6.5)  # more than the tool may take
        return Decision(agreed=True, by="ann")

    async with hub_with("legacy", slow, time_ms=6_000) as hub:
        assert json.loads(await used(hub, "book"))["action"] == "accept"


# ── a model ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Use the only tool, then say what it gave; without a tool, write a poem."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"got {last.content}")])
    tools = [each.name for each in info.function_tools if "write" in each.name]
    return ModelResponse(parts=[ToolCallPart(tools[0], {}) if tools else TextPart("Roses are red.")])


@era
async def test_a_server_gets_a_text_of_the_agents_model_on_the_agents_budget(era: str) -> None:
    hub = hub_with(era)
    hub.add("poet", ModelAgent(FunctionModel(reply)), tools=["desk.write"])
    async with hub:
        answer = await hub.ask("poet", "go", user="u")
        alone = await hub.ask("clerk", "write", user="u")
    assert "Roses are red." in answer.unwrap()  # pyright: ignore[reportOperatorIssue]
    assert "Roses" not in f"{alone.result}", "an agent without a model lends none"
    plain = hub_with(era)
    plain.add("poet", ModelAgent(FunctionModel(reply)))
    async with plain:
        without = await plain.ask("poet", "go", user="u")
    assert answer.usage.total > 2 * without.usage.total, "the text is charged, too"


async def test_a_team_need_not_lend_the_models_of_its_agents() -> None:
    hub = hub_with("legacy", sampling=False)
    hub.add("poet", ModelAgent(FunctionModel(reply)), tools=["desk.write"])
    async with hub:
        offered = await used(hub, "offers")
        answer = await hub.ask("poet", "go", user="u")
    assert offered == "[MCP server desk]"
    assert "Roses" not in f"{answer.result}"


# ── progress ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@era
async def test_the_progress_of_a_servers_tool_is_progress_of_the_run(era: str) -> None:
    async with hub_with(era) as hub:
        assert await used(hub, "count") == "counted"
        records = [each.body for each in await hub.store.records()]
    progress = [each.text for each in records if isinstance(each, Progress)]
    assert progress == ["desk.count: at 1", "desk.count: 2 of 3", "desk.count: at 3"]
