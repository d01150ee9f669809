"""One delegation, end to end: judged, reserved, carried out, and answered with a response whatever happens."""

import asyncio
import logging

from remit.policy.verdict import Ask, Facts, Refuse, Rewrite, judge
from remit.protocol.codec import checked
from remit.protocol.envelope import VERSION, Call, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Notice, Refusal
from remit.runtime import journal
from remit.runtime.carry import Carrier, give_slot, regain_slot
from remit.runtime.draft import draft, errand_of
from remit.runtime.ledger import Frame
from remit.runtime.ports import Owner
from remit.runtime.registry import Entry
from remit.runtime.respond import presentable, refused
from remit.runtime.schemas import misfits

log = logging.getLogger("remit")

# A guard that still asks after a person has agreed this often is not going to be satisfied.
MAX_QUESTIONS = 8


class Dispatch(Carrier):
    """The way from a wanted call to its response."""

    async def delegate(self, parent: Frame, call: Call) -> Response:
        """Carry out one call in *parent*'s name and return how it ended, whatever happened."""
        begun = await self.begin(parent, call)
        if isinstance(begun, Response):
            await asyncio.sleep(0)  # who asks again and again must not keep others from running
            return begun
        give_slot(parent)
        try:
            response = await begun.outcome
        except asyncio.CancelledError:
            await self._give_up(parent, (begun,))
            raise
        parent.waiting -= 1
        if parent.waiting == 0 and parent.slot is not None and not parent.slot.regain_now():
            await parent.slot.regain()
        return response

    async def begin(self, parent: Frame, call: Call, *, at_once: int | None = None) -> Frame | Response:
        """Judge a call and start it, or return the refusal; with a refusal, nothing was started.

        *at_once* is how many delegations the caller wants to have in flight, if that was counted beforehand.
        """
        parts = self.parts
        parent.calls += 1
        path = f"{parent.path}.{parent.calls}"
        owner: Owner | None = None
        approved: frozenset[str] = frozenset()
        try:
            call = _checked_call(call)
            entry = parts.registry.route(call)
            if parts.store.full:
                await parts.store.room()
            if call.session is not None:
                owner = await parts.store.owner(call.session)
            while True:
                now = parts.clock.now()
                left_ms = int((parent.deadline - now) * 1_000)
                card = entry.card if entry is not None else None
                request = draft(parent, call, card, path, left_ms, parts.clock.wall_ms(), parts.limits)
                if parent.stopping is not None or isinstance(parent.state, Status):
                    return self.refuse(request, _too_late_to_ask(parent))
                if parent.run.steps is not None and entry is not None:
                    known = self._recall(parent, request, entry)
                    if known is not None:
                        return known
                errand = errand_of(request)
                ledger = parts.ledger
                facts = Facts(
                    target=card,
                    address=entry.address if entry is not None else "",
                    caller=parent.card,
                    held=parent.request.remit,
                    limits=parts.limits,
                    agents=parts.registry.agents,
                    asked_tools=call.tools,
                    session_user=owner.user if owner is not None else None,
                    session_agent=owner.agent if owner is not None else None,
                    at_once=at_once or parent.in_flight() + 1,
                    repeated=parent.errands is not None and errand in parent.errands,
                    overrun=parent.run.overrun,
                    rate_wait_ms=ledger.rate_wait_ms(card, now) if card is not None and card.rate else 0,
                    breaker_wait_ms=ledger.breaker_wait_ms(request.target, now),
                    approved=approved,
                )
                match self.judge(request, facts):
                    case Rewrite(request=request):
                        assert entry is not None, "a guard refuses unknown targets"
                        if call.session is not None and owner is None:
                            # Taken only by who may have it; then all is judged anew, since others may have been first.
                            owner = await parts.store.session(call.session, request.remit.user, request.target)
                            continue
                        frame = Frame(request, entry, parent.run, parent, now, errand)
                        self.parts.ledger.open(frame)
                        return self.start(frame)
                    case Refuse(fault=why):
                        return self.refuse(request, why)
                    case Ask(question=question):
                        self.pause(parent)
                        try:
                            approved = await self.ask_person(request, question, approved)
                        finally:
                            self.unpause(parent)
                        await regain_slot(parent)
        except RemitError as error:
            return self.refuse(_undrafted(parent, call, path), error.fault)

    def judge(self, request: Request, facts: Facts) -> Rewrite | Refuse | Ask:
        """Ask the guards, then the schema of the capability; a guard that fails lets nothing through."""
        try:
            verdict = judge(request, facts, self.parts.guards)
        except Exception as error:
            log.exception("a guard failed on %s", request.id)
            return Refuse(
                fault(Code.PERMISSION_DENIED, f"a guard failed ({type(error).__name__}), so nothing is let through")
            )
        if isinstance(verdict, Rewrite) and request.capability is not None and facts.target is not None:
            capability = facts.target.capability(request.capability)
            schema = capability.input_schema if capability is not None else None
            if schema is not None and (problems := misfits(schema, verdict.request.input)):
                message = f"the input does not fit {request.capability}"
                return Refuse(fault(Code.INPUT_VALIDATION_FAILED, message, problems=problems))
        return verdict

    async def ask_person(self, request: Request, question: str, approved: frozenset[str]) -> frozenset[str]:
        """Return the questions agreed to, this one included, or raise if nobody agreed to it."""
        approver, timeout_ms = self.parts.approver, self.parts.limits.approval_timeout_ms
        if approver is None:
            raise RemitError(fault(Code.APPROVAL_DECLINED, f"nobody is there to be asked: {question}"))
        if question in approved or len(approved) >= MAX_QUESTIONS:
            raise RemitError(fault(Code.APPROVAL_DECLINED, f"asked again after a yes: {question}"))
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                agreed = await approver(request, question)
        except TimeoutError as error:
            message = f"nobody answered within {timeout_ms} ms: {question}"
            raise RemitError(fault(Code.APPROVAL_DECLINED, message)) from error
        except Exception as error:
            log.exception("the approver failed on %s", request.path)
            message = f"nobody could be asked ({type(error).__name__}): {question}"
            raise RemitError(fault(Code.APPROVAL_DECLINED, message)) from error
        if agreed is not True:
            raise RemitError(fault(Code.APPROVAL_DECLINED, f"declined: {question}"))
        return approved | {question}

    def refuse(self, request: Request, why: Fault) -> Response:
        """Record a refusal and return it."""
        response = refused(request, why)
        # Not in the session that it asked for: that may be another user's.
        session = request.parent_session or request.run
        self.record(Kind.REFUSED, request.run, session, Refusal(request=request, response=response))
        return response

    def _recall(self, parent: Frame, request: Request, entry: Entry) -> Response | None:
        step = journal.recall(parent.run, request.id, journal.errand_digest(request), repeatable=entry.card.resumable)
        if isinstance(step, Fault):
            return self.refuse(request, step)
        if step is None or step.response is None:
            return None
        parent.meter(step.response.usage)
        if step.response.usage.overrun:
            parent.run.overrun = True
        if step.response.status is Status.SUCCESS:
            parent.errands = {*(parent.errands or ()), errand_of(request)}
        self.record(Kind.NOTICE, request.run, request.session or request.id, _replayed(request))
        return step.response


