"""Agents of the OpenAI Agents SDK. Each run gets clones of the agent and of all agents that it can hand off to.

Imported only when a program adds such an agent. The SDK is not a dependency, so its types are not known here.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from importlib import import_module
from inspect import isawaitable
from typing import Any

from remit.ports.brief import Brief
from remit.protocol.envelope import Answer, Usage
from remit.protocol.errors import Code, RemitError
from remit.runtime.origin import worded
from remit_models.frameworks.bounds import Bounds, RefusedToolError, RunningTool, ToolFailure, capped, plain, tokens_of
from remit_models.prompting import ModelPrompt
from remit_models.reserve import LimitReached
from remit_models.toolbox import ToolOffer

sdk: Any = import_module("agents")

TESTED_WITH = {"openai-agents": "0.24.0"}
# Private names that this module uses; other versions may not have them.
PRIVATE_NAMES = {"agents:Model": ("_cleanup_on_run_end",), "agents:Handoff": ("_agent_ref",)}

# Tools that a provider runs itself while it answers; other calls are returned and executed here.
_HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call")


def adapt(agent: Any) -> "OpenAIAgent":
    """Return a function that answers a brief with an agent of the OpenAI Agents SDK."""
    return OpenAIAgent(agent)


class OpenAIAgent:
    """Runs an agent of the OpenAI Agents SDK in a hub; the agent itself is not changed."""

    def __init__(self, agent: Any) -> None:
        self.description: str = agent.handoff_description or ""
        self._agent = agent

    async def __call__(self, brief: Brief) -> Answer:
        bounds = Bounds(brief, concludes=True)
        prompt = await bounds.prompt()
        within = BoundsHooks(bounds, prompt)
        first = await self._in_charge(brief)
        try:
            output = await within.run(await within.clone(first))
            await self._keep_in_charge(brief, first, within.last_agent)
            return bounds.answer(output)
        except LimitReached as why:
            return await bounds.conclude(why, within.last_call)

    async def _in_charge(self, brief: Brief) -> Any:
        """Return the agent to which the conversation was handed off in an earlier turn of the session, or the first."""
        if not self._agent.handoffs or brief.request.session is None:
            return self._agent
        name = (await brief.state()).get(_state_name(brief))
        return next((each for each in _reachable(self._agent) if each.name == name), self._agent)

    async def _keep_in_charge(self, brief: Brief, first: Any, last: Any) -> None:
        """Store which agent answers the next turn of the session."""
        if self._agent.handoffs and brief.request.session is not None and last.name != first.name:
            with suppress(RemitError):  # another turn has ended at the same time, and stored its own
                await brief.update_state(**{_state_name(brief): last.name})


def _state_name(brief: Brief) -> str:
    return f"in charge of {brief.request.session}"


def _reachable(first: Any) -> list[Any]:
    """Return the agents to which a conversation can be handed off, the first one included."""
    agents = [first]
    for agent in agents:
        for each in agent.handoffs:
            to = each._agent_ref and each._agent_ref() if isinstance(each, sdk.Handoff) else each
            if to is not None and all(to is not known for known in agents):
                agents.append(to)
    return agents


class BoundsHooks(sdk.RunHooks):
    """Limits one run to its brief, by its clones, its models, and the hooks that the SDK calls."""

    def __init__(self, bounds: Bounds, prompt: ModelPrompt) -> None:
        self.bounds = bounds
        self.answered = False
        self.last_agent: Any = None
        """The agent that has answered."""
        self._prompt = prompt
        self._clones: dict[int, Any] = {}
        self._originals: list[Any] = []  # so that no other object gets the same id
        self._usage: Any = None
        self._settled = (0, 0, 0)
        self.model = ""
        """The name of the model that was called last."""
        self.first_model: tuple[Any, Any] | None = None
        """The model of the run, once it is called, and its settings."""
        self._failed: dict[str, str] = {}
        self._begun: dict[str, RunningTool] = {}
        self._judged: dict[str, Any] = {}
        """The agents' own tools whose uses are judged, by name."""
        self._questions: dict[str, str] = {}
        """The question to a person, by the id of each tool call that wants approval."""

    async def run(self, agent: Any) -> Any:
        config = sdk.RunConfig(
            tracing_disabled=True,  # it would be sent to OpenAI
            model_provider=Provider(sdk.MultiProvider(), self),
            call_model_input_filter=self._instruct,
            tool_error_formatter=self._note_failure,
            tool_not_found_behavior="return_error_to_model",  # otherwise an unknown tool name ends the run
        )
        messages = [{"role": each.role, "content": each.text} for each in self._prompt.messages]
        options = {
            "input": [*messages, {"role": "user", "content": self._prompt.task}],
            "max_turns": None,  # the bounds count
            "hooks": self,
            "run_config": config,
        }
        run = self._streamed
        try:
            while True:
                try:
                    result = await self.bounds.ended(run(agent, options))
                except NotImplementedError:  # some models cannot stream, above all those made for tests
                    if self.answered:
                        raise
                    run = self._whole
                    continue
                if not result.interruptions:
                    self.last_agent = result.last_agent
                    return result.final_output
                options["input"] = await self._decided(result)
        finally:
            with suppress(RemitError):
                self._record_rest()
                self._settle()

    async def last_call(self, prompt: ModelPrompt, most: int) -> tuple[str, Usage]:
        """Call the model of the run once more, without tools."""
        assert self.first_model is not None, "a limit is reached only after a call"
        model, settings = self.first_model
        response = await model.get_response(
            prompt.instructions or None,
            prompt.task,
            replace(settings, max_tokens=most, tool_choice=None, parallel_tool_calls=None),
            [],
            None,
            [],
            sdk.models.interface.ModelTracing.DISABLED,
            previous_response_id=None,
            conversation_id=None,
            prompt=None,
        )
        usage = response.usage
        texts = [_item_text(each) for each in response.output if each.type == "message"]
        cached = usage.input_tokens_details.cached_tokens or 0
        return "".join(texts), Usage(prompt=usage.input_tokens, completion=usage.output_tokens, cache_read=cached)

    async def _streamed(self, agent: Any, options: dict[str, Any]) -> Any:
        result = sdk.Runner.run_streamed(agent, **options)
        try:
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    self.bounds.say(event.data.delta)
        finally:
            if not result.is_complete:
                result.cancel()
        return result

    async def _whole(self, agent: Any, options: dict[str, Any]) -> Any:
        return await sdk.Runner.run(agent, **options)

    async def _decided(self, result: Any) -> Any:
        """Return the state of a run whose tool calls wait for approval, with a decision on each.

        A tool whose uses are judged is let through: the person is asked when it is about to be used.
        """
        state = result.to_state()
        for item in result.interruptions:
            # Not so the tools of agents that are tools, and patches, whose editor is not told which call it serves.
            is_own = any(item.agent is clone for clone in self._clones.values())
            judging = self._judged.get(item.name) if is_own and item.call_id else None
            if judging is not None and not isinstance(judging, sdk.ApplyPatchTool):
                self._questions[item.call_id] = self.bounds.question_about(item.name)
                state.approve(item)
                continue
            what = _parsed(item.arguments) or plain(item.raw_item)
            question = self.bounds.question_about(item.name or "a tool", what)
            if await self.bounds.brief.confirm(question):
                state.approve(item)
            else:
                state.reject(item, rejection_message=f"Error {Code.APPROVAL_DECLINED}: {item.name} may not be used now")
        return state

    # ── clones ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def clone(self, agent: Any) -> Any:
        """Return a clone of the agent with the tools that it may use here, and clones of all agents that it can
        hand off to.
        """
        if (known := self._clones.get(id(agent))) is not None:
            return known
        if self.bounds.restricted and agent.prompt is not None:
            self.bounds.refuse_restriction("its prompt is kept by OpenAI, and may bring tools that are not known here")
        clone = agent.clone(
            tools=[*self._own(agent.tools), *(_tool(self.bounds, each) for each in self.bounds.offers.values())],
            mcp_servers=list(agent.mcp_servers),
            handoffs=[],
            model=BoundedModel(agent.model, self) if isinstance(agent.model, sdk.Model) else agent.model,
        )
        fetch = clone.get_mcp_tools

        async def get_mcp_tools(context: Any) -> list[Any]:
            return self._own(await fetch(context))

        clone.get_mcp_tools = get_mcp_tools
        self._originals.append(agent)
        self._clones[id(agent)] = clone
        for each in agent.handoffs:
            clone.handoffs.append(self._handoff(each) if isinstance(each, sdk.Handoff) else await self.clone(each))
        return clone

    def shown(self, tools: list[Any]) -> list[Any]:
        """Return the tools that a model is told of, without the placeholders for forbidden ones."""
        return [each for each in tools if not isinstance(each, ForbiddenTool)]

    def _own(self, tools: Iterable[Any]) -> list[Any]:
        """Return an agent's own tools as this run may use them."""
        own = list(tools)
        self.bounds.refuse_clash(tool.name for tool in own)
        return [self._judging(each) if self.bounds.allows(each.name) else _forbidden(each.name) for each in own]

    def _judging(self, tool: Any) -> Any:
        """Return one of the agents' own tools, judged before it runs; one that the provider runs stays as it is."""
        if isinstance(tool, sdk.FunctionTool):
            judging = JudgedFunction(tool, self).tool()
        elif isinstance(tool, sdk.CustomTool):
            judging = copy(tool)
            judging.on_invoke_tool = self._judged_custom(tool)
        elif isinstance(tool, sdk.ShellTool | sdk.LocalShellTool) and tool.executor is not None:
            judging = copy(tool)
            judging.executor = self._judged_shell(tool)
        elif isinstance(tool, sdk.ApplyPatchTool):
            judging = copy(tool)
            judging.editor = JudgedEditor(tool, self)
        else:
            return tool
        self._judged[tool.name] = judging
        return judging

    def _judged_custom(self, tool: Any) -> Any:
        async def invoke(context: Any, text: str) -> Any:
            async def run(permitted: dict[str, Any]) -> Any:
                return await _awaited(tool.on_invoke_tool(context, str(permitted.get("input", text))))

            return await self.use_own(tool.name, {"input": text}, run, context.tool_call_id)

        return invoke

    def _judged_shell(self, tool: Any) -> Any:
        async def execute(request: Any) -> Any:
            action = request.data.action
            judged: Any = plain(action)

            async def run(permitted: dict[str, Any]) -> Any:
                if permitted == judged:
                    return await _awaited(tool.executor(request))
                data = _changed(request.data, {"action": _changed(action, permitted)})
                return await _awaited(tool.executor(_changed(request, {"data": data})))

            return await self.use_own(tool.name, judged, run, request.data.call_id)

        return execute

    async def use_own(self, tool: str, arguments: object, run: Any, call: str = "") -> Any:
        """Use one of the agents' own tools; if that is refused, return the text for the model."""
        try:
            return await self.bounds.use_own(tool, arguments, run, question=self._questions.pop(call, ""))
        except RefusedToolError as error:
            return str(error)

    def failure_of(self, call: str) -> str | None:
        """Return the words of the error that the SDK told the model of instead of raising it."""
        return self._failed.pop(call, None)

    def _handoff(self, handoff: Any) -> Any:
        async def invoke(context: Any, arguments: str) -> Any:
            return await self.clone(await handoff.on_invoke_handoff(context, arguments))

        return replace(handoff, on_invoke_handoff=invoke)

    def _instruct(self, data: Any) -> Any:
        """Add the instructions of the brief to those of the agent; not for agents that its tools call in turn."""
        given = data.model_data
        if not self._prompt.instructions or all(data.agent is not clone for clone in self._clones.values()):
            return given
        both = [part for part in (given.instructions, self._prompt.instructions) if part]
        return replace(given, instructions="\n\n".join(both))

    # ── hooks ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self._usage = context.usage
        self._settle()
        for item in response.output:
            if item.type in _HOSTED:
                # It was used before this hook, and how long that took is unknown.
                self.bounds.end(self.bounds.begin(_hosted(item), None))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.bounds.raise_if_stopped()
        if tool.name not in self.bounds.offers and self.bounds.allows(tool.name) and tool.name not in self._judged:
            self._begun[_call_of(context, tool)] = self.bounds.begin(tool.name, _arguments(context))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        call = _call_of(context, tool)
        if (use := self._begun.pop(call, None)) is not None:
            self.bounds.end(use, self._failed.pop(call, None))
        self._settle()

    def _note_failure(self, failed: Any) -> None:
        """Keep the error text of a failed tool; None leaves the text to the SDK."""
        if failed.error is not None:
            self._failed[failed.call_id] = worded(failed.error)

    def _record_rest(self) -> None:
        for call, use in self._begun.items():
            self.bounds.end(use, self._failed.get(call, "it did not end"))

    def _settle(self) -> None:
        """Meter the usage since the last time, including that of agents that tools ran within this run."""
        if self._usage is not None:
            cached = self._usage.input_tokens_details.cached_tokens or 0
            seen, self._settled = self._settled, (self._usage.input_tokens, self._usage.output_tokens, cached)
            prompt, completion, cached = (now - then for now, then in zip(self._settled, seen, strict=True))
            self.bounds.spent(prompt, completion, cache_read=cached, model=self.model)


