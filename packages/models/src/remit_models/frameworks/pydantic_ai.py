"""Agents of pydantic-ai. Each run gets one more capability, which limits it to its brief.

Imported only when a program adds such an agent, because pydantic-ai takes seconds to load.
"""

import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from pydantic_ai import DeferredToolRequests, FunctionToolset, RunContext, RunUsage, Tool, UsageLimits
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, ReinjectSystemPrompt
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import ToolFailedError, ToolRetryError, UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolResults, ToolDefinition, ToolDenied

from remit.ports.brief import Brief
from remit.protocol.envelope import Answer, Json, Message, Usage
from remit.protocol.errors import RemitError
from remit_models.frameworks.bounds import Bounds, RefusedToolError, capped, plain
from remit_models.metering import price_name, prompt_tokens, spent
from remit_models.prompting import ModelPrompt
from remit_models.providers import without_key
from remit_models.reserve import LimitReached
from remit_models.toolbox import ToolOffer

Arguments = dict[str, Any]

# pydantic-ai prints a greeting in a terminal; a hub's output must not contain it.
os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")


def adapt(agent: AbstractAgent[Any, Any], *, deps: Callable[[Brief], object] | None = None) -> "PydanticAgent":
    """Return a function that answers a brief with a pydantic-ai agent; *deps* makes the dependencies of each run."""
    return PydanticAgent(agent, deps)


class PydanticAgent:
    """Runs a pydantic-ai agent in a hub; the agent itself is not changed."""

    def __init__(self, agent: AbstractAgent[Any, Any], deps: Callable[[Brief], object] | None) -> None:
        self.description = agent.description or ""
        self._agent = agent
        self._deps = deps

    async def __call__(self, brief: Brief) -> Answer:
        bounds = Bounds(brief, concludes=True)
        prompt, within = await bounds.prompt(), BoundsCapability(bounds)
        try:
            return await self._run(brief, bounds, within, prompt)
        except LimitReached as why:
            return await bounds.conclude(why, within.last_call)

    async def _run(self, brief: Brief, bounds: Bounds, within: "BoundsCapability", prompt: ModelPrompt) -> Answer:
        run = self._agent.run(
            prompt.task,
            message_history=[_message(each) for each in prompt.messages] or None,
            instructions=prompt.instructions or None,
            deps=self._deps(brief) if self._deps else None,
            usage=within.usage,
            usage_limits=UsageLimits(request_limit=None),  # the bounds count
            toolsets=[FunctionToolset([_tool(bounds, offer) for offer in bounds.offers.values()], id="remit")],
            # Given a history, pydantic-ai looks for the system prompt only there.
            capabilities=[within, ReinjectSystemPrompt()],
            infer_name=False,  # it would be written into the agent
        )
        try:
            result = await bounds.ended(run)
        except UserError as error:
            if "conflicts with existing tool" in str(error):
                bounds.refuse_clash(name for name in bounds.offers if repr(name) in str(error))
            if (unusable := without_key(error, self._agent.model)) is not None:
                raise unusable from error
            raise
        finally:
            with suppress(RemitError):  # more than the remaining budget: the hub handles that
                within.settle()
        if isinstance(result.output, DeferredToolRequests):
            waiting = ", ".join(each.tool_name for each in result.output.calls)
            bounds.unfinished(f"the results of tools that a program outside the hub runs ({waiting})")
        return bounds.answer(result.output)


