"""Executes what an agent in this process asks for through its brief."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.budget import estimate
from remit.policy.reception import here, peer_of
from remit.policy.redaction import strike
from remit.policy.weight import is_light
from remit.ports.brief import AvailableAgent, OwnTool, Work, plain_finding
from remit.ports.text_reader import text_reader
from remit.protocol.card import Schema, ToolCard
from remit.protocol.codec import checked, text_of
from remit.protocol.envelope import (
    Answer,
    Call,
    ContextFilter,
    Forwarded,
    Json,
    Message,
    Note,
    Request,
    Response,
    Strategy,
    Usage,
)
from remit.protocol.errors import Code, Fault, Problem, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Progress, Record, StepPlan
from remit.protocol.trace import TraceContext, is_sampled, span_id, trace_id
from remit.runtime import journal
from remit.runtime.aside import aside, stepping_aside
from remit.runtime.brief_tools import (
    MAX_PROGRESS_READ,
    MAX_PROGRESS_TEXT,
    ToolCalls,
    bounded_plan,
    refuse_if_stopped,
    room_left,
)
from remit.runtime.context import Delegator, RuntimeContext
from remit.runtime.delegation.combine import chain, fan_out
from remit.runtime.delegation.response import revealed, verified
from remit.runtime.frames import Frame
from remit.runtime.purse import priced
from remit.runtime.sessions import NOTE_LENGTH, resumed, session_of


class ConversationAccess:
    """Reads and stores conversations, state, notes and facts for one delegation's agent."""

    __slots__ = ("_frame", "_parts")

    def __init__(self, parts: RuntimeContext, frame: Frame) -> None:
        self._parts = parts
        self._frame = frame

    async def state(self) -> dict[str, Json]:
        self._frame.note_session_read()
        self._reads_more()
        return revealed(self._frame, await self._parts.sessions.state(self._frame))

    async def change(self, changes: dict[str, Json]) -> dict[str, Json]:
        refuse_if_stopped(self._frame)
        self._frame.note_session_read()  # the result shows the current state
        frame, parts = self._frame, self._parts
        if not is_light(changes):
            return await self._change_much(changes)
        struck: dict[str, str | int] = {}
        most = parts.limits.max_result_bytes
        changes = self._keepable(changes)
        if frame.run.sealing is not None:
            changes = strike(changes, frame.run.sealing, struck)
        if struck:
            parts.redactor.keep(frame.run, struck, of_user=True)
        return revealed(self._frame, await parts.sessions.change(frame, changes, most))

    async def _change_much(self, changes: dict[str, Json]) -> dict[str, Json]:
        """Store changes that are too large to redact in the event loop."""
        frame, parts, run = self._frame, self._parts, self._frame.run
        struck: dict[str, str | int] = {}
        changes = await aside.run(self._keepable, changes)
        if run.sealing is not None:
            changes = await aside.run(strike, changes, run.sealing, struck)
        if struck:
            taken = await aside.run(parts.redactor.take, run.scope, struck, struck, of_user=True)
            parts.redactor.keep_taken(run, struck, taken, of_user=True)
        kept = await parts.sessions.change(frame, changes, parts.limits.max_result_bytes)
        return await aside.run(revealed, frame, kept)

    def _keepable(self, changes: dict[str, Json]) -> dict[str, Json]:
        frame = self._frame
        try:
            return checked(changes, max_bytes=self._parts.limits.max_result_bytes)
        except RemitError as error:
            wrong = error.fault
            code = wrong.code if wrong.code is Code.TOO_LARGE else Code.INPUT_VALIDATION_FAILED
            problems = tuple(_unkeepable(changes))
            names = ", ".join(problem.path for problem in problems)
            why = f"{frame.card.name} cannot keep {names}" if names else f"{frame.card.name}: {wrong.message}"
            raise RemitError(fault(code, why, problems=problems)) from error

    async def conversation(self) -> list[Record]:
        self._frame.note_session_read()
        request, store = self._frame.request, self._parts.store
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
            return await self._parts.sessions.history(self._frame, wanted, tokens)
        self._reads_more()
        return await _referred(self._parts, self._frame, of, wanted, tokens)

    def note(self, note: Note) -> None:
        refuse_if_stopped(self._frame)
        run, parts = self._frame.run, self._parts
        struck: dict[str, str | int] = {}
        # Redacted before it is cut, as with progress.
        note = checked(Note(note.kind, note.text[:MAX_PROGRESS_READ]))
        if note.kind == "answer":
            raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, "only the hub notes the user's answers"))
        if run.sealing is not None:
            note = strike(note, run.sealing, struck)
        if struck:
            parts.redactor.keep(run, struck, of_user=True)
        parts.sessions.note(run, (Note(note.kind, note.text[:NOTE_LENGTH], self._frame.card.name),))

    async def facts(self) -> tuple[str, ...]:
        parts, user = self._parts, self._frame.request.remit.user
        self._reads_more(of_user=True)
        await parts.store.flush()
        facts = await parts.store.facts(user)
        # Their tokens come from other conversations; from here on they can be restored for the user in this one.
        await parts.redactor.recall_facts(self._frame.run, user, facts)
        return revealed(self._frame, facts)

    def _reads_more(self, *, of_user: bool = False) -> None:
        """Note that an agent reads data beyond its request: its answer and those above it are not cached.

        Data *of_user* is the same for all requests of one user.
        """
        for frame in self._frame.lineage():
            if frame.lookup is not None and (frame.lookup.public or not of_user):
                frame.lookup.own = True


