"""What the callee's code is given: the request, and everything it may do within its remit."""

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.aggregate import Blend, Combined, blended, components_of, strategy_named
from remit.protocol.card import Schema, ToolCard
from remit.protocol.codec import text_of
from remit.protocol.envelope import (
    Answer,
    Call,
    ContextFilter,
    Handoff,
    HandOn,
    Json,
    Message,
    Note,
    Request,
    Response,
    Strategy,
    Usage,
    View,
)
from remit.protocol.records import Record
from remit.protocol.remit import Priority, Remit
from remit.runtime.typed_input import typed_input

T = TypeVar("T")

log = logging.getLogger("remit")

Work = Callable[[], Awaitable[Json]]
"""Something that is found out: it gives a value that JSON can say."""

Blender = Callable[[Blend], Awaitable[str]]
"""Has a model tell several results as one: it gets `blend.prompt`, and gives the model's text back."""

# An agent's own past is worth twice what it is shown of others'.
HISTORY_TOKENS = 8_000

_NOTHING = View()


class CallOptions(TypedDict, total=False):
    """What may be said of a delegation besides its target: the fields of a `Call`."""

    objective: str
    input: Json
    capability: str | None
    session: str | None
    max_tokens: int | None
    spare_tokens: int | None
    deadline_ms: int | None
    max_depth: int | None
    context_tokens: int | None
    tools: Collection[str] | None
    targets: Collection[str] | None
    may_delegate: bool
    priority: Priority | None
    context: ContextFilter | None
    handoff: Handoff | None
    hints: tuple[str, ...]
    reason: str
    refined_by: str | None
    correlation: str | None
    retry_of: str | None
    step: str | None


