"""Admission of requests: guards, the schema of the capability, redaction, and the reservation of the grant."""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.guards import GUARDS, guards_of_use, judge
from remit.policy.reception import is_new, received, speaker_of, there
from remit.policy.redaction import Held, redaction, strike
from remit.policy.repeats import CallKey
from remit.policy.restoring import restore, reveal
from remit.policy.verdict import GUARD_FAILED, Ask, Facts, Guard, Refuse, Rewrite, Sealing
from remit.policy.weight import is_light, is_light_request, texts_of_request
from remit.ports import DuplicateRequest, RegisteredAgent, Remote, SessionOwner, Tool
from remit.ports.text_reader import text_reader
from remit.protocol.card import AgentCard
from remit.protocol.envelope import USER, Handover, Json, Note, Request
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.remit import lower
from remit.runtime import journal
from remit.runtime.answer_cache import Lookup
from remit.runtime.answer_cache import lookup as lookup_of
from remit.runtime.aside import aside
from remit.runtime.context import RuntimeContext
from remit.runtime.frames import Allowance, Frame, Run
from remit.runtime.purse import Purse
from remit.runtime.redactor import RedactedValues
from remit.runtime.schemas import unfit_input
from remit.runtime.sessions import session_of

log = logging.getLogger("remit")


class RequestInspection(NamedTuple):
    """The result of examining a large request outside the event loop, and the request that was examined."""

    texts: tuple[Json, ...]
    sealing: Sealing | None
    approved: frozenset[str]
    verdict: Rewrite | Refuse | Ask
    taken: RedactedValues | None
    mine: dict[str, str | int]
    """The raw values that its caller itself put into it."""

    def is_of(self, request: Request, facts: Facts) -> bool:
        """Return whether this request was examined and no new secret became known since."""
        return (
            self.sealing is facts.sealing
            and self.approved == facts.approved
            and self.texts == texts_of_request(request)
        )

    def verdict_on(self, request: Request) -> Rewrite | Refuse | Ask:
        """Return the verdict with the current time and tokens, which changed during the examination."""
        verdict = self.verdict
        if not isinstance(verdict, Rewrite):
            return verdict
        clean, now = verdict.request, request.remit
        remit = replace(
            clean.remit,
            time_ms=min(clean.remit.time_ms, now.time_ms),
            tokens=min(clean.remit.tokens, now.tokens),
            cost=lower(clean.remit.cost, now.cost),
        )
        return Rewrite(replace(clean, remit=remit, created_ms=request.created_ms), verdict.struck)