def _unkeepable(changes: dict[str, Json]) -> Iterator[Problem]:
    """Yield what is wrong with each value that cannot be stored."""
    for name, value in changes.items():
        try:
            checked({name: value})
        except RemitError as error:
            yield from (Problem(name, problem.message) for problem in error.fault.problems)


async def _referred(
    parts: RuntimeContext, frame: Frame, reference: str, wanted: ContextFilter, tokens: int
) -> list[Message]:
    """Return the messages of a conversation that a callee was given a reference to (`handoff.history`).

    A reference is a claim. It opens only what the caller could have shown: its own conversation, one with an agent that
    it asked itself, or one that it was given a reference to. A user may name any of their own conversations, and a peer
    any of its own. All of them belong to the user of the request. Any other reference raises a `RemitError`.
    """
    name, user = frame.card.name, frame.request.remit.user
    if not _is_given(frame, reference):
        raise RemitError(
            fault(
                Code.PERMISSION_DENIED,
                f"{name} was given no reference to the conversation `{reference[:100]}`",
                suggestion="Read `brief.handoff.history`; a caller can give its own session, or one of its callees'.",
            )
        )
    session = await _local_session(parts, frame, reference)
    await parts.store.flush()
    named, (session, owner) = session, await session_of(parts.store, session, user)
    owner = owner or await parts.store.owner(named)
    if owner is None:
        why = f"the conversation `{reference[:100]}` is not stored here"
        raise RemitError(fault(Code.NOT_FOUND, why, suggestion=""))
    if owner.user != user:
        why = f"User ID mismatch - security violation: the conversation `{reference[:100]}` is another user's"
        raise RemitError(fault(Code.USER_MISMATCH, why))
    return await parts.sessions.messages_of(frame, session, wanted, tokens)


def _is_given(frame: Frame, reference: str) -> bool:
    """Return whether a callee was given a reference by a caller that could have shown that conversation."""
    handoff, caller = frame.request.handoff, frame.parent
    if handoff is None or handoff.history != reference:
        return False
    if caller is None:
        return True
    own = caller.request.session or caller.path
    return reference == own or reference.startswith((f"{caller.path}.", f"{own}/")) or _is_given(caller, reference)


async def _local_session(parts: RuntimeContext, frame: Frame, reference: str) -> str:
    """Return this hub's name of the session: a reference from a peer names one of the peer's sessions."""
    root = frame.run.request
    peer = peer_of(root)
    if peer is None or root.handoff is None or root.handoff.history != reference:
        return reference
    request = replace(root, session=here(reference, peer))
    return (await resumed(request, parts.store)).session or reference


if TYPE_CHECKING:  # few agents combine answers
    from remit.policy.aggregate import Blend, Combined

