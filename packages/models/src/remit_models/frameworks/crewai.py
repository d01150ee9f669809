"""Crews and agents of CrewAI. Each run gets a copy in a separate thread, because CrewAI blocks.

Imported only when a program adds a crew. CrewAI is not a dependency, so its types are not known here.
"""

import asyncio
import copy
import logging
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from functools import cache
from importlib import import_module
from typing import Any, NoReturn

from remit.agents.threads import Threads
from remit.ports.brief import Brief
from remit.protocol.card import Schema
from remit.protocol.codec import text_of
from remit.protocol.envelope import Answer, Json
from remit.protocol.errors import Code, fault
from remit.runtime.aside import stepping_aside
from remit_models.frameworks.bounds import Bounds, OwnToolInProgress, plain, tokens_of
from remit_models.prompting import ModelPrompt
from remit_models.toolbox import ToolOffer

# CrewAI sends telemetry and checks for new versions of itself, unless these variables are set when a crew starts.
# Without a network, the first alone delays the end of a program by ten seconds.
for _variable, _value in (
    ("CREWAI_DISABLE_TELEMETRY", "true"),
    ("CREWAI_DISABLE_VERSION_CHECK", "true"),
    ("CREWAI_TRACING_ENABLED", "false"),
):
    os.environ.setdefault(_variable, _value)

crewai: Any = import_module("crewai")
crewai_tools: Any = import_module("crewai.tools")
console: Any = import_module("crewai.events.utils.console_formatter")
hooks: Any = import_module("crewai.hooks.dispatch")
human_input: Any = import_module("crewai.core.providers.human_input")
i18n: Any = import_module("crewai.utilities.i18n")
sanitized: Callable[[str], str] = import_module("crewai.utilities.string_utils").sanitize_tool_name
pydantic: Any = import_module("pydantic")

TESTED_WITH = {"crewai": "1.15.30"}
# Private names that this module uses; other versions may not have them.
PRIVATE_NAMES = {
    "crewai:BaseLLM": ("_emit_stream_chunk_event", "_token_usage"),
    "crewai.core.providers.human_input:AsyncExecutorContext": ("_ainvoke_loop",),
    "crewai.core.providers.human_input:ExecutorContext": ("_format_feedback_message", "_invoke_loop"),
    "crewai.tools:BaseTool": ("_run",),
}

TASK = "remit_task"
# Options that give an agent tools that cannot be listed before the run.
_UNLISTED = ("allow_delegation", "mcps", "apps", "allow_code_execution", "multimodal", "knowledge_sources", "a2a")

_FEEDBACK: Schema = {
    "type": "object",
    "properties": {"feedback": {"type": "string", "title": "What to improve, if anything"}},
}