def _too_late_to_ask(parent: Frame) -> Fault:
    return fault(Code.CANCELLED, f"{parent.card.name} was told to stop and cannot delegate any more")


def _replayed(request: Request) -> Notice:
    return Notice(
        delegation=request.id, agent=request.target, text="answered from the journal: it was done before the restart"
    )


def _checked_call(call: Call) -> Call:
    """Return a copy of the call that is what it says it is, or raise with every field that is not."""
    target, objective, tokens = call.target, call.objective, call.max_tokens
    # The commonest call, a short text for a named agent, is told from the others sooner than it could be checked.
    if (
        type(target) is str
        and type(objective) is str
        and (tokens is None or (type(tokens) is int and tokens >= 0))
        and target.isprintable()
        and (target + objective).isascii()
        and 0 < len(target) <= 128
        and len(objective) <= 10_000
        and call == Call(target=target, objective=objective, max_tokens=tokens)
    ):
        return call
    try:
        return checked(call)
    except RemitError as error:
        wrong = error.fault
        message = f"the call is not valid: {wrong.message}"
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, problems=wrong.problems)) from error


def _undrafted(parent: Frame, call: Call, path: str) -> Request:
    """Return as much of a request as can be said of a call that could not be made into one."""
    asking, target = parent.request, call.target or call.capability
    return Request(
        version=VERSION,
        id=path,
        origin=asking.target,
        target=presentable(target),
        remit=asking.remit.narrow(caller=parent.address, time_ms=0, tokens=0),
        run=asking.run,
        parent=parent.path,
        parent_session=asking.session,
    )