class JudgedFunction:
    """A function tool of an agent's own whose uses are judged before it runs."""

    def __init__(self, tool: Any, within: BoundsHooks) -> None:
        self._tool = tool
        self._within = within

    def tool(self) -> Any:
        """Return the tool for one run."""
        judging = copy(self._tool)
        self._original = copy(judging)  # it makes the text for the model of its own errors
        judging.on_invoke_tool = self._invoke
        judging.timeout_seconds = None  # a person may take longer
        if callable(judging.needs_approval):
            judging.needs_approval = self._needs_approval
        return judging

    async def _invoke(self, context: Any, arguments: str) -> Any:
        judged, call = _parsed(arguments), context.tool_call_id

        async def run(permitted: dict[str, Any]) -> Any:
            given = arguments if permitted == judged else json.dumps(permitted)
            if self._original.timeout_seconds is None:
                result = await self._original.on_invoke_tool(context, given)
            else:
                result = await sdk.tool.invoke_function_tool(
                    function_tool=self._original, context=context, arguments=given
                )
            error = self._within.failure_of(call)
            return result if error is None else ToolFailure(result, error)

        return await self._within.use_own(self._tool.name, judged, run, call)

    async def _needs_approval(self, context: Any, arguments: dict[str, Any], call: str) -> bool:
        # As the SDK does it for its own tools: a policy decides only about arguments that the function gets unchanged.
        prepare = getattr(self._original.on_invoke_tool, "prepare_arguments", None)
        prepared = None if prepare is None else prepare(json.dumps(arguments), self._tool.name)
        if prepared is not None and not prepared.unchanged:
            return True
        return bool(await _awaited(self._tool.needs_approval(context, arguments, call)))


