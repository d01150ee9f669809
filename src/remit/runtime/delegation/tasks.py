"""Carries out what was admitted: each delegation in a task of its own, settled and recorded whatever it does."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from remit.policy.blame import key_of
from remit.policy.redaction import Held, Raw, is_plain, kind_of, strike
from remit.policy.verdict import Sealing
from remit.policy.weight import LIGHT, is_light_response
from remit.policy.withheld import can_be_used, token_given, tokens_asked_for
from remit.protocol.envelope import Response, Usage
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import State, Status, advance
from remit.protocol.records import Body, Kind, Notice
from remit.runtime import journal
from remit.runtime.answer_cache import Flight, Landing, Lookup, answered_before, failed_beside, landing, moment
from remit.runtime.aside import aside
from remit.runtime.context import Parts
from remit.runtime.delegation import repeats
from remit.runtime.delegation.repeats import circling, watch
from remit.runtime.delegation.response import ended, for_record, stopped
from remit.runtime.delegation.timer_wheel import Wheel
from remit.runtime.ledger import Frame
from remit.runtime.ports import NobodyServesError, Remote
from remit.runtime.redactor import Taken
from remit.runtime.sessions import FACT_LENGTH, MOST_NEW_FACTS, memorable

log = logging.getLogger("remit")

# What is wrong with a team is told by the first few; a model may try a hundred tools.
MOST_WARNINGS = 20

# Bound once, for every hop needs them: to look a member up on its enum costs as much as a guard.
_DELEGATION, _RESULT = Kind.DELEGATION, Kind.RESULT


class Carrier:
    """Starts delegations, waits for them, stops them; the one place where a delegation's life ends."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.abandoned: set[asyncio.Task[None]] = set()
        self._wheel: Wheel[Frame] = Wheel(parts.clock, self._due)

    def start(self, frame: Frame) -> Frame:
        """Record and set going what was admitted and reserved."""
        request = frame.request
        if frame.parent is not None:
            at_ms = request.created_ms or self.parts.clock.wall_ms()
            recorded = frame.recorded or request
            self.parts.store.append(_DELEGATION, at_ms, request.run, request.session or frame.path, recorded)
            if frame.route is None or not frame.route.leg:
                frame.asked = watch(frame.parent, request.target, request.capability, request.objective, request.input)
                if frame.asked is not None and frame.asked.circles:
                    self.warn(frame, circling(frame.parent, request.target))
        if frame.run.known and request.capability is not None:
            self._warn_of_tokens(frame, request.capability)
        loop = asyncio.get_running_loop()
        frame.outcome = loop.create_future()
        if frame.stopping is not None:
            self._close(frame, stopped(frame, frame.stopping))
            return frame
        frame.tick = self._wheel.add(frame, frame.deadline)
        frame.task = loop.create_task(self._carry(frame))
        return frame

    async def join(
        self,
        parent: Frame | None,
        frames: Sequence[Frame],
        outcomes: Sequence[asyncio.Future[Response]] | None = None,
    ) -> list[Response]:
        """Wait for what was started. The caller's slot is free meanwhile; if the caller is cancelled, so are they.

        *outcomes* are waited for in the place of the frames' own, where those may not be the last word.
        """
        if parent is not None:
            give_slot(parent)
        try:
            responses = [await outcome for outcome in outcomes or [frame.outcome for frame in frames]]
        except asyncio.CancelledError:
            await self._give_up(parent, frames)
            raise
        if parent is not None:
            parent.waiting -= 1
            await regain_slot(parent)
        return responses

    async def _give_up(self, parent: Frame | None, frames: Sequence[Frame]) -> None:
        """End what the caller does not wait for any more."""
        try:
            await self.end(frames, "its caller was cancelled")
        finally:
            if parent is not None:
                parent.waiting -= 1
                # Who only gave up waiting, by a time-out of its own, works on, and does so in a slot.
                if parent.stopping is None:
                    await regain_slot(parent)

    async def end(self, frames: Iterable[Frame], reason: str) -> None:
        """Stop what is still in flight and return once it is gone or abandoned."""
        going = [frame for frame in frames if not isinstance(frame.state, Status)]
        for frame in going:
            if frame.outcome.cancelled():
                frame.outcome = asyncio.get_running_loop().create_future()
            self.stop(frame, fault(Code.CANCELLED, f"{frame.request.target} was cancelled: {reason}"))
        for frame in going:
            await frame.outcome

    def stop(self, frame: Frame, why: Fault) -> None:
        """Cancel a delegation and everything below it, all at once; each then has the grace time to clean up."""
        grace_end = self.parts.clock.now() + self.parts.limits.grace_ms / 1_000
        if frame.children and why.code is Code.TIMEOUT:
            frame.passed_on = True  # its time went to those that it waited for
        for each in frame.subtree():
            if each.stopping is not None or isinstance(each.state, Status):
                continue
            above = fault(
                Code.CANCELLED,
                f"{each.request.target} was cancelled: {frame.request.target}, which it worked for, was stopped",
            )
            each.stopping = why if each is frame else above
            if each.doubt and not isinstance(each.agent, Remote):
                each.doubt = ""  # it had begun, and is stopped: that says it all
            if each.lookup is not None:
                self._let_go(each.lookup, None)  # those who wait need not wait until it has cleaned up
            if each.task is None:
                continue  # not started yet: it will find that it need not be
            self._wheel.discard(each, each.tick)
            each.tick = self._wheel.add(each, grace_end)
            each.task.cancel()
            if not each.begun:
                # A task that is cancelled before its first step never runs its own end.
                self._close(each, stopped(each, each.stopping))

    async def _carry(self, frame: Frame) -> None:
        frame.begun = True
        try:
            if frame.run.steps is not None and frame.parent is not None:
                await self._note_begun(frame)
            if frame.lookup is not None:
                response = await self._answer_once(frame, frame.lookup)
                if frame.lookup.follows:
                    frame.state = advance(frame.state, State.RUNNING)  # by another in its place
            elif frame.doubt:
                response = await self._request_again(frame)
            else:
                response = await self.parts.transport.request(frame.request.target, frame.request, frame.deadline)
        except asyncio.CancelledError:
            response = ended(frame, Status.FAILED, fault(Code.DELEGATION_FAILED, f"{frame.card.name} cancelled itself"))
        except NobodyServesError:
            response = ended(
                frame, Status.FAILED, fault(Code.DELEGATION_UNAVAILABLE, f"nobody serves {frame.request.target}")
            )
        except TimeoutError:
            response = ended(frame, Status.TIMEOUT, _too_late(frame))
        except RemitError as error:
            status = Status.REFUSED if error.fault.code is Code.OVERLOADED else Status.FAILED
            response = ended(frame, status, error.fault)
        except Exception as error:  # noqa: BLE001 - logged without what it must not show
            log.error("the transport failed on %s: %s", frame.path, self.parts.redactor.traced(error))
            response = ended(
                frame, Status.FAILED, fault(Code.DELEGATION_FAILED, f"the transport failed: {type(error).__name__}")
            )
        while frame.children and not frame.abandoned:
            # Told to stop meanwhile, they are stopping already: only the waiting begins anew.
            with suppress(asyncio.CancelledError):
                await self.end(tuple(frame.children), f"{frame.card.name} answered without waiting for it")
        if frame.flow is not None and self.parts.outflow.is_long(frame):
            with suppress(asyncio.CancelledError):
                await self.parts.outflow.finish_long(frame)
        if frame.stopping is not None or not is_light_response(response):
            await self._close_large(frame, response)
        else:
            self._close(frame, response)

    async def _close_large(self, frame: Frame, response: Response) -> None:
        """Close what may have to be looked through outside the event loop before."""
        while True:
            stopping, run, parent = frame.stopping, frame.run, frame.parent
            if stopping is not None:
                response = stopped(frame, stopping)
            if isinstance(frame.state, Status) or is_light_response(response):
                self._close(frame, response)
                return
            work = partial(self._look_through, frame, response, run.sealing, dict(run.known), parent and parent.held)
            # Told to stop meanwhile, it ends with what it had until then.
            with suppress(asyncio.CancelledError):
                looked = await aside.run(work)
                # What was learned meanwhile, in another part of the run, is to be struck here too.
                if frame.stopping is stopping and looked.sealing is run.sealing:
                    self._close(frame, looked.clean, looked)
                    return

    async def _request_again(self, frame: Frame) -> Response:
        """Take up what had begun before a restart: it waits for its turn, however many others do."""
        while True:
            try:
                return await self.parts.transport.request(frame.request.target, frame.request, frame.deadline)
            except RemitError as error:
                if not frame.doubt or error.fault.code is not Code.OVERLOADED:
                    raise
                await asyncio.sleep((error.fault.retry_after_ms or 0) / 1_000)

    async def _answer_once(self, frame: Frame, wanted: Lookup) -> Response:
        """Answer from what is known, or with what an equal request finds that is under way; else find it for all."""
        cache, clock, changed = self.parts.cache, self.parts.clock, frame.run.changed_at
        while True:
            if (known := cache.get(wanted.key, clock.now(), changed)) is not None:
                wanted.follows = True
                return for_record(answered_before(frame.request, known))
            if wanted.likeness is not None and (known := cache.get_alike(wanted.likeness, clock.now(), changed)):
                wanted.follows = True
                return for_record(answered_before(frame.request, known, "similar"))
            flight = cache.flights.get(wanted.key)
            # Whoever works for one that others wait for waits for none of them: two could wait for each other.
            if any(above.lookup is not None and above.lookup.leads for above in frame.lineage()[1:]):
                break
            if flight is None:
                wanted.leads = True
                cache.flights[wanted.key] = Flight(asyncio.get_running_loop().create_future(), moment())
                break
            if flight.begun < changed:
                break  # it may not see what this run has changed
            wanted.follows = True
            await asyncio.wait({flight.landed})  # it goes on, whoever of those that wait is cancelled
            match flight.landed.result():
                case Response() as response:
                    return for_record(answered_before(frame.request, response))
                case Code() as code:
                    return failed_beside(frame.request, code)
                case None:
                    wanted.follows = False
        wanted.begun = moment()
        response = await self.parts.transport.request(frame.request.target, frame.request, frame.deadline)
        return replace(response, cache="miss")

    def _land(self, frame: Frame, wanted: Lookup, response: Response, now: float) -> None:
        """Give those who wait for an equal request what was found, or leave it to one of them to find it."""
        landed: Landing = None
        try:
            if not wanted.follows:
                landed = landing(wanted, response, frame.run.known, session_read=frame.session_read)
            if isinstance(landed, Response):
                landed = for_record(landed)  # what its caller does to it changes nobody else's
                until = now + wanted.ttl_ms / 1_000
                self.parts.cache.put(wanted.key, landed, until, wanted.likeness, wanted.begun)
        finally:
            self._let_go(wanted, landed)

    def _let_go(self, wanted: Lookup, landed: Landing) -> None:
        if wanted.leads:
            wanted.leads = False
            self.parts.cache.flights.pop(wanted.key).landed.set_result(landed)

    def _close(self, frame: Frame, response: Response, looked: "Looked | None" = None) -> None:
        """Settle, record and hand over the outcome: exactly once, whoever comes first.

        A large response was *looked* through before, outside the event loop.
        """
        if isinstance(frame.state, Status):
            self.notice(frame, "its result came after it had been abandoned, and was dropped")
            return
        if self._is_overdue(frame):
            frame.stopping, looked = _too_late(frame), None
        if frame.stopping is not None and looked is None:
            response = stopped(frame, frame.stopping)
            if not is_light_response(response):
                # Only of an agent that does not stop: nothing can be awaited for it any more.
                frame.partial = None
                why = f"what {frame.card.name} had until then is not kept: it is larger than {LIGHT} characters"
                response = replace(stopped(frame, frame.stopping), warnings=(why,))
        judged = response
        if frame.faults_below and judged.fault is not None and key_of(judged.fault) in frame.faults_below:
            frame.passed_on = True
        if frame.doubt and response.fault is not None and not frame.run.handed_back:
            response = self._in_doubt(frame, response, response.fault)
        now = self.parts.clock.now()
        run, parent = frame.run, frame.parent
        response = self._with_figures(frame, response, now)
        if looked is not None:
            if looked.found:
                self.parts.redactor.keep_taken(run, looked.found, looked.taken, of_user=True)
        elif run.sealing is not None and not is_plain(response, run.sealing.detect):
            response = self._redacted(frame, response, run.sealing)
        if frame.flow is not None:
            self.parts.outflow.finish(frame)
        frame.state = advance(frame.state, response.status)
        self._wheel.discard(frame, frame.tick)
        # That it is not known what came of it blames nobody; that it did not answer blames the callee.
        self.parts.ledger.close(frame, judged if frame.doubt else response, now, self.parts.limits.delegation_time_ms)
        if parent is not None and response.fault is not None:
            parent.note_fault_below(response.fault)
        outcome = response
        if looked is not None and parent is not None and looked.held is parent.held:
            outcome = replace(response, **looked.restored)
        elif run.known and parent is not None:
            outcome = self.parts.redactor.for_caller(response, parent)
        repeats.ended(frame, outcome)
        try:
            if frame.lookup is not None:
                self._land(frame, frame.lookup, response, now)
            self._keep(frame, response, looked)
            if run.steps is not None and parent is not None and not run.handed_back:
                self._note(frame, journal.Step(frame.step, True, outcome))
                run.unsaved = True
        finally:
            # Whatever a store does, nobody waits for an outcome that has been settled.
            if not frame.outcome.done():
                frame.outcome.set_result(outcome)

    def _is_overdue(self, frame: Frame) -> bool:
        """Say whether an agent's time was over before it ended, and only a blocked loop kept it from being stopped.

        What was done elsewhere is told all the same: it is known what came of it.
        """
        if frame.stopping is not None or frame.pauses or isinstance(frame.agent, Remote):
            return False
        return bool(frame.tick) and self._wheel.is_due(frame.tick)

    def _with_figures(self, frame: Frame, response: Response, now: float) -> Response:
        """Return the response with what it took; one that took more than was granted has failed."""
        duration_ms = int((now - frame.started) * 1_000 + 0.5)
        if duration_ms:
            queued_ms = int((frame.taken_s - frame.started) * 1_000 + 0.5)
            response = replace(response, duration_ms=duration_ms, queued_ms=queued_ms)
            if frame.waited_s:
                response = replace(response, waited_ms=round(frame.waited_s * 1_000))
        if frame.warnings:
            response = replace(response, warnings=(*response.warnings, *frame.warnings))
        if frame.used:
            response = replace(response, usage=frame.usage())
        if response.usage.overrun:
            message = f"{frame.card.name} spent {frame.used} tokens of {frame.granted} granted"
            if response.ok:
                response = replace(response, status=Status.FAILED, fault=fault(Code.TOKEN_BUDGET_EXCEEDED, message))
            self.notice(frame, message, Code.TOKEN_BUDGET_EXCEEDED)
        return response

    def _look_through(
        self, frame: Frame, response: Response, sealing: Sealing | None, known: dict[str, Raw], held: Held | None
    ) -> "Looked":
        """Return a large response as it may be kept, with all that is made of it; it changes nothing."""
        found: dict[str, Raw] = {}
        clean = response if sealing is None else self._struck(frame, response, sealing, found)
        fresh = {token: raw for token, raw in found.items() if token not in known}
        taken = self.parts.redactor.take(frame.run.scope, found, fresh, of_user=True)
        recorded = for_record(clean)
        restored: dict[str, Any] = {}
        if frame.parent is not None:
            given = self.parts.redactor.for_caller(clean, frame.parent, known | found)
            fields = ((name, getattr(given, name)) for name in _SAID)
            restored = {name: value for name, value in fields if value is not getattr(clean, name)}
        return Looked(clean, sealing, found, taken, recorded, held, restored)

    def _in_doubt(self, frame: Frame, response: Response, why: Fault) -> Response:
        """Return the end of what may have been carried out elsewhere, and was stopped here before that was known."""
        if isinstance(frame.agent, Remote):
            # A peer that is not heard of settles all that it was granted.
            frame.meter(Usage(prompt=max(0, frame.granted - frame.used), estimated=True))
        if frame.parent is not None and frame.parent.stopping is not None:
            frame.parent.doubt = frame.parent.doubt or frame.doubt  # it will not hear of this any more
        unknown = fault(Code.OUTCOME_UNKNOWN, f"{why.message}; {frame.doubt}", detail=why.detail)
        return replace(response, status=Status.FAILED, fault=replace(unknown, origin=why.origin))

    def _redacted(self, frame: Frame, response: Response, sealing: Sealing) -> Response:
        """Return the response as it may be kept, and keep apart what was taken out of it."""
        found: dict[str, Raw] = {}
        clean = self._struck(frame, response, sealing, found)
        if found:
            # What is found on the way up is for the user, and for no agent in between that did not have it before.
            self.parts.redactor.keep(frame.run, found, of_user=True)
        return clean

    def _struck(self, frame: Frame, response: Response, sealing: Sealing, found: dict[str, Raw]) -> Response:
        """Return the response as it may be kept, or as a failure if it cannot be."""
        try:
            clean = strike(replace(response, fault=None) if response.fault is not None else response, sealing, found)
        except Exception as error:  # noqa: BLE001 - logged without what it must not show
            found.clear()
            frame.partial = None  # nor could this be redacted
            if isinstance(error, RemitError):
                why = f"the answer of {frame.card.name} cannot be used: {error.fault.message}"
                failed = ended(frame, Status.FAILED, fault(Code.RESULT_VALIDATION_FAILED, why))
            else:
                log.error("a detector failed on %s: %s", frame.path, self.parts.redactor.worded(error, sealing))
                what = f"({type(error).__name__}), so it is not given"
                why = f"the answer of {frame.card.name} could not be redacted {what}"
                failed = ended(frame, Status.FAILED, fault(Code.DELEGATION_FAILED, why))
            return replace(failed, usage=response.usage)
        # An error's words are never restored: they end up in logs.
        return (
            clean
            if response.fault is None
            else replace(clean, fault=self.parts.redactor.clean(response.fault, sealing))
        )

    def _keep(self, frame: Frame, response: Response, looked: "Looked | None") -> None:
        """Hand to the store what is to be kept of a delegation's end; a root's response is kept by its run."""
        if frame.parent is not None:
            request = frame.request
            at_ms = request.created_ms + response.duration_ms if request.created_ms else self.parts.clock.wall_ms()
            session = response.session or frame.path
            recorded = for_record(response) if looked is None else looked.on_record(response)
            self.parts.store.append(_RESULT, at_ms, request.run, session, recorded)
        if response.new_facts:
            self._keep_facts(frame, response.new_facts)

    def _keep_facts(self, frame: Frame, stated: tuple[str, ...]) -> None:
        """Keep facts for the user and the conversation: as many of one answer as somebody could bear in mind."""
        facts, user = memorable(stated), frame.request.remit.user
        if len(facts) < len(stated):
            rest = f"{len(stated) - len(facts)} of {len(stated)} facts of {frame.card.name} are not kept"
            self.notice(frame, f"{rest}: at most {MOST_NEW_FACTS} of one answer are, of {FACT_LENGTH} characters each")
        self.parts.store.remember(user, frame.run.id, facts)
        self.parts.redactor.keep_facts(frame.run, user, facts)
        self.parts.sessions.learn(frame.run, facts, frame.card.name)

    def _due(self, frame: Frame, tick: int) -> None:
        if tick != frame.tick:
            return
        if frame.stopping is None:
            self.stop(frame, _too_late(frame))
        elif not frame.children:
            self._abandon(frame)

    def _abandon(self, frame: Frame) -> None:
        frame.abandoned = True
        grace_end = self.parts.clock.now() + self.parts.limits.grace_ms / 1_000
        for above in frame.lineage()[1:]:
            # It could not stop before this one did, and has its own time to clean up from now on.
            if above.stopping is not None:
                self._wheel.discard(above, above.tick)
                above.tick = self._wheel.add(above, grace_end)
        if frame.task is not None:
            self.abandoned.add(frame.task)
            frame.task.add_done_callback(self.abandoned.discard)
        log.warning("agent %s ignores cancellation; %s was abandoned", frame.card.name, frame.path)
        self.notice(frame, f"{frame.card.name} did not stop within {self.parts.limits.grace_ms} ms and was abandoned")
        assert frame.stopping is not None
        self._close(frame, stopped(frame, frame.stopping))

    def close(self) -> None:
        """Stop the clock of all deadlines."""
        self._wheel.stop()

    # ── clocks ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def pause(self, frame: Frame) -> None:
        """Stop the clocks of *frame* and all above it, and free its slot, until `unpause`; several may at once."""
        now = self.parts.clock.now()
        for each in frame.lineage():
            each.pauses += 1
            if each.pauses == 1:
                each.paused_since = now
                self._wheel.discard(each, each.tick)
        give_slot(frame)

    def unpause(self, frame: Frame) -> None:
        """Let the clocks go on: the time meanwhile counts for nobody."""
        frame.waiting -= 1
        now = self.parts.clock.now()
        for each in frame.lineage():
            each.pauses -= 1
            if each.pauses == 0 and each.stopping is None and not isinstance(each.state, Status):
                each.waited_s += now - each.paused_since
                each.deadline += now - each.paused_since
                each.tick = self._wheel.add(each, each.deadline)

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def notice(self, frame: Frame, text: str, code: Code | None = None) -> None:
        """Record something that an operator should know."""
        body = Notice(delegation=frame.path, agent=frame.card.name, text=text, code=code)
        self.record(Kind.NOTICE, frame.run.id, frame.request.session or frame.path, body)

    def warn(self, frame: Frame, text: str) -> None:
        """Record something that whoever asked should know, and say it in the responses of *frame* and all above it."""
        if frame.warnings is None or text not in frame.warnings:
            self.notice(frame, text)
        for each in frame.lineage():
            each.warnings = each.warnings or []
            if text not in each.warnings and len(each.warnings) < MOST_WARNINGS:
                each.warnings.append(text)

    def _warn_of_tokens(self, frame: Frame, code: str) -> None:
        """Say that an agent gets a token where its capability asks for a value, and has nobody to give it to."""
        capability = frame.card.capability(code)
        schema = capability.input_schema if capability is not None else None
        found = tokens_asked_for(frame.request.input, frame.run.known, schema)
        if not found:
            return
        registry = self.parts.registry
        agents = [entry.card for entry in registry.agents.values()]
        tools = {name: tool.card for name, tool in registry.tools.items()}
        kinds = {kind_of(token) for token in found.values()}
        useless = {kind for kind in kinds if not can_be_used(kind, frame.card, agents, tools)}
        for field, token in found.items():
            if kind_of(token) in useless:
                self.warn(frame, token_given("capability", code, field, kind_of(token)))

    def record(self, kind: Kind, run: str, session: str, body: Body) -> None:
        """Record what is not an admitted request or its response; whatever it says is redacted first."""
        self._append(kind, run, session, self.parts.redactor.clean(body, self.sealing_of(run)))

    def record_clean(self, kind: Kind, frame: Frame, body: Body) -> None:
        """Do the same with what was redacted before."""
        self._append(kind, frame.run.id, frame.request.session or frame.path, body)

    def _append(self, kind: Kind, run: str, session: str, body: Body) -> None:
        self.parts.store.append(kind, self.parts.clock.wall_ms(), run, session, body)

    def sealing_of(self, run: str) -> Sealing | None:
        """Return how a run's tokens are made: by what is known in it, if it is in flight here."""
        root = self.parts.ledger.frames.get(run)
        return self.parts.redactor.sealing(run) if root is None else root.run.sealing

    async def _note_begun(self, frame: Frame) -> None:
        if frame.departed is not None:
            return  # what is on record of it says more
        step = journal.Step(frame.step)
        # What may be done twice can begin unrecorded. What was done before is kept first, also where it may be done
        # twice: what a model found costs money to find again.
        if frame.run.unsaved or not journal.is_repeatable(frame.card, frame.request):
            frame.run.unsaved = False
            await journal.note_durably(self.parts.store, frame.run, frame.path, step, self.parts.redactor.keys)
        else:
            self._note(frame, step)

    def _note(self, frame: Frame, step: journal.Step) -> None:
        journal.note(self.parts.store, frame.run, frame.path, step, self.parts.redactor.keys)


