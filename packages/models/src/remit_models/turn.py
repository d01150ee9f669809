"""Runs one turn of a model within a brief: prompt, tools and answer."""

from collections.abc import AsyncIterable, Iterator, Mapping
from typing import Any, cast

from msgspec.structs import replace
from pydantic_ai import Agent, ModelRetry, RunContext, StructuredDict, Tool, ToolOutput
from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits
from pydantic_core import SchemaValidator, core_schema

from remit.agents.cards import Arguments
from remit.policy.redaction import TOKEN
from remit.ports.brief import Brief
from remit.protocol.card import Schema
from remit.protocol.codec import text_of
from remit.protocol.envelope import MODEL, Answer, Json, Message, Usage
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.schemas import misfits
from remit_models.metering import Metered, prompt_tokens, spent
from remit_models.model_output import DESCRIPTION, PREAMBLE, SCHEMA, answer_of, may_be_call, written_calls
from remit_models.model_output import NAME as STRUCTURED
from remit_models.prompting import ModelPrompt
from remit_models.providers import translated
from remit_models.reserve import LimitReached, RelayedAnswer, Reserve, TransferredConversation
from remit_models.toolbox import ToolOffer, offers

# How often a model may correct an answer that does not fit its schema.
_CORRECTIONS = 2

_BY_NAME = SchemaValidator(core_schema.dict_schema(keys_schema=core_schema.str_schema()))

_SUMMARIZE = (
    "Summarise the conversation that follows for someone who takes over the work: what is wanted, what was decided, "
    "what was found, what is open. Use its own names and numbers, add nothing, and write at most {words} words."
)


class ModelTurn:
    """A model that works on one brief."""

    def __init__(
        self,
        model: Model,
        brief: Brief,
        prompt: ModelPrompt,
        *,
        name: str,
        settings: Mapping[str, Any],
        rounds: int,
        most: int | None,
        schema: Schema | None,
        arguments: Arguments = "short",
        structured: bool = False,
        aloud: bool = True,
        corrections: int = _CORRECTIONS,
        reserve: Reserve | None = None,
    ) -> None:
        self._brief = brief
        self._prompt = prompt
        self._name = name
        self._settings = ModelSettings(**cast("ModelSettings", settings))
        self._rounds = rounds
        self._offers = offers(brief, arguments=arguments, ends_turn=True) if rounds else ()
        # A text needs no conversion.
        self._schema = None if schema is None or schema.get("type") == "string" else schema
        self._reserve = reserve or Reserve(brief, prompt, "" if self._schema is None else text_of(self._schema))
        self._model = Metered(model, brief, self._reserve, name=name, rounds=rounds, most=most)
        self._aloud = aloud and self._schema is None
        self._corrections = corrections
        # A result with a schema has no room for other fields, and a tool of the team keeps its name.
        taken = {offer.name for offer in self._offers}
        self._structured = structured and self._schema is None and STRUCTURED not in taken

    async def take(self) -> Answer:
        """Return the model's answer, or raise a `RemitError`; usage is spent in either case.

        At a limit it is the model's last answer, from what its tools have found.
        """
        try:
            answer = await self._reserve.within(self._take())
        except LimitReached as why:
            answer = await self._reserve.conclude(why, self._last_answer)
            if isinstance(why, TransferredConversation | RelayedAnswer):
                answer = replace(answer, metadata={**answer.metadata, MODEL: self._model_use()})
            if isinstance(why, RelayedAnswer) and self._aloud:
                self._stream(text_of(answer.result))
        return replace(answer, findings=tuple(self._reserve.findings))

    async def _last_answer(self, prompt: ModelPrompt, most: int) -> Answer:
        """Return the answer of another turn without tools."""
        last = ModelTurn(
            self._model.wrapped,
            self._brief,
            prompt,
            name=self._name,
            settings=self._settings,
            rounds=0,
            most=most,
            schema=self._schema,
            aloud=self._aloud,
            reserve=self._reserve,
        )
        last._model.calls, last._model.cached = self._model.calls, self._model.cached
        return await last._take()

    async def _take(self) -> Answer:
        try:
            result = await self._agent().run(
                self._prompt.task,
                message_history=[part for each in self._prompt.messages for part in _messages(each)],
                model_settings=self._settings,
                usage_limits=UsageLimits(request_limit=None),  # rounds and tokens are already limited
                event_stream_handler=self._say if self._aloud else None,
                infer_name=False,
            )
        except Exception as error:
            if (known := translated(error, self._name)) is None:
                raise
            # Without the cause: it contains the provider's reply, and perhaps the prompt.
            raise known from None
        return self._answer(result.output, result.response)

    def _agent(self) -> Agent[object, Any]:
        agent: Agent[object, Any] = Agent(
            self._model,
            output_type=self._output(),
            instructions=self._prompt.instructions or None,
            tools=[_tool(offer, self._reserve) for offer in self._offers],
            retries={"tools": max(self._rounds, 1), "output": self._corrections},
        )
        if self._schema is not None:
            agent.output_validator(self._fitting)
        return agent

    def _output(self) -> Any:
        """Return the type of the model's answer: a text, a text or structured fields, or a value that fits the
        schema.
        """
        if self._schema is not None:
            return StructuredDict(_object_of(self._schema), name="result")
        if not self._structured:
            return str
        more = StructuredDict(dict(SCHEMA))  # name and description are sent once, with the output
        return [str, ToolOutput(more, name=STRUCTURED, description=DESCRIPTION)]

    def _answer(self, output: Json, response: ModelResponse) -> Answer:
        answer = Answer(self._unwrapped(output))
        if self._structured and isinstance(output, dict):
            handed, user = self._brief.handoff.references, self._brief.user
            answer = answer_of(output, text=(response.text or "").strip(), user=user, references=handed)
        unfinished = ("the answer was cut off at the tokens that it could have",) if _was_cut(response) else ()
        if self._offers and self._model.must_answer:
            unfinished += (f"it had used tools {self._rounds} times, and had to answer with what it had",)
        return replace(answer, unfinished=unfinished, metadata={**answer.metadata, MODEL: self._model_use()})

    def _model_use(self) -> dict[str, Json]:
        cached = self._model.cached
        model: dict[str, Json] = {"name": self._name, **({"cached": cached} if cached else {})}
        model["calls"] = list(self._model.calls)
        return model

    def _unwrapped(self, output: Json) -> Json:
        """Return a result that is not an object from the field that wraps it."""
        if self._schema is None or self._schema.get("type") == "object":
            return output
        return cast("dict[str, Json]", output).get("result")

    # ── streaming ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _say(self, _: RunContext[object], events: AsyncIterable[AgentStreamEvent]) -> None:
        """Stream the answer, without reasoning and without text before a tool call."""
        held: str | None = "" if self._offers and not self._model.must_answer else None
        async for event in events:
            match event:
                case (
                    PartStartEvent(part=TextPart(content=text))
                    | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                ):
                    if held is not None and (len(held) + len(text) <= PREAMBLE or may_be_call(held + text)):
                        held += text
                    else:
                        self._stream((held or "") + text)
                        held = None
                case PartStartEvent(part=ToolCallPart()):
                    held = ""
                case _:
                    pass
        if held and not written_calls(held, {*(offer.name for offer in self._offers), STRUCTURED}):
            self._stream(held)

    def _stream(self, text: str) -> None:
        self._reserve.note_text(text)
        self._brief.say(text)

    async def _fitting(self, context: RunContext[object], output: Json) -> Json:
        """Make the model correct a result that does not fit; only the hub can check values behind redaction tokens."""
        assert self._schema is not None
        value = self._unwrapped(output)
        if TOKEN.search(text_of(value)) or not (problems := misfits(self._schema, value)):
            return output
        if context.retry < self._corrections:
            raise ModelRetry("\n".join(f"{problem.path}: {problem.message}" for problem in problems[:10]))
        often = f" in {self._corrections + 1} attempts" if self._corrections else ""
        why = f"{self._name} did not give an answer that fits its schema{often}"
        raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, why, problems=problems))


