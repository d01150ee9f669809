"""The brief of an agent: its request, and everything that it may do within its remit."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Concatenate, Literal, Protocol, TypeVar, Unpack, cast

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.restoring import explain_tokens
from remit.protocol.card import Schema, ToolCard
from remit.protocol.codec import plain, text_of
from remit.protocol.envelope import (
    USER,
    Answer,
    AssignmentOptions,
    Call,
    ContextFilter,
    Forwarded,
    Handoff,
    Json,
    Message,
    Note,
    Request,
    Response,
    Strategy,
    Usage,
    View,
)
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.files import File
from remit.protocol.forms import form_schema
from remit.protocol.records import Record, StepPlan
from remit.protocol.remit import MAX_INTEGER, Remit
from remit.protocol.typed import TypeMismatch, name_of, read_as

if TYPE_CHECKING:  # few agents combine answers, and the words for it are many
    from remit.policy.aggregate import Blend, Combined

T = TypeVar("T")

log = logging.getLogger("remit")

Work = Callable[[], Awaitable[Json]]
"""A function whose JSON result is computed once per run."""

OwnTool = Callable[[dict[str, Json]], Awaitable[Json]]
"""Runs a tool that an agent brought along, with these arguments; its result is JSON."""

Blender = Callable[["Blend"], Awaitable[str]]
"""Blends several results with a model: it gets `blend.prompt` and returns the model's text."""

RECORDED_TURN: ContextVar[object | None] = ContextVar("recorded_turn", default=None)
"""The turn of an agent that the running code belongs to, as a recorder has it; None: its replies are not recorded."""

# An agent's own history gets twice the tokens of what it is shown of others'.
HISTORY_TOKENS = 8_000

_NOTHING = View()


class CallOptions(AssignmentOptions, total=False):
    """The options of a delegation besides its target: the fields of a `Call`."""

    objective: str
    queued: bool
    step: str | None