class JudgedEditor:
    """The editor of an agent's tool for patches, whose operations are judged before they change a file."""

    def __init__(self, tool: Any, within: BoundsHooks) -> None:
        self._tool = tool
        self._within = within

    async def create_file(self, operation: Any) -> Any:
        return await self._edit(operation, self._tool.editor.create_file)

    async def update_file(self, operation: Any) -> Any:
        return await self._edit(operation, self._tool.editor.update_file)

    async def delete_file(self, operation: Any) -> Any:
        return await self._edit(operation, self._tool.editor.delete_file)

    async def _edit(self, operation: Any, edit: Callable[[Any], Any]) -> Any:
        fields = ("type", "path", "diff", "move_to")

        async def run(permitted: dict[str, Any]) -> Any:
            # What kind of operation it is has been decided: another one would need another method.
            return await _awaited(edit(_changed(operation, {**permitted, "type": operation.type})))

        judged = {name: getattr(operation, name) for name in fields}
        return await self._within.use_own(self._tool.name, judged, run)


class BoundedModel(sdk.Model):
    """A model that limits every call to the bounds of a run."""

    def __init__(self, model: Any, within: BoundsHooks) -> None:
        self._model = model
        self._within = within

    async def get_response(
        self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *rest: Any, **options: Any
    ) -> Any:
        tools = self._within.shown(tools)
        settings, prompt_tokens = await self._capped(system_instructions, input, model_settings, tools)
        response = await self._model.get_response(system_instructions, input, settings, tools, *rest, **options)
        self._answered(response.usage, prompt_tokens, response.output)
        return response

    async def stream_response(
        self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *rest: Any, **options: Any
    ) -> AsyncIterator[Any]:
        tools = self._within.shown(tools)
        settings, prompt_tokens = await self._capped(system_instructions, input, model_settings, tools)
        async for event in self._model.stream_response(system_instructions, input, settings, tools, *rest, **options):
            if event.type == "response.completed":
                self._answered(event.response.usage, prompt_tokens, event.response.output)
            yield event

    async def _capped(self, instructions: Any, conversation: Any, settings: Any, tools: Any) -> tuple[Any, int]:
        """Return the settings with the remaining tokens as a limit, and the estimated prompt tokens."""
        schemas = [(each.name, each.description, each.params_json_schema) for each in tools if _is_function(each)]
        prompt_tokens = tokens_of(instructions, conversation, schemas)
        name = getattr(self._model, "model", "")
        self._within.model = f"openai:{name}" if isinstance(name, str) and name else ""
        await self._within.bounds.extend(prompt_tokens, self._within.model)
        if self._within.first_model is None:  # later ones may be those of agents that are tools
            self._within.first_model = self._model, settings
            self._within.bounds.instructed(instructions or "")
        most = capped(settings.max_tokens, self._within.bounds.next_call(prompt_tokens, self._within.model))
        return replace(settings, max_tokens=most), prompt_tokens

    def _answered(self, usage: Any, prompt_tokens: int, output: Any) -> None:
        self._within.answered = True
        if usage is None or not usage.total_tokens:
            self._within.bounds.spent(prompt_tokens, tokens_of(*map(_item_text, output)), estimated=True)

    def get_retry_advice(self, request: Any) -> Any:
        return self._model.get_retry_advice(request)

    async def close(self) -> None:
        await self._model.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._model._cleanup_on_run_end(owner)


