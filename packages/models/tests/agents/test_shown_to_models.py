"""What a model reads of the work of its agent: personal data and secrets are tokens there, however they came."""

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from planted import PLANTED, add_server, planted, sentence
from remit import Answer, Brief, File, Hub, RemitError
from remit.policy.redaction import TOKEN
from remit.protocol.errors import Code, fault
from remit.protocol.records import ToolUse
from remit_models import ModelAgent
from remit_testing import MemoryStore


class Reader:
    """A model that uses tools one after another, and keeps all that it read."""

    def __init__(self, *uses: tuple[str, dict[str, Any]]) -> None:
        self.uses = list(uses)
        self.texts: list[str] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.texts.append(f"{ModelMessagesTypeAdapter.dump_json(messages).decode()} {info.instructions}")
        if not self.uses:
            return ModelResponse(parts=[TextPart("done")])
        name, arguments = self.uses.pop(0)
        given = {key: self.last_token() if value == "TOKEN" else value for key, value in arguments.items()}
        return ModelResponse(parts=[ToolCallPart(name, given)])

    def last_token(self) -> str:
        return [match.group() for match in TOKEN.finditer(self.texts[-1])][-1]

    def agent(self, **options: Any) -> ModelAgent:
        return ModelAgent(FunctionModel(self), **options)


def hub_with_ways(parts: list[list[str]], folder: Path) -> tuple[Hub, Reader]:
    """Return a hub in which values come to a model from tools, an MCP server and a callee, and what reads them."""
    hub = Hub(store=MemoryStore())

    @hub.tool()
    async def look_up() -> list[dict[str, str]]:
        return [{"note": f"see {value}"} for value in parts[0]]

    @hub.tool()
    async def fall() -> None:
        raise RemitError(fault(Code.DELEGATION_FAILED, sentence(parts[1]), suggestion=sentence(parts[2])))

    @hub.tool()
    async def crash() -> None:
        raise ValueError(sentence(parts[3][:5]))

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> Answer:
        return Answer(sentence(parts[4]), warnings=(sentence(parts[5]),))

    add_server(hub, sentence(parts[6]), folder)
    asks = {"agent_name": "clerk", "task": "look"}
    reader = Reader(("look_up", {}), ("fall", {}), ("crash", {}), ("sub_agent", asks), ("shop_customers", {}))
    hub.add("reader", reader.agent(), tools=["look_up", "fall", "crash", "shop.customers"], may_call=["clerk"])
    return hub, reader


async def test_no_planted_value_is_in_a_prompt(tmp_path: Path) -> None:
    values = planted()
    parts = [values[place::8] for place in range(8)]
    hub, reader = hub_with_ways(parts, tmp_path)
    file = File(name="notes.txt", media_type="text/plain", data=sentence(parts[7][:30]).encode())
    async with hub:
        response = await hub.ask("reader", "look", user="u-1", files=[file], input=sentence(parts[7][30:]))
    assert response.unwrap() == "done"
    read = reader.texts[-1]
    assert len(reader.texts) == 6
    assert [value for value in values if value in read] == []
    tokens = {match.group() for match in TOKEN.finditer(read)}
    assert len(tokens) >= PLANTED - len(parts[3]), "what is not there as a token was lost on the way"


async def test_a_tool_gets_the_value_for_a_token_that_the_model_passes_on() -> None:
    hub, addressees = Hub(store=MemoryStore()), list[str]()

    @hub.tool()
    async def find(name: str) -> dict[str, str]:
        return {"email": "ada@example.org"}

    @hub.tool()
    async def send(to: str) -> str:
        addressees.append(to)
        return f"sent to {to}"

    reader = Reader(("find", {"name": "Ada"}), ("send", {"to": "TOKEN"}))
    hub.add("reader", reader.agent(), tools=["find", "send"])
    async with hub:
        response = await hub.ask("reader", "Write to Ada", user="u-1")
        records = await hub.store.records(run=response.run)
    assert response.unwrap() == "done"
    assert addressees == ["ada@example.org"]
    assert "ada@example.org" not in "".join(reader.texts)
    uses = [each.body for each in records if isinstance(each.body, ToolUse)]
    assert uses
    assert "ada@example.org" not in str(uses)
    assert not any(use.clear for use in uses)


@pytest.mark.parametrize("clear", ["tool", "agent"])
async def test_a_tool_or_an_agent_may_be_clear_and_the_record_says_so(clear: str) -> None:
    hub = Hub(store=MemoryStore())

    @hub.tool(clear=clear == "tool")
    async def find() -> dict[str, str]:
        return {"email": "ada@example.org"}

    reader = Reader(("find", {}))
    hub.add("reader", reader.agent(), tools=["find"], clear=clear == "agent")
    async with hub:
        response = await hub.ask("reader", "Find Ada", user="u-1")
        records = await hub.store.records(run=response.run)
    assert "ada@example.org" in reader.texts[-1]
    uses = [each.body for each in records if isinstance(each.body, ToolUse)]
    assert uses
    assert all(use.clear for use in uses)