_running: ContextVar[Bounds | None] = ContextVar("_running", default=None)
_final_task: ContextVar[Any] = ContextVar("_final_task", default=None)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Return whether a log record says more than how one of our runs ended.

    The hub reports that itself, without the data that it must not show.
    """
    return _running.get() is None or not record.getMessage().startswith("Error executing listener")


logging.getLogger("crewai.flow.runtime").addFilter(_is_worth_logging)


def adapt(thing: Any) -> "CrewAgent":
    """Return a function that answers a brief with a crew, or with a single agent of CrewAI."""
    return CrewAgent(thing)


class CrewAgent:
    """Runs a crew or an agent of CrewAI in a hub; it is not changed."""

    def __init__(self, thing: Any) -> None:
        self._is_crew = isinstance(thing, crewai.Crew)
        self.description: str = (thing.name or "") if self._is_crew else f"{thing.role}: {thing.goal}"
        self._thing = thing

    async def __call__(self, brief: Brief) -> Answer:
        bounds = Bounds(brief)
        if bounds.restricted:
            self._refuse_what_cannot_be_held(bounds)
        bounds.refuse_clash(tool.name for tool in _tools_of(self._thing))
        prompt, threads = await bounds.prompt(), Threads("crewai", 1)
        context = copy_context()

        def work(_: None) -> Any:
            # The hook that lets another thread work during a wait is known in this thread, not in the caller's.
            context.run(stepping_aside.set, stepping_aside.get())
            return context.run(self._crew if self._is_crew else self._agent, bounds, prompt)

        try:
            output = await bounds.ended(threads.run(work, None))
        finally:
            await threads.close()
        structured = getattr(output, "pydantic", None) or getattr(output, "json_dict", None)
        return bounds.answer(structured or output.raw)

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _crew(self, bounds: Bounds, prompt: ModelPrompt) -> Any:
        crew = self._thing.copy()
        crew.verbose = False
        for agent in (*crew.agents, *([crew.manager_agent] if crew.manager_agent else [])):
            _equip(agent, bounds)
        for task in crew.tasks:
            task.tools = _allowed_tools(task.tools or [], bounds)
        for field in ("manager_llm", "function_calling_llm", "planning_llm"):
            if (llm := _field(crew, field)) is not None:
                setattr(crew, field, _metered(llm))
        given: Json = bounds.brief.input
        inputs: dict[str, Json] = {**given} if isinstance(given, dict) else {}
        inputs |= {"task": _text(prompt), "input": _text(prompt), TASK: _text(prompt)}
        if not crew.fetch_inputs() & inputs.keys():
            # Nothing in the crew refers to the user's request, so the first task gets it.
            crew.tasks[0].description += f"\n\n{{{TASK}}}"
        _final_task.set(crew.tasks[-1])
        return _bounded(bounds, lambda: crew.kickoff(inputs=inputs))

    def _agent(self, bounds: Bounds, prompt: ModelPrompt) -> Any:
        agent = self._thing.copy()
        _equip(agent, bounds)
        messages = [{"role": each.role, "content": each.text} for each in prompt.messages]
        task = "\n\n".join(part for part in (prompt.instructions, prompt.task) if part)
        return _bounded(bounds, lambda: agent.kickoff([*messages, {"role": "user", "content": task}]))

    def _refuse_what_cannot_be_held(self, bounds: Bounds) -> None:
        for agent in self._thing.agents if self._is_crew else [self._thing]:
            for field in _UNLISTED:
                if _field(agent, field):
                    bounds.refuse_restriction(
                        f"`{field}` of its agent {agent.role!r} brings tools that nobody can list"
                    )
        if self._is_crew and (self._thing.manager_agent or self._thing.manager_llm):
            bounds.refuse_restriction("its manager uses tools that nobody can list")


def _bounded(bounds: Bounds, work: Callable[[], Any]) -> Any:
    """Run a function whose every tool call is within the bounds of this run alone."""
    begun: dict[int, OwnToolInProgress] = {}
    refused: dict[int, str] = {}

    def before(call: Any) -> bool | None:
        if bounds.stopped_by is not None or not _allows(bounds, call.tool_name):
            return False
        # Without a tool, the name is unknown, and CrewAI tells its model so.
        if call.tool is None or call.tool_name in map(sanitized, bounds.offers):
            return None
        judged, place = plain(dict(call.tool_input)), id(call.tool_input)
        try:
            use = bounds.wait(_permitted(bounds, call.tool_name, judged))
        except BaseException as error:  # noqa: BLE001 - CrewAI would run the tool, whatever the error
            refused[place] = str(error)
            return False
        begun[place] = use
        if use.arguments != judged:
            call.tool_input.clear()
            call.tool_input.update(use.arguments)
        return None

    def after(call: Any) -> str | None:
        if (use := begun.pop(id(call.tool_input), None)) is not None:
            result = str(call.tool_result)
            failed = result.startswith("Error executing tool")
            return text_of(bounds.wait(use.end(result if failed else None, result)))
        return refused.pop(id(call.tool_input), None)

    _running.set(bounds)
    human_input.set_provider(Reviewer(bounds))
    console.set_suppress_console_output(True)  # CrewAI prints, whatever `verbose` says
    points = hooks.InterceptionPoint
    with hooks.scoped_hooks({points.PRE_TOOL_CALL: [before], points.POST_TOOL_CALL: [after]}):
        return work()


async def _permitted(bounds: Bounds, called: str, arguments: Json) -> OwnToolInProgress:
    allowed = bounds.brief.remit.tools or ()
    name = next((each for each in allowed if sanitized(each) == called), called)
    return await OwnToolInProgress(bounds, name, arguments).permitted()


class Reviewer(human_input.SyncHumanInputProvider):
    """Asks a person about the answer of a task with `human_input`, until there is nothing to improve."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def handle_feedback(self, formatted_answer: Any, context: Any) -> Any:
        answer = formatted_answer
        while feedback := self._bounds.wait(self._review(answer)):
            context.messages.append(context._format_feedback_message(feedback))
            answer = context._invoke_loop()
        context.ask_for_human_input = False
        return answer

    async def handle_feedback_async(self, formatted_answer: Any, context: Any) -> Any:
        answer = formatted_answer
        while feedback := await asyncio.to_thread(self._bounds.wait, self._review(answer)):
            context.messages.append(context._format_feedback_message(feedback))
            answer = await context._ainvoke_loop()
        context.ask_for_human_input = False
        return answer

    async def _review(self, answer: Any) -> str:
        """Return what a person wants improved; nothing if the answer is good."""
        text = answer.output if isinstance(answer.output, str) else answer.output.model_dump_json()
        fields = await self._bounds.brief.fill(f"Is this answer good? {text}", _FEEDBACK)
        if fields is None:
            self._bounds.stop(fault(Code.APPROVAL_DECLINED, f"nobody approved the answer: {text[:200]}"))
        return str(fields.get("feedback") or "")


def _equip(agent: Any, bounds: Bounds) -> None:
    """Give a copied agent the tools and models for this run."""
    agent.verbose = False
    agent.tools = _allowed_tools(agent.tools or [], bounds)
    for field in ("llm", "function_calling_llm"):
        if (llm := _field(agent, field)) is not None:
            setattr(agent, field, _metered(llm))


