"""Agents of the OpenAI Agents SDK in a hub."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from agents import (
    Agent,
    ApplyPatchTool,
    CustomTool,
    HostedMCPTool,
    ModelResponse,
    ShellTool,
    Usage,
    WebSearchTool,
    function_tool,
    handoff,
)
from agents.mcp import MCPServer
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as MCPTool
from openai.types.responses import ResponseApplyPatchToolCall, ResponseCustomToolCall, ResponseFunctionShellToolCall
from openai.types.responses.response_apply_patch_tool_call import OperationDeleteFile
from openai.types.responses.response_function_shell_tool_call import Action
from openai.types.responses.response_output_item import McpApprovalRequest
from pydantic import BaseModel

from frameworks.suite import NO, YES, FrameworkConformance, Say, Script, Seen, Use, ask, say, use_once
from remit import Code, Decision, Hub, Question
from remit.ports import Approver
from remit_cli import Rule, guard_of
from remit_testing.agents import COMPLETION, HELPED, HELPER, PROMPT
from remit_testing.memory import MemoryStore

NUMBERS = itertools.count()


class FollowsScript(ScriptedModel):
    """The SDK's own model for tests, with a step for every call."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    async def step(self, call: ModelCall) -> ModelStep:
        taken = await self.script(seen_by(call))
        used = taken.usage or (0, 0)
        usage = Usage(requests=1, input_tokens=used[0], output_tokens=used[1], total_tokens=sum(used))
        if isinstance(taken, Say):
            return ModelStep(output=[assistant_message(taken.text)], usage=usage)
        call_id = f"call-{next(NUMBERS)}"
        return ModelStep(output=[function_call(taken.tool, taken.arguments, call_id=call_id)], usage=usage)

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        self.enqueue(ModelStep.respond(self.step))
        return await super().get_response(*args, **options)

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        self.enqueue(ModelStep.respond(self.step))
        async for event in super().stream_response(*args, **options):
            if event.type == "response.output_text.delta" and ". " in event.delta:
                for piece in event.delta.replace(". ", ". |").split("|"):
                    yield event.model_copy(update={"delta": piece})
            else:
                yield event


class OnlyWhole(FollowsScript):
    """A model that cannot stream, as many that are written for tests cannot."""

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def seen_by(call: ModelCall) -> Seen:
    items = call.input if isinstance(call.input, list) else [{"content": call.input}]
    outputs = [str(item["output"]) for item in items if item.get("type") == "function_call_output"]
    last_is_output = items[-1].get("type") == "function_call_output"
    return Seen(
        text="\n".join(
            (call.system_instructions or "", *(str(item.get("content") or item.get("output", "")) for item in items))
        ),
        tool_results=outputs[-1:] if last_is_output else [],
        tools=[tool.name for tool in call.tools],
        max_tokens=call.model_settings.max_tokens,
    )


def made(script: Script, tools: Sequence[Callable[..., Any]] = (), **options: Any) -> Agent[Any]:
    return Agent(name="tea", model=FollowsScript(script), tools=[function_tool(each) for each in tools], **options)


class TestOpenAIAgents(FrameworkConformance):
    swallows_tool_errors = True

    def make(self, script: Script, tools: Sequence[Callable[..., Any]], instructions: str = "") -> Any:
        return made(script, tools, instructions=instructions or None)

    def make_typed(self, answer: BaseModel) -> Any:
        return made(say(answer.model_dump_json()), output_type=type(answer))

    def make_asking(self, script: Script, tool: Callable[..., Any]) -> Any:
        return Agent(name="tea", model=FollowsScript(script), tools=[function_tool(tool, needs_approval=True)])

    def state_of(self, agent: Any) -> object:
        return list(agent.tools), list(agent.handoffs), agent.model, agent.instructions, agent.hooks


class Cups(BaseModel):
    count: int
    where: list[str]


async def test_a_structured_output_comes_back_as_json() -> None:
    response = await ask(made(say('{"count": 7, "where": ["shelf"]}'), output_type=Cups))
    assert response.unwrap() == {"count": 7, "where": ["shelf"]}


async def test_an_agent_of_a_subclass_is_known_too_and_its_description_is_that_of_the_card() -> None:
    class Mine(Agent[Any]):
        pass

    hub = Hub(store=MemoryStore())
    hub.add("tea", Mine(name="tea", model=FollowsScript(say("yes")), handoff_description="Makes tea."))
    assert hub.cards["tea"].description == "Makes tea."


