"""Runs: one whole, many in a line each, their trees and their records."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from remit.documents.common import AtMs, DelegationId, RunId, State
from remit.protocol.envelope import Artifact, Json
from remit.protocol.errors import Code, Fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Record


class Spent(Struct, frozen=True, kw_only=True):
    """Tokens that were spent."""

    total: Annotated[int, Meta(description="All of them.")]
    prompt: Annotated[int, Meta(description="What models were given.")]
    completion: Annotated[int, Meta(description="What models gave back.")]
    overrun: Annotated[int, Meta(description="What went beyond the grant.")]
    estimated: Annotated[bool, Meta(description="Whether some of it is only estimated.")]


class DelegationLine(Struct, frozen=True, kw_only=True):
    """One delegation of a run: who was asked for what, and how it ended."""

    delegation: DelegationId
    parent: Annotated[str | None, Meta(description="The delegation in which it was asked for; null for the first.")]
    origin: Annotated[str | None, Meta(description="Who asked: an agent, or `user`; null if that is not known.")]
    agent: Annotated[str, Meta(description="Who was asked.")]
    capability: Annotated[str | None, Meta(description="For which capability, if one was named.")] = None
    objective: Annotated[str, Meta(description="For what.")] = ""
    state: Annotated[
        str,
        Meta(
            description="How it ended: `success`, `partial`, `failed`, `timeout`, `refused`, `cancelled`; or where it "
            "stands: `waiting`, `running`, `asking` a person; or `unknown`, if the run ended without a word of it."
        ),
    ]
    started_ms: AtMs
    duration_ms: Annotated[int, Meta(description="How long it took, or has taken so far.")]
    time_ms: Annotated[int | None, Meta(description="How long it may take.")]
    usage: Annotated[Spent, Meta(description="Tokens that it and all below it have spent.")]
    tokens: Annotated[int | None, Meta(description="Tokens that it may spend.")]
    context_tokens: Annotated[
        int | None,
        Meta(description="Tokens that it was given to read, the task included; null: nothing of the conversation."),
    ] = None
    tools: Annotated[dict[str, int], Meta(description="The tools that it used, and how often.")] = {}
    said: Annotated[str, Meta(description="What it reported last.")] = ""
    preview: Annotated[str, Meta(description="How its answer begins, in at most 200 characters.")] = ""
    fault: Annotated[Fault | None, Meta(description="Why it did not succeed.")] = None


class ApprovalLine(Struct, frozen=True, kw_only=True):
    """A person was asked."""

    question: Annotated[str, Meta(description="The id of the question, as `remit pending` takes it.")]
    delegation: DelegationId
    agent: Annotated[str, Meta(description="The agent that would be asked.")]
    text: Annotated[str, Meta(description="The question.")]
    asked_ms: AtMs
    answered_ms: Annotated[int | None, Meta(description="When it was answered; null: not yet, or never.")]
    agreed: Annotated[bool | None, Meta(description="What was answered.")]
    by: Annotated[str, Meta(description="Who answered.")] = ""
    reason: Annotated[str, Meta(description="Why.")] = ""
    edited: Annotated[tuple[str, ...], Meta(description="What the person changed before agreeing.")] = ()


class NoticeLine(Struct, frozen=True, kw_only=True):
    """Something that an operator should know of a delegation."""

    at_ms: AtMs
    delegation: DelegationId
    agent: Annotated[str, Meta(description="Whose delegation it is.")]
    text: Annotated[str, Meta(description="What happened.")]
    code: Annotated[Code | None, Meta(description="Its code, if it has one.")] = None


class RunDetails(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.run/1"):
    """A run: what was asked, how it ended, and who did what. Printed by `remit run`, `runs show` and `runs watch`."""

    run: RunId
    session: Annotated[
        str | None, Meta(description="Where the conversation is kept; `remit run --session` goes on in it.")
    ]
    agent: Annotated[str, Meta(description="Who was asked.")]
    user: Annotated[str | None, Meta(description="In whose name.")]
    via: Annotated[str | None, Meta(description="The hub or client that brought it; null: it was asked here.")] = None
    request: Annotated[
        str | None, Meta(description="The id under which it was sent; that of a hub begins with its run there.")
    ] = None
    objective: Annotated[str, Meta(description="What was asked.")]
    input: Annotated[Json, Meta(description="The inputs that were given.")] = None
    capability: Annotated[str | None, Meta(description="For which capability, if one was named.")] = None
    started_ms: AtMs
    state: State
    status: Annotated[Status | None, Meta(description="How it ended; null: it has not.")]
    exit_code: Annotated[int | None, Meta(description="The exit code that `remit run` has for this end.")]
    result: Annotated[
        Json, Meta(description="The answer; of an end that is no success, what was finished before it.")
    ] = None
    summary: Annotated[str, Meta(description="The answer in a sentence, if the agent gave one.")] = ""
    confidence: Annotated[float | None, Meta(description="How sure the agent is, from 0 to 1.")] = None
    artifacts: Annotated[tuple[Artifact, ...], Meta(description="Structured data that belongs to the answer.")] = ()
    warnings: Annotated[tuple[str, ...], Meta(description="What to keep in mind about the answer.")] = ()
    finished: Annotated[tuple[str, ...], Meta(description="The parts that were finished.")] = ()
    unfinished: Annotated[tuple[str, ...], Meta(description="The parts that were not.")] = ()
    fault: Annotated[Fault | None, Meta(description="Why it did not succeed.")] = None
    usage: Annotated[Spent, Meta(description="Tokens that were spent in all.")]
    duration_ms: Annotated[int, Meta(description="How long it took, or has taken so far.")] = 0
    delegations: Annotated[
        tuple[DelegationLine, ...], Meta(description="Who asked whom, in the order in which they were asked.")
    ] = ()
    approvals: Annotated[tuple[ApprovalLine, ...], Meta(description="What people were asked.")] = ()
    notices: Annotated[tuple[NoticeLine, ...], Meta(description="What an operator should know.")] = ()
    store: Annotated[str, Meta(description="The file that holds the record.")]


class RunAnswer(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.answer/1"):
    """The answer of a run as its user gets it, what was redacted included. Printed by `runs answer`
    and, for a run that is named, by `runs resume`.
    """

    run: RunId
    status: Annotated[Status, Meta(description="How it ended.")]
    result: Annotated[
        Json, Meta(description="The answer; of an end that is no success, what was finished before it.")
    ] = None
    summary: Annotated[str, Meta(description="The answer in a sentence, if the agent gave one.")] = ""
    artifacts: Annotated[tuple[Artifact, ...], Meta(description="Structured data that belongs to the answer.")] = ()
    fault: Annotated[Fault | None, Meta(description="Why it did not succeed.")] = None
    exit_code: Annotated[int, Meta(description="The exit code that `remit run` has for this end.")]


class Resumed(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.resumed/1"):
    """What became of runs that had not ended. Printed by `runs resume --json` where no answer is all there is."""

    answers: Annotated[tuple[RunAnswer, ...], Meta(description="Those that have ended now.")] = ()
    waiting: Annotated[tuple[str, ...], Meta(description="Runs that wait for a person.")] = ()
    elsewhere: Annotated[tuple[str, ...], Meta(description="Runs on which another process is at work.")] = ()
    left: Annotated[tuple[str, ...], Meta(description="Runs that were left because of an interrupt.")] = ()


class ReplayStep(Struct, frozen=True, kw_only=True):
    """One thing that happened in a run."""

    at_ms: AtMs
    elapsed_ms: Annotated[int, Meta(description="How long after the run began.")]
    kind: Annotated[Kind, Meta(description="What its record tells.")]
    delegation: DelegationId
    agent: Annotated[str, Meta(description="Who was asked there.")]
    text: Annotated[str, Meta(description="What happened, as a sentence.")]
    preview: Annotated[
        str, Meta(description="How what was given, or what came of it, begins, in at most 200 characters.")
    ] = ""


class Replay(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.replay/1"):
    """A run step by step, as it was recorded. Printed by `remit runs replay --json`."""

    run: RunId
    state: State
    steps: Annotated[tuple[ReplayStep, ...], Meta(description="What happened, in order.")]


class ChatBegun(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.chat/1"):
    """A conversation that begins, or goes on. Printed first by `remit chat --jsonl`; records follow."""

    session: Annotated[str, Meta(description="Where it is kept; `remit chat --session` goes on in it.")]
    agent: Annotated[str, Meta(description="Who is talked to.")]
    user: Annotated[str, Meta(description="In whose name.")]
    messages: Annotated[int, Meta(description="How many messages of it were said before, at most 200.")]
    store: Annotated[str, Meta(description="The file that holds the record.")]


class RecordLine(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.record/1"):
    """One record, as it was committed. Printed by `remit run --jsonl`, `runs watch --jsonl` and `runs export`.

    With `remit run --jsonl` and `remit chat --jsonl` there are also pieces of what agents say, as they come.
    """

    seq: Annotated[
        int, Meta(description="Its number in the store's record; 0: a `delta`, which is heard once and never kept.")
    ]
    kind: Annotated[Kind, Meta(description="What it tells.")]
    at_ms: AtMs
    run: RunId
    session: Annotated[str, Meta(description="The session in whose conversation it stands.")]
    body: Annotated[Any, Meta(description="What is told: an envelope, or what `docs/audit.md` has for its kind.")]


def record_line(record: Record) -> RecordLine:
    """Return one record."""
    return RecordLine(
        seq=record.seq, kind=record.kind, at_ms=record.at_ms, run=record.run, session=record.session, body=record.body
    )


class Records(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.export/1"):
    """Many records. Printed by `remit runs export --format json`."""

    records: Annotated[tuple[RecordLine, ...], Meta(description="The records in order.")]


class RunLine(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.listed-run/1"):
    """One line for one run. Printed by `remit runs list --jsonl`."""

    run: RunId
    user: Annotated[str, Meta(description="In whose name.")]
    agent: Annotated[str, Meta(description="Who was asked.")]
    objective: Annotated[str, Meta(description="What was asked.")]
    started_ms: AtMs
    state: State
    status: Annotated[Status | None, Meta(description="How it ended; null: it has not.")]
    code: Annotated[Code | None, Meta(description="Why it did not succeed.")] = None
    tokens: Annotated[int | None, Meta(description="Tokens that were spent, once it has ended.")] = None
    duration_ms: Annotated[int | None, Meta(description="How long it took, once it has ended.")] = None
    via: Annotated[str | None, Meta(description="The hub or client that brought it; null: it was asked here.")] = None
    correlation: Annotated[str, Meta(description="What links it to others of the same workflow; else its id.")] = ""


class Runs(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.runs/1"):
    """Runs, the newest first. Printed by `remit runs list --json`."""

    runs: Annotated[tuple[RunLine, ...], Meta(description="The runs.")]


class Branch(Struct, frozen=True, kw_only=True):
    """A delegation with those that were asked for in it."""

    delegation: Annotated[DelegationLine, Meta(description="The delegation.")]
    children: Annotated[tuple["Branch", ...], Meta(description="Those below it, in the order of asking.")] = ()


class RunTree(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.tree/1"):
    """Who asked whom, as a tree. Printed by `remit runs tree --json`."""

    run: RunId
    root: Annotated[Branch, Meta(description="The agent that the user asked, and all below it.")]


class Cancellation(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.cancel/1"):
    """What became of the wish to cancel a run. Printed by `remit runs cancel --json`."""

    run: RunId
    outcome: Annotated[
        Literal["cancelled", "asked", "over"],
        Meta(
            description="`cancelled`; `asked`: its hub was told and has not said how it ended yet; `over`: it had "
            "ended before, or ended otherwise."
        ),
    ]
    status: Annotated[Status | None, Meta(description="How the run ended; null: it has not.")]


class Detached(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.detached/1"):
    """A run that goes on by itself. Printed by `remit run --detach --json`."""

    run: RunId
    pid: Annotated[int, Meta(description="The process that carries it out.")]
    log: Annotated[str, Meta(description="The file in which it says what happens.")]
    state: State
