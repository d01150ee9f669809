"""The tools that an agent uses through its brief, and what it may still do in its delegation."""

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import cast

from msgspec.structs import replace

from remit.policy.guards import GUARDS, TOOL_GUARDS, judge, record_limit, used_too_often
from remit.policy.redaction import Held, kind_of, strike
from remit.policy.restoring import restore, reveal_arguments, token_given, tokens_asked_for
from remit.policy.verdict import Ask, Refuse, Rewrite, Sealing
from remit.policy.weight import LIGHT_TO_ENCODE, is_light
from remit.ports import Tool
from remit.ports.brief import OwnTool, as_arguments, plain_arguments
from remit.protocol.card import ToolCard
from remit.protocol.codec import encode
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, StepPlan, ToolUse
from remit.protocol.remit import terms_of
from remit.runtime import journal
from remit.runtime.aside import aside
from remit.runtime.context import Delegator, RuntimeContext
from remit.runtime.delegation import repeats
from remit.runtime.delegation.admission import facts_of_tool, use_of_tool
from remit.runtime.delegation.approval import asked_before
from remit.runtime.delegation.response import isolated, presentable, revealed
from remit.runtime.frames import Frame
from remit.runtime.lent_models import TOOL_CALLER, ToolCaller
from remit.runtime.origin import failure_of_tool, origin_of, places, worded
from remit.runtime.redactor import NOTHING
from remit.runtime.schemas import misfits

# Values that nobody can change: arguments that hold no others are copied in a tenth of the time.
_PLAIN = frozenset({str, int, float, bool, type(None)})
MAX_PROGRESS_TEXT = 2_000
MAX_PROGRESS_READ = 3 * MAX_PROGRESS_TEXT


# Larger plans are data, and a page of them helps nobody.
MAX_STEPS = 200
_MAX_STEP_TEXT = 300


def bounded_plan(plan: StepPlan, clean: Callable[[str], str]) -> StepPlan:
    """Return a plan as it is recorded: redacted, and no larger than people read."""
    steps = tuple(
        replace(
            step,
            title=clean(step.title[:MAX_PROGRESS_READ])[:_MAX_STEP_TEXT],
            when=clean(step.when[:MAX_PROGRESS_READ])[:_MAX_STEP_TEXT],
            after=step.after[:MAX_STEPS],
            fallback=step.fallback[:MAX_STEPS],
        )
        for step in plan.steps[:MAX_STEPS]
    )
    skipped = list(plan.skipped.items())[:MAX_STEPS]
    return StepPlan(
        steps=steps, skipped={name: clean(why[:MAX_PROGRESS_READ])[:_MAX_STEP_TEXT] for name, why in skipped}
    )


# Of long lists and tables among arguments that are not recorded whole, so many items are.
_MOST_ITEMS = 20
# Nor are many texts recorded that are each short enough: some thousand uses fit into the record of a run.
_MOST_BYTES = 16_384


def shortened(arguments: dict[str, Json], characters: int) -> dict[str, Json]:
    """Return arguments as they are recorded: the beginning of each long text or list, with its size and digest."""
    short = {name[:characters]: _cut(each, characters) for name, each in arguments.items()}
    encoded = encode(short)
    return short if len(encoded) <= _MOST_BYTES else {"…": _cut_text(encoded.decode(), characters, encode(arguments))}


def _cut(value: Json, characters: int) -> Json:
    if isinstance(value, str):
        return value if len(value) <= characters else _cut_text(value, characters, value.encode(errors="replace"))
    if isinstance(value, list):
        items = cast("list[Json]", value)
        more = len(items) - _MOST_ITEMS
        rest = [f"… {more:,} more, {_digest(encode(items))}"] if more > 0 else []
        return [*(_cut(each, characters) for each in items[:_MOST_ITEMS]), *rest]
    if isinstance(value, dict):
        named = cast("dict[str, Json]", value)
        more = len(named) - _MOST_ITEMS
        pairs = {name[:characters]: _cut(each, characters) for name, each in list(named.items())[:_MOST_ITEMS]}
        return pairs | ({"…": f"{more:,} more, {_digest(encode(named))}"} if more > 0 else {})
    return value