async def test_a_model_that_cannot_stream_is_asked_for_the_whole() -> None:
    agent = Agent(name="tea", model=OnlyWhole(use_once("sub_agent", {"agent_name": HELPER, "task": "count"})))
    response = await ask(agent)
    assert HELPED in response.unwrap()
    assert response.usage.total == 2 * (PROMPT + COMPLETION)


async def test_delegation_and_restriction_follow_a_handoff() -> None:
    """The two hand over to each other, one of them by an object that says how."""
    ran: list[str] = []
    seen: list[Seen] = []

    def brew() -> str:
        """Brew it."""
        ran.append("brew")
        return "brewed"

    async def front_desk(given: Seen) -> Say | Use:
        return Use("transfer_to_brewer")

    async def brewer(given: Seen) -> Say | Use:
        seen.append(given)
        asks = Use("sub_agent", {"agent_name": HELPER, "task": "count"})
        return Say(given.tool_results) if HELPED in given.tool_results[0] else asks

    second = Agent(name="brewer", model=FollowsScript(brewer), tools=[function_tool(brew)])
    first = Agent(name="desk", model=FollowsScript(front_desk), handoffs=[handoff(second)])
    second.handoffs.append(first)
    response = await ask(first, tools=[])
    assert HELPED in response.unwrap()
    assert list(seen[0].tools) == ["sub_agent"]
    assert [each.name for each in second.tools] == ["brew"]
    assert second.handoffs == [first]
    assert response.usage.total == 3 * (PROMPT + COMPLETION)


async def test_a_tool_that_openai_runs_is_held_to_the_remit_and_a_stored_prompt_cannot_be() -> None:
    offered: list[list[str]] = []

    async def script(seen: Seen) -> Say:
        offered.append(list(seen.tools))
        return Say(["yes"])

    searcher = Agent(name="tea", model=FollowsScript(script), tools=[WebSearchTool()])
    for tools in (None, ["web_search"], []):
        (await ask(searcher, tools=tools, may_delegate=False)).unwrap()
    assert offered == [["web_search"], ["web_search"], []]
    stored = Agent(name="tea", model=FollowsScript(script), prompt={"id": "pmpt_1"})
    assert (await ask(stored)).ok
    refused = (await ask(stored, tools=[])).fault
    assert refused is not None
    assert refused.code is Code.TOOL_NOT_ALLOWED
    assert "prompt is kept by OpenAI" in refused.message


class Cupboard(MCPServer):
    """An MCP server without a process."""

    name = "cupboard"

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, *args: Any, **options: Any) -> list[MCPTool]:
        schema = {"type": "object", "properties": {}}
        return [MCPTool(name=name, input_schema=schema) for name in ("open", "burn")]

    async def call_tool(self, tool_name: str, *args: Any, **options: Any) -> CallToolResult:
        self.called.append(tool_name)
        return CallToolResult(content=[TextContent(type="text", text=f"{tool_name} done")])

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


async def test_tools_of_an_mcp_server_are_held_to_the_remit() -> None:
    cupboard = Cupboard()
    seen: list[Seen] = []

    async def script(given: Seen) -> Say | Use:
        seen.append(given)
        return Say(given.tool_results) if given.tool_results else Use("open")

    agent = Agent(name="tea", model=FollowsScript(script), mcp_servers=[cupboard])
    response = await ask(agent, tools=["open"], may_delegate=False)
    assert "open done" in response.unwrap()
    assert response.tool_calls == ("open",)
    assert list(seen[0].tools) == ["open"]
    assert cupboard.called == ["open"]
    assert agent.mcp_servers == [cupboard]


async def test_what_an_agent_that_is_a_tool_used_is_metered() -> None:
    inner = Agent(name="inner", model=FollowsScript(say("seven")))
    outer = Agent(
        name="outer",
        model=FollowsScript(use_once("ask_inner", {"input": "count"})),
        tools=[inner.as_tool("ask_inner", "Asks.")],
    )
    response = await ask(outer)
    assert response.unwrap() == "seven"
    assert response.usage.total == 3 * (PROMPT + COMPLETION)


def says(decision: Decision, questions: list[Question]) -> Approver:
    async def approver(question: Question) -> Decision:
        questions.append(question)
        return decision

    return approver