T = TypeVar("T")

log = logging.getLogger("remit")
# One call of a host's model; longer texts are the work of agents.
MAX_SAMPLED = 4_000


class LocalBriefBackend(Struct, frozen=True, eq=False):
    """Executes what one delegation's agent asks for, within that delegation's frame."""

    _dispatch: Delegator
    _frame: Frame
    _tools: frozenset[str]

    def delegate(self, call: Call) -> Coroutine[Any, Any, Response]:
        return self._dispatch.delegate(self._frame, call)

    def fan_out(self, calls: Sequence[Call]) -> Coroutine[Any, Any, list[Response]]:
        return fan_out(self._dispatch, self._frame, calls)

    def chain(self, calls: Sequence[Call], forward: Forwarded) -> Coroutine[Any, Any, list[Response]]:
        return chain(self._dispatch, self._frame, calls, forward)

    def combine(self, calls: Sequence[Call], strategy: Strategy) -> Coroutine[Any, Any, "Combined"]:
        from remit.runtime.delegation.combine import combine  # few agents use it

        return combine(self._dispatch, self._frame, calls, strategy)

    def blended(self, merged: Answer, text: str, blend: "Blend") -> Answer:
        return text_reader().blended(merged, text, blend)

    def use(self, tool: str, arguments: dict[str, Json]) -> Coroutine[Any, Any, Json]:
        return ToolCalls(self._dispatch, self._frame, self._tools, self).use(tool, arguments)

    def use_own(
        self, tool: str, arguments: dict[str, Json], run: OwnTool, question: str, repeatable: bool, recorded: int | None
    ) -> Coroutine[Any, Any, Json]:
        calls = ToolCalls(self._dispatch, self._frame, self._tools, self)
        return calls.use_own(tool, arguments, run, question, repeatable=repeatable, recorded=recorded)

    def for_model(self, value: Json, tool: str) -> Coroutine[Any, Any, Json]:
        return ToolCalls(self._dispatch, self._frame, self._tools, self).for_model(value, tool)

    def state(self) -> Coroutine[Any, Any, dict[str, Json]]:
        return ConversationAccess(self._dispatch.parts, self._frame).state()

    def change(self, changes: dict[str, Json]) -> Coroutine[Any, Any, dict[str, Json]]:
        return ConversationAccess(self._dispatch.parts, self._frame).change(changes)

    async def confirm(self, question: str) -> bool:
        refuse_if_stopped(self._frame)
        return await self._dispatch.approval.confirm(self._frame, question)

    async def fill(self, question: str, form: Schema) -> dict[str, Json] | None:
        refuse_if_stopped(self._frame)
        return await self._dispatch.approval.fill(self._frame, question, form)

    async def sample(self, prompt: str, system: str, max_tokens: int) -> str:
        refuse_if_stopped(self._frame)
        frame = self._frame
        sampler = self._dispatch.parts.lent_models.of(frame.run.id)
        if sampler is None:
            raise RemitError(
                fault(
                    Code.DELEGATION_UNAVAILABLE,
                    "no MCP host lends its model to this run",
                    suggestion="Use a model of your own. A host lends its while it waits for the run, if it offers "
                    "sampling and the team does not switch it off.",
                )
            )
        prompt_tokens = estimate(prompt) + estimate(system)
        left = self.tokens_left(frame.sampling + prompt_tokens + max_tokens) - frame.sampling
        most = min(max_tokens, MAX_SAMPLED, left - prompt_tokens)
        if most <= 0:
            why = f"{frame.card.name} has {max(0, left)} tokens left, and the prompt alone takes {prompt_tokens}"
            raise RemitError(fault(Code.TOKEN_BUDGET_EXCEEDED, why))
        # Set aside, so that several texts at once are not each granted what is left.
        frame.sampling += prompt_tokens + most
        try:
            text, _ = await sampler(system, (Message(role="user", text=prompt),), most)
        finally:
            frame.sampling -= prompt_tokens + most
        # MCP hosts do not say what their model has spent.
        self.spend(Usage(prompt=prompt_tokens, completion=estimate(text), estimated=True), "", 0)
        return text

    async def once(self, name: str, work: Work) -> Json:
        refuse_if_stopped(self._frame)
        frame, parts = self._frame, self._dispatch.parts
        run, keys, path = frame.run, parts.redactor.keys, f"{frame.path}#{name}"
        if frame.named is not None and path in frame.named:
            why = f"{frame.card.name} already used the name {name} in this delegation"
            raise RemitError(fault(Code.DUPLICATE_REQUEST, why, suggestion="Give each `once` a name of its own."))
        digest = journal.tool_digest(run, name, {}, keys)
        step = journal.recall(run, path, digest, keys, repeatable=True)
        if isinstance(step, Fault):
            raise RemitError(step)
        if step is None:
            recorder = parts.recorder
            value = plain_finding(name, await (work() if recorder is None else recorder.value(frame, name, work)))
        else:
            value = step.value
        if step is None and run.steps is not None:
            journal.note(parts.store, run, path, journal.JournalStep(digest, True, None, value), keys)
        frame.named = {*(frame.named or ()), path}
        return value

    def progress(self, text: str, partial: Answer | Callable[[], Answer] | None, plan: StepPlan | None = None) -> None:
        refuse_if_stopped(self._frame)
        frame, parts = self._frame, self._dispatch.parts
        if callable(partial):
            frame.partial = lambda: self._make_partial(partial)
        elif partial is not None:
            kept = verified(frame, partial, parts.limits.max_result_bytes)
            if isinstance(kept, Fault):
                raise RemitError(kept)
            frame.partial = kept
        if partial is not None and not text and plan is None:
            return  # there is nothing to tell anybody
        if room_left(parts, frame) is not None:
            return  # the partial answer was stored; calls that need more room report the limit
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
            # Redacted before it is cut: a detector does not recognise half a number.
            text=parts.redactor.clean(text[:MAX_PROGRESS_READ], frame.run.sealing)[:MAX_PROGRESS_TEXT],
            finished=kept.finished,
            unfinished=kept.unfinished,
            plan=None
            if plan is None
            else bounded_plan(plan, lambda text: parts.redactor.clean(text, frame.run.sealing)),
            usage=frame.usage() if frame.used or frame.bill is not None else None,
        )
        if frame.run.reported is not None and _was_reported(frame.run.reported, body):
            return
        self._dispatch.recording.record(Kind.PROGRESS, frame.run, frame.request.session or frame.path, body)

    def _make_partial(self, make: Callable[[], Answer]) -> Answer:
        """Make an agent's partial answer after its end. The agent cannot be told if that fails, but operators are."""
        frame, parts = self._frame, self._dispatch.parts
        try:
            kept = verified(frame, make(), parts.limits.max_result_bytes)
        except Exception as error:  # noqa: BLE001 - the agent's own code
            name, what = frame.card.name, parts.redactor.worded(error, frame.run.sealing)
            log.error("agent %s failed to make its partial answer on %s: %s", name, frame.path, what)
            # It becomes a notice, which everyone who follows the run sees, so it leaves out the exception's text.
            why = f"{name} failed to make its partial answer ({type(error).__name__})"
            kept = fault(Code.RESULT_VALIDATION_FAILED, why)
        if isinstance(kept, Fault):
            self._dispatch.recording.notice(frame, kept.message, kept.code)
            kept = Answer()
        frame.partial = kept
        return kept

    def spend(self, usage: Usage, model: str, uncounted: int) -> int:
        frame, prices = self._frame, self._dispatch.parts.prices
        if not isinstance(frame.state, Status):
            # Also if it was told to stop: spent tokens count.
            frame.meter(priced(prices, frame.card.name, checked(usage), model, uncounted), model)
        refuse_if_stopped(self._frame)
        if frame.purse is not None:
            currency = self._dispatch.parts.limits.currency
            if (why := frame.purse.fault(frame.path, frame.card.name, currency)) is not None:
                raise RemitError(why)
        if frame.left + frame.journaled_tokens < 0:
            raise RemitError(
                fault(
                    Code.TOKEN_BUDGET_EXCEEDED,
                    f"{frame.card.name} spent {frame.used} tokens of {frame.granted} granted",
                )
            )
        return self.tokens_left(0)

    def time_left_ms(self) -> int:
        return max(0, self._frame.time_left_ms(self._dispatch.parts.clock.now()))

    def tokens_left(self, wanted: int) -> int:
        if not isinstance(self._frame.state, Status):
            self._frame.top_up(wanted)
        return max(0, self._frame.left + self._frame.journaled_tokens)

    def keep_back(self, tokens: int) -> None:
        frame = self._frame
        frame.reserved -= frame.kept_back
        frame.kept_back = max(0, min(tokens, frame.left))
        frame.reserved += frame.kept_back

    async def more_tokens(self, wanted: int) -> int:
        refuse_if_stopped(self._frame)
        if self.tokens_left(wanted) < wanted or self._frame.run.drawable_cost:
            await self._dispatch.extension.ask(self._frame, wanted)
        return self.tokens_left(wanted)

    def cost_left(self) -> int | None:
        return None if self._frame.purse is None else max(0, self._frame.purse.left)

    async def allow_unpriced(self, model: str) -> None:
        refuse_if_stopped(self._frame)
        why = await self._dispatch.extension.allow_unpriced(self._frame, model)
        if why is not None:
            raise RemitError(why)

    def affordable(self, model: str, prompt: int, most: int) -> int:
        frame, parts = self._frame, self._dispatch.parts
        if frame.purse is None or frame.may_be_unpriced(model):
            return most
        return frame.purse.affordable(frame.card.name, model, prompt, most, parts.prices, parts.limits.currency)

    def original_request(self) -> str:
        root = self._frame.run.request
        if self._frame.lookup is not None and self._frame.lookup.public:
            root = self._frame.request  # its answer is shared by all users, so it must not depend on one user's words
        original = root.handoff.original_request if root.handoff else ""
        return original or root.objective or text_of(root.input)

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
                takes_over=name in card.hands_over_to,
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
        code = self._frame.request.capability
        capability = None if code is None else self._frame.card.capability(code)
        return None if capability is None else capability.result_schema

    def conversation(self) -> Coroutine[Any, Any, list[Record]]:
        return ConversationAccess(self._dispatch.parts, self._frame).conversation()

    def history(self, wanted: ContextFilter, tokens: int, of: str | None) -> Coroutine[Any, Any, list[Message]]:
        return ConversationAccess(self._dispatch.parts, self._frame).history(wanted, tokens, of)

    def note(self, note: Note) -> None:
        ConversationAccess(self._dispatch.parts, self._frame).note(note)

    def say(self, text: str) -> None:
        refuse_if_stopped(self._frame)
        frame, parts = self._frame, self._dispatch.parts
        # What is read before it is judged cannot be taken back.
        say = parts.outflow.hold if parts.answer_guards else parts.outflow.say
        if _runs_in_a_loop():
            say(frame, text)
        else:
            assert frame.task is not None, "an agent's code runs only in its task"
            frame.task.get_loop().call_soon_threadsafe(say, frame, text)

    def used(self, tool: str, arguments: Json, duration_ms: int, error: str | None) -> None:
        ToolCalls(self._dispatch, self._frame, self._tools, self).used(tool, arguments, duration_ms, error)

    def facts(self) -> Coroutine[Any, Any, tuple[str, ...]]:
        return ConversationAccess(self._dispatch.parts, self._frame).facts()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        if _runs_in_a_loop():
            work.close()
            raise RuntimeError("`brief.wait` is for plain functions; in an async one, await the call itself")
        assert self._frame.task is not None, "an agent's code runs only in its task"
        loop = self._frame.task.get_loop()
        with stepping_aside.get()():
            return asyncio.run_coroutine_threadsafe(work, loop).result()


def _was_reported(reported: dict[tuple[str, str], int], body: Progress) -> bool:
    """Return whether this progress was already reported before the restart: then nobody gets it twice."""
    left = reported.get((body.delegation, body.text), 0)
    if left:
        reported[body.delegation, body.text] = left - 1
    return left > 0


def _runs_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
