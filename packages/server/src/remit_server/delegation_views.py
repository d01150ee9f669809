"""What the HTTP API shows of one delegation: its remit, what its callee saw, verdicts, answer and records."""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from remit.protocol.envelope import ContextFilter, Handoff, Json, Note, Response
from remit.protocol.errors import Code, Fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind
from remit.protocol.remit import Priority
from remit_server.documents.verdicts import RecordedVerdict


class Advice(Struct, frozen=True, kw_only=True):
    """What to change so that a refused request would be allowed, and where in the team file."""

    key: str
    """The key of the team file: `limits.max_depth`."""
    says: str
    """What to do, as a sentence."""
    file: str = ""
    line: int | None = None
    """The line of the key, or of the section to add it to; None: neither is in the file."""
    is_set: bool = False
    """Whether the file sets the key; if not, its default holds."""
    value: str = ""
    """The present value, as in the file."""


class CarvedTokens(Struct, frozen=True, kw_only=True):
    """Tokens: what the caller had, what it passed on, and what became of them."""

    caller: int | None
    """The caller's own grant; None: a person asked."""
    left_before: int | None
    """What the caller could have left before this call: its grant without what its other calls used or held."""
    granted: int
    used: int | None
    """What it used, including the delegations below it; None: not ended."""
    own: int | None
    """What it used itself."""
    below: int
    """What the delegations below it used or hold."""
    given_back: int | None
    overrun: int = 0


class CarvedMoney(Struct, frozen=True, kw_only=True):
    """Money in millionths of the team's currency: what the caller had, what it passed on, and what became of it."""

    caller: int | None
    """The caller's own limit; None: it had none, or a person asked."""
    granted: int | None
    """None: there was no limit."""
    used: int | None
    """What it used, including the delegations below it; None: not ended."""
    own: int | None
    below: int
    unpriced: int
    """Tokens that are not counted, since the price of their model is not known."""


class CarvedTime(Struct, frozen=True, kw_only=True):
    """Time in milliseconds: what the caller had, what it passed on, and what was used."""

    caller: int | None
    left_before: int | None
    """What the caller had left, if its clock never stood still for a person."""
    granted: int
    used: int | None
    queued: int
    """Of which it waited for a free slot."""
    asked: int
    """The time in which its clock stood still for a person."""


class RemitView(Struct, frozen=True, kw_only=True):
    """What was granted, and what it was carved from."""

    tokens: CarvedTokens
    cost: CarvedMoney
    time_ms: CarvedTime
    depth: int
    max_depth: int
    chain: tuple[str, ...]
    context_tokens: int
    tools: tuple[str, ...] | None
    """None: no bound besides the callee's own card."""
    targets: tuple[str, ...] | None
    may_delegate: bool
    priority: Priority


class MessageView(Struct, frozen=True, kw_only=True):
    """A message of the caller's conversation, redacted."""

    seq: int
    role: str
    name: str
    text: str
    tokens: int
    at_ms: int
    delegation: str


class ShownView(Struct, frozen=True, kw_only=True):
    """What the callee was shown, as it is recorded; it got tokens, or the values that its team lets it see."""

    objective: str
    input: Json
    hints: tuple[str, ...]
    reason: str
    handoff: Handoff | None
    messages: tuple[MessageView, ...]
    seen_before: int
    """Messages that were left out because its session had them already."""
    summary: str
    """The beginning of the summary of the conversation."""
    workspace: str
    """The beginning of the description of the workspace."""
    notes: tuple[Note, ...]
    tokens: int | None
    """The tokens of all of it; None: no conversation was passed on, so nothing was counted."""
    tools: tuple[str, ...]
    """The tools that it could use, by its present card and its remit."""
    targets: tuple[str, ...]
    """The agents that it could call, likewise."""
    sees: tuple[str, ...]
    """The kinds of personal data that it sees in clear, by its present card."""


class HeldBackBy(StrEnum):
    """What kept a message back."""

    NO_FILTER = "no_filter"
    NONE_WANTED = "none_wanted"
    SEEN_BEFORE = "seen_before"
    AGE = "age"
    ROLE = "role"
    KEYWORD = "keyword"
    COUNT = "count"
    TOKENS = "tokens"


