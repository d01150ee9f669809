"""Puts a guard's question to a person and records the decision."""

import asyncio
import logging
from contextlib import suppress

from msgspec.structs import replace

from remit.policy.guards import GUARDS
from remit.policy.redaction import strike
from remit.policy.restoring import restore
from remit.policy.verdict import Ask, Sealing
from remit.policy.weight import is_light_request
from remit.ports import Approver, Decision, Question, StoreError
from remit.protocol.card import Schema
from remit.protocol.codec import checked, digest, encode
from remit.protocol.envelope import Json, Request
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.forms import default_fields, filled_fields, unshowable
from remit.protocol.records import Approval, Kind
from remit.runtime.approvers import EDITABLE, NOBODY_ASKED, check_edits, check_form, outlasting
from remit.runtime.aside import aside
from remit.runtime.context import RunRecording, RuntimeContext, TaskControl
from remit.runtime.delegation.response import presentable, revealed
from remit.runtime.frames import Frame, Run, SlotGivenUp
from remit.runtime.schemas import check_schema, misfits
from remit.words.terminal import marked

log = logging.getLogger("remit")

# A guard that still asks after this many approvals will not be satisfied.
MAX_QUESTIONS = 8


# A refusal is read by the agent that asked, so it is short; the record has the whole question.
SHOWN = 200

# For how long a yes counts for the same request if it could not begin: no longer than its outcome would be kept, so
# that it never lets the same request begin a second time.
AGREED_MS = 24 * 3_600_000


class PersonDeclined(RemitError):
    """A person said no: the same request, sent again under its id, gets this answer and asks nobody."""