class Looked(NamedTuple):
    """What was made of a large response outside the event loop."""

    clean: Response
    sealing: Sealing | None
    found: dict[str, Raw]
    taken: Taken
    recorded: Response
    held: Held | None
    """What its caller held then."""
    restored: dict[str, Any]
    """The fields that its caller gets otherwise than they are kept."""

    def on_record(self, response: Response) -> Response:
        """Return the response as it is recorded: what its caller does to it changes no record."""
        kept = self.recorded
        return replace(response, result=kept.result, artifacts=kept.artifacts, metadata=kept.metadata)


# What a response says; the rest are names and figures.
_SAID = ("result", "summary", "artifacts", "new_facts", "sources", "warnings", "finished", "unfinished", "metadata")


def give_slot(frame: Frame) -> None:
    """Let others have the slot of a delegation that waits, for one or for several."""
    frame.waiting += 1
    if frame.waiting == 1 and frame.slot is not None:
        frame.slot.release()


async def regain_slot(frame: Frame) -> None:
    """Take the slot again once nothing is waited for any more."""
    if frame.waiting == 0 and frame.slot is not None and not frame.slot.regain_now():
        await frame.slot.regain()


def _too_late(frame: Frame) -> Fault:
    return fault(Code.TIMEOUT, f"Delegation timeout after {frame.request.remit.time_ms}ms")