class Provider(sdk.ModelProvider):
    """Finds models by name, as the SDK does, and limits them to the bounds of a run."""

    def __init__(self, provider: Any, within: BoundsHooks) -> None:
        self._provider = provider
        self._within = within

    def get_model(self, model_name: str | None) -> BoundedModel:
        return BoundedModel(self._provider.get_model(model_name), self._within)

    async def aclose(self) -> None:
        await self._provider.aclose()


def _tool(bounds: Bounds, offer: ToolOffer) -> Any:
    async def invoke(_: Any, arguments: str) -> str:
        return await bounds.use(offer.name, arguments)

    return sdk.FunctionTool(
        name=offer.name,
        description=offer.description,
        params_json_schema=offer.schema,
        on_invoke_tool=invoke,
        strict_json_schema=False,  # strict schemas have no optional fields
    )


class ForbiddenTool(sdk.FunctionTool):
    """A placeholder for a forbidden tool, because the SDK ends a run whose model names an unknown tool."""


def _forbidden(name: str) -> Any:
    async def refuse(_: Any, __: str) -> str:
        return f"Error {Code.TOOL_NOT_ALLOWED}: {name} may not be used here"

    return ForbiddenTool(
        name=name, description="", params_json_schema={}, on_invoke_tool=refuse, strict_json_schema=False
    )


def _is_function(tool: Any) -> bool:
    return isinstance(tool, sdk.FunctionTool)


def _call_of(context: Any, tool: Any) -> str:
    return getattr(context, "tool_call_id", tool.name)


def _arguments(context: Any) -> object:
    return _parsed(getattr(context, "tool_arguments", None) or "null")


def _parsed(arguments: str | None) -> Any:
    """Return the arguments of a call, which are JSON; as they are if the model wrote something else."""
    with suppress(ValueError):
        return json.loads(arguments or "{}")
    return arguments


async def _awaited(result: Any) -> Any:
    return await result if isawaitable(result) else result


def _changed(value: Any, fields: dict[str, Any]) -> Any:
    """Return a dataclass or a model of pydantic with other values in these fields."""
    return value.model_copy(update=fields) if hasattr(value, "model_copy") else replace(value, **fields)


def _hosted(item: Any) -> str:
    return getattr(item, "name", None) or item.type.removesuffix("_call")


def _item_text(item: Any) -> str:
    """Return an item of a model's output as text: a message, or a tool call."""
    if item.type == "message":
        return "".join(getattr(part, "text", "") for part in item.content)
    return str(getattr(item, "arguments", ""))
