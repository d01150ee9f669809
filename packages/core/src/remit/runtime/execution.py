"""Runs an agent for one delegation, here or on another hub, and makes its response, whatever happens."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

from msgspec.structs import replace

from remit.policy.breaker import is_from_below
from remit.policy.reception import of_callee
from remit.policy.redaction import Held
from remit.policy.restoring import kept_findings, restore
from remit.policy.weight import (
    LIGHT_TO_ENCODE,
    is_light_answer,
    is_light_request,
    is_light_response,
    is_short_text_answer,
)
from remit.ports import Departure, Remote, Slot
from remit.ports.brief import Brief, BriefBackend
from remit.protocol.envelope import (
    BACK,
    USER,
    Answer,
    Call,
    Handover,
    Json,
    Request,
    Response,
    Strategy,
    Usage,
)
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import DelegationState, Status
from remit.protocol.records import Approval, Kind
from remit.protocol.remit import meet_tools
from remit.protocol.trace import trace_id
from remit.runtime import journal
from remit.runtime.aside import aside
from remit.runtime.context import Delegator
from remit.runtime.delegation.response import (
    answered,
    can_be_changed,
    ended_response,
    failure,
    for_callee,
    handed_on,
    relayed,
    verified,
)
from remit.runtime.frames import Frame, SlotGivenUp, give_up_slot, regain_slot
from remit.runtime.origin import MAX_READ, at_home, origin_of, places
from remit.runtime.purse import priced
from remit.runtime.schemas import misfits

# Agents seldom ask several people at once; a peer that claims so must not fill the memory here.
MOST_QUESTIONS = 100


class LocalRemoteHandle:
    """The handle of one remote delegation, within its frame."""

    __slots__ = (
        "_backend",
        "_departure",
        "_dispatch",
        "_frame",
        "_open",
        "_patience_s",
        "_stop_waiting",
        "_waits_since",
        "trace",
    )

    def __init__(self, dispatch: Delegator, frame: Frame, backend: BriefBackend) -> None:
        self._dispatch = dispatch
        self._frame = frame
        self._backend = backend
        self._open: set[str] = set()
        """The questions to people there."""
        self._patience_s = dispatch.parts.limits.approval_timeout_ms / 1_000
        """How much longer the clock may stand still here for questions there."""
        self._waits_since = 0.0
        self._departure: Departure | None = None
        self._stop_waiting: Callable[[], None] | None = None
        self.trace = trace_id(frame.run.id, frame.run.request.traceparent)

    @property
    def has_listeners(self) -> bool:
        return self._dispatch.parts.outflow.has_listeners

    @property
    def has_alternative(self) -> bool:
        return self._frame.route is not None and len(self._frame.route.names) > 1

    @property
    def traceparent(self) -> str:
        return self._backend.traceparent()

    @property
    def root(self) -> Request:
        return self._frame.run.request

    @property
    def handed_back(self) -> bool:
        return self._frame.run.handed_back

    @property
    def passed_on(self) -> Mapping[str, str]:
        return self._dispatch.parts.passed_on.get(self._frame.run.id, {})

    def time_left_ms(self) -> int:
        return self._backend.time_left_ms()

    def progress(self, text: str, partial: Answer | None) -> None:
        self._backend.progress(text, partial)

    def say(self, text: str) -> None:
        self._backend.say(text)

    def settle(self, response: Response) -> None:
        frame = self._frame
        frame.doubt = ""
        frame.meter(priced(self._dispatch.parts.prices, frame.card.name, response.usage))
        if response.result is None and not response.finished and not response.files:
            return
        part = Answer(
            response.result,
            summary=response.summary,
            confidence=response.confidence,
            artifacts=response.artifacts,
            files=response.files,
            warnings=response.warnings,
            finished=response.finished,
            unfinished=response.unfinished,
        )
        kept = verified(frame, part, self._dispatch.parts.limits.max_result_bytes)
        if isinstance(kept, Answer):
            frame.partial = kept

    async def record_approval(self, approval: Approval) -> None:
        frame = self._frame
        own = replace(
            approval, delegation=frame.path, agent=frame.request.target, id=f"{frame.path}-{approval.id}"[:200]
        )
        session = frame.request.parent_session if frame.request.via is None else None  # a sender's session is a claim
        if self._dispatch.parts.asking is not None:
            self._dispatch.parts.asking(frame.run.id)
        self._dispatch.recording.record(Kind.APPROVAL, frame.run, session or frame.run.id, own)
        if approval.agreed is not None:
            self._open.discard(approval.id)
        elif len(self._open) < MOST_QUESTIONS:
            self._open.add(approval.id)
        if self._open:
            self._wait()
        else:
            await self._unpause()

    @asynccontextmanager
    async def paused(self) -> AsyncGenerator[None]:
        self._wait()
        try:
            yield
        finally:
            await self._unpause()

    def _wait(self) -> None:
        if self._stop_waiting is None and self._patience_s > 0:
            clock = self._dispatch.parts.clock
            self._waits_since = clock.now()
            self._stop_waiting = clock.call_at(self._waits_since + self._patience_s, self.close)
            # The peer says when it begins and ends to wait, so this is no `async with`.
            self._dispatch.tasks.pause(self._frame)
            give_up_slot(self._frame)

    async def _unpause(self) -> None:
        if self._stop_waiting is not None:
            self.close()
            if self._frame.stopping is None:
                await regain_slot(self._frame)

    def close(self) -> None:
        """Restart the clock, whatever the peer says: the question is closed, or has taken longer than a person may."""
        if self._stop_waiting is not None:
            self._stop_waiting()
            self._stop_waiting = None
            self._patience_s -= self._dispatch.parts.clock.now() - self._waits_since
            self._frame.waiting -= 1
            self._dispatch.tasks.unpause(self._frame)

    # ── leaving ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def depart(self, to: str, *, in_store: bool = False) -> Departure | None:
        frame, parts, left = self._frame, self._dispatch.parts, self._frame.departed
        if left is not None and left.to != to:
            why = f"{frame.request.target} ran elsewhere before the restart: its outcome there is unknown"
            raise RemitError(fault(Code.OUTCOME_UNKNOWN, why, detail=f"it was sent to {left.to}, and is at {to} now"))
        if frame.run.steps is None:
            # A run that is not resumed ends as `OUTCOME_UNKNOWN` after a restart, whatever is recorded of it.
            if not in_store:
                await parts.store.flush()
            return left
        self._departure = left or Departure(to, parts.clock.wall_ms(), id=frame.request.path)
        step = journal.JournalStep(frame.step, departed=self._departure, tokens=frame.reservation)
        # Also if it left before the restart: a hub that stood still meanwhile may have read this of its successor.
        await journal.note_durably(parts.store, frame.run, frame.path, step, parts.redactor.keys)
        return left

    def age_ms(self, left: Departure) -> int:
        return self._dispatch.parts.clock.wall_ms() - left.at_ms

    def name(self, task: str) -> None:
        left = self._frame.departed or self._departure
        if left is not None and left.task != task:
            self._departure = replace(left, task=task)
            frame, parts = self._frame, self._dispatch.parts
            step = journal.JournalStep(frame.step, departed=self._departure, tokens=frame.reservation)
            journal.note(parts.store, frame.run, frame.path, step, parts.redactor.keys)

    async def state(self) -> dict[str, Json]:
        return await self._backend.state()

    async def change(self, changes: dict[str, Json]) -> dict[str, Json]:
        return await self._backend.change(changes)

    @property
    def in_doubt(self) -> bool:
        return bool(self._frame.doubt)

    def doubt(self, why: str) -> None:
        self._frame.doubt = why
        # A request that was never sent has not begun, and may be repeated, here or elsewhere.
        self._frame.ran = bool(why)


log = logging.getLogger("remit")


# No light response is larger: each of its 4,096 characters has at most six bytes in JSON. Numbers count as text.
MOST_LIGHT_BYTES = 65_536
NO_TOOLS: frozenset[str] = frozenset()
# Bound once, because every hop needs them: looking up an enum member costs as much as a guard.
_RUNNING = DelegationState.RUNNING


class Executor:
    """The serving side of a hub: a transport passes requests to it."""

    def __init__(self, dispatch: Delegator, backend: Callable[[Frame, frozenset[str]], BriefBackend]) -> None:
        self._dispatch = dispatch
        self._backend = backend
        """Makes the backend of an agent's brief, with the tools that the agent may use."""

    async def execute(self, request: Request, slot: Slot) -> Response:
        """Execute an admitted request."""
        parts = self._dispatch.parts
        frame = parts.ledger.frames[request.run if request.parent is None else request.id]
        frame.slot = slot
        frame.taken_s = parts.clock.now()
        frame.advance(_RUNNING)
        # A remote agent begins when its request is sent: see `RemoteHandle.doubt`.
        frame.ran = not isinstance(frame.agent, Remote) or bool(frame.doubt)
        if parts.started is not None:
            parts.started(request)
        if request.handover:
            if (response := await self._pass_on(frame, request.handover)) is not None:
                return response
            request = replace(request, handover=())
        if parts.recorder is not None:
            parts.recorder.begin(frame)
        if isinstance(frame.agent, Remote):
            return await self._send(frame, frame.agent, request)
        if frame.doubt:
            frame.doubt = ""  # it continues where it was
        card = frame.card
        tools = frozenset(meet_tools(card.tools, request.remit.tools) or NO_TOOLS) if card.tools else NO_TOOLS
        given_to = request
        if request.input is not None or request.handoff is not None or isinstance(request.remit.tools, dict):
            given_to = await _for_callee(request)
        brief = Brief(given_to, tools, self._backend(frame, tools), card.prompt)
        try:
            if tools:
                for prepare in parts.before_agents:
                    await prepare(brief)
            if parts.recorder is not None:
                parts.recorder.enter(frame)
            given = await frame.agent(brief)
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - logged without secret values
            frame.passed_on = bool(frame.faults_below) and is_from_below(error, frame.faults_below or ())
            # Outside the event loop: detectors may have to be loaded first, and an error text may come from a stranger.
            return ended_response(frame, Status.FAILED, await aside.run(self._raised, frame, error))
        if not isinstance(given, Answer):  # pyright: ignore[reportUnnecessaryIsInstance]
            message = f"{card.name} returned a {type(given).__name__}, not an answer"
            return ended_response(frame, Status.FAILED, fault(Code.RESULT_VALIDATION_FAILED, message))
        most = parts.limits.max_result_bytes
        # Most answers are only a short text, and valid.
        is_short = is_short_text_answer(given, most)
        response = answered(frame, given) if is_short else await self._answered(frame, given, most)
        return await self._validate(frame, response) if response.sources or request.capability is not None else response

    async def _answered(self, frame: Frame, given: Answer, most: int) -> Response:
        """Return the response with an agent's answer, once it has been validated."""
        light = is_light_answer(given)
        answer = verified(frame, given, most) if light else await aside.run(verified, frame, given, most)
        if isinstance(answer, Fault):
            return ended_response(frame, Status.FAILED, answer)
        if answer.usage is not None:
            usage = priced(self._dispatch.parts.prices, frame.card.name, answer.usage)
            if usage.unpriced:
                await self._dispatch.extension.allow_unpriced(frame, "")
            await self._dispatch.extension.draw_for(frame, usage)
            frame.meter(usage)
        if answer.findings:
            findings = () if _is_forgotten(frame) else kept_findings(answer.findings, frame.hidden or {})
            answer = replace(answer, findings=findings)
        if answer.handover is not None:
            return await self._hand_over(frame, answer, answer.handover)
        if not answer.calls:
            return answered(frame, answer)
        response = await self._hand_on(frame, answer.calls, answer.strategy)
        return replace(response, metadata=response.metadata | answer.metadata) if answer.metadata else response

    # ── the conversation is handed over ───────────────────────────────────────────────────────────────────────────────

    async def _pass_on(self, frame: Frame, line: tuple[Handover, ...]) -> Response | None:
        """Return the answer of the agent to which the conversation was handed before; None: this one has it again."""
        response = await self._continue_with(frame, line[0], line[1:])
        return None if _is_back(frame, response) and response.result is None else response

    async def _hand_over(self, frame: Frame, answer: Answer, wanted: str | Handover) -> Response:
        """Return the answer of the agent to which this one hands the conversation over; with a result of its own, that
        agent begins with the next turn.
        """
        if isinstance(wanted, str):
            wanted = Handover(to=None if wanted == BACK else wanted)
        name, above = frame.card.name, _handed_by(frame)
        to = wanted.to or next(iter(above), None)
        if to is None and answer.result is not None:
            return answered(frame, answer)  # it is in charge already
        if to is None or to == name:
            reason = "nobody handed it to this agent" if to is None else "this agent has it already"
            why = f"{name} cannot hand the conversation over: {reason}"
            return ended_response(frame, Status.FAILED, fault(Code.RESULT_VALIDATION_FAILED, why))
        wanted = replace(wanted, to=to)
        if answer.result is not None or to in above:
            return replace(answered(frame, answer), handover=(wanted,))
        response = await self._continue_with(frame, wanted)
        if _is_back(frame, response) and response.result is None:
            why = f"{name} handed the conversation over to {to}, which handed it back at once"
            how = "Let one of them answer: describe in their instructions which requests are whose."
            return ended_response(frame, Status.FAILED, fault(Code.LOOP_DETECTED, why, suggestion=how))
        return replace(response, metadata=response.metadata | answer.metadata, findings=answer.findings)

    async def _continue_with(self, frame: Frame, first: Handover, behind: tuple[Handover, ...] = ()) -> Response:
        """Return the answer of the agent that has the conversation now, as the frame's own: it is called like any."""
        request, now = frame.request, self._dispatch.parts.clock.now()
        call = Call(
            target=first.to,
            objective=request.objective,
            input=request.input,
            files=request.files,
            hints=request.hints,
            reason=first.reason,
            context=first.context,
            session=of_callee(request.session or frame.path, f"handover:{first.to}"),
            deadline_ms=max(0, frame.time_left_ms(now)),
            handover=behind,
        )
        response = handed_on(frame, await self._dispatch.delegate(frame, call))
        if not response.ok:
            return replace(response, handover=())
        if _is_back(frame, response):
            return replace(response, handover=()) if response.result is not None else response
        if response.handover and response.handover[0].to in _handed_by(frame):
            return response  # it goes back further
        return replace(response, handover=(first, *response.handover))

    def _raised(self, frame: Frame, error: BaseException) -> Fault:
        """Return the fault for an agent's exception, with its place in the code; log it unless raised on purpose."""
        redactor, sealing = self._dispatch.parts.redactor, frame.run.sealing
        words = redactor.worded(error, sealing)
        why = failure(frame, error, words)
        # A fault from a separate process has its origin, which nobody has redacted yet.
        origin = why.origin or origin_of(error, frame.card.name, worded=lambda each: redactor.worded(each, sealing))
        why = replace(why, origin=redactor.clean(at_home(origin), sealing))
        if not isinstance(error, RemitError) or error.__cause__ is not None:
            log.error("agent %s failed on %s: %s%s", frame.card.name, frame.path, words, places(why))
            if log.isEnabledFor(logging.DEBUG):
                log.debug("agent %s failed on %s: %s", frame.card.name, frame.path, redactor.traced(error))
        return why

    async def _send(self, frame: Frame, remote: Remote, request: Request) -> Response:
        """Execute a request elsewhere, and take from the answer what a peer may say."""
        parts, ledger = self._dispatch.parts, self._dispatch.parts.ledger
        earlier = frame.doubt if frame.departed is None else ""
        if not remote.shares_store and request.handover is not None:
            request = replace(request, handover=None)  # another team's hub has handovers of its own
        line = LocalRemoteHandle(self._dispatch, frame, self._backend(frame, NO_TOOLS))
        ledger.outbound.setdefault(line.trace, []).append(frame)
        try:
            outgoing, recorder = await self._under_own_id(frame, await _for_callee(request)), parts.recorder
            sent = (
                remote.send(outgoing, line)
                if recorder is None
                else recorder.remote(frame, outgoing, partial(remote.send, outgoing, line))
            )
            if isinstance(parts.registry.agents[frame.card.name].agent, Remote):
                given = await sent
            else:  # it was sent to other hubs before a restart, and this one, which may be asked now, needs its slot
                async with SlotGivenUp(frame):
                    given = await sent
            # That no hub starts it now says nothing about what it did in the process of a hub that was killed.
            frame.doubt = earlier if given.status is Status.REFUSED else ""
        except RemitError as error:
            why = failure(frame, error, parts.redactor.worded(error, frame.run.sealing))
            if frame.departed is not None and why.code is not Code.OUTCOME_UNKNOWN:
                doubt = f"{frame.doubt or 'it was sent before the restart'}: {why.message}"
                why = fault(Code.OUTCOME_UNKNOWN, doubt, detail=why.detail)
            frame.doubt = ""
            if why.code is Code.OUTCOME_UNKNOWN:
                frame.meter_all()
            self._log_detail(frame, why)
            return ended_response(frame, Status.FAILED, why)
        finally:
            line.close()
            ledger.outbound[line.trace].remove(frame)
            if not ledger.outbound[line.trace]:
                del ledger.outbound[line.trace]
        self._log_detail(frame, given.fault)
        given = replace(given, usage=priced(parts.prices, frame.card.name, given.usage))
        if given.usage.unpriced:
            await self._dispatch.extension.allow_unpriced(frame, "")
        response = await _relayed(frame, given, parts.limits.max_result_bytes)
        return await self._validate(frame, response) if response.sources or request.capability is not None else response

    async def _under_own_id(self, frame: Frame, request: Request) -> Request:
        """Return a request under the id by which a peer knows it: its path in the run.

        Two clients of this hub may choose the same id, and to the peer both are this hub. A run keeps its id over
        restarts.
        """
        left = frame.departed
        if request.parent is not None or (left is not None and not left.id):
            return request
        retry_of = request.retry_of
        if retry_of is not None:
            known = await self._dispatch.parts.store.find(replace(request, id=retry_of), b"")
            retry_of = None if known is None else known.run
        return replace(request, id=request.path, retry_of=retry_of)

    def _log_detail(self, frame: Frame, why: Fault | None) -> None:
        """Log the details of a peer's failure that only the operator may see."""
        if why is not None and why.detail:
            detail = self._dispatch.parts.redactor.clean(why.detail[:MAX_READ], frame.run.sealing)
            log.warning("%s: %s on %s (%s)", frame.card.name, why.code, frame.path, detail)

    async def _hand_on(self, frame: Frame, calls: tuple[Call, ...], strategy: Strategy) -> Response:
        """Execute the calls that the agent returned in place of an answer, in the agent's name."""
        if len(calls) == 1:
            return handed_on(frame, await self._dispatch.delegate(frame, calls[0]))
        if strategy is Strategy.AI_BLEND:
            why = f"{frame.card.name} handed over with the strategy `ai-blend`, but an answer cannot name a model"
            again = 'Ask with `brief.combine(calls, strategy="ai-blend", blend=…)`, or choose another strategy.'
            return ended_response(frame, Status.FAILED, fault(Code.RESULT_VALIDATION_FAILED, why, suggestion=again))
        from remit.runtime.delegation.combine import combine  # few agents hand over to several

        combined = await combine(self._dispatch, frame, calls, strategy)
        if combined.answer is None:
            return handed_on(frame, combined.responses[0])
        most = self._dispatch.parts.limits.max_result_bytes
        made = combined.answer
        answer = verified(frame, made, most) if is_light_answer(made) else await aside.run(verified, frame, made, most)
        if isinstance(answer, Fault):
            return ended_response(frame, Status.FAILED, answer)
        through = tuple(agent for each in combined.used for agent in each.path or (each.target,))
        return replace(answered(frame, answer), path=(frame.request.target, *through))

    async def _validate(self, frame: Frame, response: Response) -> Response:
        if is_light_response(response):
            return self._check_schema_and_sources(frame, response, frame.run.known)
        return await aside.run(self._check_schema_and_sources, frame, response, dict(frame.run.known))

    def _check_schema_and_sources(self, frame: Frame, response: Response, known: Held) -> Response:
        """Check a result against its capability's schema, and its sources against the user of the remit."""
        if not response.ok:
            return response
        request, shared = frame.request, self._dispatch.parts.limits.shared_scopes
        capability = frame.card.capability(request.capability) if request.capability else None
        schema = capability.result_schema if capability is not None else None
        if schema is not None and (problems := misfits(schema, restore(response.result, known), response.result)):
            message = f"the result of {frame.card.name} does not fit {request.capability}"
            return ended_response(
                frame, Status.FAILED, fault(Code.RESULT_VALIDATION_FAILED, message, problems=problems)
            )
        for source in response.sources:
            if source.owner_scope != request.remit.user and source.owner_scope not in shared:
                message = f"User ID mismatch - security violation: {frame.card.name} used a source of another user"
                only = "Name only sources of the user of the request, or of a scope in `shared_scopes`."
                return ended_response(frame, Status.FAILED, fault(Code.USER_MISMATCH, message, suggestion=only))
        return response


