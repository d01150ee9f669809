"""Calls of tools that a model wrote as text are recognised, and nothing else is taken for one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from remit import Brief, Hub
from remit.protocol.envelope import Response
from remit.protocol.records import Delta
from remit_models import ModelAgent
from remit_models.model_output import may_be_call, written_calls
from remit_testing import MemoryStore
from waiting import PATIENCE_S

NAMES = ("sub_agent", "list_agents")
CALL = '{"name": "sub_agent", "arguments": {"agent_name": "coder", "task": "Write hello world"}}'
MEANT = [("sub_agent", {"agent_name": "coder", "task": "Write hello world"})]
FORMS = {
    "bare": CALL,
    "a sentence before it": f"I will ask the coder.\n{CALL}",
    "fence": f"```json\n{CALL}\n```",
    "fence without a language": f"```\n{CALL}\n```",
    "fence that is not closed": f"Let me ask.\n```tool_call\n{CALL}",
    "tags": f"<tool_call>\n{CALL}\n</tool_call>",
    "tags that are not closed": f"<tool_call>{CALL}",
    "llama": '{"name": "sub_agent", "parameters": {"agent_name": "coder", "task": "Write hello world"}}',
    "llama with tags": '<function=sub_agent>{"agent_name": "coder", "task": "Write hello world"}</function>',
    "mistral": f"[TOOL_CALLS] [{CALL}]",
    "openai": '{"type": "function", "function": {"name": "sub_agent", "arguments": '
    '"{\\"agent_name\\": \\"coder\\", \\"task\\": \\"Write hello world\\"}"}}',
    "the document": '{"tool": "sub_agent", "args": {"agent_name": "coder", "task": "Write hello world"}}',
}


@pytest.mark.parametrize("form", FORMS)
def test_a_call_is_recognised_in_each_of_the_usual_forms(form: str) -> None:
    assert written_calls(FORMS[form], NAMES) == MEANT
    beginnings = [FORMS[form][:end] for end in range(200, len(FORMS[form]))]
    assert [each for each in beginnings if not may_be_call(each)] == []


def test_several_calls_are_all_recognised() -> None:
    tagged = f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>"
    assert written_calls(tagged, NAMES) == MEANT * 2
    assert written_calls(f"[{CALL}, {CALL}]", NAMES) == MEANT * 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The answer is 42.",
        '{"total": 42}',
        "[1, 2]",
        CALL.replace("sub_agent", "shell"),
        f"{CALL}\nThis is how you would call it.",
        f"Long before: {'word ' * 60}\n{CALL}",
        f"<tool_call>{CALL}</tool_call> and then <tool_call>{CALL}</tool_call>",
        "<tool_call>{not json}</tool_call>",
        "<function=sub_agent>{not json}</function>",
        '{"name": "sub_agent", "arguments": "all of them"}',
        '{"name": "sub_agent"}',
        f"[{CALL}, 1]",
        "```python\nprint({})\n```",
        "\n" * 100_000,
        "<tool_call>{" + " " * 100_000,
    ],
)
def test_what_is_no_call_stays_what_was_said(text: str) -> None:
    assert written_calls(text, NAMES) == []


class Writer:
    """A model that writes its call as text, and then says what it got back."""

    def __init__(self, form: str, *, streams: bool) -> None:
        self.form = form
        self.tool_replies: list[str] = []
        given: dict[str, Any] = {"stream_function": self._stream} if streams else {"function": self._say}
        self.hub = Hub(store=MemoryStore(), redaction=False)
        self.hub.add("planner", ModelAgent(FunctionModel(**given)), may_call=["coder"])
        self.hub.add("coder", self._code)

    def _text(self, messages: list[ModelMessage]) -> str:
        got = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        self.tool_replies += [part.model_response_str() for part in got]
        return "Here it is." if got else FORMS[self.form]

    def _say(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(self._text(messages))])

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        text = self._text(messages)
        for start in range(0, len(text), 7):
            yield text[start : start + 7]

    async def _code(self, brief: Brief) -> str:
        return f"done: {brief.objective}"

    async def run(self) -> tuple[Any, str]:
        async with self.hub, asyncio.timeout(PATIENCE_S):
            records = [each.body async for each in self.hub.stream("planner", "I want a program", user="u-1")]
        text = "".join(each.text for each in records if isinstance(each, Delta))
        response = records[-1]
        assert isinstance(response, Response)
        return response.unwrap(), text


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("form", FORMS)
async def test_a_call_that_is_written_is_carried_out_and_not_shown(form: str, streams: bool) -> None:
    writer = Writer(form, streams=streams)
    result, text = await writer.run()
    assert result == "Here it is."
    assert "done: Write hello world" in writer.tool_replies[0]
    assert text == "Here it is."
