"""Delegation as a tool: what a model can say, and what it is told."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remit import Brief, Code, Hub, RemitError
from remit_models.subagent import SubAgentToolResult, list_agents, sub_agent
from remit_testing import MemoryStore
from waiting import PATIENCE_S

WITH_FILE = {"include_workspace": True, "workspace_files": ["../secret.txt"]}
CALL: dict[str, Any] = {"agent_name": "expert", "task": "Judge the tea."}


class Table:
    """A caller that uses the tool with given arguments, and an expert that notes what it was asked."""

    def __init__(self, **options: Any) -> None:
        self.hub = Hub(store=MemoryStore(), redaction=False, workspace=Path(__file__).parent)
        self.briefs: list[Brief] = []
        self.results: list[SubAgentToolResult] = []
        self.arguments: list[dict[str, Any]] = []
        settings: dict[str, Any] = {"may_call": ["expert"], **options}
        self.hub.add("caller", self._call, **settings)
        self.hub.tool("taste", safe_to_repeat=True)(lambda: "bitter")
        self.hub.tool("smell", safe_to_repeat=True)(lambda: "of hay")
        self.hub.add("expert", self._judge, tools=["taste", "smell"], may_call=["*"], description="Knows tea.")

    async def _call(self, brief: Brief) -> str:
        for arguments in self.arguments:
            self.results.append(await sub_agent(brief, arguments))
        return "done"

    async def _judge(self, brief: Brief) -> str:
        self.briefs.append(brief)
        brief.spend(prompt=30, completion=12)
        if "taste" in brief.tools:
            await brief.use("taste")
        return "Good."

    async def ask(self, *arguments: dict[str, Any], **options: Any) -> list[SubAgentToolResult]:
        self.arguments = list(arguments)
        async with self.hub, asyncio.timeout(PATIENCE_S):
            (await self.hub.ask("caller", "Is this tea good?", user="u-1", **options)).unwrap()
        return self.results


async def test_the_result_says_who_did_what_at_which_cost() -> None:
    """O7: agent_name, success, output, tool_calls, tokens_used, duration, errors."""
    [result] = await Table().ask(CALL)
    assert result == SubAgentToolResult(
        agent_name="expert",
        success=True,
        output="Good.",
        tool_calls=("taste",),
        tokens_used=42,
        duration_seconds=result.duration_seconds,
        errors=(),
    )
    assert result.duration_seconds >= 0


async def test_left_out_arguments_have_the_documents_defaults() -> None:
    """O1, O10: 4000 tokens of context, no nested calls, 300 seconds, all of its tools."""
    table = Table()
    await table.ask(CALL, deadline_ms=900_000)
    [brief] = table.briefs
    assert brief.remit.context_tokens == 4_000
    assert brief.remit.may_delegate is False
    assert brief.remit.time_ms == 300_000
    assert brief.tools == {"taste", "smell"}


async def test_a_callee_never_gets_more_time_than_is_left() -> None:
    """O10, X6: the default is no promise."""
    table = Table()
    await table.ask(CALL, deadline_ms=20_000)
    assert table.briefs[0].remit.time_ms < 20_000


async def test_everything_that_is_said_reaches_the_callee() -> None:
    """O1: task, input, context, tokens of context, tools, nested calls."""
    table = Table()
    context = {"last_messages": 1, "roles": ["user"]}
    more = {"input": {"n": 1}, "context": context, "max_context_tokens": 500}
    await table.ask(CALL | more | {"allowed_tools": ["smell"], "allow_nested_calls": True})
    [brief] = table.briefs
    assert (brief.objective, brief.input) == ("Judge the tea.", {"n": 1})
    assert brief.remit.context_tokens == 500
    assert brief.tools == {"smell"}
    assert brief.remit.may_delegate
    assert [(message.role, message.text) for message in brief.messages] == [("user", "Is this tea good?")]


async def test_without_a_filter_it_is_shown_no_messages_and_with_an_empty_one_the_newest() -> None:
    """O2, O11: an empty filter is the newest that fit; what nobody asks for is not sent."""
    table = Table()
    await table.ask(CALL | {"task": "Smell it."}, CALL | {"context": {}})
    assert [[message.text for message in brief.messages] for brief in table.briefs] == [[], ["Is this tea good?"]]


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"agent_name": "expert"}, "task"),
        ({"task": "Judge"}, "agent_name"),
        (CALL | {"agent_name": ""}, "agent_name"),
        (CALL | {"task": None}, "task"),
        (CALL | {"task": {"do": "judge"}}, "task"),
    ],
)
async def test_wrong_arguments_are_named(wrong: dict[str, Any], path: str) -> None:
    table = Table()
    with pytest.raises(RemitError) as raised:
        await table.ask(wrong)
    assert raised.value.fault.code is Code.INPUT_VALIDATION_FAILED
    assert path in raised.value.fault.message
    assert table.briefs == []


@pytest.mark.parametrize(
    ("options", "ask_options", "arguments", "code"),
    [
        ({"allow_sub_agent_calls": False}, {}, CALL, Code.PERMISSION_DENIED),
        ({"may_call": []}, {}, CALL, Code.PERMISSION_DENIED),
        ({"may_call": ["*"]}, {}, CALL | {"agent_name": "nobody"}, Code.AGENT_NOT_FOUND),
        ({"may_call": ["*"]}, {}, CALL | {"agent_name": "caller"}, Code.LOOP_DETECTED),
        ({"max_sub_agent_depth": 0}, {}, CALL, Code.MAX_DEPTH_EXCEEDED),
        ({}, {"max_depth": 0}, CALL, Code.MAX_DEPTH_EXCEEDED),
        ({}, {"may_delegate": False}, CALL, Code.NESTED_CALLS_FORBIDDEN),
        ({}, {}, CALL | {"context": WITH_FILE}, Code.PATH_NOT_ALLOWED),
    ],
)
async def test_a_refusal_is_a_result_with_what_can_be_done(
    options: dict[str, Any], ask_options: dict[str, Any], arguments: dict[str, Any], code: Code
) -> None:
    """O5, O6: who may call, whom, how deep, with which tools; the callee is not run."""
    table = Table(**options)
    [result] = await table.ask(arguments, **ask_options)
    assert not result.success
    assert result.output == ""
    assert result.errors[0].startswith(f"{code}: ")
    assert table.briefs == []


async def test_the_same_task_is_not_done_twice() -> None:
    """O5, X5: cycles are refused."""
    first, second = await Table().ask(CALL, CALL)
    assert first.success
    assert second.errors[0].startswith(str(Code.CYCLE_DETECTED))


async def test_the_caller_cannot_widen_what_its_own_remit_allows() -> None:
    """O6: never more tools than the caller itself may pass on."""
    table = Table()
    [result] = await table.ask(CALL | {"allowed_tools": ["taste"]}, tools=())
    assert result.errors[0].startswith(str(Code.TOOL_NOT_ALLOWED))


def _idle(brief: Brief) -> None:
    """Do nothing."""


async def test_a_caller_is_shown_only_those_that_it_can_ask() -> None:
    """O5: what may not be called is not offered."""
    agents: list[object] = []
    hub = Hub(store=MemoryStore())
    for name in ("expert", "stranger"):
        hub.add(name, _idle, description=f"{name}s work", capabilities=[f"BE_{name.upper()}"])

    @hub.agent("caller", may_call=["expert"])
    async def caller(brief: Brief) -> None:
        agents.extend(list_agents(brief))

    async with hub:
        await hub.ask("caller", "Who?", user="u-1")
    assert agents == [{"name": "expert", "description": "experts work", "capabilities": ["BE_EXPERT"]}]