class Admission:
    """Judges requests and reserves their grants."""

    def __init__(self, parts: RuntimeContext) -> None:
        self.parts = parts

    def judge(
        self,
        request: Request,
        facts: Facts,
        run: Run,
        looked: RequestInspection | None = None,
        *,
        light: bool | None = None,
    ) -> "Rewrite | Refuse | Ask | Heavy":
        """Ask the guards, check the capability's schema, then redact; a guard that fails refuses.


        A large request has to be examined outside the event loop (`look_through`), unless a cheap check refuses it
        first. A request that was *looked* through is judged again by the current facts.
        """
        if is_light_request(request) if light is None else light:
            return self._judge(request, facts, run.known)
        facts = replace(facts, counted=True)
        at_once = self._judge_by(GUARDS, request, facts)
        if not isinstance(at_once, Rewrite):
            return at_once
        if looked is None or not looked.is_of(request, facts):
            return HEAVY
        return looked.verdict_on(request)

    async def look_through(
        self, request: Request, facts: Facts, run: Run, *, of_user: bool, sent: Request | None = None
    ) -> RequestInspection:
        """Judge a large request outside the event loop, and prepare what is stored of it.

        *sent* is what the caller itself sent, if it is an agent; an agent gets its own values back.
        """
        known, redactor = dict(run.known), self.parts.redactor

        def look() -> RequestInspection:
            verdict = self._judge(request, facts, known)
            taken, mine = None, dict[str, str | int]()
            if isinstance(verdict, Rewrite) and verdict.struck:
                fresh = {token: raw for token, raw in verdict.struck.items() if token not in known}
                taken = redactor.take(run.scope, verdict.struck, fresh, of_user=of_user)
                mine = struck_in(sent, facts.sealing) if sent is not None else mine
            return RequestInspection(texts_of_request(request), facts.sealing, facts.approved, verdict, taken, mine)

        return await aside.run(look)

    def keep(
        self, run: Run, struck: Mapping[str, str | int], looked: RequestInspection | None, *, of_user: bool
    ) -> None:
        """Remember the raw values of tokens, prepared beforehand if the request was large."""
        if looked is not None and looked.taken is not None:
            self.parts.redactor.keep_taken(run, struck, looked.taken, of_user=of_user)
        else:
            self.parts.redactor.keep(run, struck, of_user=of_user)

    def _judge_by(self, guards: Iterable[Guard], request: Request, facts: Facts) -> Rewrite | Refuse | Ask:
        try:
            return judge(request, facts, guards)
        except Exception as error:  # noqa: BLE001 - logged without secret values
            return self._guard_failed(request, error)

    def _judge(self, request: Request, facts: Facts, known: Held) -> Rewrite | Refuse | Ask:
        try:
            hub, judged = self.parts.registry.hub, request
            if request.via == hub:  # a rule reads the same at every hub of the team
                judged = replace(request, origin=there(request.origin, hub))
            verdict = judge(judged, facts, self.parts.guards)
            if not isinstance(verdict, Rewrite):
                return verdict
            if judged is not request:
                verdict = replace(verdict, request=replace(verdict.request, origin=request.origin))
            request = verdict.request
            if request.capability is not None and (why := _misfit(request, facts.target, known)) is not None:
                return Refuse(why)
            last = redaction(request, facts)
            if isinstance(last, Rewrite):
                return Rewrite(last.request, {**verdict.struck, **last.struck}) if verdict.struck else last
            return verdict
        except RemitError as error:
            return Refuse(error.fault)
        except Exception as error:  # noqa: BLE001 - logged without secret values
            return self._guard_failed(request, error)

    async def judge_tool(self, request: Request, facts: Facts) -> Rewrite | Refuse | Ask:
        """Ask the guards about the use of a tool: those of every use, then the team's own."""
        guards = guards_of_use(self.parts.guards[len(GUARDS) :])
        if is_light_request(request):
            return self._judge_by(guards, request, facts)
        return await aside.run(self._judge_by, guards, request, facts)

    async def judge_answer(self, request: Request, facts: Facts) -> Rewrite | Refuse | Ask:
        """Ask the guards about an answer, before its caller gets it."""
        if facts.answer is None or is_light(facts.answer):
            return self._judge_by(self.parts.answer_guards, request, facts)
        return await aside.run(self._judge_by, self.parts.answer_guards, request, facts)

    def _guard_failed(self, request: Request, error: Exception) -> Refuse:
        log.error("a guard failed on %s: %s", request.id, self.parts.redactor.traced(error))
        return Refuse(
            fault(
                Code.PERMISSION_DENIED,
                f"a guard failed ({type(error).__name__}), so nothing is let through",
                suggestion=GUARD_FAILED,
            )
        )

    def reserve(
        self,
        clean: Request,
        entry: RegisteredAgent,
        run: Run,
        parent: Frame | None,
        now: float,
        call_key: CallKey | None = None,
    ) -> Frame:
        """Reserve the grant of a request and return its frame.

        Its callee sees the raw values that its team lets it see.
        """
        frame = Frame(clean, entry, run, parent, now, call_key)
        if run.known:
            frame.request = reveal(clean, run.known, entry.card)
            frame.recorded = clean
        if clean.view is not None:
            frame.recorded = replace(clean, view=clean.view.recorded())
        more_cost = 0
        if run.steps:
            frame.journaled = journal.tokens_of_calls(run, frame.path, self.parts.redactor.keys)
            frame.reserved = frame.journaled_tokens
            if parent is None:
                more_tokens, more_cost = journal.extension(run, self.parts.redactor.keys)
                frame.granted += more_tokens
        if parent is None and (remarks := self.parts.remarks.pop(run.id, None)):
            frame.warnings = [*remarks]
        if parent is None and clean.remit.cost is not None:
            frame.purse = Purse(clean.remit.cost + more_cost)
        self.parts.ledger.open(frame)
        return frame

    def with_approvals(self, clean: Request, entry: RegisteredAgent, questions: frozenset[str]) -> Request:
        """Return a request with the questions that a person has approved, if another hub of the team executes it."""
        if not questions or not isinstance(entry.agent, Remote) or not entry.agent.shares_store:
            return clean
        digests = map(self.parts.redactor.keys.question_digest, questions)
        return replace(clean, approved=tuple(sorted({*clean.approved, *digests})))

    def lookup(self, request: Request, clean: Request, entry: RegisteredAgent, run: Run) -> Lookup | None:
        """Return the key under which an earlier answer to an equal request may be cached."""
        cache, digest = self.parts.cache, self.parts.redactor.keys.digest
        known, generation = run.known, cache.generation
        return lookup_of(request, clean, entry.card, known=known, generation=generation, digest=digest, gist=_gist)

    def holds(self, parent: Frame, sent: Request, looked: RequestInspection | None = None) -> None:
        """Remember the raw values that an agent itself sent: it gets back these, and none that others added."""
        mine = looked.mine if looked is not None else struck_in(sent, parent.run.sealing)
        if mine:
            parent.held = {**(parent.held or {}), **mine}


