"""Agents of Google's Agent Development Kit. Each run gets a clone of the agent, and a plugin that enforces its bounds.

Imported only when a program adds such an agent. The kit is not a dependency, so its types are not known here.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import aclosing, suppress
from importlib import import_module
from typing import Any, cast

from remit.ports.brief import Brief
from remit.protocol.envelope import Answer, Json
from remit.protocol.errors import Code
from remit_models.frameworks.bounds import (
    MAX_MODEL_CALLS,
    Bounds,
    OwnToolInProgress,
    RefusedToolError,
    capped,
    plain,
    tokens_of,
)
from remit_models.prompting import ModelPrompt
from remit_models.toolbox import ToolOffer

agents: Any = import_module("google.adk.agents")
configs: Any = import_module("google.adk.agents.run_config")
apps: Any = import_module("google.adk.apps")
events: Any = import_module("google.adk.events")
plugins: Any = import_module("google.adk.plugins")
runners: Any = import_module("google.adk.runners")
sessions: Any = import_module("google.adk.sessions")
adk_tools: Any = import_module("google.adk.tools")
confirmations: Any = import_module("google.adk.tools.tool_confirmation")
types: Any = import_module("google.genai").types

TESTED_WITH = {"google-adk": "2.13.0"}
# Private names that this module uses; other versions may not have them.
PRIVATE_NAMES = {
    "google.adk.agents:BaseAgent": ("_run_async_impl",),
    "google.adk.tools:BaseTool": ("_get_declaration",),
    "google.adk.workflow": ("_node_runner",),
}

APP = "remit"
# Tools of the kit itself, for a transfer within its tree and for an answer with a schema; they do nothing else.
_CONTROLS = frozenset({"transfer_to_agent", "set_model_response"})

# The kit logs up to three tracebacks for every error that ends a run, one of them where this plugin ends it at a limit.
# The hub reports it once, without data that it must not show. The kit also warns about settings that an app should
# have; this app exists for one run only.
_NOISE = ("Node execution failed", "Root node", 'App "remit"', "Error in plugin 'remit'")
for _name in ("workflow._node_runner", "runners", "plugins.plugin_manager"):
    logging.getLogger(f"google_adk.google.adk.{_name}").addFilter(
        lambda record: not record.getMessage().startswith(_NOISE)
    )


def adapt(agent: Any) -> "AdkAgent":
    """Return a function that answers a brief with an agent of the Agent Development Kit."""
    return AdkAgent(agent)


class AdkAgent:
    """Runs an agent of the Agent Development Kit in a hub; the agent itself is not changed."""

    def __init__(self, agent: Any) -> None:
        self.description: str = agent.description
        self._agent = agent

    async def __call__(self, brief: Brief) -> Answer:
        bounds = Bounds(brief)
        if bounds.restricted:
            for each in _tree(self._agent):
                _refuse_what_cannot_be_held(bounds, each)
        prompt = await bounds.prompt()
        agent = self._agent.clone()
        within = BoundsPlugin(bounds, prompt, {each.name for each in _tree(agent, tools=False)})
        service = sessions.InMemorySessionService()
        session = await service.create_session(app_name=APP, user_id=brief.user)
        for message in prompt.messages:
            author, role = ("user", "user") if message.role == "user" else (agent.name, "model")
            event = events.Event(author=author, content=_content(role, message.text), invocation_id="before")
            await service.append_event(session, event)
        run = runners.Runner(
            app=apps.App(name=APP, root_agent=agent, plugins=[within]), session_service=service
        ).run_async(
            user_id=brief.user,
            session_id=session.id,
            new_message=_content("user", prompt.task),
            run_config=agents.RunConfig(
                streaming_mode=configs.StreamingMode.SSE,
                max_llm_calls=MAX_MODEL_CALLS + 1,  # the bounds count
            ),
        )
        finals = await bounds.ended(_finals(bounds, run))
        if isinstance(agent, agents.ParallelAgent):
            return bounds.answer("\n\n".join(finals.values()))
        return bounds.answer(_structured(agent, finals))


class BoundsPlugin(plugins.BasePlugin):
    """Limits one run to its brief, by the hooks that the kit calls, also for sub-agents and agents used as tools."""

    def __init__(self, bounds: Bounds, prompt: ModelPrompt, names: set[str]) -> None:
        plugins.BasePlugin.__init__(self, name="remit")
        self._bounds = bounds
        self._prompt = prompt
        self._names = names
        self._prompt_tokens = 0
        self._uses: dict[str, OwnToolInProgress] = {}
        self._model = ""

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        bounds, config = self._bounds, llm_request.config
        self._model = f"google:{llm_request.model}" if llm_request.model else ""
        _keep_allowed(bounds, llm_request)
        # An agent that is a tool of another gets neither the instructions nor the tools that are meant for its caller.
        if callback_context.agent_name in self._names:
            bounds.refuse_clash(llm_request.tools_dict)
            llm_request.append_tools([AdkTool(bounds, each) for each in bounds.offers.values()])
            if self._prompt.instructions:
                llm_request.append_instructions([self._prompt.instructions])
        offered = [each.function_declarations for each in config.tools or ()]
        parts = [part for each in llm_request.contents for part in each.parts or ()]
        self._prompt_tokens = tokens_of(config.system_instruction, *map(_readable_part, parts), *offered)
        await bounds.extend(self._prompt_tokens, self._model)
        config.max_output_tokens = capped(config.max_output_tokens, bounds.next_call(self._prompt_tokens, self._model))

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        if llm_response.partial:
            return
        usage = llm_response.usage_metadata
        if usage is not None and usage.total_token_count:
            thought = usage.thoughts_token_count or 0
            self._bounds.spent(
                usage.prompt_token_count or 0,
                (usage.candidates_token_count or 0) + thought,
                cache_read=usage.cached_content_token_count or 0,
                model=self._model,
            )
        elif llm_response.content is not None:
            self._bounds.spent(
                self._prompt_tokens,
                tokens_of(*map(_readable_part, llm_response.content.parts or ())),
                estimated=True,
                model=self._model,
            )

    async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> dict[str, str] | None:
        self._bounds.raise_if_stopped()
        if not _allows(self._bounds, tool.name):
            return {"error": f"{Code.TOOL_NOT_ALLOWED}: {tool.name} may not be used here"}
        exists = type(tool) is not adk_tools.BaseTool  # which stands for an unknown tool name
        if not exists or tool.name in self._bounds.offers or tool.name in _CONTROLS:
            return None
        question = ""
        with suppress(Exception):  # the kit looks again, and makes an error of the tool of it
            if await tool.check_require_confirmation(tool_args, tool_context):
                question = self._bounds.question_about(tool.name)
        try:
            use = await OwnToolInProgress(self._bounds, tool.name, tool_args, question).permitted()
        except RefusedToolError as error:
            return {"error": str(error)}
        self._uses[tool_context.function_call_id] = use
        if use.arguments != plain(tool_args):
            tool_args.clear()
            tool_args.update(use.arguments)
        if question:
            tool_context.tool_confirmation = confirmations.ToolConfirmation(confirmed=True)
        return None

    async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> Any:
        wanted = tool_context.actions.requested_tool_confirmations.pop(tool_context.function_call_id, None)
        if wanted is not None and tool_context.function_call_id in self._uses:
            try:
                answer = await self._confirmed(tool, tool_args, tool_context, wanted)
            except Exception as error:
                await self._end(tool_context, error)
                raise
            await self._end(tool_context, None)
            return answer
        shown = await self._end(tool_context, None, result)
        if shown is None or shown is result:
            return None
        return cast("dict[str, Json]", shown) if isinstance(shown, dict) else {"result": shown}

    async def _confirmed(self, tool: Any, arguments: Any, context: Any, wanted: Any) -> dict[str, Any]:
        """Return the result of a tool that asked for a confirmation: run again with the answer, as the kit does it."""
        context.actions.skip_summarization = None
        context.tool_confirmation = await self._confirmation(tool.name, arguments, wanted)
        if not context.tool_confirmation.confirmed and await tool.check_require_confirmation(arguments, context):
            return {"error": f"{Code.APPROVAL_DECLINED}: {tool.name} may not be used now"}
        result: Any = await tool.run_async(args=arguments, tool_context=context)
        return cast("dict[str, Any]", result) if isinstance(result, dict) else {"result": result}

    async def _confirmation(self, tool: str, arguments: Any, wanted: Any) -> Any:
        """Return what a person answers to a tool that asks for a confirmation: it may want some fields with it."""
        brief, question = self._bounds.brief, wanted.hint or self._bounds.question_about(tool, arguments)
        template: Any = wanted.payload
        if not isinstance(template, dict) or not template:
            return confirmations.ToolConfirmation(confirmed=await brief.confirm(question), payload=template)
        payload = cast("dict[str, Json]", template)
        properties = {name: {"type": _type_of(value), "default": value} for name, value in payload.items()}
        fields = await brief.fill(question, {"type": "object", "properties": properties})
        return confirmations.ToolConfirmation(confirmed=fields is not None, payload={**payload, **(fields or {})})

    async def on_model_error_callback(self, *, callback_context: Any, llm_request: Any, error: Exception) -> None:
        # The kit reports it only by the error's message.
        self._bounds.refused_by_provider(error)

    async def on_tool_error_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, error: Exception) -> None:
        await self._end(tool_context, error)

    async def _end(self, context: Any, error: Exception | None, result: object = None) -> Any:
        """Record that a tool of the agent ended, and return its result as the model may read it."""
        use = self._uses.pop(context.function_call_id, None)
        return None if use is None else await use.end(error, result)


def _readable_part(part: Any) -> Any:
    """Return what a model reads or writes in a part: its text, or what else it is."""
    return part.text or part


class AdkTool(adk_tools.BaseTool):
    """An offered tool in the form that the kit uses."""

    def __init__(self, bounds: Bounds, offer: ToolOffer) -> None:
        adk_tools.BaseTool.__init__(self, name=offer.name, description=offer.description)
        self._bounds = bounds
        self._offer = offer

    def _get_declaration(self) -> Any:
        return types.FunctionDeclaration(
            name=self._offer.name, description=self._offer.description, parameters_json_schema=self._offer.schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> str:
        return await self._bounds.use(self._offer.name, args)


def _keep_allowed(bounds: Bounds, request: Any) -> None:
    """Remove from a request the tools that the remit does not name: functions, and those that the provider runs
    itself.
    """
    if not bounds.restricted:
        return
    kept: list[Any] = []
    for tool in request.config.tools or ():
        hosted = {field: None for field in tool.model_fields_set if not bounds.allows(field)}
        functions = [each for each in tool.function_declarations or () if _allows(bounds, each.name)]
        left = tool.model_copy(update={**hosted, "function_declarations": functions or None})
        if any(getattr(left, field) is not None for field in left.model_fields_set):
            kept.append(left)
    request.config.tools = kept or None
    for name in list(request.tools_dict):
        if not _allows(bounds, name):
            del request.tools_dict[name]


def _allows(bounds: Bounds, tool: str) -> bool:
    return tool in _CONTROLS or bounds.allows(tool)


def _refuse_what_cannot_be_held(bounds: Bounds, agent: Any) -> None:
    if not agent.__class__._run_async_impl.__module__.startswith("google.adk.agents."):
        bounds.refuse_restriction(f"{agent.name} is an agent of its own kind, whose code may use anything")
    if getattr(agent, "code_executor", None) is not None:
        bounds.refuse_restriction(f"{agent.name} runs code that its model writes")


def _tree(agent: Any, *, tools: bool = True) -> Iterator[Any]:
    """Yield an agent and all agents below it, including those that are its tools."""
    yield agent
    below = list(agent.sub_agents)
    if tools:
        below += [inner for each in getattr(agent, "tools", ()) if (inner := getattr(each, "agent", None)) is not None]
    for each in below:
        yield from _tree(each, tools=tools)


async def _finals(bounds: Bounds, run: Any) -> dict[str, str]:
    """Return the final text of each agent that has one, in order."""
    finals: dict[str, str] = {}
    async with aclosing(run):
        async for event in run:
            if event.error_code:
                raise RuntimeError(f"{event.error_code}: {event.error_message}")
            if event.long_running_tool_ids:
                bounds.unfinished("tools that go on without it, or a login")
            if event.partial:
                bounds.say(_text(event.content))
            elif event.is_final_response() and event.content is not None:
                finals.pop(event.author, None)
                finals[event.author] = _text(event.content)
    return finals


def _structured(agent: Any, finals: dict[str, str]) -> object:
    """Return the last text, parsed as JSON if its author has an output schema."""
    author, text = next(reversed(finals.items()), ("", ""))
    speaker = agent.find_agent(author)
    if getattr(speaker, "output_schema", None) is not None:
        with suppress(ValueError):
            return json.loads(text)
    return text


def _type_of(value: Json) -> str:
    """Return the type of a form's field that begins with this value."""
    if isinstance(value, bool):
        return "boolean"
    return "integer" if isinstance(value, int) else "number" if isinstance(value, float) else "string"


def _content(role: str, text: str) -> Any:
    return types.Content(role=role, parts=[types.Part(text=text)])


def _text(content: Any) -> str:
    """Return the text without the model's reasoning."""
    return "".join(part.text or "" for part in (content.parts if content else None) or () if not part.thought)
