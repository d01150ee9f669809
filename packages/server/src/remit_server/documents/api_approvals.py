"""Approvals as the HTTP API shows them: questions that wait for a person, their requests, and the answers."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remit.protocol.envelope import Json, Request
from remit.protocol.errors import Fault
from remit.protocol.typed import JsonSchema

Id = Annotated[str, Meta(min_length=1, max_length=300)]
# Decisions are stored and shown; a longer reason is a document.
Reason = Annotated[str, Meta(max_length=2_000)]
PersonName = Annotated[str, Meta(max_length=100)]


class DeciderRule(Struct, frozen=True, kw_only=True):
    """The rule of the team that asked."""

    number: int
    """Its place among the rules of the file, from 1."""
    then: str
    file: str
    line: int | None


class WaitingApproval(Struct, frozen=True, kw_only=True):
    """A question that waits for a person."""

    id: str
    run: str
    delegation: str
    """The path of the call in the run."""
    question: str
    origin: str
    target: str
    capability: str | None
    user: str
    objective: str
    asked_ms: int
    expires_ms: int
    editable: tuple[str, ...]
    """The fields that may be edited before approving."""
    form: JsonSchema | None
    """The form that `input` belongs to: a JSON Schema of a flat object; None: there is none."""
    rule: DeciderRule | None
    """The rule of the team file that asks; None: another guard of the hub."""
    digest: str
    """The digest of what is shown. An answer must name it, so that it cannot mean anything else."""
    may_answer: bool
    """Whether the client may answer it."""


class AnswerGiven(Struct, frozen=True, kw_only=True):
    """An answer that counts."""

    id: str
    run: str
    agreed: bool
    by: str
    """Who answered: the name of a person, or of the policy that answered for them."""
    reason: str
    edited: tuple[str, ...]


class AnsweredApproval(AnswerGiven, frozen=True, kw_only=True):
    """A question that was answered."""

    delegation: str
    question: str
    target: str
    at_ms: int


class ApprovalList(Struct, frozen=True, kw_only=True):
    """What waits, the oldest first, and what was answered lately, the newest first."""

    waiting: tuple[WaitingApproval, ...]
    answered: tuple[AnsweredApproval, ...]


class ApprovalDetail(Struct, frozen=True, kw_only=True):
    """A question with the whole request that it is about, redacted."""

    id: str
    state: Literal["waiting", "answered", "over"]
    """`over`: it expired or was withdrawn, and nobody answered."""
    waiting: WaitingApproval | None
    answered: AnsweredApproval | None
    request: Request | None
    """None: the request was changed or removed since."""


class ApprovalAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer of a person to a question."""

    agree: bool
    digest: Annotated[str, Meta(min_length=1, max_length=100)]
    """The digest of what the person was shown."""
    reason: Reason = ""
    edits: dict[str, Json] = {}
    """The edited fields and their new values, if the question allows it: `objective`, `input`."""
    by: PersonName = ""
    """The name of the person, if the client speaks for several; it is recorded with the name of the client."""


class NamedAnswer(ApprovalAnswer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer to the question of an id."""

    id: Id


class SeveralAnswers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers to several questions."""

    answers: Annotated[tuple[NamedAnswer, ...], Meta(min_length=1, max_length=100)]


class AnswerOutcome(Struct, frozen=True, kw_only=True):
    """What became of one of several answers."""

    id: str
    given: AnswerGiven | None = None
    fault: Fault | None = None
    """Why it does not count."""


class AnswerOutcomes(Struct, frozen=True, kw_only=True):
    """What became of each answer, in the order in which they were sent."""

    outcomes: tuple[AnswerOutcome, ...]