def _gist(text: str) -> Json:
    return text_reader().gist(text)  # few capabilities use it


class Heavy(Struct, frozen=True):
    """No objection so far, and the request is too large to examine in the event loop."""


HEAVY = Heavy()


def struck_in(sent: Request, sealing: Sealing | None) -> dict[str, str | int]:
    mine: dict[str, str | int] = {}
    if sealing is not None:
        with suppress(Exception):  # a foreign detector: a value that is not known to be the agent's own is withheld
            strike(sent, sealing, mine)
    return mine


def _misfit(request: Request, card: AgentCard | None, known: Held) -> Fault | None:
    """Return what is wrong with the input of a capability; tokens are judged by the values they stand for."""
    capability = card.capability(request.capability) if card is not None and request.capability is not None else None
    schema = capability.input_schema if capability is not None else None
    if schema is None:
        return None
    return unfit_input(request.capability or "", schema, restore(request.input, known), request.input)


_NONE: frozenset[str] = frozenset()


class RootAttempt:
    """A user's request on its way to an agent."""

    __slots__ = (
        "approved",
        "content",
        "entry",
        "frame",
        "goes_on",
        "looked",
        "may_be_known",
        "notes",
        "owner",
        "permitted",
        "questions",
        "request",
        "run",
        "session",
        "taken",
    )

    def __init__(self, request: Request, content: bytes, *, may_be_known: bool) -> None:
        self.request = request
        self.run: Run
        self.content = content
        """The digest of the request's content."""
        self.may_be_known = may_be_known
        """Whether the same request may have been submitted before: its sender chose the id."""
        self.session = request.session if request.session != request.run else None
        """The session that the sender chose; its owner may have used it before."""
        self.owner: SessionOwner | None = None
        self.taken = False
        """Whether the session was assigned to this user and agent."""
        self.notes: list[Note] = []
        """What its user decides, demands and answers in it."""
        self.goes_on = False
        """Whether it continues a conversation."""
        self.entry: RegisteredAgent | None = None
        self.approved = _NONE
        """The questions that a person has approved."""
        self.questions = 0
        self.looked: RequestInspection | None = None
        self.permitted = False
        """Whether the rate limit that hubs share has counted the request."""
        self.frame: Frame | None = None
        """The run's outermost delegation, once it is admitted."""

    @property
    def needs_permit(self) -> bool:
        """Whether hubs count the request together before it starts."""
        return not self.permitted and self.entry is not None and self.entry.is_rated_here

    def allow(self, allowance: Allowance) -> None:
        """Reduce the request's tokens and money to what its user has left of the day."""
        remit = self.request.remit
        tokens = remit.tokens if allowance.tokens is None else allowance.tokens
        context_tokens, cost = min(remit.context_tokens, tokens), lower(remit.cost, allowance.cost)
        narrowed = replace(remit, tokens=tokens, context_tokens=context_tokens, cost=cost)
        self.request = replace(self.request, remit=narrowed)

    def agreed(self, question: str, edits: dict[str, Json]) -> None:
        """Note that a person agreed, and their edits.

        An approval covers what the person was shown; if another guard changes it, the person is asked again.
        """
        self.approved = (_NONE if edits else self.approved) | {question}
        self.questions += 1
        if edits:
            self.request = replace(self.request, **edits)