class AvailableAgent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent that can be asked, as far as whoever asks needs to know it."""

    name: str
    description: str = ""
    capabilities: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    """The tools that its team gives it: no others can be allowed to it."""
    tokens: int | None = None
    """What a call of it gets if nobody says otherwise, where its team says so."""


class BriefBackend(Protocol):
    """Carries out what an agent asks for through its brief, whichever process the agent is in."""

    def delegate(self, call: Call) -> Coroutine[Any, Any, Response]: ...

    def fan_out(self, calls: Sequence[Call]) -> Coroutine[Any, Any, list[Response]]: ...

    def combine(self, calls: Sequence[Call], strategy: Strategy) -> Coroutine[Any, Any, Combined]: ...

    def chain(self, calls: Sequence[Call], hand_on: HandOn) -> Coroutine[Any, Any, list[Response]]: ...

    def use(self, tool: str, arguments: dict[str, Json]) -> Coroutine[Any, Any, Json]: ...

    def progress(self, text: str, partial: Answer | Callable[[], Answer] | None) -> None: ...

    def confirm(self, question: str) -> Coroutine[Any, Any, bool]: ...

    def state(self) -> Coroutine[Any, Any, dict[str, Json]]: ...

    def change(self, changes: dict[str, Json]) -> Coroutine[Any, Any, dict[str, Json]]: ...

    def once(self, name: str, work: Work) -> Coroutine[Any, Any, Json]: ...

    def say(self, text: str) -> None: ...

    def used(self, tool: str, arguments: Json, duration_ms: int, error: str | None) -> None: ...

    def note(self, note: Note) -> None: ...

    def spend(self, usage: Usage) -> int: ...

    def time_left_ms(self) -> int: ...

    def tokens_left(self) -> int: ...

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
    """The request as its callee sees it, and the callee's way to everything else."""

    __slots__ = ("_desk", "prompt", "request", "tools")

    def __init__(self, request: Request, tools: frozenset[str], desk: BriefBackend, prompt: str = "") -> None:
        self.request = request
        self.tools = tools
        """The tools that the card and the remit both name: no others can be used."""
        self.prompt = prompt
        """The instructions that the team gives this agent."""
        self._desk = desk

    @property
    def remit(self) -> Remit:
        return self.request.remit

    @property
    def user(self) -> str:
        return self.request.remit.user

    @property
    def objective(self) -> str:
        return self.request.objective

    @property
    def capability(self) -> str | None:
        """The code of the capability that was asked for, if it was one."""
        return self.request.capability

    @property
    def input(self) -> Json:
        """The full message or the capability's inputs; the objective, if nothing else was sent."""
        return self.request.objective if self.request.input is None else self.request.input

    def input_as(self, kind: type[T]) -> T:
        """Return the input as a value of *kind*, or raise a `RemitError` that names each wrong field.

        *kind* may be a pydantic model, a dataclass, a TypedDict, a msgspec Struct, an attrs class, an enum, or a
        container of these.
        """
        return typed_input(self.input, kind, self.request.target)

    @property
    def text(self) -> str:
        """The input as a person would read it."""
        return text_of(self.input)

    @property
    def handoff(self) -> Handoff:
        """What the callee is told of the work so far."""
        return self.request.handoff or Handoff()

    @property
    def view(self) -> View:
        """What this callee is shown of the conversation that it is called in."""
        return self.request.view or _NOTHING

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that its caller lets it see, oldest first."""
        return self.view.messages

    @property
    def known(self) -> tuple[Note, ...]:
        """Facts, decisions, constraints and answers from the conversation so far: not to be asked for again."""
        return self.view.known

    @property
    def original_request(self) -> str:
        """What the user said at the top of the run, in the user's words."""
        return self._desk.original_request()

    @property
    def traceparent(self) -> str:
        """Where in the trace this delegation stands, as W3C writes it: for spans that the agent makes itself."""
        return self._desk.traceparent()

    @property
    def available_delegates(self) -> tuple[str, ...]:
        """The agents that this one may ask: those its team and its remit both name."""
        return tuple(each.name for each in self._desk.delegates())

    @property
    def delegates(self) -> tuple[AvailableAgent, ...]:
        """The same agents, with what they are for."""
        return self._desk.delegates()

    @property
    def tool_cards(self) -> tuple[ToolCard, ...]:
        """What each of the tools is for, and the schema of its arguments."""
        return self._desk.tool_cards()

    @property
    def result_schema(self) -> Schema | None:
        """The JSON Schema that the result must fit: that of the capability asked for, if it has one."""
        return self._desk.result_schema()

    def delegate(self, target: str | None = None, **options: Unpack[CallOptions]) -> Coroutine[Any, Any, Response]:
        """Ask another agent, by name or by capability. Always returns a response, also when it was refused."""
        return self._desk.delegate(Call(target=target, **options))  # pyright: ignore[reportArgumentType]

    def fan_out(self, calls: Sequence[Call]) -> Coroutine[Any, Any, list[Response]]:
        """Ask several at once, each within its own limits; more than the limit are refused whole before any starts."""
        return self._desk.fan_out(calls)

    async def combine(
        self,
        calls: Sequence[Call],
        *,
        strategy: str = Strategy.DEFAULT,
        about: str = "",
        blend: Blender | None = None,
    ) -> Combined:
        """Ask several at once, as `fan_out` does, and get one answer; what it does not need any more is cancelled.

        *about* says what they are asked, where a call has no objective of its own. *blend* has a model tell the results
        as one, for `ai-blend`: its text is taken only if it adds nothing. A strategy that does not exist raises a
        `RemitError`; nothing that a callee does raises anything.
        """
        chosen = strategy_named(strategy)
        asked = [replace(call, objective=about) if about and not call.objective else call for call in calls]
        combined = await self._desk.combine(asked, chosen)
        if blend is None or chosen is not Strategy.AI_BLEND or combined.answer is None:
            return combined
        titles = ["" if call.objective == about else call.objective for call in asked]
        return await _told_as_one(combined, blend, about or self.original_request, titles)

    def chain(self, calls: Sequence[Call], *, hand_on: HandOn = "result") -> Coroutine[Any, Any, list[Response]]:
        """Ask one after another, each given the result before it; ends after the first that has no result.

        With *hand_on* `"artifacts"` each is given the artifacts of the one before as its input, where that has some.
        """
        return self._desk.chain(calls, hand_on)

    def use(self, tool: str, /, **arguments: Json) -> Coroutine[Any, Any, Json]:
        """Use a tool, or raise a `RemitError` if card or remit do not name it, its arguments are wrong, or it fails."""
        return self._desk.use(tool, arguments)

    def confirm(self, question: str) -> Coroutine[Any, Any, bool]:
        """Ask a person whether to go on, and return whether they agreed; it may take days, and counts as no time."""
        return self._desk.confirm(question)

    def state(self) -> Coroutine[Any, Any, dict[str, Json]]:
        """Return what this agent has kept in this conversation; it survives restarts, and no other agent reads it."""
        return self._desk.state()

    def change(self, **changes: Json) -> Coroutine[Any, Any, dict[str, Json]]:
        """Keep values in this conversation, by name (None forgets one), and return all that is kept.

        What other runs change meanwhile under other names stays; under the same name, it is a `STATE_CONFLICT`.
        """
        return self._desk.change(changes)

    def once(self, name: str, work: Work) -> Coroutine[Any, Any, Json]:
        """Return what *work* gives, and in a run that goes on after a restart what it gave then: it is not done again.

        It is for what a resumable agent finds out in ways that no delegation or tool is recorded for, and that may be
        otherwise a second time: what a model says, what time it is. Each name is used once in a delegation.
        """
        return self._desk.once(name, work)

    def progress(self, text: str, *, partial: Answer | Callable[[], Answer] | None = None) -> None:
        """Say how far the work is; *partial* is what the caller gets if the time runs out before the end.

        Where that takes work, give a function that makes it: it is called if it comes to that.
        """
        self._desk.progress(text, partial)

    def say(self, text: str) -> None:
        """Let whoever watches the run read along: a piece of the answer, as it comes. Nothing of it is kept."""
        self._desk.say(text)

    def used(self, tool: str, arguments: Json = None, *, duration_ms: int = 0, error: str | None = None) -> None:
        """Record that a tool was used which the hub does not know: one that the agent brought with it."""
        self._desk.used(tool, arguments, duration_ms, error)

    def note(self, kind: Literal["fact", "decision", "constraint"], text: str) -> None:
        """Keep something that everyone who is asked later in this conversation should know, in at most 300 letters."""
        self._desk.note(Note(kind, text))

    def spend(self, *, prompt: int = 0, completion: int = 0, estimated: bool = False) -> int:
        """Meter tokens as they are used and return how many are left; raises a `RemitError` when there are none."""
        return self._desk.spend(Usage(prompt=prompt, completion=completion, estimated=estimated))

    def time_left_ms(self) -> int:
        """Milliseconds until the deadline: what a nested call can get at the most, less a reserve for the answer."""
        return self._desk.time_left_ms()

    def tokens_left(self) -> int:
        """Tokens neither spent nor reserved: the cap for the next model call."""
        return self._desk.tokens_left()

    def conversation(self) -> Coroutine[Any, Any, list[Record]]:
        """Return what was said before in this callee's session with the user, oldest first."""
        return self._desk.conversation()

    def history(
        self,
        of: str | ContextFilter | None = None,
        wanted: ContextFilter | None = None,
        *,
        max_tokens: int = HISTORY_TOKENS,
    ) -> Coroutine[Any, Any, list[Message]]:
        """Return what was said, and shown to this callee, before in its session: the newest that fit, oldest first.

        With a reference *of* another conversation, which this callee was given (`brief.handoff.history`), return what
        was said there. Raises a `RemitError` for one that it was not given, or that is another user's.
        """
        if isinstance(of, ContextFilter):
            of, wanted = None, of
        return self._desk.history(wanted or ContextFilter(), max_tokens, of)

    def facts(self) -> Coroutine[Any, Any, tuple[str, ...]]:
        """Return what is known about the user of this request, and no other."""
        return self._desk.facts()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """For agents that are plain functions in a thread: `brief.wait(brief.delegate(…))`."""
        return self._desk.wait(work)


async def _told_as_one(combined: Combined, blender: Blender, request: str, titles: Sequence[str]) -> Combined:
    """Return what was combined with the model's text as its result; as it is, if the model fails or makes things up."""
    merged = combined.answer
    assert merged is not None, "without results there is nothing to tell"
    components = components_of(combined.responses, titles)
    blend = Blend(request=request, components=tuple(components), conflicts=combined.conflicts)
    try:
        text = await blender(blend)
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - blenders come from users
            raise TypeError(f"a blender gave a {type(text).__name__}, not a text")
    except Exception as error:  # noqa: BLE001 - what was found is not lost because a model could not be reached
        log.warning("results could not be told as one: %s", type(error).__name__)
        failed = f"the results could not be told as one: {type(error).__name__}"
        return replace(combined, answer=replace(merged, warnings=(*merged.warnings, failed)))
    # Every name and figure of the text is looked for in all that the model was given.
    import asyncio  # a team is read, briefs and all, where there is no event loop

    return replace(combined, answer=await asyncio.to_thread(blended, merged, text, blend))