def _tool(offer: ToolOffer, reserve: Reserve) -> Tool[object]:
    async def call(**arguments: Json) -> str:
        return await reserve.use(offer.name, arguments, offer.call)

    tool: Tool[object] = Tool.from_schema(call, offer.name, offer.description, offer.schema)
    # The hub checks whether arguments fit; but a model that sends no named arguments must be told here.
    tool.function_schema.validator = _BY_NAME
    return tool


def _messages(message: Message) -> Iterator[ModelMessage]:
    """Yield a message as the model reads it: after the calls of tools that led to it, if it is its own."""
    if message.role == "user":
        yield ModelRequest(parts=[UserPromptPart(content=message.text)])
        return
    if message.findings:
        ids = [f"{message.seq}-{number}" for number, _ in enumerate(message.findings)]
        used = list(zip(ids, message.findings, strict=True))
        yield ModelResponse(parts=[ToolCallPart(each.tool, each.arguments, tool_call_id=id) for id, each in used])
        yield ModelRequest(parts=[ToolReturnPart(each.tool, each.result, tool_call_id=id) for id, each in used])
    yield ModelResponse(parts=[TextPart(content=message.text)])


def _object_of(schema: Schema) -> Schema:
    """Return a schema of an object, because models return only objects; another value becomes its field `result`."""
    if schema.get("type") == "object":
        return dict(schema)  # it gets a title there
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer: Schema = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return outer | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def _was_cut(response: ModelResponse) -> bool:
    return response.finish_reason == "length"


# ── summaries ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def summary(model: Model, text: str, max_tokens: int, settings: Mapping[str, Any]) -> tuple[str, Usage]:
    """Return a model's summary of a conversation in at most that many tokens, and its usage."""
    # Three tokens are about two words.
    instructions = _SUMMARIZE.format(words=max_tokens * 2 // 3)
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(content=text)], instructions=instructions)]
    most = min(max_tokens, settings.get("max_tokens") or max_tokens)  # more than that is not summarised
    chosen = ModelSettings(**(cast("ModelSettings", {**settings, "max_tokens": most})))
    try:
        response = await model_request(model, messages, model_settings=chosen)
    except Exception as error:
        if (known := translated(error, model.model_name)) is None:
            raise
        raise known from None
    if not response.text:
        raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, f"{model.model_name} made no summary"))
    used = spent(response.usage, prompt_tokens(messages, ModelRequestParameters()), response.parts)
    return response.text.strip(), used