def _is_forgotten(frame: Frame) -> bool:
    """Return whether nobody goes on with the session of a delegation: an agent asked for one answer."""
    return frame.parent is not None and frame.request.session == frame.path


def _handed_by(frame: Frame) -> list[str]:
    """Return the agents that handed the conversation to this one, the nearest first."""
    names: list[str] = []
    each: Frame | None = frame
    while each is not None and each.request.handover is not None and each.request.origin != USER:
        names.append(each.request.origin.partition("@")[0])
        each = each.parent
    return names


def _is_back(frame: Frame, response: Response) -> bool:
    """Return whether a response says that its agent has handed the conversation back to this one."""
    return bool(response.handover) and response.handover[0].to == frame.card.name


async def _for_callee(request: Request) -> Request:
    if not can_be_changed(request):
        return request
    light = is_light_request(request, LIGHT_TO_ENCODE)
    return for_callee(request) if light else await aside.run(for_callee, request)


async def _relayed(frame: Frame, given: Response, max_bytes: int) -> Response:
    if is_light_response(given):
        # A fault may be this hub's own, in the words of the peer.
        valid = given.fault is None and max_bytes >= MOST_LIGHT_BYTES
        valid = valid and isinstance(frame.agent, Remote) and frame.agent.validates
        return relayed(frame, given, max_bytes, known_valid=valid)
    frame.meter(given.usage)
    return await aside.run(relayed, frame, replace(given, usage=Usage()), max_bytes)