class AvailableAgent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent that can be asked, as described to its callers."""

    name: str
    description: str = ""
    capabilities: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    """The tools that its team gives it; a caller cannot allow it any others."""
    tokens: int | None = None
    """The default token grant of a call to it, if its team sets one."""
    takes_over: bool = False
    """Whether the conversation with the user may be handed over to it."""


class BriefBackend(Protocol):
    """Executes what an agent asks for through its brief, in whichever process the agent runs."""

    def delegate(self, call: Call) -> Coroutine[Any, Any, Response]: ...

    def fan_out(self, calls: Sequence[Call]) -> Coroutine[Any, Any, list[Response]]: ...

    def combine(self, calls: Sequence[Call], strategy: Strategy) -> Coroutine[Any, Any, "Combined"]: ...

    def blended(self, merged: Answer, text: str, blend: "Blend") -> Answer: ...

    def chain(self, calls: Sequence[Call], forward: Forwarded) -> Coroutine[Any, Any, list[Response]]: ...

    def use(self, tool: str, arguments: dict[str, Json]) -> Coroutine[Any, Any, Json]: ...

    def use_own(
        self, tool: str, arguments: dict[str, Json], run: OwnTool, question: str, repeatable: bool, recorded: int | None
    ) -> Coroutine[Any, Any, Json]: ...

    def for_model(self, value: Json, tool: str) -> Coroutine[Any, Any, Json]: ...

    def progress(
        self, text: str, partial: Answer | Callable[[], Answer] | None, plan: StepPlan | None = None
    ) -> None: ...

    def confirm(self, question: str) -> Coroutine[Any, Any, bool]: ...

    def fill(self, question: str, form: Schema) -> Coroutine[Any, Any, dict[str, Json] | None]: ...

    def sample(self, prompt: str, system: str, max_tokens: int) -> Coroutine[Any, Any, str]: ...

    def state(self) -> Coroutine[Any, Any, dict[str, Json]]: ...

    def change(self, changes: dict[str, Json]) -> Coroutine[Any, Any, dict[str, Json]]: ...

    def once(self, name: str, work: Work) -> Coroutine[Any, Any, Json]: ...

    def say(self, text: str) -> None: ...

    def used(self, tool: str, arguments: Json, duration_ms: int, error: str | None) -> None: ...

    def note(self, note: Note) -> None: ...

    def spend(self, usage: Usage, model: str, uncounted: int) -> int: ...

    def time_left_ms(self) -> int: ...

    def tokens_left(self, wanted: int) -> int: ...

    def keep_back(self, tokens: int) -> None: ...

    def more_tokens(self, wanted: int) -> Coroutine[Any, Any, int]: ...

    def allow_unpriced(self, model: str) -> Coroutine[Any, Any, None]: ...

    def cost_left(self) -> int | None: ...

    def affordable(self, model: str, prompt: int, most: int) -> int: ...

    def original_request(self) -> str: ...

    def traceparent(self) -> str: ...

    def delegates(self) -> tuple[AvailableAgent, ...]: ...

    def tool_cards(self) -> tuple[ToolCard, ...]: ...

    def result_schema(self) -> Schema | None: ...

    def conversation(self) -> Coroutine[Any, Any, list[Record]]: ...

    def history(self, wanted: ContextFilter, tokens: int, of: str | None) -> Coroutine[Any, Any, list[Message]]: ...

    def facts(self) -> Coroutine[Any, Any, tuple[str, ...]]: ...

    def wait(self, work: Coroutine[Any, Any, T]) -> T: ...


class Brief:
    """The request as its callee sees it, and everything that the callee may do."""

    __slots__ = ("_backend", "prompt", "request", "tools")

    def __init__(self, request: Request, tools: frozenset[str], backend: BriefBackend, prompt: str = "") -> None:
        self.request = request
        """The request as it came, with its remit."""
        self.tools = tools
        """The tools that both the card and the remit name; no others can be used."""
        self.prompt = prompt
        """The instructions that the team gives this agent."""
        self._backend = backend

    @property
    def remit(self) -> Remit:
        """What it may do and spend."""
        return self.request.remit

    @property
    def user(self) -> str:
        """The user of the run."""
        return self.request.remit.user

    @property
    def objective(self) -> str:
        """The objective."""
        return self.request.objective

    @property
    def capability(self) -> str | None:
        """The code of the requested capability, if the request names one."""
        return self.request.capability

    @property
    def input(self) -> Json:
        """The full message or the capability's inputs; the objective if there is no input."""
        return self.request.objective if self.request.input is None else self.request.input

    def input_as(self, kind: type[T]) -> T:
        """Return the input as a value of *kind*, or raise a `RemitError` that names each wrong field.

        *kind* may be a pydantic model, a dataclass, a TypedDict, a msgspec Struct, an attrs class, an enum, or a
        container of these.
        """
        try:
            return read_as(self.input, kind, "$")
        except TypeMismatch as error:
            explained = TypeMismatch(explain_tokens(error.problems, self.input))
            message = f"the input of {self.request.target} is not a {name_of(kind)}"
            raise explained.error(Code.INPUT_VALIDATION_FAILED, message) from None

    @property
    def text(self) -> str:
        """The input as readable text."""
        given = self.input
        return given if type(given) is str else text_of(given)

    @property
    def files(self) -> tuple[File, ...]:
        """The files of the request. A callee gets them only with `delegate(…, files=brief.files)`."""
        return self.request.files

    @property
    def handoff(self) -> Handoff:
        """What the caller says about the work so far."""
        return self.request.handoff or Handoff()

    @property
    def view(self) -> View:
        """The part of the conversation that this callee is shown."""
        return self.request.view or _NOTHING

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that the caller lets it see, oldest first."""
        return self.view.messages

    @property
    def known(self) -> tuple[Note, ...]:
        """Facts, decisions, constraints and answers of the conversation so far; no need to ask for them again."""
        return self.view.known

    @property
    def is_of_user(self) -> bool:
        """Whether the user reads the answer: they asked this agent, or the conversation was handed over to it."""
        return self.request.origin == USER or self.request.handover is not None

    @property
    def original_request(self) -> str:
        """The root request of the run, in the user's words."""
        return self._backend.original_request()

    @property
    def traceparent(self) -> str:
        """The traceparent of this delegation (W3C), for spans that the agent creates itself."""
        return self._backend.traceparent()

    @property
    def available_delegates(self) -> tuple[str, ...]:
        """The agents that this one may ask: those that both its team and its remit name."""
        return tuple(each.name for each in self._backend.delegates())

    @property
    def delegates(self) -> tuple[AvailableAgent, ...]:
        """The agents that this one may ask, with their descriptions."""
        return self._backend.delegates()

    @property
    def tool_cards(self) -> tuple[ToolCard, ...]:
        """The description of each tool, and the schema of its arguments."""
        return self._backend.tool_cards()

    @property
    def result_schema(self) -> Schema | None:
        """The JSON Schema that the result must match: that of the requested capability, if it has one."""
        return self._backend.result_schema()

    def delegate(self, target: str | None = None, **options: Unpack[CallOptions]) -> Coroutine[Any, Any, Response]:
        """Ask another agent, by name or by capability. Always returns a response, also when the call was refused."""
        return self._backend.delegate(Call(target=target, **options))  # pyright: ignore[reportArgumentType]

    def fan_out(self, calls: Sequence[Call]) -> Coroutine[Any, Any, list[Response]]:
        """Ask several agents at once, each within its own limits.

        Too many calls are refused together before any starts.
        """
        return self._backend.fan_out(calls)

    async def map(self, calls: Sequence[Call], *, at_once: int | None = None) -> list[Response]:
        """Ask for all calls, *at_once* at a time, and return the responses in the order of the calls.

        At most as many as the fan-out limit allows run at a time; the others wait for a place, unless the team has the
        limit refuse them.
        """
        import asyncio  # what describes an agent is read without an event loop

        if at_once is not None and at_once < 1:
            raise ValueError(f"at_once is {at_once}: at least one call must run at a time")
        responses: list[Response | None] = [None] * len(calls)
        waiting = iter(enumerate(calls))  # shared, so that calls begin in their order

        async def work() -> None:
            for place, call in waiting:
                responses[place] = await self._backend.delegate(replace(call, queued=True))

        async with asyncio.TaskGroup() as group:
            for _ in range(len(calls) if at_once is None else min(at_once, len(calls))):
                group.create_task(work())
        return [each for each in responses if each is not None]

    async def combine(
        self,
        calls: Sequence[Call],
        *,
        strategy: str = Strategy.DEFAULT,
        about: str = "",
        blend: Blender | None = None,
    ) -> "Combined":
        """Ask several agents at once, as `fan_out` does, and get one answer. Calls not needed any more are cancelled.

        *about* is the objective of calls that have none of their own. *blend* has a model write one text from the
        results, for `ai-blend`; its text is used as far as the results support it. An unknown strategy raises a
        `RemitError`; a callee's failure never raises.
        """
        from remit.policy.aggregate import strategy_named

        chosen = strategy_named(strategy)
        complete = [replace(call, objective=about) if about and not call.objective else call for call in calls]
        combined = await self._backend.combine(complete, chosen)
        if blend is None or chosen is not Strategy.AI_BLEND or combined.answer is None:
            return combined
        titles = ["" if call.objective == about else call.objective for call in complete]
        return await _blend_results(self._backend, combined, blend, about or self.original_request, titles)

    def chain(self, calls: Sequence[Call], *, forward: Forwarded = "result") -> Coroutine[Any, Any, list[Response]]:
        """Ask one agent after another, each with the result of the one before; stop after the first without a result.

        With *forward* `"artifacts"`, each gets the artifacts of the one before as its input, if there are any.
        """
        return self._backend.chain(calls, forward)

    def use(self, tool: str, /, **arguments: Json) -> Coroutine[Any, Any, Json]:
        """Use a tool. Raises a `RemitError` if card or remit do not name it, its arguments are invalid, or it fails."""
        return self._backend.use(tool, arguments)

    async def use_own_tool(
        self,
        tool: str,
        arguments: dict[str, Json],
        run: OwnTool,
        *,
        question: str = "",
        safe_to_repeat: bool = False,
        recorded_characters: int | None = None,
    ) -> Json:
        """Use a tool that the agent brought along, as one of the hub is used.

        Guards and rules judge it with its arguments. A person is asked if one of them asks, or else if there is a
        *question*, and may edit the arguments. Then *run* is called with them, at most once. Raises a `RemitError` if
        the use is not permitted; an exception of *run* is raised as it is.

        All of the arguments are recorded, or so many characters of each text with its size and digest.
        """
        raised: list[Exception] = []

        async def running(given: dict[str, Json]) -> Json:
            try:
                return await run(given)
            except Exception as error:
                raised.append(error)
                raise

        try:
            return await self._backend.use_own(tool, arguments, running, question, safe_to_repeat, recorded_characters)
        except RemitError:
            if raised:
                raise raised[0] from None
            raise

    def for_model(self, value: Json, *, tool: str = "") -> Coroutine[Any, Any, Json]:
        """Return a value as this agent's model may read it: with tokens in place of personal data and secrets.

        Kinds that the agent sees stay as they are, and everything does if the agent, or the *tool* whose result it is,
        is `clear`. Tools get the values for the tokens that the model passes to them.
        """
        return self._backend.for_model(value, tool)

    def confirm(self, question: str) -> Coroutine[Any, Any, bool]:
        """Ask a person whether to continue and return whether they agreed. It may take days; the clock stands still."""
        return self._backend.confirm(question)

    def fill(self, question: str, form: Schema | type[object]) -> Coroutine[Any, Any, dict[str, Json] | None]:
        """Have a person fill in a form, a JSON Schema or a type; None: they declined, or nobody can be asked."""
        return self._backend.fill(question, form_schema(form))

    def sample(self, prompt: str, *, system: str = "", max_tokens: int = 1_000) -> Coroutine[Any, Any, str]:
        """Ask the model of the MCP host that waits for this run; raises a `RemitError` if it lends none."""
        return self._backend.sample(prompt, system, max_tokens)

    def state(self) -> Coroutine[Any, Any, dict[str, Json]]:
        """Return this agent's state in this conversation; it survives restarts, and no other agent can read it."""
        return self._backend.state()

    def update_state(self, **changes: Json) -> Coroutine[Any, Any, dict[str, Json]]:
        """Store values in this conversation, by name (None deletes one), and return the whole state.

        Changes of other runs under other names stay; under the same name they are a `STATE_CONFLICT`.
        """
        return self._backend.change(changes)

    def once(self, name: str, work: Work) -> Coroutine[Any, Any, Json]:
        """Return the result of *work*. After a restart, a resumed run gets the earlier result; *work* is not repeated.

        Use it in a resumable agent for results that no delegation or tool call records and that may differ the second
        time: a model's answer, the current time. Each name can be used once in a delegation.
        """
        return self._backend.once(name, work)

    def progress(
        self,
        text: str,
        *,
        partial: Answer | Callable[[], Answer] | None = None,
        plan: StepPlan | None = None,
    ) -> None:
        """Report progress; *partial* is what the caller gets if the time runs out before the end.

        If a partial answer is costly to make, pass a function: it is called only when needed. *plan* says which steps
        are planned, for those who watch the run; the call of each has its name as `step`. With an empty *text*, the
        partial answer is kept and nothing is reported.
        """
        self._backend.progress(text, partial, plan)

    def say(self, text: str) -> None:
        """Stream a piece of the answer to those who follow the run.

        It is not stored, unless the agent ends without an answer: then the response has what was streamed.
        """
        self._backend.say(text)

    def record_tool_use(
        self, tool: str, arguments: Json = None, *, duration_ms: int = 0, error: str | None = None
    ) -> None:
        """Record the use of a tool that the hub does not know: one that the agent brought along."""
        self._backend.used(tool, arguments, duration_ms, error)

    def note(self, kind: Literal["fact", "decision", "constraint"], text: str) -> None:
        """Store a note for every agent that is asked later in this conversation, at most 300 characters."""
        self._backend.note(Note(kind, text))

    def spend(
        self,
        *,
        prompt: int = 0,
        completion: int = 0,
        estimated: bool = False,
        cache_write: int = 0,
        cache_read: int = 0,
        model: str = "",
        uncounted: int = 0,
    ) -> int:
        """Count tokens as they are used and return how many are left. Raises a `RemitError` when none are left.

        Call it for each request to a *model* (`anthropic:claude-sonnet-4-5`; default: the agent's own): prices may
        depend on the size of a request. *prompt* includes what the provider wrote to its cache and read from it;
        *uncounted* of its tokens cost money and do not count against the budget of tokens.
        """
        usage = Usage(
            prompt=prompt, completion=completion, estimated=estimated, cache_write=cache_write, cache_read=cache_read
        )
        return self._backend.spend(usage, model, uncounted)

    def time_left_ms(self) -> int:
        """Return the milliseconds until the deadline.

        A nested call gets at most this, less a reserve for the answer.
        """
        return self._backend.time_left_ms()

    def tokens_left(self, wanted: int = 0) -> int:
        """Return the tokens that are neither spent nor set aside: the cap for the next model call.

        An agent for which nobody set a number takes as many more from its caller as are *wanted*, if they are there.
        """
        return self._backend.tokens_left(wanted)

    def keep_back(self, tokens: int) -> None:
        """Keep so many tokens from the agents that this one asks, for an answer of its own; 0 keeps none.

        `tokens_left` leaves them out.
        """
        self._backend.keep_back(tokens)

    def more_tokens(self, wanted: int) -> Coroutine[Any, Any, int]:
        """Return the tokens left; if they are fewer than *wanted*, wait first until others of the run gave back theirs.

        Then, if its team says so, a person is asked for more. It may take days; the clock stands still.
        """
        return self._backend.more_tokens(wanted)

    def allow_unpriced(self, model: str = "") -> Coroutine[Any, Any, None]:
        """Before a call of a model: if money is limited and the model has no price, ask a person whether it may go on.

        A run asks once for each model, if its team says so (`at_limit = "ask"`). Raises a `RemitError` if nobody
        agrees, or nobody can be asked.
        """
        return self._backend.allow_unpriced(model)

    def cost_left(self) -> int | None:
        """Return the money that is neither spent nor set aside, in millionths; None: there is no limit."""
        return self._backend.cost_left()

    def affordable(self, prompt: int, most: int, *, model: str = "") -> int:
        """Return how many of *most* tokens a model may answer a *prompt* with, for the money that is left.

        Raises a `RemitError` if that is too little for an answer, or if the model has no price where money is limited.
        """
        return self._backend.affordable(model, prompt, most)

    def conversation(self) -> Coroutine[Any, Any, list[Record]]:
        """Return the earlier records of this callee's session with the user, oldest first."""
        return self._backend.conversation()

    def history(
        self,
        session: str | ContextFilter | None = None,
        context: ContextFilter | None = None,
        *,
        max_tokens: int = HISTORY_TOKENS,
    ) -> Coroutine[Any, Any, list[Message]]:
        """Return earlier messages of this callee's session, said or shown to it: the newest that fit, oldest first.

        With *session*, a reference to another conversation that this callee was given (`brief.handoff.history`), return
        the messages there. Raises a `RemitError` for a reference that it was not given, or another user's conversation.
        """
        if isinstance(session, ContextFilter):
            session, context = None, session
        return self._backend.history(context or ContextFilter(), max_tokens, session)

    def facts(self) -> Coroutine[Any, Any, tuple[str, ...]]:
        """Return the facts about the user of this request, and of no other user."""
        return self._backend.facts()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine in an agent that is a plain function in a thread: `brief.wait(brief.delegate(…))`."""
        return self._backend.wait(work)


_NOT_BLENDED = "The results could not be told as one text, so each is given for itself."


async def _blend_results(
    backend: BriefBackend, combined: "Combined", blender: Blender, request: str, titles: Sequence[str]
) -> "Combined":
    """Return the combination with the model's text as its result, or unchanged if the model fails or invents facts."""
    from remit.policy.aggregate import Blend, components_of

    merged = combined.answer
    assert merged is not None, "without results there is nothing to tell"
    components = components_of(combined.responses, titles)
    blend = Blend(request=request, components=tuple(components), conflicts=combined.conflicts)
    try:
        text = await blender(blend)
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - blenders come from users
            raise TypeError(f"a blender returned a {type(text).__name__}, not a text")
    except Exception as error:  # noqa: BLE001 - results must not be lost because a model could not be reached
        log.warning("results could not be blended: %s", type(error).__name__)
        return replace(combined, answer=replace(merged, warnings=(*merged.warnings, _NOT_BLENDED)))
    # Every name and number of the text is checked against everything that the model was given.
    import asyncio  # a team, briefs included, is also loaded where no event loop runs

    return replace(combined, answer=await asyncio.to_thread(backend.blended, merged, text, blend))