def _allowed_tools(own: list[Any], bounds: Bounds) -> list[Any]:
    return [
        *bounds.allowed(own, lambda tool: tool.name if bounds.allows(tool.name) else sanitized(tool.name)),
        *(_tool(bounds, each) for each in bounds.offers.values()),
    ]


def _allows(bounds: Bounds, called: str) -> bool:
    """Return whether a tool may be used; CrewAI calls it by a sanitized name."""
    allowed = bounds.brief.remit.tools
    return allowed is None or called in map(sanitized, (*allowed, *bounds.offers))


# ── models ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _metered(llm: Any) -> Any:
    """Return a copy of a model that is used by this run alone, with every call within its bounds."""
    metered = copy.copy(llm)
    metered._token_usage = dict.fromkeys(llm._token_usage, 0)
    object.__setattr__(metered, "__class__", _metered_kind(llm.__class__))
    return metered


@cache
def _metered_kind(kind: Any) -> Any:
    class Metered(kind):
        """The same model, limited to the bounds of the run that calls it."""

        def call(self, messages: Any, *args: Any, **options: Any) -> Any:
            if (bounds := _running.get()) is None:
                return kind.call(self, messages, *args, **options)
            if _is_last_word(messages):
                bounds.in_loop(lambda: _stop_at_limit(bounds))
            prompt_tokens = tokens_of(messages, args[0] if args else options.get("tools"))
            model = str(self.model).replace("/", ":", 1)
            bounds.extend_in_thread(prompt_tokens, model)
            bounds.in_loop(lambda: bounds.next_call(prompt_tokens, model))
            before = dict(self._token_usage)
            answer = kind.call(self, messages, *args, **options)
            prompt, completion, cached = (self._token_usage.get(each, 0) - before.get(each, 0) for each in _COUNTS)
            if prompt or completion:
                bounds.in_loop(lambda: bounds.spent(prompt, completion, cache_read=cached, model=model))
            else:
                wrote = tokens_of(answer)
                bounds.in_loop(lambda: bounds.spent(prompt_tokens, wrote, estimated=True, model=model))
            return answer

        def _emit_stream_chunk_event(
            self, chunk: str, from_task: Any = None, from_agent: Any = None, tool_call: Any = None, **options: Any
        ) -> None:
            bounds, final = _running.get(), _final_task.get()
            # A model without function calls writes its reasoning before its answer.
            answers = tool_call is None and self.supports_function_calling() and final in (None, from_task)
            if bounds is not None and answers:
                bounds.in_loop(lambda: bounds.say(chunk))
            kind._emit_stream_chunk_event(
                self, chunk, from_task=from_task, from_agent=from_agent, tool_call=tool_call, **options
            )

    Metered.__name__, Metered.__qualname__ = kind.__name__, kind.__qualname__
    return Metered


_COUNTS = ("prompt_tokens", "completion_tokens", "cached_prompt_tokens")


def _is_last_word(messages: Any) -> bool:
    """Return whether a model is told to stop and answer, which CrewAI does once its agent has reached `max_iter`."""
    if isinstance(messages, str) or not messages:
        return False
    return messages[-1].get("content") == i18n.I18N_DEFAULT.errors("force_final_answer")


def _stop_at_limit(bounds: Bounds) -> NoReturn:
    why = f"an agent of {bounds.brief.request.target} reached its `max_iter` and did not come to an end"
    bounds.stop(fault(Code.DELEGATION_FAILED, why, suggestion="Raise `max_iter` of the agent."))


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _tool(bounds: Bounds, offer: ToolOffer) -> Any:
    class Arguments(pydantic.BaseModel):
        """Accepts any arguments: the hub tells the model what does not fit, with a better message."""

        model_config = pydantic.ConfigDict(extra="allow")

        @classmethod
        def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
            return offer.schema

    def use(arguments: dict[str, Json]) -> str:
        return bounds.wait(bounds.use(offer.name, arguments))

    return OfferedTool(
        name=offer.name, description=offer.description, args_schema=Arguments, cache_function=_never, use=use
    )


def _never(*_: object) -> bool:
    return False


class OfferedTool(crewai_tools.BaseTool):
    """An offered tool in the form that CrewAI uses."""

    use: Callable[[dict[str, Json]], str]

    def _run(self, **arguments: Json) -> str:
        return self.use(arguments)


def _field(thing: Any, name: str) -> Any:
    """Return a field, if it exists, without its deprecation warning."""
    return thing.__dict__.get(name)


def _tools_of(thing: Any) -> Iterator[Any]:
    for each in (*thing.agents, *thing.tasks) if isinstance(thing, crewai.Crew) else (thing,):
        yield from each.tools or ()


def _text(prompt: ModelPrompt) -> str:
    """Return the whole prompt as one text, because a crew has no conversation."""
    conversation = "\n".join(f"{each.role}: {each.text}" for each in prompt.messages)
    return "\n\n".join(part for part in (prompt.instructions, conversation, prompt.task) if part)
