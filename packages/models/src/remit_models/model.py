"""An agent backed by a language model with tools. Model libraries are imported with the first call."""

import asyncio
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from remit.agents.cards import TOOL_ROUNDS, Arguments
from remit.installed import install_command
from remit.ports import Summarizer
from remit.ports.brief import HISTORY_TOKENS, Brief
from remit.protocol.card import Schema
from remit.protocol.codec import text_of
from remit.protocol.envelope import Answer, Message, Usage
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.lent_models import SAMPLER, Completion, Sampler
from remit.runtime.registry import team_invalid
from remit_models.prompting import ModelPrompt, prompt_of

if TYPE_CHECKING:  # an optional package
    from pydantic_ai.models import Model


class ModelAgent:
    """An agent backed by a language model: it gets its prompt, the conversation and the task, and may use tools.

    *model* is a name as pydantic-ai knows it (`"openai:gpt-5-mini"`, `"anthropic:claude-…"`), or a model of
    pydantic-ai. With *base_url* it is the name of a model at that OpenAI-compatible server. Without *api_key*, the
    provider's environment variable is used. *prompt* takes precedence over the one in the team file; *settings* are
    pydantic-ai's `ModelSettings`. After *max_tool_rounds* the model has to answer without tools. *history_tokens*
    limits the earlier messages that it gets. *output_schema* is the schema of results whose capability has none of its
    own. With *sub_agent_arguments* `"full"` it is told of all arguments of the tool `sub_agent`, and not only of those
    that every model can fill in. With *structured_answers* it can answer agents with more than a text: summary,
    confidence, sources, facts, artifacts, and whether it asks back.
    """

    def __init__(
        self,
        model: "str | Model",
        *,
        prompt: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: Mapping[str, Any] | None = None,
        max_tool_rounds: int = TOOL_ROUNDS,
        max_output_tokens: int | None = None,
        history_tokens: int = HISTORY_TOKENS,
        output_schema: Schema | None = None,
        sub_agent_arguments: Arguments = "short",
        structured_answers: bool = True,
    ) -> None:
        if not isinstance(model, str) and (base_url is not None or api_key is not None):
            raise team_invalid("`base_url` and `api_key` belong to a model that is given by its name")
        self._model_name = model
        self._base_url = base_url
        self._api_key = api_key
        self._model: Model | None = None
        self._opening = threading.Lock()
        self.prompt = prompt
        self.settings = dict(settings or {})
        self.max_tool_rounds = max_tool_rounds
        self.max_output_tokens = max_output_tokens
        self.history_tokens = history_tokens
        self.output_schema = output_schema
        self.sub_agent_arguments: Arguments = sub_agent_arguments
        self.structured_answers = structured_answers

    def __repr__(self) -> str:
        return f"ModelAgent({self.name!r})"

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._model_name if isinstance(self._model_name, str) else self._model_name.model_name

    def check(self) -> None:
        """Raise a `RemitError` if the model cannot be called from here; it says what is missing and how to get it.

        Nothing is sent to the model. It may take two seconds, because the model libraries are imported.
        """
        with self._opening:  # if many callers ask it for the first time at once, one of them opens it
            self._model = self._model or _opened(self._model_name, self._base_url, self._api_key, self.settings)

    async def __call__(self, brief: Brief) -> Answer:
        model = await self.opened()
        from remit_models.turn import ModelTurn

        # At most half of the remaining tokens are spent on reading earlier messages.
        room = min(self.history_tokens, brief.tokens_left() // 2)
        turn = ModelTurn(
            model,
            brief,
            await prompt_of(brief, instructions=self.prompt, max_tokens=room),
            name=self.name,
            settings=self.settings,
            rounds=self.max_tool_rounds,
            most=self.max_output_tokens,
            schema=brief.result_schema or self.output_schema,
            arguments=self.sub_agent_arguments,
            # A person reads the text as it is streamed; another agent can use the other fields.
            structured=self.structured_answers and not brief.is_of_user,
        )
        sampling = SAMPLER.set(self._sampler(brief))
        try:
            return await turn.take()
        finally:
            SAMPLER.reset(sampling)

    def summarizer(self) -> Summarizer:
        """Return what summarizes conversations with this model."""
        return _ModelSummarizer(self)

    def _sampler(self, brief: Brief) -> Sampler:
        """Return what lets a tool of the agent use its model, within the agent's own budget and time."""

        async def sample(instructions: str, messages: tuple[Message, ...], max_tokens: int) -> Completion:
            clean = cast("list[str]", await brief.for_model([instructions, *(each.text for each in messages)]))
            shown = tuple(replace(each, text=text) for each, text in zip(messages, clean[1:], strict=True))
            prompt = ModelPrompt(instructions=clean[0], messages=shown[:-1], task=shown[-1].text)
            most = min(max_tokens, max(1, brief.tokens_left()))
            answer = await self.reply(brief, prompt, time_ms=brief.time_left_ms(), max_tokens=most)
            return text_of(answer.result), self.name

        return sample

    def patience_ms(self, usual: int) -> int:
        """Return how long to wait for one answer of the model: its setting `timeout`, or *usual*."""
        seconds = self.settings.get("timeout")
        return round(seconds * 1_000) if isinstance(seconds, int | float) else usual

    async def reply(
        self,
        brief: Brief,
        prompt: ModelPrompt,
        *,
        time_ms: int,
        max_tokens: int | None = None,
        schema: Schema | None = None,
    ) -> Answer:
        """Return the model's reply to a prompt: without tools, retries or streaming.

        It raises a `RemitError` if the model does not answer in time, or fails in any other way. The usage is spent
        within *brief*.
        """
        model = await self.opened()
        from remit_models.turn import ModelTurn

        most = min(filter(None, (max_tokens, self.max_output_tokens)), default=None)
        turn = ModelTurn(
            model,
            brief,
            prompt,
            name=self.name,
            settings=self.settings,
            rounds=0,
            most=most,
            schema=schema,
            aloud=False,
            corrections=0,
        )
        try:
            async with asyncio.timeout(time_ms / 1_000):
                return await turn.take()
        except TimeoutError:
            raise RemitError(fault(Code.TIMEOUT, f"{self.name} did not answer within {time_ms} ms")) from None

    async def aclose(self) -> None:
        """Close the connections to the model; the next call opens them again."""
        if self._model is not None:
            async with self._model:
                pass

    async def opened(self) -> "Model":
        """Return the model, once the libraries to call it are loaded."""
        if self._model is None:
            await asyncio.to_thread(self.check)
        assert self._model is not None
        return self._model


def model_agent(model: "str | Model | ModelAgent") -> ModelAgent:
    """Return a model, given in any form, as a `ModelAgent`."""
    return model if isinstance(model, ModelAgent) else ModelAgent(model)


def summarizer(
    model: "str | Model",
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Summarizer:
    """Return a summarizer that uses a model, for `Hub(summarizer=…)`."""
    return ModelAgent(model, base_url=base_url, api_key=api_key, settings=settings).summarizer()


class _ModelSummarizer:
    """A `Summarizer` whose connections the hub closes when it closes."""

    def __init__(self, agent: ModelAgent) -> None:
        self._agent = agent
        self.aclose = agent.aclose
        self.model = agent.name

    async def __call__(self, text: str, max_tokens: int) -> tuple[str, Usage]:
        model = await self._agent.opened()
        from remit_models.turn import summary

        return await summary(model, text, max_tokens, self._agent.settings)


def _opened(model: "str | Model", base_url: str | None, api_key: str | None, settings: Mapping[str, Any]) -> "Model":
    # pydantic-ai prints a greeting in a terminal; a hub's output must not contain it.
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    try:
        import pydantic_ai  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        why = f"a model cannot be called without pydantic-ai ({error})"
        raise RemitError(
            fault(Code.TEAM_INVALID, why, suggestion=f"Install what it takes: {install_command('llm')}")
        ) from error
    from remit_models.providers import check_settings, model_of

    check_settings(settings)
    return model_of(model, base_url=base_url, api_key=api_key)