Agent = Callable[[Brief], Awaitable[Answer]]
"""An agent: it takes a brief and returns an answer.

`agents/` makes agents from functions, models, processes and more.
"""

AgentFunction = Callable[Concatenate[Brief, ...], object]
"""Takes a brief, and its input as typed parameters if it declares some; async or not.

It returns a result, an `Answer`, or the call or calls to make instead. Before that it may yield texts.
"""


def plain_arguments(tool: str, arguments: dict[str, Json]) -> dict[str, Json]:
    """Return the arguments of a tool as plain JSON, or raise a `RemitError` that names each invalid one."""
    if _are_flat(arguments):
        return arguments.copy()
    try:
        return cast("dict[str, Json]", plain(arguments))
    except RemitError as error:
        why = f"the arguments do not fit tool {tool}"
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, problems=error.fault.problems)) from error


def _are_flat(arguments: dict[str, Json]) -> bool:
    """Return whether arguments are plain JSON for sure: a few texts and numbers, as most are."""
    for name, value in arguments.items():
        kind = cast("type[object]", type(value))
        if kind is str:
            if not value.isascii():
                return False
        elif kind is int:
            if not -MAX_INTEGER <= value <= MAX_INTEGER:
                return False
        elif kind is not bool and value is not None:
            return False
        if type(name) is not str or not name.isascii():
            return False
    return True


def as_arguments(tool: str, given: Json) -> dict[str, Json]:
    """Return what a guard or a person made of a tool's arguments, or raise a `RemitError` if it is no object."""
    if isinstance(given, dict):
        return cast("dict[str, Json]", given)
    raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, f"the arguments of tool {tool} must be an object"))


def plain_finding(name: str, value: Json) -> Json:
    """Return the result of `once` as plain JSON, or raise a `RemitError` that says where it is not JSON."""
    try:
        return plain(value)
    except RemitError as error:
        why = f"what was found out for {name} is not JSON"
        raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, why, problems=error.fault.problems)) from error


def plain_changes(agent: str, changes: dict[str, Json]) -> dict[str, Json]:
    """Return an agent's state as plain JSON, or raise a `RemitError` that names each value that cannot be stored."""
    kept: dict[str, Json] = {}
    problems: list[Problem] = []
    for name, value in changes.items():
        try:
            kept[name] = plain(value)
        except RemitError as error:
            problems += [Problem(name, problem.message) for problem in error.fault.problems]
    if problems:
        names = ", ".join(problem.path for problem in problems)
        why = f"{agent} cannot keep {names}"
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, problems=tuple(problems)))
    return kept