class RootAdmission:
    """Prepares root requests, judges them and reserves their grants."""

    def __init__(self, parts: RuntimeContext, admission: Admission) -> None:
        self._parts = parts
        self._admission = admission

    async def find(self, attempt: RootAttempt) -> DuplicateRequest | None:
        """Return what is known of an earlier equal request; it is looked up once."""
        if not attempt.may_be_known:
            return None
        known = await self._parts.store.find(attempt.request, attempt.content)
        attempt.may_be_known = known is not None
        return known

    async def prepare(self, attempt: RootAttempt) -> DuplicateRequest | None:
        """Read what judging a request needs; return the outcome if the same was requested before."""
        parts, request = self._parts, attempt.request
        attempt.entry = entry = parts.registry.agents.get(request.target)
        if entry is not None and request.remit.chain:
            attempt.request = request = received(request, entry.card, parts.limits)
        # Most requests learn this when they are submitted; not those that read or store something before.
        needed = (
            (attempt.session and not is_new(request)) or request.context is not None or request.retry_of is not None
        )
        if needed and (known := await self.find(attempt)) is not None:
            return known
        begins_session = is_new(request)
        owner = None
        if attempt.session and (attempt.may_be_known or not begins_session):
            attempt.session, owner = await session_of(parts.store, attempt.session, request.remit.user)
            if attempt.session != request.session:
                attempt.request = request = replace(request, session=attempt.session)
        attempt.owner = owner
        if begins_session and (owner is None or not attempt.may_be_known):
            attempt.session = attempt.owner = owner = None  # begun by this request, it is like one that nobody chose
        steps: dict[str, bytes] | None = {} if entry is not None and entry.card.resumable else None
        sealing, tally = parts.redactor.sealing(request.session or request.run), parts.ledger.tally_of(request)
        attempt.run = run = Run(request, 0, steps, sealing, tally)
        # Nothing of another user's conversation is even read.
        attempt.goes_on = goes_on = owner == (request.remit.user, request.target)
        if goes_on:
            await parts.redactor.recall(run)
        if request.retry_of is not None and run.steps is not None:
            await self._take_over(run, request, attempt.content)
        if goes_on or request.view is not None or (owner is None and request.context is not None):
            attempt.request = await self.with_context(run, request, goes_on=goes_on)
        if run.in_charge and request.handover is None and request.origin == USER and entry is not None:
            attempt.request = replace(attempt.request, handover=await self._in_charge(run, entry.card))
        return None

    async def _in_charge(self, run: Run, first: AgentCard) -> tuple[Handover, ...]:
        """Return the agents to which a conversation was handed over, as far as the team still lets them have it."""
        registry = self._parts.registry
        to = run.in_charge[0].to or ""
        if registry.other_hubs is not None and to not in registry.agents:
            await registry.other_hubs.find(to)
        # The others are judged when the one before them hands it on.
        return run.in_charge if to in registry.agents and first.may_reach(to) else ()

    def facts_of(self, attempt: RootAttempt, now: float) -> Facts:
        """Return the facts of this moment that the guards need about a request."""
        return facts_of_root(
            self._parts,
            attempt.request,
            attempt.run,
            attempt.entry,
            now,
            owner=attempt.owner,
            approved=attempt.approved,
        )

    def judge(self, attempt: RootAttempt, facts: Facts) -> Rewrite | Refuse | Ask | Heavy:
        """Ask the guards about a request; a large one has to be looked through first."""
        return self._admission.judge(attempt.request, facts, attempt.run, attempt.looked)

    async def look_through(self, attempt: RootAttempt, facts: Facts) -> None:
        """Examine a large request outside the event loop."""
        attempt.looked = await self._admission.look_through(attempt.request, facts, attempt.run, of_user=True)

    async def assign_session(self, attempt: RootAttempt, session: str, clean: Request) -> None:
        """Assign the chosen session to the user and the agent, unless another agent of the user has it.

        *clean* is the request as it may be stored, from which the notes of the conversation are taken.
        """
        request = attempt.request
        # Also a session that was used before it was assigned: its values are stored from now on.
        attempt.owner = await self._parts.store.session(session, request.remit.user, request.target)
        if attempt.owner.user == request.remit.user:
            attempt.taken = True
            attempt.notes = await aside.run(self._parts.sessions.notes_of_user, attempt.run, clean)
        else:  # another user took the name a moment ago
            await self.prepare(attempt)

    def reserve(self, attempt: RootAttempt, verdict: Rewrite, now: float) -> Frame:
        """Reserve what the guards allowed before anything is awaited, so that nobody else can take it."""
        clean, run, entry, sessions = verdict.request, attempt.run, attempt.entry, self._parts.sessions
        assert entry is not None, "a guard refuses unknown targets"
        clean = self._admission.with_approvals(clean, entry, attempt.approved)
        if verdict.struck:
            self._admission.keep(run, verdict.struck, attempt.looked, of_user=True)
        run.request = clean
        if attempt.notes:
            sessions.note(run, attempt.notes)
        if clean.handoff is not None:
            sessions.note_handoff(run, clean.handoff, speaker_of(clean))
        frame = self._admission.reserve(clean, entry, run, None, now)
        if clean.capability is not None:
            frame.lookup = self._admission.lookup(attempt.request, clean, entry, run)
        return frame

    def reserve_again(self, run: Run, entry: RegisteredAgent) -> Frame:
        """Reserve the grant of a run that is resumed; it was admitted before."""
        return self._admission.reserve(run.request, entry, run, None, self._parts.clock.now())

    async def _take_over(self, run: Run, request: Request, content: bytes) -> None:
        """Give a retry the finished steps of the run that it retries, so that nothing is done twice.

        Only for the same user and the same content; any other request begins from the start.
        """
        store, redactor = self._parts.store, self._parts.redactor
        known = await store.find(replace(request, id=request.retry_of), content)
        if known is None or not known.same_content or known.response is None:
            return
        journal.take_over(run, run.id, known.run, known.run, await store.load(known.run), redactor.keys)
        if run.steps:
            await redactor.take_over(run, known.response.session or known.run, known.run)

    async def with_context(self, run: Run, request: Request, *, goes_on: bool) -> Request:
        """Return a root request with the part of its conversation that its agent is shown, if there is one."""
        sessions, room = self._parts.sessions, request.remit.context_tokens
        if goes_on:
            await sessions.recall(run)
        # A session that had no owner a moment ago may have another owner now.
        of = run.scope if goes_on else run.id
        shown = await sessions.show(request, of=of, frame=None, run=run, to=None, room=room)
        if request.via is not None and request.view is not None:
            shown = await sessions.brought(request.view, shown)
        return replace(request, view=None) if shown is None else await sessions.shown_aside(request, shown)

    async def redacted(self, run: Run, request: Request) -> Request:
        """Return a root request in a form that may be stored and shown; the redacted values belong to its user."""
        if run.sealing is None:
            return request
        redactor = self._parts.redactor
        struck: dict[str, str | int] = {}
        light = is_light_request(request)
        try:
            if light:
                clean = strike(request, run.sealing, struck)
            else:
                clean = await aside.run(strike, request, run.sealing, struck)
        except RemitError:
            raise
        except Exception as error:
            log.error("a detector failed on %s: %s", request.run, redactor.worded(error))
            why = f"the request could not be redacted ({type(error).__name__}), so nothing is let through"
            how = "Correct the detector; the log of the hub says why it failed."
            raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=how)) from error
        if struck and light:
            redactor.keep(run, struck, of_user=True)
        elif struck:
            taken = await aside.run(redactor.take, run.scope, struck, struck, of_user=True)
            redactor.keep_taken(run, struck, taken, of_user=True)
        return clean


