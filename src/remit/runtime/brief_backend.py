"""What an agent in this process asks for through its brief."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec.structs import replace

from remit.policy.aggregate import Combined
from remit.policy.budget import record_limit
from remit.policy.redaction import Held, kind_of, of_kinds, restore, reveal_arguments, strike
from remit.policy.verdict import Sealing
from remit.policy.weight import is_light
from remit.policy.withheld import token_given, tokens_asked_for
from remit.protocol.card import Schema, ToolCard
from remit.protocol.codec import checked, text_of
from remit.protocol.envelope import (
    Answer,
    Call,
    ContextFilter,
    HandOn,
    Json,
    Message,
    Note,
    Request,
    Response,
    Strategy,
    Usage,
)
from remit.protocol.errors import Code, Fault, Origin, Problem, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Progress, Record, ToolUse
from remit.protocol.trace import TraceContext, is_sampled, span_id, trace_id
from remit.runtime import journal
from remit.runtime.aside import aside
from remit.runtime.brief import AvailableAgent, Work
from remit.runtime.delegation import repeats
from remit.runtime.delegation.dispatch import Dispatch
from remit.runtime.delegation.fan_out import chain, fan_out
from remit.runtime.delegation.response import isolated, presentable, verified
from remit.runtime.frames import Frame
from remit.runtime.origin import origin_of, places
from remit.runtime.ports import Tool
from remit.runtime.redactor import NOTHING
from remit.runtime.sayable import plain_arguments, plain_finding
from remit.runtime.schemas import misfits
from remit.runtime.sessions import NOTE_LENGTH
from remit.runtime.thread_waits import stepping_aside

T = TypeVar("T")

log = logging.getLogger("remit")

MAX_PROGRESS_TEXT = 2_000
MAX_PROGRESS_READ = 3 * MAX_PROGRESS_TEXT


class LocalBriefBackend:
    """Carries out what one delegation's agent asks for, within that delegation's frame."""

    __slots__ = ("_dispatch", "_frame", "_tools")

    def __init__(self, dispatch: Dispatch, frame: Frame, tools: frozenset[str]) -> None:
        self._dispatch = dispatch
        self._frame = frame
        self._tools = tools

    def delegate(self, call: Call) -> Coroutine[Any, Any, Response]:
        return self._dispatch.delegate(self._frame, call)

    def fan_out(self, calls: Sequence[Call]) -> Coroutine[Any, Any, list[Response]]:
        return fan_out(self._dispatch, self._frame, calls)

    def chain(self, calls: Sequence[Call], hand_on: HandOn) -> Coroutine[Any, Any, list[Response]]:
        return chain(self._dispatch, self._frame, calls, hand_on)

    def combine(self, calls: Sequence[Call], strategy: Strategy) -> Coroutine[Any, Any, Combined]:
        from remit.runtime.delegation.combine import combine  # few agents ask for it

        return combine(self._dispatch, self._frame, calls, strategy)

    async def use(self, tool: str, arguments: dict[str, Json]) -> Json:
        self._refuse_if_over()
        self._refuse_if_full()
        frame, parts = self._frame, self._dispatch.parts
        known = parts.registry.tools.get(tool)
        if known is None or tool not in self._tools:
            named = presentable(tool)
            why = fault(Code.TOOL_NOT_ALLOWED, f"Agent {frame.card.name} not authorized to use tool {named}")
            why = self._still_true(tool, arguments, why)
            self._record_tool(named, None, 0, why)
            await asyncio.sleep(0)  # who tries again and again must not keep others from running
            raise RemitError(why)
        try:
            arguments = plain_arguments(tool, arguments)
        except RemitError as error:
            self._record_tool(tool, None, 0, error.fault)
            raise
        given, shown = arguments, NOTHING
        if frame.run.known:
            if known.card.sees:
                given, shown = reveal_arguments(arguments, frame.run.known, known.card.sees)
            self._warn_of_tokens(known, given)
        if problems := misfits(known.card.input_schema, given, arguments):
            why = fault(Code.INPUT_VALIDATION_FAILED, f"the arguments do not fit tool {tool}", problems=problems)
            why = self._still_true(tool, arguments, why)
            await self._record_use(tool, arguments, 0, why)
            raise RemitError(why)
        frame.calls += 1
        value = await self._use(known, arguments, given, shown, f"{frame.path}.{frame.calls}")
        return await self._as_agent_gets(value, arguments) if known.card.sees else value

    def _still_true(self, tool: str, arguments: dict[str, Json], why: Fault) -> Fault:
        """Return why a tool is not used; of one that was used at this place before a restart, that it was."""
        frame, keys = self._frame, self._dispatch.parts.redactor.keys
        if not frame.run.steps:
            return why
        digest = journal.tool_digest(frame.run, tool, arguments, keys)
        path = f"{frame.path}.{frame.calls + 1}"
        if journal.recall(frame.run, path, digest, keys, repeatable=False) is None:
            return why
        what = f"tool {presentable(tool)} was used before the restart, and cannot be used now: {why.message}"
        return fault(Code.OUTCOME_UNKNOWN, what, detail=why.detail)

    async def _use(
        self, tool: Tool, arguments: dict[str, Json], given: dict[str, Json], shown: Held, path: str
    ) -> Json:
        """Use a tool with what it is *given*, of which the agent has said *arguments*; nothing else is recorded."""
        parts, run = self._dispatch.parts, self._frame.run
        name, repeatable = tool.card.name, tool.card.safe_to_repeat
        revealed = tuple(sorted({kind_of(token) for token in shown}))
        keys = parts.redactor.keys
        digest = journal.tool_digest(run, name, arguments, keys)
        step = journal.recall(run, path, digest, keys, repeatable=repeatable)
        if isinstance(step, Fault):
            raise RemitError(step)
        self._note_use(name)
        if step is not None:
            await self._record_use(name, arguments, 0, step.fault, replayed=True)
            if step.fault is not None:
                raise RemitError(step.fault)
            return step.value
        if run.steps is not None and repeatable:
            journal.note(parts.store, run, path, journal.JournalStep(digest), keys)
        if not repeatable:
            # What cannot be undone must not be forgotten: the intent is durable before the deed.
            await self._record_use(name, arguments, 0, None, begun=True, revealed=revealed)
            if run.steps is None:
                await parts.store.flush()
            else:
                await journal.note_durably(parts.store, run, path, journal.JournalStep(digest), keys)
        asked = repeats.watch(self._frame, name, None, arguments)
        if asked is not None and asked.circles:
            self._dispatch.recording.warn(self._frame, repeats.circling(self._frame, name))
        started = parts.clock.now()
        try:
            value, why = await self._run_tool(tool, given, shown)
        finally:
            if not repeatable:
                repeats.count_change(self._frame)
        if asked is not None and why is None and is_light(value):
            asked.answer = value
        duration_ms = round((parts.clock.now() - started) * 1_000)
        await self._record_use(name, arguments if repeatable else None, duration_ms, why, revealed=revealed)
        if run.steps is not None:
            journal.note(parts.store, run, path, journal.JournalStep(digest, True, None, value, why, tool=True), keys)
        if why is not None:
            raise RemitError(why)
        return value

    async def _run_tool(self, tool: Tool, given: dict[str, Json], shown: Held) -> tuple[Json, Fault | None]:
        """Return what a tool returns, or how it failed; where it sees raw values, with tokens for them again."""
        name, run, redactor = tool.card.name, self._frame.run, self._dispatch.parts.redactor
        try:
            value = isolated(await tool.run(isolated(given), self._frame.request.remit.user))
        except asyncio.CancelledError:
            self._record_tool(name, None, 0, fault(Code.CANCELLED, f"tool {name} was cancelled"))
            raise
        except RemitError as error:
            # Of a tool that sees nothing, the words are its agent's own business, as its results are.
            return None, redactor.clean(error.fault, redactor.after(run, shown)) if tool.card.sees else error.fault
        except Exception as error:  # noqa: BLE001 - logged without what it must not show
            return None, await aside.run(self._raised, name, error, redactor.after(run, shown))
        return await self._hidden(name, value, shown) if tool.card.sees else (value, None)

    def _raised(self, tool: str, error: Exception, sealing: Sealing | None) -> Fault:
        """Return the fault for what a tool raised, with where it was raised, and log it."""
        frame, redactor = self._frame, self._dispatch.parts.redactor
        words = redactor.worded(error, sealing)
        origin = origin_of(error, frame.card.name, tool=tool, worded=lambda _: words)
        why = fault(Code.DELEGATION_FAILED, f"tool {tool} raised {words}")
        why = replace(why, origin=redactor.clean(origin, sealing))
        log.error("tool %s failed in %s: %s%s", tool, frame.path, words, places(why))
        if log.isEnabledFor(logging.DEBUG):
            log.debug("tool %s failed in %s: %s", tool, frame.path, redactor.traced(error, sealing))
        return why

    async def _hidden(self, tool: str, value: Json, shown: Held) -> tuple[Json, Fault | None]:
        """Return what a tool that sees raw values returned, with tokens for them; nothing if that cannot be done."""
        run, redactor, found = self._frame.run, self._dispatch.parts.redactor, dict[str, str | int]()
        sealing = redactor.after(run, shown)
        if sealing is None:
            return value, None
        try:
            value = await _struck(value, sealing, found)
        except Exception as error:  # noqa: BLE001 - someone else's detector, and its words may hold what it looked at
            log.error("a detector failed on what tool %s returned (%s)", tool, type(error).__name__)
            why = f"what tool {tool} returned could not be redacted ({type(error).__name__}), so it is not given"
            return None, fault(Code.DELEGATION_FAILED, why)
        if found:
            redactor.keep(run, found, of_user=True)
        return value, None

    async def _as_agent_gets(self, value: Json, arguments: dict[str, Json]) -> Json:
        """Return what a tool returned with what the agent itself had said to it raw, and with what it may see."""
        frame, mine = self._frame, dict[str, str | int]()
        if frame.run.sealing is not None:
            with suppress(Exception):  # someone else's detector: what cannot be told to be its own, it does not get
                await _struck(arguments, frame.run.sealing, mine)
        if mine:
            frame.held = {**(frame.held or {}), **mine}
        return restore(self._revealed(value), frame.held or {})

    def _warn_of_tokens(self, tool: Tool, given: dict[str, Json]) -> None:
        """Say that a tool gets a token where it asks for a value: it will find nothing, and nobody would know why."""
        for field, token in tokens_asked_for(given, self._frame.run.known, tool.card.input_schema).items():
            told = token_given("tool", tool.card.name, field, kind_of(token), tool.key)
            self._dispatch.recording.warn(self._frame, told)

    async def state(self) -> dict[str, Json]:
        self._frame.note_session_read()
        self._reads_more()
        return self._revealed(await self._dispatch.parts.sessions.state(self._frame))

    async def change(self, changes: dict[str, Json]) -> dict[str, Json]:
        self._refuse_if_over()
        self._frame.note_session_read()  # it is told what there is now
        frame, parts = self._frame, self._dispatch.parts
        if not is_light(changes):
            return await self._change_much(changes)
        found: dict[str, str | int] = {}
        most = parts.limits.max_result_bytes
        changes = self._keepable(changes)
        if frame.run.sealing is not None:
            changes = strike(changes, frame.run.sealing, found)
        if found:
            parts.redactor.keep(frame.run, found, of_user=True)
        return self._revealed(await parts.sessions.change(frame, changes, most))

    async def _change_much(self, changes: dict[str, Json]) -> dict[str, Json]:
        """Keep what is too much to be looked through in the event loop."""
        frame, parts, run = self._frame, self._dispatch.parts, self._frame.run
        found: dict[str, str | int] = {}
        changes = await aside.run(self._keepable, changes)
        if run.sealing is not None:
            changes = await aside.run(strike, changes, run.sealing, found)
        if found:
            taken = await aside.run(parts.redactor.take, run.scope, found, found, of_user=True)
            parts.redactor.keep_taken(run, found, taken, of_user=True)
        kept = await parts.sessions.change(frame, changes, parts.limits.max_result_bytes)
        return await aside.run(self._revealed, kept)

    def _keepable(self, changes: dict[str, Json]) -> dict[str, Json]:
        frame = self._frame
        try:
            return checked(changes, max_bytes=self._dispatch.parts.limits.max_result_bytes)
        except RemitError as error:
            wrong = error.fault
            code = wrong.code if wrong.code is Code.TOO_LARGE else Code.INPUT_VALIDATION_FAILED
            problems = tuple(_unkeepable(changes))
            names = ", ".join(problem.path for problem in problems)
            why = f"{frame.card.name} cannot keep {names}" if names else f"{frame.card.name}: {wrong.message}"
            raise RemitError(fault(code, why, problems=problems)) from error

    def _revealed(self, kept: T) -> T:
        """Return what an agent has kept, or is given by a tool, with what its team lets it see."""
        frame = self._frame
        capability = frame.card.capability(frame.request.capability) if frame.request.capability else None
        kinds = frame.card.sees if capability is None else frame.card.sees | capability.sees
        return restore(kept, of_kinds(frame.run.known, kinds)) if kinds else kept

    async def confirm(self, question: str) -> bool:
        self._refuse_if_over()
        return await self._dispatch.approval.confirm(self._frame, question)

    async def once(self, name: str, work: Work) -> Json:
        self._refuse_if_over()
        frame, parts = self._frame, self._dispatch.parts
        run, keys, path = frame.run, parts.redactor.keys, f"{frame.path}#{name}"
        if frame.named is not None and path in frame.named:
            why = f"{frame.card.name} has found out {name} before in this delegation"
            raise RemitError(fault(Code.DUPLICATE_REQUEST, why, suggestion="Give each `once` a name of its own."))
        digest = journal.tool_digest(run, name, {}, keys)
        step = journal.recall(run, path, digest, keys, repeatable=True)
        if isinstance(step, Fault):
            raise RemitError(step)
        value = plain_finding(name, await work()) if step is None else step.value
        if step is None and run.steps is not None:
            journal.note(parts.store, run, path, journal.JournalStep(digest, True, None, value), keys)
        frame.named = {*(frame.named or ()), path}
        return value

    def progress(self, text: str, partial: Answer | Callable[[], Answer] | None) -> None:
        self._refuse_if_over()
        frame, parts = self._frame, self._dispatch.parts
        if callable(partial):
            frame.partial = lambda: self._made(partial)
        elif partial is not None:
            kept = verified(frame, partial, parts.limits.max_result_bytes)
            if isinstance(kept, Fault):
                raise RemitError(kept)
            frame.partial = kept
        if self._room_left() is not None:
            return  # what it has until now was kept; that there is no room is told to whoever asks for more
        frame.progress_count += 1
        if frame.progress_count > parts.limits.max_progress:
            if frame.progress_count == parts.limits.max_progress + 1:
                self._dispatch.recording.notice(
                    frame, f"{frame.card.name} reported progress {parts.limits.max_progress} times; the rest is dropped"
                )
            return
        kept = frame.partial if isinstance(frame.partial, Answer) else Answer()
        body = Progress(
            delegation=frame.path,
            agent=frame.card.name,
            # Redacted before it is cut: of half a number no detector knows whose it is.
            text=parts.redactor.clean(text[:MAX_PROGRESS_READ], frame.run.sealing)[:MAX_PROGRESS_TEXT],
            finished=kept.finished,
            unfinished=kept.unfinished,
        )
        if frame.run.told is not None and _was_told(frame.run.told, body):
            return
        self._dispatch.recording.record(Kind.PROGRESS, frame.run.id, frame.request.session or frame.path, body)

    def _made(self, make: Callable[[], Answer]) -> Answer:
        """Have an agent's part made, once it has ended: it cannot be told any more if that is none, but others are."""
        frame, parts = self._frame, self._dispatch.parts
        try:
            kept = verified(frame, make(), parts.limits.max_result_bytes)
        except Exception as error:  # noqa: BLE001 - it is someone else's code
            name, what = frame.card.name, parts.redactor.worded(error, frame.run.sealing)
            log.error("agent %s could not say what it had finished on %s: %s", name, frame.path, what)
            # It becomes a notice, which others who follow the run get as well: without the exception's text.
            why = f"{name} could not say what it had finished ({type(error).__name__})"
            kept = fault(Code.RESULT_VALIDATION_FAILED, why)
        if isinstance(kept, Fault):
            self._dispatch.recording.notice(frame, kept.message, kept.code)
            kept = Answer()
        frame.partial = kept
        return kept

    def spend(self, usage: Usage) -> int:
        frame = self._frame
        if not isinstance(frame.state, Status):
            frame.meter(checked(usage))  # also by one who was told to stop: what was spent was spent
        self._refuse_if_over()
        if frame.left < 0:
            raise RemitError(
                fault(
                    Code.TOKEN_BUDGET_EXCEEDED,
                    f"{frame.card.name} spent {frame.used} tokens of {frame.granted} granted",
                )
            )
        return frame.left

    def time_left_ms(self) -> int:
        return max(0, self._frame.time_left_ms(self._dispatch.parts.clock.now()))

    def tokens_left(self) -> int:
        return max(0, self._frame.left)

    def original_request(self) -> str:
        root = self._frame.run.request
        if self._frame.lookup is not None and self._frame.lookup.public:
            root = self._frame.request  # its answer is for all users, and the words of one are not
        said = root.handoff.original_request if root.handoff else ""
        return said or root.objective or text_of(root.input)

    def traceparent(self) -> str:
        run, parts = self._frame.run, self._dispatch.parts
        given = run.request.traceparent
        sampled = is_sampled(run.id, given, parts.sample_ratio)
        return str(TraceContext(trace_id(run.id, given), span_id(self._frame.path), sampled))

    def delegates(self) -> tuple[AvailableAgent, ...]:
        remit, registry = self._frame.request.remit, self._dispatch.parts.registry
        card = registry.agents[self._frame.card.name].card
        if not remit.may_delegate:
            return ()
        return tuple(
            AvailableAgent(
                name=name,
                description=entry.card.description,
                capabilities=tuple(capability.code for capability in entry.card.capabilities),
                tools=tuple(sorted(entry.card.tools)),
                tokens=entry.card.tokens,
            )
            for name, entry in registry.agents.items()
            if card.may_reach(name)
            and (remit.targets is None or name in remit.targets)
            and entry.address not in remit.chain
            and name != card.name
        )

    def tool_cards(self) -> tuple[ToolCard, ...]:
        tools = self._dispatch.parts.registry.tools
        return tuple(tools[name].card for name in sorted(self._tools) if name in tools)

    def result_schema(self) -> Schema | None:
        asked = self._frame.request.capability
        capability = None if asked is None else self._frame.card.capability(asked)
        return None if capability is None else capability.result_schema

    async def conversation(self) -> list[Record]:
        self._frame.note_session_read()
        request, store = self._frame.request, self._dispatch.parts.store
        await store.flush()
        records: list[Record] = []
        while page := await store.records(session=request.session, after=records[-1].seq if records else 0):
            records += page
        return [
            record for record in records if isinstance(record.body, Request | Response) and record.body.id != request.id
        ]

    async def history(self, wanted: ContextFilter, tokens: int, of: str | None) -> list[Message]:
        self._frame.note_session_read()
        if of is None:
            return await self._dispatch.parts.sessions.history(self._frame, wanted, tokens)
        from remit.runtime.references import referred  # few callees are given one

        self._reads_more()
        return await referred(self._dispatch.parts, self._frame, of, wanted, tokens)

    def note(self, note: Note) -> None:
        self._refuse_if_over()
        run, parts = self._frame.run, self._dispatch.parts
        found: dict[str, str | int] = {}
        # Redacted before it is cut, as with progress.
        note = checked(Note(note.kind, note.text[:MAX_PROGRESS_READ]))
        if note.kind == "answer":
            raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, "what the user answered is noted by the hub alone"))
        if run.sealing is not None:
            note = strike(note, run.sealing, found)
        if found:
            parts.redactor.keep(run, found, of_user=True)
        parts.sessions.note(run, (Note(note.kind, note.text[:NOTE_LENGTH], self._frame.card.name),))

    def say(self, text: str) -> None:
        self._refuse_if_over()
        frame, outflow = self._frame, self._dispatch.parts.outflow
        if _runs_in_a_loop():
            outflow.say(frame, text)
        else:
            assert frame.task is not None, "an agent's code runs only in its task"
            frame.task.get_loop().call_soon_threadsafe(outflow.say, frame, text)

    def used(self, tool: str, arguments: Json, duration_ms: int, error: str | None) -> None:
        self._refuse_if_over()
        self._refuse_if_full()
        named = presentable(tool)
        self._note_use(named)
        why = None
        if error is not None:
            origin = Origin(agent=self._frame.card.name, tool=named, error=error)
            why = replace(fault(Code.DELEGATION_FAILED, f"tool {named} failed: {error}"), origin=origin)
        self._record_tool(named, isolated(arguments), duration_ms, why)

    async def facts(self) -> tuple[str, ...]:
        parts, user = self._dispatch.parts, self._frame.request.remit.user
        self._reads_more(of_user=True)
        await parts.store.flush()
        facts = await parts.store.facts(user)
        # Their tokens are of other conversations: known from here on, they are restored for their user in this one.
        await parts.redactor.recall_facts(self._frame.run, user, facts)
        return self._revealed(facts)

    def _reads_more(self, *, of_user: bool = False) -> None:
        """Note that an agent reads what its request does not hold: neither its answer nor those above it are kept.

        What is *of_user* is the same for all requests of one user.
        """
        for frame in self._frame.lineage():
            if frame.lookup is not None and (frame.lookup.public or not of_user):
                frame.lookup.own = True

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        if _runs_in_a_loop():
            work.close()
            raise RuntimeError("`brief.wait` is for plain functions; in an async one, await the call itself")
        assert self._frame.task is not None, "an agent's code runs only in its task"
        loop = self._frame.task.get_loop()
        with stepping_aside.get()():
            return asyncio.run_coroutine_threadsafe(work, loop).result()

    def _refuse_if_over(self) -> None:
        frame = self._frame
        if frame.stopping is not None or isinstance(frame.state, Status):
            raise RemitError(
                fault(Code.CANCELLED, f"{frame.card.name} was told to stop and can do nothing more in this delegation")
            )

    def _room_left(self) -> Fault | None:
        """Return why nothing more of this run goes on record; None while there is room."""
        parts, run = self._dispatch.parts, self._frame.run
        taken, limit = parts.store.sizes.get(run.id, 0), parts.limits.max_record_bytes
        return None if taken < limit else fault(Code.RECORD_LIMIT_EXCEEDED, record_limit(taken, limit))

    def _refuse_if_full(self) -> None:
        if (why := self._room_left()) is not None:
            raise RemitError(why)

    def _note_use(self, tool: str) -> None:
        if self._frame.tool_calls is None:
            self._frame.tool_calls = []
        self._frame.tool_calls.append(tool)

    def _record_tool(self, tool: str, arguments: Json, duration_ms: int, why: Fault | None) -> None:
        self._record(self._tool_use(tool, arguments, duration_ms, why))

    async def _record_use(
        self,
        tool: str,
        arguments: Json,
        duration_ms: int,
        why: Fault | None,
        *,
        begun: bool = False,
        replayed: bool = False,
        revealed: tuple[str, ...] = (),
    ) -> None:
        """Record the use of a tool; arguments that are long are looked through outside of the event loop."""
        body = replace(
            self._tool_use(tool, arguments, duration_ms, why), begun=begun, replayed=replayed, revealed=revealed
        )
        if is_light(arguments):
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
        frame = self._frame
        return ToolUse(
            delegation=frame.path,
            agent=frame.card.name,
            tool=tool,
            input=arguments,
            duration_ms=duration_ms,
            fault=why,
        )

    def _record(self, body: ToolUse) -> None:
        frame = self._frame
        self._dispatch.recording.record(Kind.TOOL, frame.run.id, frame.request.session or frame.path, body)


async def _struck(value: Json, sealing: Sealing, found: dict[str, str | int]) -> Json:
    """Return a value with tokens, as `strike` does; what is long is looked through outside of the event loop."""
    return strike(value, sealing, found) if is_light(value) else await aside.run(strike, value, sealing, found)


def _was_told(told: dict[tuple[str, str], int], body: Progress) -> bool:
    """Say whether the same was said before the restart, and not yet again since: nobody hears it twice."""
    left = told.get((body.delegation, body.text), 0)
    if left:
        told[body.delegation, body.text] = left - 1
    return left > 0


def _unkeepable(changes: dict[str, Json]) -> Iterator[Problem]:
    """Say what is wrong with each value that cannot be kept."""
    for name, value in changes.items():
        try:
            checked({name: value})
        except RemitError as error:
            yield from (Problem(name, problem.message) for problem in error.fault.problems)


def _runs_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
