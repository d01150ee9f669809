"""What the HTTP API shows and takes: delegations, agents, runs, approvals and conversations."""

from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from remit.protocol.card import Capability
from remit.protocol.envelope import Json, Note, Request
from remit.protocol.errors import Code, Fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Delegation
from remit.protocol.remit import MAX_INTEGER, Count, Name
from remit.protocol.typed import JsonSchema
from remit.runtime.question_view import ShownQuestion
from remit_server.documents.delegation_table import DelegationTable

Id = Annotated[str, Meta(min_length=1, max_length=300)]
# Decisions are stored and shown; a longer reason is a document.
DecisionReason = Annotated[str, Meta(max_length=2_000)]
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
    sentence: str
    """Who wants what from whom."""
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
    view: ShownQuestion | None
    """What a person is shown before they answer; None: it was answered, or is over."""


class RevealAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who wants to read the personal values of a question."""

    by: PersonName = ""
    """The name of the person, if the client speaks for several; it is recorded with the name of the client."""


class RevealedQuestion(Struct, frozen=True, kw_only=True):
    """What a person is shown of a question, with personal values in clear."""

    id: str
    view: ShownQuestion
    """As in the question, with values for the tokens, as far as they are kept."""


class ApprovalAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer of a person to a question."""

    agree: bool
    digest: Annotated[str, Meta(min_length=1, max_length=100)]
    """The digest of what the person was shown."""
    reason: DecisionReason = ""
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


class Handle(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delegation that has not ended, and where to ask for it again."""

    id: str
    run: str
    state: Literal["running", "waiting"]
    question: str = ""
    """The question to a person, while it waits for one."""
    link: str
    """Where to get its outcome."""
    events: str
    """Where to follow its events."""


class FailureBody(Struct, frozen=True, kw_only=True):
    """Why a request did not become a delegation."""

    fault: Fault
    summary: str
    """The same for the user who asked, without names, codes and limits."""


class Reason(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for a cancellation."""

    reason: str = ""


class PublicCard(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What others may know of an agent: what it is for, not how it is made."""

    name: str
    version: str = "1.0"
    description: str = ""
    capabilities: tuple[Capability, ...] = ()


class AgentList(Struct, frozen=True, kw_only=True):
    """The agents that the client may ask."""

    agents: tuple[PublicCard, ...]


RunStanding = Literal["waiting", "running", "silent", "finished"]
STANDINGS: tuple[str, ...] = get_args(RunStanding)
AtLeastOne = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]


class PublicRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run in one line."""

    run: str
    user: str
    agent: str
    objective: str
    started_ms: int
    state: RunStanding
    """`silent`: the process that executes it has shown no sign of life for some seconds."""
    status: Status | None = None
    """How it ended."""
    code: Code | None = None
    """The error, if it did not succeed."""
    preview: str = ""
    """The first 200 characters of its answer."""
    tokens: int | None = None
    """Tokens spent, once it has ended."""
    cost: int | None = None
    """Their cost in millionths of the team's currency, as far as prices are known."""
    duration_ms: int | None = None
    """How long it took, once it has ended."""
    changed_ms: int = 0
    """When it ended, or when it began if it has not ended."""
    questions: int = 0
    """Questions to people that are not answered yet."""
    session: str = ""
    via: str = ""
    """The hub or client that sent it; empty: it started here."""
    correlation: str = ""
    """The correlation id that links it to other runs; else its own id."""


class RunList(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Runs, newest first."""

    runs: tuple[PublicRun, ...]
    searched: int = 0
    """How many runs were read to find these."""
    next: str | None = None
    """The value of `before` for the next page; absent at the end. A page may hold fewer runs than `limit`, or none, and
    still have a next one: only so many are read for each.
    """


class PublicRunTree(Struct, frozen=True, kw_only=True):
    """The delegations of a run, and the outcome of each."""

    run: str
    delegations: tuple[Delegation, ...]


class RunTable(Struct, frozen=True, kw_only=True):
    """A run with its delegations in columns."""

    run: PublicRun
    seq: int
    """The number of the newest record that is counted: the value of `after` for the changes since."""
    now_ms: int
    """The time at the server, in milliseconds since 1970."""
    count: int
    """The number of delegations of the run, also of those that did not change."""
    currency: str
    """The currency of all costs, which are estimates."""
    delegations: DelegationTable
    """With `after`, only those that changed."""


class RunCancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be cancelled, and why."""

    delegation: Name | None = None
    """The path of a delegation, to cancel it and everything below it; None: the whole run."""
    reason: str = ""
    """The reason. It is recorded."""


class RunRetry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the new run may spend; None: what the first one had. It is never more than the hub grants."""

    deadline_ms: AtLeastOne | None = None
    max_tokens: AtLeastOne | None = None
    max_cost: Count | None = None
    """Money in millionths of the team's currency."""


class RunAct(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an act on a run has led to, without any text of the run."""

    run: str
    """The run; after a retry, the new run."""
    outcome: Literal["cancelled", "asked", "over", "retried", "refused", "resuming", "running", "waiting"]
    """`asked`: the process that executes the run has not confirmed yet. `over`: it had ended before. `refused`: the
    retry did not start. `running`, `waiting`: there is nothing to resume.
    """
    delegation: str = ""
    """The delegation that was cancelled, if it was not the whole run."""
    status: Status | None = None
    """How the run, or the delegation, ended."""
    code: Code | None = None
    """Why, if it did not succeed."""


class RunResume(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request to resume a run, which says nothing more."""


class SessionLine(Struct, frozen=True, kw_only=True):
    """A conversation of a user with an agent."""

    session: str
    user: str
    agent: str
    objective: str
    """The objective of its newest run."""
    first_ms: int
    last_ms: int
    """When its newest run ended, or began if it has not ended."""
    runs: int
    messages: int
    """The number of requests and answers."""
    run: str
    """Its newest run."""
    via: str
    """The peer or client that sent the newest request; empty if it came from here."""


class SessionList(Struct, frozen=True, kw_only=True):
    """A page of conversations, the one with the newest request first."""

    sessions: tuple[SessionLine, ...]
    next: int | None
    """The value of `before` for the next page; None if there is none. A page may be short although there is one."""


class SessionMessage(Struct, frozen=True, kw_only=True):
    """A request or an answer of a conversation, as it is stored: personal values are tokens."""

    seq: int
    at_ms: int
    role: Literal["user", "assistant"]
    name: str
    """Who speaks: the caller of a request, the agent that answers."""
    text: str
    is_cut: bool
    """Whether the text is longer than what is shown; its delegation has all of it."""
    run: str
    delegation: str
    """The path of the delegation in its run."""
    status: Status | None
    """How it ended, for an answer."""
    code: Code | None
    """Why it did not succeed."""


class SessionView(Struct, frozen=True, kw_only=True):
    """A conversation: its newest messages, oldest first, and its notes."""

    session: str
    user: str
    agent: str
    messages: tuple[SessionMessage, ...]
    next: int | None
    """The value of `before` for the page of earlier messages; None if there are none."""
    notes: tuple[Note, ...]