def _cut_text(text: str, characters: int, whole: bytes) -> str:
    # Between words, since half of a personal value would not be recognised as one.
    start = text[:characters]
    between = _last_word(text[: characters + 1])
    return f"{(between and start[: between.start()]) or start}… ({len(whole):,} bytes, {_digest(whole)})"


_last_word = re.compile(r"[\w.@+%/=-]+\Z").search


def _digest(whole: bytes) -> str:
    return f"SHA-256 {sha256(whole).hexdigest()[:16]}"


def refuse_if_stopped(frame: Frame) -> None:
    """Raise a `RemitError` if the delegation has ended or was told to stop."""
    if frame.stopping is not None or isinstance(frame.state, Status):
        raise RemitError(
            fault(Code.CANCELLED, f"{frame.card.name} was told to stop and can do nothing more in this delegation")
        )


def room_left(parts: RuntimeContext, frame: Frame) -> Fault | None:
    """Return why nothing more of this run is recorded; None while there is room."""
    taken, limit = parts.store.sizes.get(frame.run.id, 0), parts.limits.max_record_bytes
    return None if taken < limit else fault(Code.RECORD_LIMIT_EXCEEDED, record_limit(taken, limit))


def refuse_if_full(parts: RuntimeContext, frame: Frame) -> None:
    """Raise a `RemitError` if nothing more of this run is recorded."""
    if (why := room_left(parts, frame)) is not None:
        raise RemitError(why)


log = logging.getLogger("remit")


