"""The endpoints of approvals: what waits for a person, what was answered, and the answers."""

from hashlib import sha256

from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.policy.reception import Permission, Sender
from remit.ports import ANYONES, Decision, Question, RecordFilter, RunSummary
from remit.protocol.codec import checked, encode
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.records import Approval, Kind, Record, request_in
from remit.runtime.approvers import answer
from remit.runtime.question_view import view_of
from remit_server.access import may_see, visible
from remit_server.documents.api import ANSWER, ANSWER_SEVERAL, APPROVAL, APPROVALS, REVEAL, ApprovalQuery
from remit_server.documents.api_values import (
    AnsweredApproval,
    AnswerGiven,
    AnswerOutcome,
    AnswerOutcomes,
    ApprovalAnswer,
    ApprovalDetail,
    ApprovalList,
    DeciderRule,
    RevealAsked,
    RevealedQuestion,
    SeveralAnswers,
    WaitingApproval,
)
from remit_server.documents.common import shown_as
from remit_server.operations import ApiRequest, answers
from remit_server.policy_endpoints import TeamPolicy


def digest_of(question: Question) -> str:
    """Return the digest of a question and its request, as they are shown."""
    return sha256(encode(question)).hexdigest()[:32]


def waiting_view(question: Question, rule: DeciderRule | None, *, may_answer: bool) -> WaitingApproval:
    """Return a pending question as it is shown."""
    request = question.request
    return shown_as(
        WaitingApproval,
        request,
        id=question.id,
        delegation=request.path,
        question=question.text,
        sentence=view_of(question).sentence,
        user=request.remit.user,
        asked_ms=question.asked_ms,
        expires_ms=question.expires_ms,
        editable=tuple(sorted(question.editable)),
        form=question.form,
        rule=rule,
        digest=digest_of(question),
        may_answer=may_answer,
    )


# What was answered lately, unless a client asks for another number.
LATELY = 20
MOST_ANSWERED = 200


class ApprovalEndpoints:
    """The endpoints of `/v1/approvals`."""

    def __init__(self, hub: Hub, policy: TeamPolicy) -> None:
        self._hub = hub
        self._policy = policy

    @answers(APPROVALS)
    async def approvals(self, call: ApiRequest) -> ApprovalList:
        lately = min(call.query(ApprovalQuery).get("answered", LATELY), MOST_ANSWERED)
        reading = _Reader(self, call.sender, call.others)
        waiting = [each for each in await self._hub.pending() if await reading.may_read(each.request.run)]
        answered: list[AnsweredApproval] = []
        before = None
        while len(answered) < lately:
            page = await self._hub.store.listings.records(RecordFilter(kinds=_APPROVALS), before=before, limit=LATELY)
            given = [_answered(each) for each in page.records if await reading.may_read(each.run)]
            answered += [each for each in given if each is not None]
            if (before := page.next) is None:
                break
        views = [
            waiting_view(each, self._policy.rule_of(each.request, each.text), may_answer=await reading.may_answer(each))
            for each in waiting
        ]
        return ApprovalList(waiting=tuple(views), answered=tuple(answered[:lately]))

    @answers(APPROVAL)
    async def approval(self, call: ApiRequest) -> ApprovalDetail:
        id = call.named("id")
        reading = _Reader(self, call.sender, call.others)
        if not await reading.may_read(_run_of(id)):
            raise _unknown(id, call.sender)
        question = await self._pending(id)
        if question is not None:
            rule = self._policy.rule_of(question.request, question.text)
            waiting = waiting_view(question, rule, may_answer=await reading.may_answer(question))
            return ApprovalDetail(
                id=id,
                state="waiting",
                waiting=waiting,
                answered=None,
                request=question.request,
                view=view_of(question),
            )
        return await self._over(id, call.sender)

    @answers(REVEAL)
    async def reveal(self, call: ApiRequest) -> RevealedQuestion:
        id, sender = call.named("id"), call.sender
        if not await _Reader(self, sender, call.others).may_read(_run_of(id)):
            raise _unknown(id, sender)
        body = await call.body(RevealAsked)
        if await self._pending(id) is None:
            raise await self._conflict(id, sender)
        question = await self._hub.reveal(id, by=_person(body.by, sender))
        return RevealedQuestion(id=id, view=view_of(question))

    @answers(ANSWER)
    async def answer(self, call: ApiRequest) -> AnswerGiven:
        return await self._answer(call.named("id"), await call.body(ApprovalAnswer), call.sender)

    @answers(ANSWER_SEVERAL)
    async def answer_several(self, call: ApiRequest) -> AnswerOutcomes:
        batch = await call.body(SeveralAnswers)
        outcomes: list[AnswerOutcome] = []
        for each in batch.answers:
            try:
                outcomes.append(AnswerOutcome(id=each.id, given=await self._answer(each.id, each, call.sender)))
            except RemitError as error:
                outcomes.append(AnswerOutcome(id=each.id, fault=error.fault.outward()))
        return AnswerOutcomes(outcomes=tuple(outcomes))

    async def _answer(self, id: str, reply: ApprovalAnswer, sender: Sender) -> AnswerGiven:
        reading = _Reader(self, sender, Permission.CONTROL)
        if not await reading.may_read(_run_of(id)):
            raise _unknown(id, sender)
        question = await self._pending(id)
        if question is None:
            raise await self._conflict(id, sender)
        if not await reading.may_answer(question):
            raise RemitError(
                fault(
                    Code.PERMISSION_DENIED,
                    f"{sender.name} may not answer questions",
                    suggestion=f"Add `may_approve = true` to `[clients.{sender.name}]` of the team file for the runs "
                    'of its own users, or `permissions = ["control"]` for all runs.',
                )
            )
        if reply.digest != digest_of(question):
            why = f"question {id} is about another request than the one that was answered"
            how = f"Read it again at `GET /v1/approvals/{id}`, and answer with its `digest`."
            raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=how))
        if reply.edits and not reply.agree:
            problem = Problem("edits", "a request that is rejected cannot be edited; leave this out")
            raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, "a rejection has no edits", problems=(problem,)))
        by = _person(reply.by, sender)
        decision = checked(Decision(agreed=reply.agree, by=by, reason=reply.reason, edits=reply.edits))
        if not await answer(self._hub.store, question, decision):
            raise await self._conflict(id, sender)
        return AnswerGiven(
            id=id,
            run=question.request.run,
            agreed=decision.agreed,
            by=by,
            reason=decision.reason,
            edited=tuple(sorted(decision.edits)),
        )

    async def _pending(self, id: str) -> Question | None:
        return next((each for each in await self._hub.pending() if each.id == id), None)

    async def summary(self, run: str) -> RunSummary | None:
        """Return a run, if it is known."""
        return next((each for each in await self._hub.store.runs(run=run, limit=1) if each.run == run), None)

    async def _conflict(self, id: str, sender: Sender) -> RemitError:
        """Return why a question can no longer be answered: who answered it, and what."""
        over = await self._over(id, sender)
        given = over.answered
        if given is None:
            why, how = f"question {id} expired or was withdrawn", "Nobody needs an answer any more."
        else:
            reason = f" ({given.reason})" if given.reason else ""
            why = f"{given.by or 'nobody'} answered question {id} before: {'yes' if given.agreed else 'no'}{reason}"
            how = "The first answer counts."
        return RemitError(fault(Code.STATE_CONFLICT, why, suggestion=how))

    async def _over(self, id: str, sender: Sender) -> ApprovalDetail:
        """Return a question that is no longer pending, as the record and the inbox have it."""
        run, path = _run_of(id), _path_of(id)
        await self._hub.store.flush()
        approval: Approval | None = None
        given: AnsweredApproval | None = None
        request: Request | None = None
        after = 0
        while page := await self._hub.store.records(run=run, after=after):
            after = page[-1].seq
            for record in page:
                match record.body:
                    case Approval() as body if body.id == id:
                        approval, given = body, _answered(record) or given
                    case body if (recorded := request_in(body)) is not None and recorded.path == path:
                        request = recorded
                    case _:
                        pass
        if approval is None:
            raise _unknown(id, sender)
        if given is None and (decision := await self._hub.store.decision(id)) is not None:
            given = _decided(approval, run, decision)  # its run has not read the answer yet
        state = "over" if given is None else "answered"
        return ApprovalDetail(id=id, state=state, waiting=None, answered=given, request=request, view=None)