async def test_tools_of_an_mcp_server_are_judged_too() -> None:
    cupboard = Cupboard()
    agent = Agent(name="tea", model=FollowsScript(use_once("burn", {})), mcp_servers=[cupboard])
    response = await ask(agent, guards=[guard_of([Rule(then="refuse", tool="burn", say="No fire.")])])
    assert ("No fire." in response.unwrap(), cupboard.called) == (True, [])


@pytest.mark.parametrize("decision", [YES, NO])
async def test_a_tool_of_an_agent_that_is_a_tool_becomes_a_question_too(decision: Decision) -> None:
    questions, ledger = list[Question](), list[int]()

    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        ledger.append(amount)
        return "paid"

    inner = Agent(name="inner", model=FollowsScript(use_once("pay", {"amount": 5})), tools=[pay])
    model = FollowsScript(use_once("ask_inner", {"input": "pay"}))
    outer = Agent(name="outer", model=model, tools=[inner.as_tool("ask_inner", "Asks.")])
    response = await ask(outer, approver=says(decision, questions))
    assert [each.text for each in questions] == ['May tea use pay? ({"amount":5})']
    assert (ledger, response.unwrap()) == (
        ([5], "paid") if decision.agreed else ([], "Error APPROVAL_DECLINED: pay may not be used now")
    )