class ToolCalls:
    """Uses tools for one delegation's agent and records each use."""

    __slots__ = ("_caller", "_dispatch", "_frame", "_tools")

    def __init__(self, dispatch: Delegator, frame: Frame, tools: frozenset[str], caller: ToolCaller) -> None:
        self._dispatch = dispatch
        self._frame = frame
        self._tools = tools
        self._caller = caller

    async def use(self, tool: str, arguments: dict[str, Json]) -> Json:
        known = self._dispatch.parts.registry.tools.get(tool) if tool in self._tools else None
        return await self._use_if_permitted(tool if known else presentable(tool), known, arguments)

    async def use_own(
        self,
        tool: str,
        arguments: dict[str, Json],
        run: OwnTool,
        question: str,
        *,
        repeatable: bool,
        recorded: int | None,
    ) -> Json:
        """Use a tool that the agent brought along, as one of the hub is used: judged, recorded, and in the journal."""
        name, may_use, agent = presentable(tool), self._frame.request.remit.tools, self._frame.card

        async def running(given: dict[str, Json], _: str) -> Json:
            try:
                return await run(given)
            except RemitError:
                raise
            except Exception as error:
                raise RemitError(failure_of_tool(agent.name, name, worded(error))) from error

        card = ToolCard(name=name, input_schema={}, safe_to_repeat=repeatable, rate=agent.tool_rates.get(name))
        known = Tool(card, running, None, agent.name, recorded) if may_use is None or tool in may_use else None
        return await self._use_if_permitted(name, known, arguments, question)

    async def _use_if_permitted(
        self, tool: str, known: Tool | None, arguments: dict[str, Json], question: str = ""
    ) -> Json:
        refuse_if_stopped(self._frame)
        frame, parts = self._frame, self._dispatch.parts
        refused = self._refusal_of_all(tool, known)
        path, keys = f"{frame.path}.{frame.calls + 1}", parts.redactor.keys
        if (hidden := frame.hidden) is not None:
            light = is_light(arguments)
            arguments = restore(arguments, hidden) if light else await aside.run(restore, arguments, dict(hidden))
        if known is None or refused is not None:
            assert refused is not None, "what has no card is refused"
            why = self._still_true(tool, path, arguments, refused)
            if why.code is not Code.RECORD_LIMIT_EXCEEDED:  # nothing is added to a record that is full
                self._record_tool(tool, None, 0, why, refused=True)
            await asyncio.sleep(0)  # an agent that tries again and again must not keep others from running
            raise RemitError(why)
        try:
            arguments = plain_arguments(tool, arguments)
        except RemitError as error:
            self._record_tool(tool, None, 0, error.fault, refused=True)
            raise
        given, shown = await self._fitting(known, path, arguments, arguments)
        frame.calls += 1
        # An edit by a person does not change which use it is: after a restart the agent asks for the same again.
        digest, step = b"", None
        if frame.run.steps is not None:
            digest = journal.tool_digest(frame.run, tool, arguments, keys)
            step = journal.recall(frame.run, path, digest, keys, repeatable=known.card.safe_to_repeat)
        if isinstance(step, Fault):
            raise RemitError(step)
        limited = known.card.rate is not None or bool(terms_of(frame.request.remit.tools, tool))
        if step is None and (question or limited or len(parts.guards) > len(GUARDS)):
            sent, arguments = arguments, await self._permitted(known, path, arguments, question)
            if arguments is not sent:
                given, shown = await self._fitting(known, path, arguments, sent)
            await self._count(known, arguments)
        value = await self._use(known, arguments, given, shown, path, digest, step)
        return await self._as_agent_gets(value, arguments) if known.card.sees else value

    def _refusal_of_all(self, tool: str, known: Tool | None) -> Fault | None:
        """Return why no use of a tool is allowed, whatever its arguments are; None: they are judged."""
        frame, parts = self._frame, self._dispatch.parts
        if known is not None and room_left(parts, frame) is None:
            return None  # what the guards would find, and most uses pay for it
        request = use_of_tool(frame, tool, {}, parts.clock.now())
        verdict = judge(request, facts_of_tool(parts, frame, known), TOOL_GUARDS)
        assert isinstance(verdict, Refuse), "these guards never ask"
        return verdict.fault

    async def _fitting(
        self, known: Tool, path: str, arguments: dict[str, Json], sent: dict[str, Json]
    ) -> tuple[dict[str, Json], Held]:
        """Return the arguments as the tool gets them, with the raw values that it may see; raise if they do not fit."""
        frame, card = self._frame, known.card
        given, shown = arguments, NOTHING
        if frame.run.known:
            if card.sees:
                given, shown = reveal_arguments(arguments, frame.run.known, card.sees)
            self._warn_of_tokens(known, given)
        if problems := misfits(card.input_schema, given, arguments):
            why = fault(Code.INPUT_VALIDATION_FAILED, f"the arguments do not fit tool {card.name}", problems=problems)
            why = self._still_true(card.name, path, sent, why)
            await self._record_use(known, arguments, 0, why, refused=True)
            raise RemitError(why)
        return given, shown

    async def _permitted(self, known: Tool, path: str, arguments: dict[str, Json], question: str) -> dict[str, Json]:
        """Return the arguments that the team's guards let pass, as a person may have edited them; raise if none are.

        The guards judge the values that tokens stand for, and the tool gets tokens again. The agent's own *question* is
        put if no guard put one.
        """
        frame, name, sent, parts = self._frame, known.card.name, arguments, self._dispatch.parts
        approved, questions = frozenset[str](), 0
        while True:
            raw = arguments
            if frame.run.known:
                light = is_light(arguments)
                raw = restore(raw, frame.run.known) if light else await aside.run(restore, raw, frame.run.known)
            request = use_of_tool(frame, name, raw, parts.clock.now())
            if frame.run.known and terms_of(request.remit.tools, name):
                request = replace(request, remit=restore(request.remit, frame.run.known))
            verdict = await self._dispatch.judge_tool(request, facts_of_tool(parts, frame, known, approved))
            if question and not questions and isinstance(verdict, Rewrite):
                verdict = Ask(question, editable=frozenset({"input"}))
            try:
                match verdict:
                    case Rewrite(request=passed):
                        same = passed.input == request.input
                        return arguments if same else await self._with_tokens(name, passed.input, sent)
                    case Refuse(fault=why):
                        raise RemitError(why)
                    case Ask() as ask:
                        before = asked_before(frame, ask.question, arguments)
                        edits = await self._dispatch.approval.consult(frame, request, ask, questions, before=before)
                        refuse_if_stopped(frame)
                        approved, questions = (frozenset[str]() if edits else approved) | {ask.question}, questions + 1
                        if "input" in edits:
                            arguments = await self._with_tokens(name, edits["input"], sent)
            except RemitError as error:
                # Guards saw raw values, and may have named them.
                why = parts.redactor.clean(self._still_true(name, path, sent, error.fault), frame.run.sealing)
                await self._record_use(known, arguments, 0, why, refused=True)
                raise RemitError(why) from error
            await self._fitting(known, path, arguments, sent)  # guards read only what fits

    async def _count(self, tool: Tool, arguments: dict[str, Json]) -> None:
        """Count a use towards the rate limit of its tool; raise if others have used it up meanwhile."""
        if tool.card.rate is None:
            return
        parts, wait_ms = self._dispatch.parts, 0
        if parts.shared is not None:
            wait_ms = await parts.shared.rate_wait_ms(tool)
        if wait_ms := wait_ms or parts.ledger.count_use(tool, parts.clock.now()):
            why = used_too_often(tool.card.name, wait_ms).fault
            await self._record_use(tool, arguments, 0, why, refused=True)
            raise RemitError(why)

    async def _with_tokens(self, tool: str, given: Json, sent: dict[str, Json]) -> dict[str, Json]:
        """Return arguments from a guard or a person with tokens, but for the raw values that the agent *sent*."""
        arguments, what = plain_arguments(tool, as_arguments(tool, given)), f"what was changed for tool {tool}"
        clean, mine = await self._dispatch.parts.redactor.strike_given(self._frame.run, arguments, sent, what)
        return restore(clean, mine)

    def _still_true(self, tool: str, path: str, arguments: dict[str, Json], why: Fault) -> Fault:
        """Return why a tool is not used; if it was used at this place before a restart, say that."""
        frame, keys = self._frame, self._dispatch.parts.redactor.keys
        if not frame.run.steps:
            return why
        digest = journal.tool_digest(frame.run, tool, arguments, keys)
        if journal.recall(frame.run, path, digest, keys, repeatable=False) is None:
            return why
        what = f"tool {tool} was used before the restart, and cannot be used now: {why.message}"
        return fault(Code.OUTCOME_UNKNOWN, what, detail=why.detail)

    async def _use(
        self,
        tool: Tool,
        arguments: dict[str, Json],
        given: dict[str, Json],
        shown: Held,
        path: str,
        digest: bytes,
        step: journal.JournalStep | None,
    ) -> Json:
        """Use a tool with the raw values it is *given*; only *arguments*, what the agent passed, are recorded."""
        parts, run = self._dispatch.parts, self._frame.run
        name, repeatable = tool.card.name, tool.card.safe_to_repeat
        revealed = tuple(sorted({kind_of(token) for token in shown}))
        keys = parts.redactor.keys
        self._note_use(name)
        if step is not None:
            await self._record_use(tool, arguments, 0, step.fault, replayed=True)
            if step.fault is not None:
                raise RemitError(step.fault)
            return step.value
        if run.steps is not None and repeatable:
            journal.note(parts.store, run, path, journal.JournalStep(digest), keys)
        if not repeatable:
            # An effect that cannot be undone must not be forgotten: the intent is durable before the effect.
            await self._record_use(tool, arguments, 0, None, begun=True, revealed=revealed)
            if run.steps is None:
                await parts.store.flush()
            else:
                await journal.note_durably(parts.store, run, path, journal.JournalStep(digest), keys)
        light = is_light(arguments)
        past_call = repeats.watch(self._frame, name, None, "", arguments) if light else None
        started = parts.clock.now()
        try:
            recorder, use = parts.recorder, partial(self._run_tool, tool, given, shown)
            value, why = await (use() if recorder is None else recorder.tool(self._frame, name, arguments, use))
        finally:
            if not repeatable:
                repeats.count_change(self._frame)
        warning = repeats.note_tool_answer(self._frame, past_call, name, value, why, changes=not repeatable)
        if warning is not None:
            self._dispatch.recording.warn(self._frame, warning)
        duration_ms = round((parts.clock.now() - started) * 1_000)
        recorded = arguments if repeatable else None
        await self._record_use(tool, recorded, duration_ms, why, revealed=revealed, light=light)
        if run.steps is not None:
            journal.note(parts.store, run, path, journal.JournalStep(digest, True, None, value, why, tool=True), keys)
        if why is not None:
            raise RemitError(why)
        return value

    async def _run_tool(self, tool: Tool, given: dict[str, Json], shown: Held) -> tuple[Json, Fault | None]:
        """Return a tool's result or its fault; if the tool sees raw values, with tokens in their place again."""
        name, run, redactor = tool.card.name, self._frame.run, self._dispatch.parts.redactor
        calling = TOOL_CALLER.set(self._caller)
        try:
            own = given.copy() if _PLAIN.issuperset(map(type, given.values())) else isolated(given)
            value = isolated(await tool.run(own, self._frame.request.remit.user))
        except asyncio.CancelledError:
            self._record_tool(name, None, 0, fault(Code.CANCELLED, f"tool {name} was cancelled"))
            raise
        except RemitError as error:
            # If a tool sees no raw values, its words concern only its agent, as its results do.
            return None, redactor.clean(error.fault, redactor.after(run, shown)) if tool.card.sees else error.fault
        except Exception as error:  # noqa: BLE001 - logged without secret values
            return None, await aside.run(self._raised, name, error, redactor.after(run, shown))
        finally:
            TOOL_CALLER.reset(calling)
        return await self._hidden(f"the result of tool {name}", value, shown) if tool.card.sees else (value, None)

    def _raised(self, tool: str, error: Exception, sealing: Sealing | None) -> Fault:
        """Return the fault for a tool's exception, with the place where it was raised, and log it."""
        frame, redactor = self._frame, self._dispatch.parts.redactor
        words = redactor.worded(error, sealing)
        origin = origin_of(error, frame.card.name, tool=tool, worded=lambda _: words)
        why = fault(Code.DELEGATION_FAILED, f"tool {tool} raised {words}")
        why = replace(why, origin=redactor.clean(origin, sealing))
        log.error("tool %s failed in %s: %s%s", tool, frame.path, words, places(why))
        if log.isEnabledFor(logging.DEBUG):
            log.debug("tool %s failed in %s: %s", tool, frame.path, redactor.traced(error, sealing))
        return why

    async def for_model(self, value: Json, tool: str) -> Json:
        """Return a value with tokens in place of raw values, but for kinds that the agent sees; see `Brief`."""
        frame, struck = self._frame, dict[str, str | int]()
        known = self._dispatch.parts.registry.tools.get(tool)
        if frame.card.clear or (known is not None and known.card.clear):
            return value
        clean, why = await self._hidden(f"a result of {tool}" if tool else "a text", value, NOTHING, struck)
        if why is not None:
            raise RemitError(why)
        if struck:
            frame.hidden = {**(frame.hidden or {}), **struck}
        return revealed(frame, clean)

    async def _hidden(
        self, what: str, value: Json, shown: Held, struck: dict[str, str | int] | None = None
    ) -> tuple[Json, Fault | None]:
        """Return a value with tokens in place of raw ones, which are added to *struck*; nothing if redaction fails."""
        run, redactor = self._frame.run, self._dispatch.parts.redactor
        struck, sealing = {} if struck is None else struck, redactor.after(run, shown)
        if sealing is None:
            return value, None
        try:
            value = await _struck(value, sealing, struck)
        except Exception as error:  # noqa: BLE001 - a foreign detector, and its message may hold the text it examined
            log.error("a detector failed on %s (%s)", what, type(error).__name__)
            why = f"{what} could not be redacted ({type(error).__name__}), so it is withheld"
            return None, fault(Code.DELEGATION_FAILED, why)
        if struck:
            redactor.keep(run, struck, of_user=True)
        return value, None

    async def _as_agent_gets(self, value: Json, arguments: dict[str, Json]) -> Json:
        """Return a tool's result with the raw values that the agent itself passed, and those that it may see."""
        frame, mine = self._frame, dict[str, str | int]()
        if frame.run.sealing is not None:
            with suppress(Exception):  # a foreign detector: a value that is not known to be the agent's own is withheld
                await _struck(arguments, frame.run.sealing, mine)
        if mine:
            frame.held = {**(frame.held or {}), **mine}
        return restore(revealed(self._frame, value), frame.held or {})

    def _warn_of_tokens(self, tool: Tool, given: dict[str, Json]) -> None:
        """Warn that a tool gets a token where it needs a value: it would find nothing, and nobody would know why."""
        for field, token in tokens_asked_for(given, self._frame.run.known, tool.card.input_schema).items():
            warning = token_given("tool", tool.card.name, field, kind_of(token), tool.key)
            self._dispatch.recording.warn(self._frame, warning)

    def used(self, tool: str, arguments: Json, duration_ms: int, error: str | None) -> None:
        refuse_if_stopped(self._frame)
        refuse_if_full(self._dispatch.parts, self._frame)
        named = presentable(tool)
        self._note_use(named)
        repeats.count_unknown_change(self._frame)
        why = None if error is None else failure_of_tool(self._frame.card.name, named, error)
        self._record_tool(named, isolated(arguments), duration_ms, why)

    def _note_use(self, tool: str) -> None:
        if self._frame.tool_calls is None:
            self._frame.tool_calls = []
        self._frame.tool_calls.append(tool)

    def _record_tool(
        self, tool: str, arguments: Json, duration_ms: int, why: Fault | None, *, refused: bool = False
    ) -> None:
        self._record(replace(self._tool_use(tool, arguments, duration_ms, why), refused=refused))

    async def _record_use(
        self,
        tool: Tool,
        arguments: Json,
        duration_ms: int,
        why: Fault | None,
        *,
        begun: bool = False,
        replayed: bool = False,
        refused: bool = False,
        revealed: tuple[str, ...] = (),
        light: bool = False,
    ) -> None:
        """Record the use of a tool; long arguments are redacted outside the event loop."""
        most = tool.recorded_characters
        if most is not None and arguments is not None:
            light = is_light(arguments, most=LIGHT_TO_ENCODE)
            arguments = shortened(arguments, most) if light else await aside.run(shortened, arguments, most)
        body = self._tool_use(tool.card.name, arguments, duration_ms, why)
        body = replace(body, begun=begun, replayed=replayed, refused=refused, revealed=revealed)
        if light or is_light(arguments):
            self._record(body)
            return
        redactor, sealing = self._dispatch.parts.redactor, self._frame.run.sealing
        try:
            clean = await aside.run(redactor.clean, body, sealing)
        except asyncio.CancelledError:
            self._record(body)  # it was used all the same
            raise
        self._dispatch.recording.record_clean(Kind.TOOL, self._frame, clean)

    def _tool_use(self, tool: str, arguments: Json, duration_ms: int, why: Fault | None) -> ToolUse:
        frame, known = self._frame, self._dispatch.parts.registry.tools.get(tool)
        return ToolUse(
            delegation=frame.path,
            agent=frame.card.name,
            tool=tool,
            input=arguments,
            duration_ms=duration_ms,
            clear=frame.card.clear or (known is not None and known.card.clear),
            fault=why,
        )

    def _record(self, body: ToolUse) -> None:
        frame = self._frame
        self._dispatch.recording.record(Kind.TOOL, frame.run, frame.request.session or frame.path, body)


async def _struck(value: Json, sealing: Sealing, struck: dict[str, str | int]) -> Json:
    """Return a value with tokens, as `strike` does; a long value is processed outside the event loop."""
    return strike(value, sealing, struck) if is_light(value) else await aside.run(strike, value, sealing, struck)