class _Reader:
    """What one sender may read and answer; each run is looked up once."""

    def __init__(self, endpoints: ApprovalEndpoints, sender: Sender, others: Permission | None) -> None:
        self._endpoints = endpoints
        self._sender = sender
        self._others = others
        self._runs: dict[str, RunSummary | None] = {}

    async def may_read(self, run: str) -> bool:
        """Return whether the sender may see a run."""
        return await self._may(run, self._others)

    async def may_answer(self, question: Question) -> bool:
        """Return whether an answer of the sender counts: with `control` to all, else to its own users' questions."""
        run, sender = question.request.run, self._sender
        if Permission.CONTROL in sender.permissions and await self._may(run, Permission.CONTROL):
            return True
        return sender.may_approve and await self._may(run, None)

    async def _may(self, run: str, others: Permission | None) -> bool:
        if visible(self._sender, others) == ANYONES:
            return True
        if run not in self._runs:
            self._runs[run] = await self._endpoints.summary(run)
        summary = self._runs[run]
        return summary is not None and may_see(self._sender, summary, others)


_APPROVALS = frozenset({Kind.APPROVAL})


def _person(by: str, sender: Sender) -> str:
    """Return a person's name as it is recorded."""
    return f"{by} via {sender.name}" if by.strip() else sender.name


def _path_of(id: str) -> str:
    """Return the delegation that a question is about: the id of a question is its path and a digest."""
    return id.rpartition("-")[0]


def _run_of(id: str) -> str:
    return _path_of(id).partition(".")[0]


def _unknown(id: str, sender: Sender) -> RemitError:
    why = f"no question `{id[:100]}` that {sender.name} may see"
    return RemitError(fault(Code.NOT_FOUND, why, suggestion="`GET /v1/approvals` lists what is pending."))


def _answered(record: Record) -> AnsweredApproval | None:
    body = record.body
    if not isinstance(body, Approval) or body.agreed is None:
        return None
    return shown_as(AnsweredApproval, body, run=record.run, target=body.agent, at_ms=record.at_ms)


def _decided(approval: Approval, run: str, decision: Decision) -> AnsweredApproval:
    edited = tuple(sorted(decision.edits))
    answer = replace(approval, agreed=decision.agreed, by=decision.by, reason=decision.reason, edited=edited)
    return shown_as(AnsweredApproval, answer, run=run, target=approval.agent, at_ms=0)