class BoundsCapability(AbstractCapability[Any]):
    """Limits one run to its brief."""

    def __init__(self, bounds: Bounds) -> None:
        self.usage = RunUsage()
        """The usage of the run as pydantic-ai counts it, including that of agents that its tools ran."""
        self._bounds = bounds
        self._streams = False
        self._settled = RunUsage()
        self._questions: dict[str, str] = {}
        """The question to a person, by the id of each tool call that wants approval."""
        self._model: Any = None
        self._price_name = ""

    async def last_call(self, prompt: ModelPrompt, most: int) -> tuple[str, Usage]:
        """Call the model of the run once more, without tools."""
        assert self._model is not None, "a limit is reached only after a call"
        given = [ModelRequest(parts=[UserPromptPart(content=prompt.task)], instructions=prompt.instructions or None)]
        response = await model_request(self._model, given, model_settings=ModelSettings(max_tokens=most))
        return response.text or "", spent(response.usage, 0, ())

    def settle(self) -> None:
        """Meter the usage since the last time."""
        seen, self._settled = self._settled, replace(self.usage)
        self._bounds.spent(
            self.usage.input_tokens - seen.input_tokens,
            self.usage.output_tokens - seen.output_tokens,
            cache_write=self.usage.cache_write_tokens - seen.cache_write_tokens,
            cache_read=self.usage.cache_read_tokens - seen.cache_read_tokens,
            model=self._price_name,
        )

    async def for_run(self, ctx: RunContext[Any]) -> "BoundsCapability":
        self._model, self._streams = ctx.model, _streams(ctx.model)
        self._price_name = price_name(cast("Model", ctx.model), ctx.model.model_name)
        return self

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        return [each for each in tool_defs if self._bounds.allows(each.name)]

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        settings: dict[str, Any] = {**(request_context.model_settings or {})}
        parameters = request_context.model_request_parameters
        self._bounds.instructed(_instructions(request_context.messages))
        asking = prompt_tokens(request_context.messages, parameters)
        await self._bounds.extend(asking, self._price_name)
        if (most := capped(settings.get("max_tokens"), self._bounds.next_call(asking, self._price_name))) is not None:
            settings["max_tokens"] = most
        allowed = [each for each in parameters.native_tools if self._bounds.allows(each.unique_id)]
        return replace(
            request_context,
            model_settings=ModelSettings(**settings),
            model_request_parameters=replace(parameters, native_tools=allowed),
        )

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        prompt = prompt_tokens(request_context.messages, request_context.model_request_parameters)
        usage = spent(response.usage, prompt, response.parts)
        if usage.estimated:
            self._bounds.spent(usage.prompt, usage.completion, estimated=True, model=self._price_name)
        else:
            self.settle()
        return response

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: Arguments,
        handler: Any,
    ) -> Any:
        if call.tool_name in self._bounds.offers:
            return await handler(args)
        judged = plain(args)

        async def run(permitted: Arguments) -> Any:
            return await handler(args if permitted == judged else await _validated(ctx, call, permitted))

        question = self._questions.pop(call.tool_call_id, "")
        try:
            result = await self._bounds.use_own(call.tool_name, judged, run, question=question)
        except RefusedToolError as error:
            return ToolDenied(str(error))
        except ToolRetryError as error:
            error.tool_retry = await self._readable(call.tool_name, error.tool_retry)
            raise
        except ToolFailedError as error:
            error.tool_failed = await self._readable(call.tool_name, error.tool_failed)
            raise
        self.settle()
        return result

    async def _readable(self, tool: str, failure: Any) -> Any:
        """Return what a tool tells its model about a failure, as the model may read it."""
        return replace(failure, content=await self._bounds.brief.for_model(plain(failure.content), tool=tool))

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Let calls that want approval begin: a person is asked when the tool is about to be used."""
        for call in requests.approvals:
            reason = requests.metadata.get(call.tool_call_id)
            self._questions[call.tool_call_id] = self._bounds.question_about(call.tool_name, reason)
        return requests.build_results(approve_all=True, metadata=requests.metadata) if requests.approvals else None

    @property
    def has_wrap_run_event_stream(self) -> bool:
        return self._streams

    async def wrap_run_event_stream(
        self, ctx: RunContext[Any], *, stream: AsyncIterable[AgentStreamEvent]
    ) -> AsyncIterator[AgentStreamEvent]:
        async for event in super().wrap_run_event_stream(ctx, stream=stream):
            match event:
                case (
                    PartStartEvent(part=TextPart(content=text))
                    | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                ):
                    self._bounds.say(text)
                case _:
                    pass
            yield event


async def _validated(ctx: RunContext[Any], call: ToolCallPart, arguments: Arguments) -> Arguments:
    """Return arguments that a guard or a person changed, as the tool takes them."""
    assert ctx.tool_manager is not None, "a tool is called within a run"
    checked = await ctx.tool_manager.validate_tool_call(
        replace(call, args=arguments), approved=True, wrap_validation_errors=False
    )
    return checked.validated_args or {}


def _tool(bounds: Bounds, offer: ToolOffer) -> Tool[Any]:
    async def call(**arguments: Json) -> str:
        return await bounds.use(offer.name, arguments)

    return Tool.from_schema(call, offer.name, offer.description, offer.schema)


def _message(message: Message) -> ModelMessage:
    if message.role == "user":
        return ModelRequest(parts=[UserPromptPart(content=message.text)])
    return ModelResponse(parts=[TextPart(content=message.text)])


def _instructions(messages: Sequence[ModelMessage]) -> str:
    """Return all instructions of a call, those in the form of system prompts included."""
    requests = [each for each in messages if isinstance(each, ModelRequest)]
    prompts = [part.content for each in requests for part in each.parts if isinstance(part, SystemPromptPart)]
    return "\n\n".join(part for part in (*prompts, requests[-1].instructions if requests else None) if part)


def _streams(model: Any) -> bool:
    """Return whether a model can stream its answer."""
    while (wrapped := getattr(model, "wrapped", None)) is not None:
        model = wrapped
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    return any("request_stream" in vars(kind) for kind in type(model).__mro__ if kind is not Model)
