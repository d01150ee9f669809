"""Wraps a model so that every call is capped at the remaining budget of a brief, and metered however it ends."""

import json
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from remit.policy.budget import LEAST_OUTPUT, estimate
from remit.ports.brief import Brief
from remit.protocol.codec import text_of
from remit.protocol.envelope import Json, Usage
from remit.protocol.errors import Code, RemitError, fault
from remit_models.model_output import NAME as STRUCTURED
from remit_models.model_output import written_calls
from remit_models.providers import cut_short
from remit_models.reserve import LimitReached, Reserve

# Every current model can write this much at once, and some reject a higher limit.
OUTPUT_TOKENS = 8_192
# More calls than this in one turn are seldom, and each takes room in the record.
MOST_CALLS = 50
# For each message and each tool: roles, separators and the like.
_AROUND = 6

_MORE_ROUNDS = "Ask for less at once, or let the agent use tools more often (`max_tool_rounds`)."
_ANSWER_NOW = (
    "You have used tools as often as you may in this turn, and cannot use them any more. "
    "Answer now with what you have, and say what is missing."
)


class Metered(WrapperModel):
    """A model within one brief: no call may use more than the remaining budget, and usage is spent at once.

    After *rounds* calls that were answered with tool calls, it is told to answer without them.
    """

    def __init__(
        self, model: Model, brief: Brief, reserve: Reserve, *, name: str, rounds: int, most: int | None = None
    ) -> None:
        super().__init__(model)
        self._brief = brief
        self._reserve = reserve
        self._price_name = price_name(model, name)
        self._rounds = rounds
        self._most = most
        self._used_tools = 0
        self.cached = 0
        """Prompt tokens that the provider read from its cache."""
        self.calls: list[dict[str, Json]] = []
        """The first calls, as they are recorded."""

    @property
    def must_answer(self) -> bool:
        """Whether the model has reached its limit of tool rounds."""
        return self._used_tools >= self._rounds

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        messages, model_settings, prompt = await self._prepared(messages, model_settings, model_request_parameters)
        began_ns = time.time_ns()
        try:
            response = await super().request(messages, model_settings, model_request_parameters)
        except BaseException as error:
            self._spend_in_flight(error, prompt, ())
            raise
        response = _as_called(response, model_request_parameters)
        self._spend(response, prompt, model_request_parameters, began_ns)
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        if not _can_stream(self.wrapped):
            response = await self.request(messages, model_settings, model_request_parameters)
            parameters = model_request_parameters
            yield CompletedStreamedResponse(response, model_request_parameters=parameters, replay_events=True)
            return
        messages, model_settings, prompt = await self._prepared(messages, model_settings, model_request_parameters)
        began_ns = time.time_ns()
        stream: StreamedResponse | None = None
        try:
            async with super().request_stream(
                messages, model_settings, model_request_parameters, run_context
            ) as stream:
                # The answer is read when it is complete; no stream of our own could stand for all types of models.
                vars(stream)["get"] = partial(_got_from, stream.get, model_request_parameters)
                yield stream
        except BaseException as error:
            self._spend_in_flight(error, prompt, () if stream is None else stream.get().parts)
            raise
        self._spend(stream.get(), prompt, model_request_parameters, began_ns)

    async def _prepared(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> tuple[list[ModelMessage], ModelSettings, int]:
        """Return messages, settings and the estimated prompt tokens of a call; raises if too few tokens are left."""
        chosen: dict[str, Any] = {**(settings or {})}
        if self._used_tools and self.must_answer:
            # The tools stay: some providers reject a conversation with calls of tools that they are not told of.
            chosen["tool_choice"] = "none"
            messages = _with_last_round_notice(messages)
        prompt = prompt_tokens(messages, parameters)
        most = self._most or chosen.get("max_tokens") or OUTPUT_TOKENS
        # An estimate is a few per cent off; a tenth more is safe.
        read = prompt + prompt // 10
        await self._reserve.extend(read, most, self._price_name)
        self._reserve.begin_call(read, self._price_name)
        left = self._brief.tokens_left(read + most)
        room = left - read
        if room < LEAST_OUTPUT:
            why = f"a call of the model takes about {prompt} tokens and its answer; {left} are left"
            raise RemitError(fault(Code.TOKEN_BUDGET_EXCEEDED, why))
        chosen["max_tokens"] = self._reserve.affordable(read, min(room, most), self._price_name)
        return messages, cast("ModelSettings", chosen), prompt

    def _spend(self, response: ModelResponse, prompt: int, parameters: ModelRequestParameters, began_ns: int) -> None:
        usage = spent(response.usage, prompt, response.parts)
        self.cached += response.usage.cache_read_tokens
        self._note(response, usage, began_ns)
        self._reserve.end_call()
        self._brief.spend(
            prompt=usage.prompt,
            completion=usage.completion,
            estimated=usage.estimated,
            cache_write=usage.cache_write,
            cache_read=usage.cache_read,
            model=self._price_name,
        )
        if response.finish_reason == "length" and _is_cut(response.parts):
            raise LimitReached(cut_short(self.model_name))  # it would be cut again
        # A result that must fit a schema is given as the call of a tool too.
        results = {tool.name for tool in parameters.output_tools}
        if not any(isinstance(part, ToolCallPart) and part.tool_name not in results for part in response.parts):
            return
        if self.must_answer:
            why = f"{self.model_name} was told to answer after it had used tools {self._rounds} times, and did not"
            raise LimitReached(fault(Code.DELEGATION_FAILED, why, suggestion=_MORE_ROUNDS))
        self._used_tools += 1

    def _note(self, response: ModelResponse, usage: Usage, began_ns: int) -> None:
        """Note a call for whoever traces the run; what further ones spent counts as the agent's own."""
        if len(self.calls) >= MOST_CALLS:
            return
        call: dict[str, Json] = {
            "at_ms": began_ns // 1_000_000,
            "ms": max(0, time.time_ns() - began_ns) // 1_000_000,
            "input": usage.prompt,
            "output": usage.completion,
        }
        more = {
            "cached": response.usage.cache_read_tokens,
            "model": response.model_name or "",
            "provider": response.provider_name or self.wrapped.system,
            "finish": response.finish_reason or "",
        }
        self.calls.append(call | {name: value for name, value in more.items() if value})

    def _spend_in_flight(self, error: BaseException, prompt: int, parts: Iterable[ModelResponsePart]) -> None:
        """Estimate and spend the usage of a call that did not finish."""
        self._reserve.end_call()
        parts_so_far = tuple(parts)
        if isinstance(error, ModelAPIError) and not parts_so_far:
            return  # it was refused, or never got there
        with suppress(RemitError):  # that nothing is left, or that it was told to stop, changes nothing any more
            wrote = sum(map(_tokens, parts_so_far))
            self._brief.spend(prompt=prompt, completion=wrote, estimated=True, model=self._price_name)


def _got_from(get: Callable[[], ModelResponse], parameters: ModelRequestParameters) -> ModelResponse:
    return _as_called(get(), parameters)


def _as_called(response: ModelResponse, parameters: ModelRequestParameters) -> ModelResponse:
    """Return a model's response; a tool call that it wrote as text becomes a real tool call."""
    tools = (*parameters.function_tools, *parameters.output_tools)
    if not tools:
        return response
    if any(isinstance(part, ToolCallPart) for part in response.parts):
        return replace(response, parts=[_text_if_unreadable(part) for part in response.parts])
    calls = written_calls(response.text or "", {tool.name for tool in tools})
    if not calls:
        return response
    others = [part for part in response.parts if not isinstance(part, TextPart)]
    # An id by position and not by chance, because the same text is read more than once.
    meant = [ToolCallPart(name, arguments, f"written-{n}") for n, (name, arguments) in enumerate(calls, 1)]
    return replace(response, parts=[*others, *meant])


def _text_if_unreadable(part: ModelResponsePart) -> ModelResponsePart:
    """Return a model's answer; as plain text if its further fields cannot be read."""
    if not isinstance(part, ToolCallPart) or part.tool_name != STRUCTURED or isinstance(part.args, dict):
        return part
    try:
        arguments = json.loads(part.args or "")
    except ValueError:
        return TextPart(part.args or "")
    return part if isinstance(arguments, dict) else TextPart(text_of(arguments))


def price_name(model: Model, name: str) -> str:
    """Return the name by which the price of a model is found: with its provider."""
    return name if ":" in name else f"{model.system}:{name}"


def spent(usage: RequestUsage, prompt: int, parts: Iterable[ModelResponsePart]) -> Usage:
    """Return the usage of a call: as the provider reports it, else estimated from the texts."""
    if usage.input_tokens or usage.output_tokens:
        return Usage(
            prompt=usage.input_tokens,
            completion=usage.output_tokens,
            cache_write=usage.cache_write_tokens,
            cache_read=usage.cache_read_tokens,
        )
    return Usage(prompt=prompt, completion=sum(map(_tokens, parts)), estimated=True)


def prompt_tokens(messages: Iterable[ModelMessage], parameters: ModelRequestParameters) -> int:
    """Estimate the prompt tokens of a call."""
    tools = sum(
        estimate(tool.name) + estimate(tool.description) + estimate(tool.parameters_json_schema) + _AROUND
        for tool in (*parameters.function_tools, *parameters.output_tools)
    )
    return tools + sum(map(_message_tokens, messages)) + _instruction_tokens(messages)


def _message_tokens(message: ModelMessage) -> int:
    return _AROUND + sum(map(_tokens, message.parts))


def _instruction_tokens(messages: Iterable[ModelMessage]) -> int:
    given = [message.instructions for message in messages if isinstance(message, ModelRequest) and message.instructions]
    return estimate(given[-1]) if given else 0


def _tokens(part: ModelRequestPart | ModelResponsePart) -> int:
    match part:
        case UserPromptPart(content=str(text)):
            return estimate(text)
        case SystemPromptPart(content=text) | TextPart(content=text) | ThinkingPart(content=text):
            return estimate(text)
        case ToolReturnPart():
            return estimate(part.model_response_str())
        case ToolCallPart():
            return estimate(part.tool_name) + estimate(part.args_as_json_str())
        case _:
            return 0


def _is_cut(parts: Sequence[ModelResponsePart]) -> bool:
    """Return whether a response ends with a tool call whose arguments are cut off."""
    if not parts or not isinstance(last := parts[-1], ToolCallPart) or not isinstance(last.args, str):
        return False
    try:
        json.loads(last.args)
    except ValueError:
        return True
    return False


def _can_stream(model: Model) -> bool:
    """Return whether a model can stream; models that cannot raise an error only when asked to."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    return type(model).request_stream is not Model.request_stream


def _with_last_round_notice(messages: list[ModelMessage]) -> list[ModelMessage]:
    last = messages[-1]
    if not isinstance(last, ModelRequest):
        return messages
    return [*messages[:-1], replace(last, parts=[*last.parts, UserPromptPart(content=_ANSWER_NOW)])]