async def test_a_policy_of_approval_decides_only_about_arguments_that_the_function_gets_unchanged() -> None:
    questions, ledger = list[Question](), list[int]()

    async def large(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        return arguments.get("amount", 0) > 100

    @function_tool(needs_approval=large, strict_mode=False)
    def pay(amount: int = 500) -> str:
        ledger.append(amount)
        return "paid"

    for arguments in ({"amount": 50}, {"amount": 700}, {}):
        agent = Agent(name="tea", model=FollowsScript(use_once("pay", arguments)), tools=[pay])
        assert (await ask(agent, approver=says(YES, questions))).unwrap() == "paid"
    assert [each.request.input for each in questions] == [{"amount": 700}, {}]
    assert ledger == [50, 700, 500]


async def test_the_time_out_of_a_tool_is_not_for_the_person() -> None:
    answered = asyncio.Event()

    async def approver(question: Question) -> Decision:
        await asyncio.sleep(0.1)
        answered.set()
        return YES

    @function_tool(timeout=0.05)
    async def pay(late: bool) -> str:
        assert answered.is_set()
        if late:
            await asyncio.Event().wait()
        return "paid"

    guards = [guard_of([Rule(then="ask", tool="pay")])]
    for late, told in ((False, "paid"), (True, "timed out")):
        agent = Agent(name="tea", model=FollowsScript(use_once("pay", {"late": late})), tools=[pay])
        assert told in (await ask(agent, guards=guards, approver=approver)).unwrap()


@pytest.mark.parametrize("decision", [YES, NO])
async def test_the_request_of_a_hosted_mcp_server_becomes_a_question(decision: Decision) -> None:
    questions, responses = list[Question](), list[Any]()

    class Asks(OnlyWhole):
        async def step(self, call: ModelCall) -> ModelStep:
            last = call.input[-1] if isinstance(call.input, list) else {}
            if last.get("type") == "mcp_approval_response":
                responses.append(last["approve"])
                return ModelStep(output=[assistant_message("Then so.")])
            wanted = McpApprovalRequest(
                id="m", name="pay", arguments='{"amount":5}', server_label="bank", type="mcp_approval_request"
            )
            return ModelStep(output=[wanted])

    hosted = HostedMCPTool(
        tool_config={"type": "mcp", "server_label": "bank", "server_url": "https://bank", "require_approval": "always"}
    )
    agent = Agent(name="tea", model=Asks(say("")), tools=[hosted])
    assert (await ask(agent, approver=says(decision, questions))).unwrap() == "Then so."
    assert [each.text for each in questions] == ['May tea use pay? ({"amount":5})']
    assert responses == [decision.agreed]


class CallsOnce(OnlyWhole):
    """A model that makes one call, and then says what came of it."""

    def __init__(self, call: Any) -> None:
        super().__init__(say(""))
        self.call = call

    async def step(self, call: ModelCall) -> ModelStep:
        last = call.input[-1] if isinstance(call.input, list) else {}
        return ModelStep(output=[assistant_message(str(last["output"])) if "output" in last else self.call])


class Files:
    """An editor that changes nothing."""

    def __init__(self) -> None:
        self.changed: list[str] = []

    def create_file(self, operation: Any) -> str:
        self.changed.append(operation.path)
        return "created"

    update_file = delete_file = create_file


def shell(ran: list[Any], **options: Any) -> tuple[Any, Any]:
    def execute(request: Any) -> str:
        ran.extend(request.data.action.commands)
        return "done"

    action = {"commands": ["rm -r /"], "timeout_ms": None, "max_output_length": None}
    call = ResponseFunctionShellToolCall(
        id="i", call_id="c", type="shell_call", status="completed", action=Action(**action), environment=None
    )
    return ShellTool(executor=execute, **options), call


def custom(ran: list[Any], **options: Any) -> tuple[Any, Any]:
    def invoke(context: Any, text: str) -> str:
        ran.append(text)
        return "done"

    call = ResponseCustomToolCall(call_id="c", name="shell", type="custom_tool_call", input="rm -r /")
    return CustomTool(name="shell", description="", on_invoke_tool=invoke, **options), call


def patch(ran: list[Any], **options: Any) -> tuple[Any, Any]:
    files = Files()
    files.changed = ran
    operation = OperationDeleteFile(type="delete_file", path="rm -r /")
    call = ResponseApplyPatchToolCall(
        id="i", call_id="c", type="apply_patch_call", status="completed", operation=operation
    )
    return ApplyPatchTool(editor=files, name="shell", **options), call


@pytest.mark.parametrize(
    ("make", "edit"),
    [(shell, {"commands": ["ls"]}), (custom, {"input": "ls"}), (patch, {"type": "create_file", "path": "ls"})],
)
async def test_what_the_agent_runs_itself_for_openai_is_judged_too(make: Any, edit: Any) -> None:
    async def run(*rules: Rule, decision: Decision = NO, **options: Any) -> tuple[list[Any], str, list[Question]]:
        ran, questions = list[Any](), list[Question]()
        tool, call = make(ran, **options)
        agent = Agent(name="tea", model=CallsOnce(call), tools=[tool])
        response = await ask(agent, guards=[guard_of(rules)], approver=says(decision, questions))
        return ran, str(response.unwrap()), questions

    ran, told, questions = await run(Rule(then="refuse", tool="shell", mentions=("rm",), say="Not that."))
    assert (ran, "Not that." in told, questions) == ([], True, [])
    edited = Decision(agreed=True, by="ann", edits={"input": edit})
    ran, _, questions = await run(Rule(then="ask", tool="shell", edit=frozenset({"input"})), decision=edited)
    assert ran == ["ls"]
    assert "rm -r /" in str(questions[0].request.input)
    for decision, runs in ((YES, ["rm -r /"]), (NO, [])):
        ran, _, questions = await run(decision=decision, needs_approval=True)
        assert (ran, len(questions)) == (runs, 1)
        assert questions[0].text.startswith("May tea use shell?")
        assert "rm -r /" in f"{questions[0].text} {questions[0].request.input}"


async def test_nothing_is_traced() -> None:
    """By default every run is sent to OpenAI by a thread, prompts and all."""
    before = set(threading.enumerate())
    inner = Agent(name="inner", model=FollowsScript(say("seven")))
    tools = [inner.as_tool("ask_inner", "Asks.")]
    outer = Agent(name="outer", model=FollowsScript(use_once("ask_inner", {"input": "count"})), tools=tools)
    (await ask(outer)).unwrap()
    ours = ("remit", "asyncio")
    assert [thread for thread in set(threading.enumerate()) - before if not thread.name.startswith(ours)] == []


async def test_a_tool_that_may_not_be_used_is_told_to_the_model_if_it_names_it() -> None:
    """The SDK would end the run: it does not know the tool."""
    used: list[str] = []
    errors: list[str] = []

    def shred() -> str:
        used.append("shred")
        return "shredded"

    async def script(seen: Seen) -> Say | Use:
        errors.extend(seen.tool_results)
        assert "shred" not in seen.tools
        return Say(["Then not."]) if seen.tool_results else Use("shred", {})

    response = await ask(Agent(name="tea", model=FollowsScript(script), tools=[function_tool(shred)]), tools=())
    assert response.unwrap() == "Then not."
    assert (used, response.tool_calls) == ([], ())
    assert errors == ["Error TOOL_NOT_ALLOWED: shred may not be used here"]