class Approvals:
    """Asks people; the clocks of those who wait stand still meanwhile."""

    def __init__(self, parts: RuntimeContext, recording: RunRecording, tasks: TaskControl) -> None:
        self.parts = parts
        self.recording = recording
        self.tasks = tasks

    @property
    def may_ask(self) -> bool:
        """Whether any guard could ask: the built-in guards never do."""
        return self.parts.approver is not None and len(self.parts.guards) > len(GUARDS)

    async def ask_person(
        self,
        request: Request,
        ask: Ask,
        questions: int,
        run: Run,
        form: Schema | None = None,
        before: int = 0,
    ) -> dict[str, Json]:
        """Return the edits of the person who agreed, or raise if nobody agreed.

        *before* is how often the same was asked already: an earlier answer does not count for this question.
        """
        approver, question = self.parts.approver, ask.question
        if not isinstance(question, str):  # pyright: ignore[reportUnnecessaryIsInstance] - guards come from users too
            raise _declined(f"a guard returned an invalid question of type {type(question).__name__}")
        if approver is None:
            raise _declined("no person is available to ask", question)
        if questions >= MAX_QUESTIONS:
            raise _declined("asked again after an approval", question)
        struck: dict[str, str | int] = {}
        try:
            if is_light_request(request):
                posed = self._question(request, ask, run.sealing, struck, form, before)
            else:
                posed = await aside.run(self._question, request, ask, run.sealing, struck, form, before)
        except Exception as error:
            log.error("a detector failed on %s: %s", request.path, self.parts.redactor.worded(error))
            raise _declined(
                f"the question could not be redacted ({type(error).__name__}), so it is not shown"
            ) from error
        if struck:
            await self.parts.redactor.keep_shown(run, struck)
        posed = await self._as_put_before(posed, run)
        self._record_approval(run, posed, None)
        decision = await self._answer(posed, approver)
        edits: dict[str, Json] = {}
        try:
            # An approver is foreign code: its decision is validated like one that comes from a store.
            decision = checked(decision)
            edits = _restored_edits(posed, decision.edits, struck)
            if decision.agreed:
                check_form(posed, decision.edits)
        except RemitError as error:
            by = presentable(decision.by) if decision.by else ""
            decision = Decision(agreed=False, by=by, reason=error.fault.message)
        self._record_approval(run, posed, decision)
        if not decision.agreed:
            by = f" by {decision.by}" if decision.by else ""
            reason = f" ({decision.reason})" if decision.reason else ""
            declined = _declined(f"declined{by}{reason}", posed.text)
            raise declined if decision == NOBODY_ASKED else PersonDeclined(declined.fault)
        return edits

    def _question(
        self,
        request: Request,
        ask: Ask,
        sealing: Sealing | None,
        struck: dict[str, str | int],
        form: Schema | None,
        before: int,
    ) -> Question:
        """Return the question as the person sees it: redacted, because it is stored and others may see it too."""
        asked_ms, text = self.parts.clock.wall_ms(), _as_text(ask.question)
        content = _content(request, text) + (b"" if form is None else encode(form))
        if before:
            content += before.to_bytes(4)
        mark = self.parts.redactor.keys.digest(content).hex()[:8]
        if sealing is not None:
            request = strike(request, sealing, struck)
            form = None if form is None else strike(form, sealing, struck)
            # Separate, because the caller need not see a guard's own words.
            text = strike(text, sealing, {})
        return Question(
            id=f"{request.path}-{mark}",
            text=marked(text),
            request=request,
            editable=EDITABLE.intersection(ask.editable),
            form=form,
            asked_ms=asked_ms,
            expires_ms=asked_ms + self.parts.limits.approval_timeout_ms,
        )

    async def _as_put_before(self, question: Question, run: Run) -> Question:
        """Return a question under the id that another hub of the team has put it under, if one has.

        A call to another hub is a run of its own there, and its request's id is the call's path here. The call may have
        been executed here before this hub closed: a person who was asked then is not asked again.
        """
        root, store = run.request, self.parts.store
        if root.via != self.parts.registry.hub:
            return question
        there = root.id + question.id.removeprefix(root.path)

        async def is_known() -> bool:
            return await store.decision(there) is not None or any(each.id == there for each in await store.pending())

        with suppress(TimeoutError):
            async with asyncio.timeout((question.expires_ms - question.asked_ms) / 1_000):
                return replace(question, id=there) if await outlasting(is_known, there) else question
        return question

    async def remember_yes(self, request: Request, question: str) -> None:
        """Remember that a person agreed to a root request, for as long as its sender may send it again.

        Its agent may not begin after all: nobody hosts it, or another guard refuses. Nobody is asked again then.
        """
        await self._count_yes(request, question, 1)

    async def agreed_before(self, request: Request, question: str) -> bool:
        """Return whether a person agreed to the same request when it was sent before; the response says so."""
        if not await self._count_yes(request, question, 0):
            return False
        remarks = self.parts.remarks
        remarks[request.run] = (
            *remarks.get(request.run, ()),
            "A person approved this request when it was sent before.",
        )
        return True

    async def _count_yes(self, request: Request, question: str, n: int) -> int:
        def key() -> bytes:
            named = encode((request.sender, request.remit.user, request.id))
            return self.parts.redactor.keys.digest(named + _content(request, _as_text(question)))

        digested = key() if is_light_request(request) else await aside.run(key)
        # A window as long as the clock shows begins with the clock, so no other one comes before its end.
        until_ms = self.parts.clock.wall_ms() + AGREED_MS
        return await self.parts.store.incr(f"agreed/{digested.hex()}", n, until_ms)

    async def _answer(self, question: Question, approver: Approver) -> Decision:
        try:
            async with asyncio.timeout((question.expires_ms - question.asked_ms) / 1_000) as limit:
                given = await approver(question)
            if limit.expired():
                raise TimeoutError
        except TimeoutError as error:
            given = await self._last_word(question)
            if given is None:
                late = f"nobody answered within {question.expires_ms - question.asked_ms} ms"
                raise _declined(late, question.text) from error
        except asyncio.CancelledError:
            if not self._will_ask_again(question.request):
                with suppress(StoreError):  # a cancelled caller gets the cancellation, not the store's error
                    await asyncio.shield(self.parts.store.withdraw(question.id))
            raise
        except Exception as error:
            log.error("the approver failed on %s: %s", question.request.path, self.parts.redactor.traced(error))
            with suppress(StoreError):
                await self.parts.store.withdraw(question.id)
            raise _declined(f"no person could be asked ({type(error).__name__})", question.text) from error
        if isinstance(given, Decision):
            return given
        return Decision(agreed=given is True, by="")

    async def _last_word(self, question: Question) -> Decision | None:
        """Close an expired question; return a decision that was made in time and not seen so far."""
        try:
            # Written as a refusal, so that the store orders it with other writers: an answer that was accepted counts.
            if await self.parts.store.decide(
                question.id, Decision(agreed=False, by="", reason="nobody answered in time")
            ):
                return None
            return await self.parts.store.decision(question.id)
        except StoreError as error:  # its time is over all the same, and the store accepts no later answer
            log.warning("question %s expired while the store was away: %s", question.id, error.fault.message)
            return None

    def _will_ask_again(self, request: Request) -> bool:
        """Return whether the interrupted run will ask the same again, at another hub or after a restart."""
        root = self.parts.ledger.frames.get(request.run)
        # A run that has not begun withdraws its questions when it ends, if this hub still has it.
        return root is None or root.run.handed_back

    def _record_approval(self, run: Run, question: Question, decision: Decision | None) -> None:
        request = question.request
        body = Approval(
            delegation=request.path,
            agent=request.target,
            id=question.id,
            question=question.text,
            agreed=None if decision is None else decision.agreed,
            by="" if decision is None else decision.by,
            reason="" if decision is None else decision.reason,
            edited=() if decision is None else tuple(sorted(decision.edits)),
        )
        session = request.parent_session if request.via is None else None  # a sender's session name is a claim
        if self.parts.asking is not None:
            self.parts.asking(request.run)
        self.recording.record(Kind.APPROVAL, run, session or run.id, body)

    async def confirm(self, frame: Frame, question: str) -> bool:
        """Ask a person for an agent at work and return whether they agreed."""
        try:
            request = frame.recorded or frame.request
            await self.consult(frame, request, Ask(question), 0, before=asked_before(frame, question))
        except RemitError as error:
            if error.fault.code is not Code.APPROVAL_DECLINED:
                raise
            return False
        return True

    async def fill(self, frame: Frame, question: str, form: Schema) -> dict[str, Json] | None:
        """Ask a person to fill in a form for an agent at work; return its fields, or None if nobody agreed."""
        if wrong := check_schema(form):
            raise unshowable(Problem("$", wrong))
        fields = default_fields(form)
        request = replace(frame.recorded or frame.request, input=fields)
        try:
            ask, before = Ask(question, editable=frozenset({"input"})), asked_before(frame, question, form)
            edits = await self.consult(frame, request, ask, 0, form, before)
        except RemitError as error:
            if error.fault.code is not Code.APPROVAL_DECLINED:
                raise
            return None
        given = filled_fields(form, edits.get("input", fields))
        return None if misfits(form, given) else await self._as_agent_gets(frame, given, form)

    async def _as_agent_gets(self, frame: Frame, given: dict[str, Json], form: Schema) -> dict[str, Json]:
        """Return what a person filled in as requests reach an agent: with tokens for what it may not see.

        What stands in the form is the agent's own, and stays as it is.
        """
        clean, mine = await self.parts.redactor.strike_given(frame.run, given, form, "what a person filled in")
        return restore(revealed(frame, clean), mine)

    async def consult(
        self, parent: Frame, request: Request, ask: Ask, questions: int, form: Schema | None = None, before: int = 0
    ) -> dict[str, Json]:
        """Ask a person while the clock stands still for those who wait; return the edits of the person who agreed."""
        async with SlotGivenUp(parent):
            self.tasks.pause(parent)
            try:
                return await self.ask_person(request, ask, questions, parent.run, form, before)
            finally:
                self.tasks.unpause(parent)


