"""Admission of a request: guards, the schema of its capability, redaction, and the reservation of its grant."""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.guards import GUARDS
from remit.policy.reception import there
from remit.policy.redaction import Held, redaction, strike
from remit.policy.repeats import CallKey
from remit.policy.restoring import restore, reveal
from remit.policy.verdict import GUARD_FAILED, Ask, Facts, Guard, Refuse, Rewrite, Sealing, judge
from remit.policy.weight import is_light_request, said_in
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Call, Json, Request
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.runtime import journal
from remit.runtime.answer_cache import Lookup
from remit.runtime.answer_cache import lookup as lookup_of
from remit.runtime.aside import aside
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.draft import CallAttempt, draft
from remit.runtime.frames import Frame, Run
from remit.runtime.ports import RegisteredAgent, Remote, SessionOwner
from remit.runtime.redactor import RedactedValues
from remit.runtime.schemas import unfit_input
from remit.runtime.text_reader import text_reader

log = logging.getLogger("remit")


class RequestInspection(NamedTuple):
    """The result of examining a large request outside the event loop, and the request that was examined."""

    said: tuple[Json, ...]
    sealing: Sealing | None
    approved: frozenset[str]
    verdict: Rewrite | Refuse | Ask
    taken: RedactedValues | None
    mine: dict[str, str | int]
    """The raw values that its caller itself put into it."""

    def is_of(self, request: Request, facts: Facts) -> bool:
        """Return whether this request was examined and no new secret became known since."""
        return self.sealing is facts.sealing and self.approved == facts.approved and self.said == said_in(request)

    def verdict_on(self, request: Request) -> Rewrite | Refuse | Ask:
        """Return the verdict with the current time and tokens, which changed during the examination."""
        verdict = self.verdict
        if not isinstance(verdict, Rewrite):
            return verdict
        clean, now = verdict.request, request.remit
        remit = replace(
            clean.remit, time_ms=min(clean.remit.time_ms, now.time_ms), tokens=min(clean.remit.tokens, now.tokens)
        )
        return Rewrite(replace(clean, remit=remit, created_ms=request.created_ms), verdict.struck)


class Admission:
    """Judges requests and reserves their grants."""

    def __init__(self, parts: RuntimeContext) -> None:
        self.parts = parts

    def facts_of_call(
        self, attempt: CallAttempt, request: Request, caller: AgentCard, now: float, *, repeated: bool
    ) -> Facts:
        """Return the facts that the guards need about an agent's call; *caller* is its card as it is now."""
        parts, parent, entry = self.parts, attempt.parent, attempt.entry
        card = None if entry is None else entry.card
        ledger, run, goes_on = parts.ledger, parent.run, attempt.before is not None
        # More than fifteen keywords cost four times as much: rare fields are set afterwards.
        facts = Facts(
            target=card,
            address=entry.address if entry is not None else "",
            caller=caller,
            held=parent.request.remit,
            limits=parts.limits,
            agents=parts.registry.agents,
            delegations=run.tally.delegations,
            agent_delegations=attempt.asked_by_agent,
            record_bytes=parts.store.sizes.get(run.id, 0),
            at_once=attempt.at_once or parent.in_flight() + 1,
            repeated=repeated,
            overrun=run.overrun and parts.limits.overrun == "run",
            # A request that was admitted before a restart is only continued.
            rate_wait_ms=ledger.rate_wait_ms(card, now) if card and card.rate and not goes_on else 0,
            breaker_wait_ms=0 if goes_on else ledger.breaker_wait_ms(request.target, now),
            sealing=run.sealing,
        )
        if attempt.owner is not None:
            facts = replace(facts, session_user=attempt.owner.user, session_agent=attempt.owner.agent)
        if attempt.call.tools is not None:
            facts = replace(facts, asked_tools=attempt.call.tools)
        return replace(facts, approved=attempt.approved) if attempt.approved else facts

    def facts_of_root(
        self,
        request: Request,
        run: Run,
        entry: RegisteredAgent | None,
        owner: SessionOwner | None,
        approved: frozenset[str],
        now: float,
    ) -> Facts:
        """Return the facts that the guards need about a root request."""
        ledger = self.parts.ledger
        return Facts(
            target=entry.card if entry else None,
            address=entry.address if entry else "",
            limits=self.parts.limits,
            agents=self.parts.registry.agents,
            session_user=owner.user if owner else None,
            session_agent=owner.agent if owner else None,
            rate_wait_ms=ledger.rate_wait_ms(entry.card, now) if entry else 0,
            breaker_wait_ms=ledger.breaker_wait_ms(request.target, now),
            approved=approved,
            sealing=run.sealing,
        )

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
            return RequestInspection(said_in(request), facts.sealing, facts.approved, verdict, taken, mine)

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
        if run.steps:
            frame.journaled = journal.tokens_of_calls(run, frame.path, self.parts.redactor.keys)
            frame.reserved = frame.journaled_tokens
        if parent is None and (remarks := self.parts.remarks.pop(run.id, None)):
            frame.warnings = [*remarks]
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

    def draft_now(self, parent: Frame, call: Call, entry: RegisteredAgent | None, path: str) -> Request:
        """Return the request that a call makes now."""
        parts, now = self.parts, self.parts.clock.now()
        card, caller = entry.card if entry is not None else None, parts.registry.agents[parent.card.name].card
        left_ms = parent.time_left_ms(now)
        return draft(parent, call, card, path, left_ms, parts.clock.wall_ms(), parts.limits, caller)


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
