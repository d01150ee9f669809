"""What the HTTP API shows of approvals: questions that wait for a person, their requests, and the answers."""

from hashlib import sha256

from remit.protocol.codec import encode
from remit.runtime.ports import Question
from remit_server.documents.api_approvals import (
    DeciderRule,
    WaitingApproval,
)


def digest_of(question: Question) -> str:
    """Return the digest of a question and its request, as they are shown."""
    return sha256(encode(question)).hexdigest()[:32]


def waiting_view(question: Question, rule: DeciderRule | None, *, may_answer: bool) -> WaitingApproval:
    """Return a pending question as it is shown."""
    request = question.request
    return WaitingApproval(
        id=question.id,
        run=request.run,
        delegation=request.path,
        question=question.text,
        origin=request.origin,
        target=request.target,
        capability=request.capability,
        user=request.remit.user,
        objective=request.objective,
        asked_ms=question.asked_ms,
        expires_ms=question.expires_ms,
        editable=tuple(sorted(question.editable)),
        form=question.form,
        rule=rule,
        digest=digest_of(question),
        may_answer=may_answer,
    )
