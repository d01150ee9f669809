"""Agents of AutoGen. Each run of an `AssistantAgent` gets a fork with its own context, workbenches and client.

Other agents and teams keep the conversation inside, and it cannot be replaced. They are reset and run unchanged, one at
a time.

Imported only when a program adds such an agent. AutoGen is not a dependency, so its types are not known here.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from remit.ports.brief import Brief
from remit.protocol.codec import text_of
from remit.protocol.envelope import Answer
from remit.protocol.errors import Code, RemitError
from remit_models.frameworks.bounds import MAX_MODEL_CALLS, Bounds, RefusedToolError, ToolFailure, tokens_of
from remit_models.prompting import ModelPrompt

agents: Any = import_module("autogen_agentchat.agents")
messages: Any = import_module("autogen_agentchat.messages")
core: Any = import_module("autogen_core")
contexts: Any = import_module("autogen_core.model_context")
models: Any = import_module("autogen_core.models")
tools: Any = import_module("autogen_core.tools")

# The clean-up of a cancelled run takes a few iterations of the event loop.
GRACE_S = 1.0

TESTED_WITH = {"autogen-agentchat": "0.7.5"}
# Private names that this module uses; other versions may not have them.
PRIVATE_NAMES = {
    "autogen_agentchat.agents:AssistantAgent": (
        "_max_tool_iterations",
        "_model_client",
        "_model_client_stream",
        "_model_context",
        "_system_messages",
        "_workbench",
    ),
}


def adapt(agent: Any) -> "AutoGenAgent":
    """Return a function that answers a brief with an agent or a team of AutoGen."""
    return AutoGenAgent(agent)


class AutoGenAgent:
    """Runs an agent or a team of AutoGen in a hub; an `AssistantAgent` is not changed."""

    def __init__(self, agent: Any) -> None:
        self.description: str = agent.description
        self._agent = agent
        self._turn = asyncio.Lock()

    async def __call__(self, brief: Brief) -> Answer:
        bounds = Bounds(brief)
        prompt = await bounds.prompt()
        if isinstance(self._agent, agents.AssistantAgent):
            last = await bounds.ended(_run(bounds, await _forked(self._agent, bounds, prompt), prompt.task))
        else:
            last = await self._as_it_is(bounds, prompt)
        if isinstance(last, messages.HandoffMessage):
            bounds.unfinished(f"{last.target}, to whom it handed over")
        return bounds.answer(last.content if isinstance(last, messages.StructuredMessage) else last.to_text())

    async def _as_it_is(self, bounds: Bounds, prompt: ModelPrompt) -> Any:
        if bounds.restricted:
            bounds.refuse_restriction(f"a {type(self._agent).__name__} uses what it was made with")
        conversation = "\n".join(f"{each.role}: {each.text}" for each in prompt.messages)
        task = "\n\n".join(part for part in (prompt.instructions, conversation, prompt.task) if part)
        async with self._turn:
            if hasattr(self._agent, "on_reset"):
                await self._agent.on_reset(core.CancellationToken())
            else:
                await self._agent.reset()
            await bounds.extend(tokens_of(task))
            bounds.room(tokens_of(task))
            return await bounds.ended(_run(bounds, self._agent, task, metered=False))


async def _forked(agent: Any, bounds: Bounds, prompt: ModelPrompt) -> Any:
    """Return a copy of an agent with the messages and the tools of this run."""
    fork = copy.copy(agent)
    own = [Workbench(each, bounds) for each in agent._workbench]
    bounds.refuse_clash([tool["name"] for each in own for tool in await each.list_tools()])
    fork._workbench = [*own, OfferedWorkbench(bounds)]
    fork._model_client = BoundedClient(agent._model_client, bounds)
    fork._model_client_stream = True
    fork._model_context = contexts.UnboundedChatCompletionContext(
        initial_messages=[
            models.UserMessage(content=each.text, source="user")
            if each.role == "user"
            else models.AssistantMessage(content=each.text, source=agent.name)
            for each in prompt.messages
        ]
    )
    if prompt.instructions:
        fork._system_messages = [*agent._system_messages, models.SystemMessage(content=prompt.instructions)]
    if bounds.offers:
        # By default an agent ends with the results of its tools; delegation must not end it.
        fork._max_tool_iterations = MAX_MODEL_CALLS + 1
    return fork


async def _run(bounds: Bounds, agent: Any, task: str, *, metered: bool = True) -> Any:
    """Run an agent and return the last message; nothing keeps running afterwards."""
    token = core.CancellationToken()
    run = asyncio.ensure_future(_last_message(bounds, agent, task, token, metered=metered))
    try:
        return await asyncio.shield(run)
    finally:
        # Cancelling by the token alone leaves a run waiting for its tools; cancelling the task alone leaves the tools
        # running.
        token.cancel()
        run.cancel()
        await asyncio.wait({run}, timeout=GRACE_S)


async def _last_message(bounds: Bounds, agent: Any, task: str, token: Any, *, metered: bool) -> Any:
    last: Any = None
    reported, thinks = metered, False
    stream = agent.run_stream(task=task, cancellation_token=token)
    try:
        async for event in stream:
            if isinstance(event, messages.ModelClientStreamingChunkEvent):
                # The model's reasoning is in the same stream, and is marked as such.
                thinks = thinks or event.content.startswith("<think>")
                if not thinks or "</think>" in event.content:
                    bounds.say(event.content.rpartition("</think>")[2])
                    thinks = False
            elif isinstance(event, messages.BaseChatMessage):
                last = event
            usage = getattr(event, "models_usage", None)
            if not metered and usage is not None and (usage.prompt_tokens or usage.completion_tokens):
                reported = True
                bounds.spent(usage.prompt_tokens, usage.completion_tokens)
    except RemitError:
        token.cancel()
        with suppress(asyncio.CancelledError):  # its work so far was just cancelled
            await stream.aclose()
        raise
    if not reported:
        bounds.spent(tokens_of(task), tokens_of(last.to_text()), estimated=True)
    return last


class BoundedClient(models.ChatCompletionClient):
    """A client that limits every call to the bounds of a run; each provider has its own name for the length limit."""

    def __init__(self, client: Any, bounds: Bounds) -> None:
        self._client = client
        self._bounds = bounds

    async def create(self, messages: Any, **options: Any) -> Any:
        prompt_tokens = await self._ask(messages, options)
        return self._answered(await self._client.create(messages, **options), prompt_tokens)

    async def create_stream(self, messages: Any, **options: Any) -> AsyncIterator[Any]:
        prompt_tokens = await self._ask(messages, options)
        try:
            async for piece in self._client.create_stream(messages, **options):
                yield piece if isinstance(piece, str) else self._answered(piece, prompt_tokens)
        except NotImplementedError:
            yield self._answered(await self._client.create(messages, **options), prompt_tokens)

    async def _ask(self, messages: Any, options: dict[str, Any]) -> int:
        prompt_tokens = tokens_of([each.content for each in messages], options.get("tools"))
        await self._bounds.extend(prompt_tokens)
        self._bounds.next_call(prompt_tokens)
        return prompt_tokens

    def _answered(self, result: Any, prompt_tokens: int) -> Any:
        usage = result.usage
        if usage.prompt_tokens or usage.completion_tokens:
            self._bounds.spent(usage.prompt_tokens, usage.completion_tokens)
        else:
            self._bounds.spent(prompt_tokens, tokens_of(result.content), estimated=True)
        return result

    @property
    def model_info(self) -> Any:
        return self._client.model_info

    @property
    def capabilities(self) -> Any:
        return self._client.capabilities

    def actual_usage(self) -> Any:
        return self._client.actual_usage()

    def total_usage(self) -> Any:
        return self._client.total_usage()

    def count_tokens(self, messages: Any, **options: Any) -> int:
        return self._client.count_tokens(messages, **options)

    def remaining_tokens(self, messages: Any, **options: Any) -> int:
        return self._client.remaining_tokens(messages, **options)

    async def close(self) -> None:
        """Leave the client open: it belongs to the agent, and others use it, too."""


class Workbench(tools.Workbench):
    """The agent's own tools, limited to those that it may use.

    Nothing is raised from here, because AutoGen would then wait for ever. An error that ends a run is raised at its
    next model call.
    """

    def __init__(self, workbench: Any, bounds: Bounds) -> None:
        self._workbench = workbench
        self._bounds = bounds

    async def list_tools(self) -> list[Any]:
        return self._bounds.allowed(await self._workbench.list_tools(), lambda tool: tool["name"])

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: Any = None,
        call_id: str | None = None,
    ) -> Any:
        bounds = self._bounds
        if not bounds.allows(name):
            return _result(name, f"Error {Code.TOOL_NOT_ALLOWED}: {name} may not be used here", is_error=True)

        async def run(permitted: dict[str, Any]) -> Any:
            result = await self._workbench.call_tool(name, permitted, cancellation_token, call_id)
            return ToolFailure(result, result.to_text()) if result.is_error else result

        using = asyncio.ensure_future(bounds.use_own(name, dict(arguments or {}), run))
        if cancellation_token is not None:
            cancellation_token.link_future(using)
        try:
            result = await using
        except (RemitError, RefusedToolError) as error:
            return _result(name, str(error), is_error=True)
        return result if isinstance(result, tools.ToolResult) else _result(name, text_of(result))  # before a restart

    async def start(self) -> None:
        await self._workbench.start()

    async def stop(self) -> None:
        await self._workbench.stop()

    async def reset(self) -> None:
        await self._workbench.reset()

    async def save_state(self) -> Any:
        return await self._workbench.save_state()

    async def load_state(self, state: Any) -> None:
        await self._workbench.load_state(state)


class OfferedWorkbench(tools.StaticWorkbench):
    """The tools that the hub offers the agent."""

    def __init__(self, bounds: Bounds) -> None:
        tools.StaticWorkbench.__init__(self, [])
        self._bounds = bounds

    async def list_tools(self) -> list[Any]:
        return [
            tools.ToolSchema(name=each.name, description=each.description, parameters=each.schema)
            for each in self._bounds.offers.values()
        ]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: Any = None,
        call_id: str | None = None,
    ) -> Any:
        using = asyncio.ensure_future(self._bounds.use(name, dict(arguments or {})))
        if cancellation_token is not None:
            cancellation_token.link_future(using)
        try:
            return _result(name, await using)
        except RemitError as error:
            return _result(name, str(error), is_error=True)


def _result(name: str, text: str, *, is_error: bool = False) -> Any:
    return tools.ToolResult(name=name, result=[tools.TextResultContent(content=text)], is_error=is_error)