def use_of_tool(frame: Frame, tool: str, arguments: dict[str, Json], now: float) -> Request:
    """Return the use of a tool by a frame's agent as the request that guards judge, and that a person is shown."""
    asking = frame.request
    left_ms = max(0, frame.time_left_ms(now))
    return Request(
        version=asking.version,
        id=asking.id,
        origin=frame.card.name,
        target=tool,
        remit=replace(asking.remit, time_ms=left_ms, tokens=max(0, frame.left)),
        input=arguments,
        run=asking.run,
        parent=asking.parent,
        session=asking.session,
        parent_session=asking.parent_session,
        created_ms=asking.created_ms,
        act="tool",
    )


def facts_of_tool(parts: RuntimeContext, frame: Frame, tool: Tool | None, approved: frozenset[str] = _NONE) -> Facts:
    """Return the facts that the guards need about the use of a tool; None: there is none that the agent may use."""
    return Facts(
        target=None,
        tool=None if tool is None else tool.card,
        caller=frame.card,
        held=frame.request.remit,
        limits=parts.limits,
        agents=parts.registry.agents,
        record_bytes=parts.store.sizes.get(frame.run.id, 0),
        rate_wait_ms=parts.ledger.tool_wait_ms(tool, parts.clock.now()),
        approved=approved,
        sealing=frame.run.sealing,
    )


def facts_of_root(
    parts: RuntimeContext,
    request: Request,
    run: Run,
    entry: RegisteredAgent | None,
    now: float,
    *,
    owner: SessionOwner | None = None,
    approved: frozenset[str] = _NONE,
) -> Facts:
    """Return the facts that the guards need about a root request; *owner* is that of its session."""
    ledger = parts.ledger
    return Facts(
        target=entry.card if entry else None,
        address=entry.address if entry else "",
        limits=parts.limits,
        agents=parts.registry.agents,
        session_user=owner.user if owner else None,
        session_agent=owner.agent if owner else None,
        rate_wait_ms=ledger.rate_wait_ms(entry.card, now) if entry else 0,
        breaker_wait_ms=ledger.breaker_wait_ms(request.target, now),
        judged_elsewhere=entry.agent.judges_tools if entry and isinstance(entry.agent, Remote) else None,
        approved=approved,
        sealing=run.sealing,
    )
