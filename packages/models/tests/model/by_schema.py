"""Tools for a model that is too small for them: what it says is forced to be a call, and read as one."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from pydantic_ai import RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

# Left to itself it writes a text until its tokens run out, and the call is never finished.
TEXT = 60


class ToolsBySchema(WrapperModel):
    """A served model that calls the one tool *uses* for its first *times* answers, or always, and then speaks freely.

    The server does not show tools to the model, nor hold it to them, but it does hold it to a JSON Schema. So *that* it
    calls, and what *fixed* says, is certain; with which other arguments, the model decides. Only those that the tool
    requires are asked for. With *writes* the call is a text, as small models write it.
    """

    def __init__(
        self,
        model: Model,
        uses: str,
        *,
        times: int | None = None,
        fixed: Mapping[str, object] | None = None,
        writes: bool = False,
    ) -> None:
        super().__init__(model)
        self._uses = uses
        self._times = times
        self._fixed = fixed or {}
        self._writes = writes
        self.sent: list[list[ModelMessage]] = []
        """What the model was sent each time, as it was sent it."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        tool = self._wanted(messages, model_settings, model_request_parameters)
        plain = self._plain(messages)
        if tool is None:
            return await super().request(plain, model_settings, ModelRequestParameters())
        forced = OutputObjectDefinition(json_schema=self._schema(tool), name="call", strict=True)
        parameters = ModelRequestParameters(output_mode="native", output_object=forced)
        response = await super().request(plain, model_settings, parameters)
        try:
            arguments = json.loads(response.text or "")
        except ValueError:  # cut off where its tokens ended
            return response
        arguments |= dict(self._fixed)
        if self._writes:
            return replace(response, parts=[TextPart(json.dumps({"name": tool.name, "arguments": arguments}))])
        return replace(response, parts=[ToolCallPart(tool.name, arguments)])

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        if self._wanted(messages, model_settings, model_request_parameters) is None:
            plain = self._plain(messages)
            async with super().request_stream(plain, model_settings, ModelRequestParameters(), run_context) as stream:
                yield stream
            return
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)

    def _wanted(
        self, messages: Sequence[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ToolDefinition | None:
        """Return the tool that is called now; None: it answers."""
        used = sum(isinstance(part, ToolCallPart) for message in messages for part in message.parts)
        chosen = cast("dict[str, object]", settings or {}).get("tool_choice")
        if chosen == "none" or (self._times is not None and used >= self._times):
            return None
        return next((tool for tool in parameters.function_tools if tool.name == self._uses), None)

    def _schema(self, tool: ToolDefinition) -> dict[str, Any]:
        schema = tool.parameters_json_schema
        known = cast("dict[str, dict[str, Any]]", schema["properties"])
        open_fields = [name for name in schema["required"] if name not in self._fixed]
        properties = {name: known[name] | {"maxLength": TEXT} for name in open_fields}
        return {"type": "object", "properties": properties, "required": open_fields, "additionalProperties": False}

    def _plain(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return messages without calls and results, which the model knows as little as tools: as what was said."""
        plain = [
            replace(message, parts=[_asked(part) for part in message.parts])
            if isinstance(message, ModelRequest)
            else replace(message, parts=[_said(part) for part in message.parts])
            for message in messages
        ]
        self.sent.append(plain)
        return plain


def _asked(part: ModelRequestPart) -> ModelRequestPart:
    return (
        UserPromptPart(f"{part.tool_name} says: {part.model_response_str()}")
        if isinstance(part, ToolReturnPart)
        else part
    )


def _said(part: ModelResponsePart) -> ModelResponsePart:
    return TextPart(part.args_as_json_str()) if isinstance(part, ToolCallPart) else part


def served(base_url: str, **settings: Any) -> OpenAIChatModel:
    """Return the served model as pydantic-ai knows it."""
    provider = OpenAIProvider(base_url=base_url, api_key="none is needed")
    return OpenAIChatModel("smollm2", provider=provider, settings=cast("ModelSettings", settings))
