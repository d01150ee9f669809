"""Documents of runs and of the audit record: details, lists, trees, records, verification and export."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from remit.protocol.envelope import Artifact, Json
from remit.protocol.errors import Code, Fault
from remit.protocol.files import File
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Record
from remit.runtime.audit import AuditFinding
from remit_server.documents.common import AtMs, DelegationId, RunId, State, shown_as


class Spent(Struct, frozen=True, kw_only=True):
    """Tokens spent, and their cost."""

    total: Annotated[int, Meta(description="Total.")]
    prompt: Annotated[int, Meta(description="Prompt tokens.")]
    completion: Annotated[int, Meta(description="Completion tokens.")]
    overrun: Annotated[int, Meta(description="Tokens over the budget.")]
    estimated: Annotated[bool, Meta(description="Whether the figures are partly estimated.")]
    cache_write: Annotated[int, Meta(description="Prompt tokens that the provider wrote to its cache.")]
    cache_read: Annotated[int, Meta(description="Prompt tokens that it read from its cache.")]
    cost: Annotated[int, Meta(description="Cost in millionths of the team's currency.")]
    unpriced: Annotated[int, Meta(description="Tokens that are not in `cost`: the price of their model is not known.")]


class DelegationLine(Struct, frozen=True, kw_only=True):
    """One delegation of a run: the callee, the objective, and the outcome."""

    delegation: DelegationId
    parent: Annotated[str | None, Meta(description="The parent delegation; null for the first.")]
    origin: Annotated[str | None, Meta(description="The caller: an agent or `user`; null if unknown.")]
    agent: Annotated[str, Meta(description="The agent that was called.")]
    capability: Annotated[str | None, Meta(description="The requested capability, if any.")] = None
    objective: Annotated[str, Meta(description="The objective.")] = ""
    state: Annotated[
        str,
        Meta(
            description="How it ended: `success`, `partial`, `failed`, `timeout`, `refused`, `cancelled`; or where it "
            "stands: `waiting`, `running`, `asking` a person; or `unknown`, if the run ended without recording it."
        ),
    ]
    started_ms: AtMs
    duration_ms: Annotated[int, Meta(description="Duration, so far if it has not ended.")]
    time_ms: Annotated[int | None, Meta(description="Time limit.")]
    usage: Annotated[Spent, Meta(description="Tokens spent, nested delegations included.")]
    tokens: Annotated[int | None, Meta(description="Token budget.")]
    context_tokens: Annotated[
        int | None,
        Meta(description="Context tokens it received, the task included; null: no conversation was passed."),
    ] = None
    tools: Annotated[dict[str, int], Meta(description="Number of uses of each tool.")] = {}
    said: Annotated[str, Meta(description="Its last progress message.")] = ""
    preview: Annotated[str, Meta(description="The first 200 characters of its answer.")] = ""
    fault: Annotated[Fault | None, Meta(description="The error, if it did not succeed.")] = None
    handling: Annotated[
        str, Meta(description="Whether it answered itself, was routed, or handed the conversation on.")
    ] = ""


class ApprovalLine(Struct, frozen=True, kw_only=True):
    """A question to a person."""

    question: Annotated[str, Meta(description="The question id, for `remit pending`.")]
    delegation: DelegationId
    agent: Annotated[str, Meta(description="The agent that would be called.")]
    text: Annotated[str, Meta(description="The question.")]
    asked_ms: AtMs
    answered_ms: Annotated[int | None, Meta(description="Time of the answer; null: not answered.")]
    agreed: Annotated[bool | None, Meta(description="Whether it was approved; null: not answered.")]
    by: Annotated[str, Meta(description="The person who answered.")] = ""
    reason: Annotated[str, Meta(description="Why.")] = ""
    edited: Annotated[tuple[str, ...], Meta(description="Fields that the person edited before approving.")] = ()


class NoticeLine(Struct, frozen=True, kw_only=True):
    """A notice to the operator about a delegation."""

    at_ms: AtMs
    delegation: DelegationId
    agent: Annotated[str, Meta(description="The agent of the delegation.")]
    text: Annotated[str, Meta(description="The event.")]
    code: Annotated[Code | None, Meta(description="The error code, if any.")] = None


class RunDetails(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.run/1"):
    """A run: the request, the outcome, and the delegations. Printed by `remit run`, `runs show` and `runs watch`."""

    run: RunId
    session: Annotated[str | None, Meta(description="The session id; `remit run --session` continues it.")]
    agent: Annotated[str, Meta(description="The agent that was called.")]
    user: Annotated[str | None, Meta(description="The user.")]
    via: Annotated[str | None, Meta(description="The hub or client that sent it; null: it started here.")] = None
    request: Annotated[
        str | None,
        Meta(description="The sender's request id; if the sender is a hub, it starts with the run id there."),
    ] = None
    objective: Annotated[str, Meta(description="The objective.")]
    input: Annotated[Json, Meta(description="The input.")] = None
    capability: Annotated[str | None, Meta(description="The requested capability, if any.")] = None
    started_ms: AtMs
    state: State
    status: Annotated[Status | None, Meta(description="Final status; null: not ended.")]
    exit_code: Annotated[int | None, Meta(description="The exit code of `remit run` for this status.")]
    result: Annotated[Json, Meta(description="The answer; if the run did not succeed, the finished parts.")] = None
    summary: Annotated[str, Meta(description="The answer in one sentence, if the agent gave one.")] = ""
    confidence: Annotated[float | None, Meta(description="Confidence of the agent, from 0 to 1.")] = None
    artifacts: Annotated[tuple[Artifact, ...], Meta(description="Structured data that comes with the answer.")] = ()
    files: Annotated[tuple[File, ...], Meta(description="Files that come with the answer.")] = ()
    warnings: Annotated[tuple[str, ...], Meta(description="Warnings about the answer.")] = ()
    finished: Annotated[tuple[str, ...], Meta(description="The finished parts.")] = ()
    unfinished: Annotated[tuple[str, ...], Meta(description="The unfinished parts.")] = ()
    fault: Annotated[Fault | None, Meta(description="The error, if it did not succeed.")] = None
    usage: Annotated[Spent, Meta(description="Tokens spent in total.")]
    duration_ms: Annotated[int, Meta(description="Duration, so far if it has not ended.")] = 0
    delegations: Annotated[
        tuple[DelegationLine, ...], Meta(description="The delegations, in the order of the calls.")
    ] = ()
    approvals: Annotated[tuple[ApprovalLine, ...], Meta(description="Questions to people.")] = ()
    notices: Annotated[tuple[NoticeLine, ...], Meta(description="Notices for the operator.")] = ()
    store: Annotated[str, Meta(description="The record file.")]


class RunAnswer(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.answer/1"):
    """The answer of a run as its user gets it, with the original values. Printed by `runs answer`
    and, for a given run, by `runs resume`.
    """

    run: RunId
    status: Annotated[Status, Meta(description="Final status.")]
    result: Annotated[Json, Meta(description="The answer; if the run did not succeed, the finished parts.")] = None
    summary: Annotated[str, Meta(description="The answer in one sentence, if the agent gave one.")] = ""
    artifacts: Annotated[tuple[Artifact, ...], Meta(description="Structured data that comes with the answer.")] = ()
    files: Annotated[tuple[File, ...], Meta(description="Files that come with the answer.")] = ()
    fault: Annotated[Fault | None, Meta(description="The error, if it did not succeed.")] = None
    exit_code: Annotated[int, Meta(description="The exit code of `remit run` for this status.")]


class Resumed(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.resumed/1"):
    """The outcome of resuming several runs. Printed by `runs resume --json`, unless it prints one answer."""

    answers: Annotated[tuple[RunAnswer, ...], Meta(description="Answers of the runs that ended.")] = ()
    waiting: Annotated[tuple[str, ...], Meta(description="Runs that are waiting for a person.")] = ()
    elsewhere: Annotated[tuple[str, ...], Meta(description="Runs that another process is executing.")] = ()
    left: Annotated[tuple[str, ...], Meta(description="Runs left unfinished because of an interrupt.")] = ()


class RunStep(Struct, frozen=True, kw_only=True):
    """One event of a run."""

    at_ms: AtMs
    elapsed_ms: Annotated[int, Meta(description="Time since the start of the run.")]
    kind: Annotated[Kind, Meta(description="Kind of record.")]
    delegation: DelegationId
    agent: Annotated[str, Meta(description="The agent of the delegation.")]
    text: Annotated[str, Meta(description="The event as a sentence.")]
    preview: Annotated[str, Meta(description="The first 200 characters of the input or the result.")] = ""


class RunSteps(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.steps/1"):
    """The recorded steps of a run. Printed by `remit runs print --json`."""

    run: RunId
    state: State
    steps: Annotated[tuple[RunStep, ...], Meta(description="The steps, in order.")]


class ReplayDifference(Struct, frozen=True, kw_only=True):
    """A place in which a replay differs from its recording."""

    run: Annotated[int, Meta(description="The number of the run in the recording, from 1.")]
    agent: Annotated[str, Meta(description="The agent.")]
    at: Annotated[str, Meta(description="The path of its delegation in the run; empty for the first.")]
    kind: Annotated[
        str,
        Meta(
            description="What differs: a call of a `model`, a `tool`, an `agent` of another hub, a question to a "
            "`person`, a `value` that was found out once, the `request` or the `answer` of the run, or a `connection`."
        ),
    ]
    call: Annotated[int, Meta(description="The number of the call among those of its kind in its delegation.")]
    field: Annotated[str, Meta(description="The field that differs; empty: the call as a whole.")]
    before: Annotated[str | None, Meta(description="What the recording has there; null: nothing.")]
    after: Annotated[str | None, Meta(description="What the replay has there; null: nothing.")]
    text: Annotated[str, Meta(description="The difference as a sentence.")]


class ReplayedRun(Struct, frozen=True, kw_only=True):
    """A run that was replayed."""

    run: Annotated[int, Meta(description="Its number in the recording, from 1.")]
    agent: Annotated[str, Meta(description="The agent that was asked.")]
    status: Annotated[Status, Meta(description="Final status.")]
    result: Annotated[Json, Meta(description="The answer.")] = None
    fault: Annotated[Fault | None, Meta(description="The error, if it did not succeed.")] = None
    usage: Annotated[Spent, Meta(description="Tokens, as recorded for recorded replies.")]


class ReplayReport(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.replay/2"):
    """How a recorded run went again. Printed by `remit runs replay --json`."""

    recording: Annotated[str, Meta(description="The file of the recording.")]
    same: Annotated[bool, Meta(description="Whether nothing differs.")]
    replies: Annotated[int, Meta(description="The number of recorded replies.")]
    asked: Annotated[int, Meta(description="The number of new calls that were really made.")]
    differences: Annotated[
        tuple[ReplayDifference, ...], Meta(description="The differences; the first one came first.")
    ] = ()
    runs: Annotated[tuple[ReplayedRun, ...], Meta(description="The runs.")] = ()


class ChatBegun(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.chat/1"):
    """The start or continuation of a conversation. Printed first by `remit chat --jsonl`, before the records."""

    session: Annotated[str, Meta(description="The session id; `remit chat --session` continues it.")]
    agent: Annotated[str, Meta(description="The agent in the conversation.")]
    user: Annotated[str, Meta(description="The user.")]
    messages: Annotated[int, Meta(description="Number of earlier messages, at most 200.")]
    store: Annotated[str, Meta(description="The record file.")]


class RecordLine(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.record/1"):
    """One committed record. Printed by `remit run --jsonl`, `runs watch --jsonl` and `runs export`.

    With `remit run --jsonl` and `remit chat --jsonl` the text of agents is also streamed in pieces.
    """

    seq: Annotated[
        int, Meta(description="Row number in the record; 0: a `delta`, which is sent once and never stored.")
    ]
    kind: Annotated[Kind, Meta(description="Kind of record.")]
    at_ms: AtMs
    run: RunId
    session: Annotated[str, Meta(description="The session it belongs to.")]
    body: Annotated[
        Any, Meta(description="The content: an envelope, or the fields that `remit docs audit` lists for this kind.")
    ]


def record_line(record: Record) -> RecordLine:
    """Return one record."""
    return shown_as(RecordLine, record)


class Records(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.export/1"):
    """A list of records. Printed by `remit runs export --format json`."""

    records: Annotated[tuple[RecordLine, ...], Meta(description="The records, in order.")]


class RunLine(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.listed-run/1"):
    """A run in a list. Printed by `remit runs list --jsonl`."""

    run: RunId
    user: Annotated[str, Meta(description="The user.")]
    agent: Annotated[str, Meta(description="The agent that was called.")]
    objective: Annotated[str, Meta(description="The objective.")]
    started_ms: AtMs
    state: State
    status: Annotated[Status | None, Meta(description="Final status; null: not ended.")]
    code: Annotated[Code | None, Meta(description="The error, if it did not succeed.")] = None
    tokens: Annotated[int | None, Meta(description="Tokens spent; null: not ended.")] = None
    cost: Annotated[
        int | None,
        Meta(description="Cost in millionths of the team's currency, as far as prices are known; null: not ended."),
    ] = None
    duration_ms: Annotated[int | None, Meta(description="Duration; null: not ended.")] = None
    via: Annotated[str | None, Meta(description="The hub or client that sent it; null: it started here.")] = None
    correlation: Annotated[str, Meta(description="Correlation id of related runs; the run id by default.")] = ""


class Runs(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.runs/1"):
    """A list of runs, newest first. Printed by `remit runs list --json`."""

    runs: Annotated[tuple[RunLine, ...], Meta(description="The runs.")]


class Branch(Struct, frozen=True, kw_only=True):
    """A delegation with its child delegations."""

    delegation: Annotated[DelegationLine, Meta(description="The delegation.")]
    children: Annotated[
        tuple["Branch", ...], Meta(description="Its child delegations, in the order of the calls.")
    ] = ()


class RunTree(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.tree/1"):
    """The delegations of a run as a tree. Printed by `remit runs tree --json`."""

    run: RunId
    root: Annotated[Branch, Meta(description="The agent that the user asked, with all nested delegations.")]


class Cancellation(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.cancel/1"):
    """The outcome of cancelling a run. Printed by `remit runs cancel --json`."""

    run: RunId
    outcome: Annotated[
        Literal["cancelled", "asked", "over"],
        Meta(
            description="`cancelled`; `asked`: its hub received the request and has not confirmed it; `over`: it had "
            "already ended, or ended in another way."
        ),
    ]
    status: Annotated[Status | None, Meta(description="Final status of the run or delegation; null: not ended.")]
    delegation: Annotated[str, Meta(description="The delegation, if only a part of the run was cancelled.")] = ""


class Detached(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.detached/1"):
    """A run in the background. Printed by `remit run --detach --json`."""

    run: RunId
    pid: Annotated[int, Meta(description="Id of the process that executes it.")]
    log: Annotated[str, Meta(description="The log file.")]
    state: State


class Verification(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.verification/1"):
    """Whether a record is intact. Printed by `remit audit verify --json`."""

    ok: Annotated[bool, Meta(description="Whether the record is intact.")]
    file: Annotated[str, Meta(description="The record file.")]
    rows: Annotated[int, Meta(description="Number of rows.")]
    checkpoints: Annotated[int, Meta(description="Number of valid checkpoints.")]
    unprotected: Annotated[
        int, Meta(description="Rows after the last checkpoint. Truncation there would go unnoticed.")
    ]
    findings: Annotated[tuple[AuditFinding, ...], Meta(description="Each place where the record was changed.")]
    keys: Annotated[
        tuple[str, ...], Meta(description="Public keys that signed it. Compare them with a copy kept elsewhere.")
    ]
    anchors: Annotated[int, Meta(description="Number of given anchors that match the record.")] = 0
    removed: Annotated[
        int, Meta(description="Rows whose texts were removed on purpose, as signed statements in the record say.")
    ] = 0
    since: Annotated[
        int, Meta(description="The row up to which the record was verified before; 0 if all of it was verified now.")
    ] = 0
    unchained: Annotated[
        int, Meta(description="Records of several hubs that are durable and not in the chain yet.")
    ] = 0
    unprotected_since_ms: Annotated[
        int,
        Meta(description="Time of the first row that no signature covers, in milliseconds since 1970; 0: none."),
    ] = 0


class AuditRow(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="remit.audit-row/1"):
    """A row as it was hashed; see `remit docs verification` for how to verify it. Printed by `remit audit export`."""

    seq: Annotated[int, Meta(description="Row number.")]
    kind: Annotated[str, Meta(description="Kind of record.")]
    at_ms: AtMs
    run: RunId
    session: Annotated[str, Meta(description="The session it belongs to.")]
    body: Annotated[str, Meta(description="The JSON text that was hashed, as UTF-8.")]
    previous: Annotated[str, Meta(description="Digest of the previous row; 64 zeros for the first.")]
    digest: Annotated[str, Meta(description="Digest of this row.")]
    base64: Annotated[bool, Meta(description="Whether the body is encrypted, and written in Base64.")] = False


class AuditCheckpoint(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.audit-checkpoint/1"):
    """A signed checkpoint of the chain. Printed by `remit audit anchor` and, after its row, `remit audit export`."""

    number: Annotated[int, Meta(description="Sequence number. A gap shows that a checkpoint was removed.")]
    seq: Annotated[int, Meta(description="The last row that this checkpoint signs.")]
    digest: Annotated[str, Meta(description="Digest of that row.")]
    at_ms: AtMs
    key: Annotated[str, Meta(description="The public key (Ed25519).")]
    signature: Annotated[str, Meta(description="The signature.")]