def _as_text(question: str) -> str:
    return question.encode(errors="replace").decode()


def _content(request: Request, text: str) -> bytes:
    """Return what an approval covers: what the person was shown.

    It is part of a question's id, so that no yes covers what an edit, or an agent that took another way after a
    restart, has put in its place. The names of its sessions are no part of it: another user may have taken a name
    first after a restart.
    """
    return text.encode() + digest(replace(request, session=None, parent_session=None))


def asked_before(frame: Frame, question: str, about: Json = None) -> int:
    """Count a question that an agent asks about a form or arguments, and return how often it has asked the same."""
    if frame.questions is None:
        frame.questions = {}
    key = question, b"" if about is None else encode(about)
    before = frame.questions.get(key, 0)
    frame.questions[key] = before + 1
    return before


def _restored_edits(question: Question, edits: dict[str, Json], struck: dict[str, str | int]) -> dict[str, Json]:
    """Return the edits with raw values in place of tokens, or raise if they do not fit a call."""
    whole = restore(check_edits(question, edits), struck)
    if "objective" in whole:
        whole = {**whole, "objective": str(whole["objective"])}  # a token may stand for a number
    return check_edits(question, whole)


_NOBODY = ("no person could be asked", "no person is available to ask")


def _declined(message: str, question: str = "") -> RemitError:
    shown = question if len(question) <= SHOWN else f"{question[:SHOWN]}…"
    text = f"{message}: {shown}" if shown else message
    later = "Ask again when a person is available." if message.startswith(_NOBODY) else None
    return RemitError(fault(Code.APPROVAL_DECLINED, text, suggestion=later))