class HeldBackMessageView(Struct, frozen=True, kw_only=True):
    """A message that the callee was not shown."""

    message: MessageView
    by: HeldBackBy
    why: str


class RedactedView(Struct, frozen=True, kw_only=True):
    """Values of one kind in one field that were replaced by tokens; the values themselves are not here."""

    place: str
    kind: str
    count: int
    in_clear: bool
    """Whether the callee saw the values nevertheless, because its team lets it see this kind or field."""


class HeldBackPart(Struct, frozen=True, kw_only=True):
    """A tool, an agent, or a part of the conversation that the callee did not get."""

    what: str
    why: str


class HeldBackView(Struct, frozen=True, kw_only=True):
    """What was held back from the callee, and by what."""

    filter: ContextFilter | None
    """The context filter of the call."""
    messages: tuple[HeldBackMessageView, ...]
    earlier: int
    """Further messages that were held back and are not listed: of other runs, or older ones."""
    parts: tuple[HeldBackPart, ...]
    """Summary, workspace and notes."""
    redacted: tuple[RedactedView, ...]
    tools: tuple[HeldBackPart, ...]
    targets: tuple[HeldBackPart, ...]


class OutcomeBefore(Struct, frozen=True, kw_only=True):
    """How an earlier call to the same agent ended."""

    run: str
    path: str
    at_ms: int
    status: Status
    code: Code | None


class BreakerThen(Struct, frozen=True, kw_only=True):
    """The circuit breaker of the callee when the request was judged."""

    state: Literal["closed", "probing", "open", "not_asked"]
    says: str
    retry_after_ms: int | None
    before: tuple[OutcomeBefore, ...]
    """The last outcomes of the agent before the request, the newest first."""


class CallBelow(Struct, frozen=True, kw_only=True):
    """A delegation that this one asked for."""

    path: str
    target: str
    tokens: int
    used: int
    status: Status | None
    code: Code | None


class ToolUseView(Struct, frozen=True, kw_only=True):
    """A use of a tool."""

    seq: int
    at_ms: int
    tool: str
    input: Json
    duration_ms: int
    replayed: bool
    revealed: tuple[str, ...]
    fault: Fault | None


class SaidView(Struct, frozen=True, kw_only=True):
    """A progress report, or a notice to the operator."""

    seq: int
    at_ms: int
    kind: Literal["progress", "notice"]
    text: str
    code: Code | None = None


class ApprovalView(Struct, frozen=True, kw_only=True):
    """A question to a person about the delegation, and the answer."""

    id: str
    question: str
    asked_ms: int
    answered_ms: int | None
    agreed: bool | None
    by: str
    reason: str
    edited: tuple[str, ...]


class AuditedRow(Struct, frozen=True, kw_only=True):
    """A row of the audit log about the delegation."""

    seq: int
    kind: Kind
    at_ms: int
    intact: bool | None
    """Whether it follows from the row before it in the hash chain; None: not checked."""


class AuditedRows(Struct, frozen=True, kw_only=True):
    """The rows of the audit log about the delegation, and whether they are as they were written."""

    rows: tuple[AuditedRow, ...]
    intact: bool | None
    says: str


class DelegationDetail(Struct, frozen=True, kw_only=True):
    """Everything that is recorded about one delegation."""

    run: str
    path: str
    id: str
    parent: str | None
    state: str
    """Its state, as in `GET /v1/runs/{run}/tree`."""
    origin: str
    target: str
    user: str
    capability: str | None
    session: str | None
    parent_session: str | None
    correlation: str | None
    via: str | None
    retry_of: str | None
    asked_ms: int
    ended_ms: int | None
    remit: RemitView
    shown: ShownView
    held_back: HeldBackView
    verdicts: tuple[RecordedVerdict, ...]
    breaker: BreakerThen
    response: Response | None
    advice: tuple[Advice, ...]
    """What to change in the team file, if it was refused or failed for a limit."""
    calls: tuple[CallBelow, ...]
    said: tuple[SaidView, ...]
    tools: tuple[ToolUseView, ...]
    approvals: tuple[ApprovalView, ...]
    audit: AuditedRows
    left_out: int
    """Records about it that are not shown here, because there are too many; `GET /v1/audit` has all."""
