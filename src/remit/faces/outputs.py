"""What `--json` and `--jsonl` print: each document with its schema's name and version, and what its fields mean.

A field may be added to a version; one that is renamed, removed or given another meaning makes a new version.
"""

from typing import Annotated, Any, Literal, Union, cast

import msgspec
from msgspec import Meta, Struct

from remit.policy.plan import Workflow
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Artifact, Json, Request
from remit.protocol.errors import TABLE, Code, Fault, Problem
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Record
from remit.runtime.audit import Finding
from remit.runtime.ports import Decision, Question

AtMs = Annotated[int, Meta(description="When, in milliseconds since 1970.")]
RunId = Annotated[str, Meta(description="The run's id.")]
DelegationId = Annotated[
    str, Meta(description="The delegation's place in the run: `run.2.1` is the first in the second.")
]
State = Annotated[
    Literal["waiting", "running", "silent", "finished"],
    Meta(
        description="`waiting` for a person, `running`, `silent` (its process has not been heard of for a while) or "
        "`finished`."
    ),
]


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Failure(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.error/1"):
    """Why a command could not do what it was asked for."""

    code: Annotated[Code, Meta(description="What went wrong; `remit errors CODE` explains it.")]
    message: Annotated[str, Meta(description="The same as a sentence.")]
    suggestion: Annotated[str, Meta(description="What to do next.")]
    problems: Annotated[tuple[Problem, ...], Meta(description="Each place that is wrong.")] = ()
    exit_code: Annotated[int, Meta(description="With what the command exits.")]


def failure_of(why: Fault) -> Failure:
    """Return the document for a fault."""
    return Failure(
        code=why.code,
        message=why.message,
        suggestion=why.suggestion,
        problems=why.problems,
        exit_code=TABLE[why.code].exit_code,
    )


class ErrorCode(Struct, frozen=True, kw_only=True):
    """What follows from an error code."""

    code: Annotated[Code, Meta(description="The code; it is stable and never reused.")]
    meaning: Annotated[str, Meta(description="What it means.")]
    suggestion: Annotated[str, Meta(description="What to do.")]
    blame: Annotated[str, Meta(description="Who must change something: `caller`, `peer` or `hub`.")]
    status: Annotated[int, Meta(description="The HTTP status that stands for it.")]
    exit_code: Annotated[int, Meta(description="With what a command exits.")]
    recoverable: Annotated[bool, Meta(description="Whether trying again can help.")]


class ErrorCodes(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.errors/1"):
    """Error codes, explained. Printed by `remit errors`."""

    errors: Annotated[tuple[ErrorCode, ...], Meta(description="The codes that were asked for, or all.")]


# ── a run ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


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


SharedRunId = Annotated[
    str, Meta(description="The run of the two agents; `remit chat … --continue RUN` goes on with it.")
]


class SharedReview(Struct, frozen=True, kw_only=True):
    """Why a person sees a draft before it is sent."""

    rule: Annotated[str, Meta(description="Which rule asks: `manual`, `paused`, `lost`, or one of `semi_auto`.")]
    why: Annotated[str, Meta(description="What it found, as a sentence.")]


class SharedDraft(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-draft/1"):
    """A draft to a shared agent that waits for a person.

    Printed by `remit chat PROFILE DEVICE --jsonl`, and by `remit pending list --jsonl` and `pending show --json`.
    """

    draft: Annotated[str, Meta(description="Its id; `remit pending approve ID` sends it.")]
    run: SharedRunId
    profile: Annotated[str, Meta(description="The profile whose agent wrote it.")]
    device: Annotated[str, Meta(description="The id of the device to whose agent it would go.")]
    device_name: Annotated[str, Meta(description="The name of that device.")] = ""
    objective: Annotated[str, Meta(description="What the two agents work on.")]
    turn: Annotated[int, Meta(description="The turn that it would be, from 1.")]
    text: Annotated[str, Meta(description="What would be sent.")]
    reviews: Annotated[tuple[SharedReview, ...], Meta(description="Why a person is asked.")]
    paused: Annotated[bool, Meta(description="Whether its run is paused: an answer counts once that goes on.")] = False


class SharedTurn(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-turn/1"):
    """Something that was said between two agents. Printed by `remit chat PROFILE DEVICE --jsonl`, as it comes."""

    run: SharedRunId
    turn: Annotated[int, Meta(description="The turn it belongs to, from 1; 0: it was said before the first.")]
    speaker: Annotated[
        Literal["local_agent", "remote_agent", "user"], Meta(description="Who said it; `user` is the person here.")
    ]
    text: Annotated[str, Meta(description="What was said.")]
    label: Annotated[
        Literal["auto_sent", "approved", "edited", "yours"] | None,
        Meta(description="Who let it go: nobody, a person as it was or changed; or a person wrote it. Null: it came."),
    ] = None
    at_ms: AtMs
    took_ms: Annotated[int, Meta(description="How long it was drafted; for a reply, how long it was waited for.")] = 0
    failed: Annotated[str, Meta(description="Why it got no reply and will not get one.")] = ""


class _Shared(Struct, frozen=True, kw_only=True):
    run: SharedRunId
    profile: Annotated[str, Meta(description="The profile whose agent speaks here.")]
    device: Annotated[str, Meta(description="The id of the device that shares the other agent.")]
    objective: Annotated[str, Meta(description="What the two work on.")]
    mode: Annotated[
        Literal["manual", "semi_auto", "full_auto"],
        Meta(description="Which drafts a person sees before they are sent."),
    ]
    state: Annotated[
        Literal[
            "idle",
            "planning",
            "waiting_local",
            "ready_to_send",
            "waiting_remote",
            "processing_remote",
            "completed",
            "paused",
            "error",
            "stopped",
        ],
        Meta(description="Where the run is."),
    ]
    decides: Annotated[Literal["agent", "person"], Meta(description="Who writes what is said next.")]
    connection: Annotated[
        Literal["connecting", "connected", "waiting", "ended"], Meta(description="How the way to the gateway stands.")
    ]
    turn: Annotated[int, Meta(description="How many messages were sent.")]
    max_turns: Annotated[int, Meta(description="How many may be.")]
    active_ms: Annotated[int, Meta(description="How long agents were at work.")]
    max_duration_ms: Annotated[int, Meta(description="How long they may be.")]
    tokens: Annotated[int, Meta(description="How many tokens the local agent took.")]
    max_tokens: Annotated[int | None, Meta(description="How many it may take; null: there is no such limit.")] = None
    failure: Annotated[str, Meta(description="What failed, if the run is in error or failures ended it.")] = ""
    ended: Annotated[
        Literal["done", "user", "max_turns", "max_duration_ms", "max_failures", "max_tokens_budget"] | None,
        Meta(description="Why the run ended: its agent was done, a person stopped it, or at which limit."),
    ] = None
    banner: Annotated[str, Meta(description="The limit at which it ended, as a sentence.")] = ""
    result: Annotated[str, Meta(description="What its agent said when it was done.")] = ""


class SharedState(_Shared, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-state/1"):
    """Where a run of two agents is now. Printed by `remit chat PROFILE DEVICE --jsonl`, first and after each change."""


class SharedRun(_Shared, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-run/1"):
    """A run of two agents, whole. Printed by `remit chat PROFILE DEVICE --json`, at the end."""

    draft: Annotated[SharedDraft | None, Meta(description="The draft that waits, or was left unsent.")] = None
    turns: Annotated[tuple[SharedTurn, ...], Meta(description="What was said, in order.")]


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


class ServerUp(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.serving/1"):
    """A server that takes requests. Printed by `remit serve --json` once it does."""

    team: Annotated[str, Meta(description="The hub's name.")]
    address: Annotated[str, Meta(description="Where it can be reached.")]
    agents: Annotated[tuple[str, ...], Meta(description="The agents that can be asked.")]
    token_file: Annotated[
        str | None, Meta(description="The file of the token that is let in, where the team names no clients.")
    ] = None


class McpTool(Struct, frozen=True, kw_only=True):
    """A tool of an MCP server, in the server's own words."""

    name: Annotated[str, Meta(description="What the server calls it.")]
    tool: Annotated[str | None, Meta(description="What it is called in the hub; null if `allow` does not name it.")]
    description: Annotated[str, Meta(description="What the server says that it does.")] = ""
    input_schema: Annotated[dict[str, Any], Meta(description="What it takes, as JSON Schema.")] = {}


class McpTools(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.mcp-tools/1"):
    """The tools of an MCP server. Printed by `remit mcp --tools SERVER --json`."""

    server: Annotated[str, Meta(description="The server's name in the team file.")]
    tools: Annotated[tuple[McpTool, ...], Meta(description="Its tools, as it lists them.")]
    missing: Annotated[tuple[str, ...], Meta(description="Tools that `allow` names and the server does not have.")] = ()


class Records(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.export/1"):
    """Many records. Printed by `remit runs export --format json`."""

    records: Annotated[tuple[RecordLine, ...], Meta(description="The records in order.")]


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


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


# ── the team ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Written(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.init/1"):
    """What was written. Printed by `remit init --json`."""

    folder: Annotated[str, Meta(description="Where the team is.")]
    files: Annotated[tuple[str, ...], Meta(description="The files that were written or, of .gitignore, added to.")]
    next: Annotated[tuple[str, ...], Meta(description="What to type next.")]


class TeamProblem(Struct, frozen=True, kw_only=True):
    """Something that is wrong in a team file, or with what overrides it."""

    where: Annotated[
        str, Meta(description="For people: `remit.toml:12 agents.clerk.run`, or the variable or flag that is wrong.")
    ]
    line: Annotated[int | None, Meta(description="The line of the file; null if it is not there.")] = None
    key: Annotated[str, Meta(description="The key, dotted.")] = ""
    message: Annotated[str, Meta(description="What is wrong, and what was expected.")]


class Validation(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.validation/1"):
    """Whether a team file can be used. Printed by `remit validate --json`."""

    ok: Annotated[bool, Meta(description="Whether it can be used.")]
    file: Annotated[str, Meta(description="The team file.")]
    agents: Annotated[int, Meta(description="How many agents there are, if it can be used.")] = 0
    workflows: Annotated[int, Meta(description="How many workflows.")] = 0
    tools: Annotated[int, Meta(description="How many tools.")] = 0
    capabilities: Annotated[int, Meta(description="How many capabilities.")] = 0
    rules: Annotated[int, Meta(description="How many rules.")] = 0
    imported: Annotated[bool, Meta(description="Whether the agents' code was imported too.")] = True
    problems: Annotated[tuple[TeamProblem, ...], Meta(description="Everything that is wrong.")] = ()


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    state: Annotated[Literal["ok", "warning", "problem"], Meta(description="How it is.")]
    about: Annotated[str, Meta(description="What was looked at.")]
    says: Annotated[str, Meta(description="What was found.")]
    todo: Annotated[str, Meta(description="What to do about it.")] = ""


class Checkup(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.doctor/1"):
    """How this machine and this folder are. Printed by `remit doctor --json`."""

    ok: Annotated[bool, Meta(description="Whether there is no problem; there may be warnings.")]
    checks: Annotated[tuple[Check, ...], Meta(description="Everything that was looked at.")]


class AgentLine(Struct, frozen=True, kw_only=True):
    """An agent in a list."""

    name: Annotated[str, Meta(description="Its name.")]
    description: Annotated[str, Meta(description="What it is for.")]
    capabilities: Annotated[tuple[str, ...], Meta(description="What it can do, by code.")]
    may_call: Annotated[tuple[str, ...], Meta(description="Whom it may call; `*` is everyone.")]
    tools: Annotated[tuple[str, ...], Meta(description="The tools that it may use.")]
    steps: Annotated[
        tuple[str, ...], Meta(description="Of a workflow, the names of its steps; of any other agent, none.")
    ] = ()
    lives_at: Annotated[
        str, Meta(description="The hub at which it lives, or the address of its A2A card; empty: it lives here.")
    ] = ""


class Agents(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.agents/1"):
    """The agents of a team. Printed by `remit agents list --json`."""

    team: Annotated[str, Meta(description="The team's name.")]
    file: Annotated[str, Meta(description="The team file.")]
    agents: Annotated[tuple[AgentLine, ...], Meta(description="The agents as the file has them, then the workflows.")]


class AgentDetails(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.agent/1"):
    """All that a team says of one agent. Printed by `remit agents show --json`."""

    card: Annotated[AgentCard, Meta(description="Its card; what is not there is as the defaults say.")]
    run: Annotated[str | None, Meta(description="Its code, as the team file names it; null: it is none.")] = None
    model: Annotated[str | None, Meta(description="The model that it is; null: it is none.")] = None
    workflow: Annotated[Workflow | None, Meta(description="The workflow that it is, with its steps.")] = None
    peer: Annotated[str | None, Meta(description="The hub at which it lives; null: at none that is a peer.")] = None
    remote: Annotated[str | None, Meta(description="What it is called there; null: the same.")] = None
    address: Annotated[str | None, Meta(description="Where that hub, or its A2A card, is; null: it lives here.")] = None
    called_by: Annotated[tuple[str, ...], Meta(description="Who may call it; `user` is whoever asks from outside.")]
    time_ms: Annotated[int, Meta(description="How long one request may take whose caller says nothing.")]
    tokens: Annotated[int, Meta(description="How many tokens one request may take whose caller says nothing.")]


class RankedAgent(Struct, frozen=True, kw_only=True):
    """How an agent stands at a capability."""

    agent: Annotated[str, Meta(description="Its name.")]
    quality: Annotated[
        float, Meta(description="How probable a success is, from 0 to 1, by what happened lately; 0.5: not known.")
    ]
    latency_ms: Annotated[int, Meta(description="How long it takes, as it was at its worst lately; 0: not known.")]
    tokens: Annotated[int, Meta(description="How many tokens a success takes; 0: none, or not known.")]
    in_flight: Annotated[int, Meta(description="How many calls it is at work on.")]
    last_seen_ms: Annotated[
        int | None,
        Meta(description="When it last answered or failed, in milliseconds since 1970; null: not in what was read."),
    ]
    why: Annotated[str, Meta(description="Why it stands where it does.")]


class Ranking(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.ranking/1"):
    """Who is asked first for a capability, and why. Printed by `remit agents show --capability CODE --json`."""

    capability: Annotated[str, Meta(description="The capability.")]
    at_ms: AtMs
    agents: Annotated[
        tuple[RankedAgent, ...], Meta(description="Those who offer it: who is asked first, then whom to fall back on.")
    ]
    store: Annotated[str, Meta(description="The file that holds the record from which this follows.")]


class Reloading(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.reload/1"):
    """Running hubs have been told to take over the team file. Printed by `remit reload --json`."""

    file: Annotated[str, Meta(description="The team file.")]
    store: Annotated[str, Meta(description="The store over which the hubs were told.")]
    number: Annotated[int, Meta(description="The number of the row that tells them.")]


# ── policy ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class GuardLine(Struct, frozen=True, kw_only=True):
    """A guard."""

    name: Annotated[str, Meta(description="Its name.")]
    says: Annotated[str, Meta(description="What holds if it does not object.")]


class Guards(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.guards/1"):
    """The guards that judge a request. Printed by `remit policy guards --json`."""

    guards: Annotated[tuple[GuardLine, ...], Meta(description="The guards, in the order in which they are asked.")]


class GuardVerdict(Struct, frozen=True, kw_only=True):
    """What one guard says of a request."""

    guard: Annotated[str, Meta(description="Its name.")]
    verdict: Annotated[
        Literal["allow", "rewrite", "refuse", "ask", "failed"],
        Meta(description="What it says; `failed`: it raised an error, which refuses the request."),
    ]
    says: Annotated[str, Meta(description="Why, if it does not simply allow it.")] = ""
    code: Annotated[Code | None, Meta(description="The code of its refusal.")] = None


class Struck(Struct, frozen=True, kw_only=True):
    """Something personal or secret in a request; what it is is not said."""

    kind: Annotated[str, Meta(description="Of which kind it is: `EMAIL`, `IBAN`.")]
    place: Annotated[str, Meta(description="Where in the request: `objective`, `input.customer.iban`.")]
    shown: Annotated[bool, Meta(description="Whether the team lets the callee see it as it is.")]


class Placing(Struct, frozen=True, kw_only=True):
    """Whether an agent should hand a request on, or handle it itself."""

    agent: Annotated[str, Meta(description="The agent that decides: the one that would ask, or that the user asks.")]
    decision: Annotated[Literal["route", "local"], Meta(description="Hand it on, or handle it where it is.")]
    reason: Annotated[
        Literal["capability", "intent", "expertise", "data", "scope", "latency", "simplicity", "equivalence"],
        Meta(description="Which reason decides: the first four speak for handing it on, the others against."),
    ]
    why: Annotated[str, Meta(description="The same as a sentence.")]
    capability: Annotated[str, Meta(description="The capability that is named, or that the text asks for.")]
    confidence: Annotated[
        float | None, Meta(description="How likely it is that the text asks for it; null: it is named.")
    ] = None


class Explanation(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.explanation/1"):
    """What would become of a request, guard by guard. Printed by `remit policy explain --json`."""

    origin: Annotated[str, Meta(description="Who would ask.")]
    target: Annotated[str, Meta(description="Who would be asked.")]
    outcome: Annotated[
        Literal["allowed", "asks", "refused"],
        Meta(description="What would happen: `asks`: a person would be asked first."),
    ]
    by: Annotated[str, Meta(description="The guard that decides; empty if none objects.")] = ""
    question: Annotated[str, Meta(description="What a person would be asked.")] = ""
    editable: Annotated[tuple[str, ...], Meta(description="What the person may change before agreeing.")] = ()
    fault: Annotated[Fault | None, Meta(description="Why it would be refused.")] = None
    guards: Annotated[tuple[GuardVerdict, ...], Meta(description="What each guard says, in their order.")]
    struck: Annotated[tuple[Struck, ...], Meta(description="What redaction finds.")] = ()
    place: Annotated[
        Placing | None,
        Meta(
            description="Whether it should be handed on at all; null: it names no capability, and none is heard in it."
        ),
    ] = None
    request: Annotated[Request, Meta(description="The request as it would be recorded: with tokens for what is found.")]
    exit_code: Annotated[int, Meta(description="With what the command exits.")]


# ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class PendingQuestion(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.question/1"):
    """A question that waits for a person. Printed by `remit pending show --json`, and by `pending list --jsonl`."""

    question: Annotated[Question, Meta(description="The question, and the request that it is about, redacted.")]
    run: RunId
    left_ms: Annotated[int, Meta(description="How long it can still be answered.")]


class Pending(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.pending/1"):
    """The questions that wait for a person. Printed by `remit pending list --json`."""

    questions: Annotated[tuple[PendingQuestion, ...], Meta(description="The questions, oldest first.")]
    drafts: Annotated[
        tuple[SharedDraft, ...], Meta(description="The drafts to shared agents that wait, of the oldest run first.")
    ] = ()


class Decided(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.decision/1"):
    """What was answered to a question. Printed by `remit pending approve --json` and `pending reject --json`."""

    question: Annotated[str, Meta(description="The id of the question.")]
    run: RunId
    state: State
    decision: Annotated[Decision, Meta(description="What was answered, and by whom.")]


class DraftAnswered(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.draft-answer/1"):
    """What was answered to a draft. Printed by `remit pending approve --json` and `pending reject --json` for one."""

    draft: Annotated[SharedDraft, Meta(description="The draft, as it waited.")]
    agreed: Annotated[bool, Meta(description="Whether it is sent.")]
    text: Annotated[str | None, Meta(description="What is sent in its place; null: it itself, or nothing.")] = None
    reason: Annotated[str, Meta(description="Why not; the agent is told.")] = ""


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class OwnKey(Struct, frozen=True, kw_only=True):
    """A key of this hub."""

    public: Annotated[str, Meta(description="The key as others write it down.")]
    fingerprint: Annotated[str, Meta(description="What two people read to each other to compare it.")]
    state: Annotated[
        Literal["signs", "next", "old"],
        Meta(description="It `signs`, will do so `next`, or is `old` and still accepted."),
    ]
    signs_from_ms: AtMs
    accepted_until_ms: Annotated[int | None, Meta(description="When it ends; null: not yet decided.")] = None


class PeerKey(Struct, frozen=True, kw_only=True):
    """A key of another hub."""

    peer: Annotated[str, Meta(description="Whose it is.")]
    public: Annotated[str, Meta(description="The key.")]
    fingerprint: Annotated[str, Meta(description="What two people read to each other to compare it.")]
    file: Annotated[str, Meta(description="Where it stands.")]
    counts: Annotated[bool, Meta(description="Whether the team file has a peer of that name; without, it is no use.")]


class KeysShown(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.keys/1"):
    """The keys of this hub and its peers, as they are now. Printed by the commands below `remit keys` with `--json`."""

    file: Annotated[str, Meta(description="Where this hub's own key is.")]
    keys: Annotated[tuple[OwnKey, ...], Meta(description="This hub's keys, oldest first; empty if it has none.")]
    peers: Annotated[tuple[PeerKey, ...], Meta(description="The keys of other hubs.")]
    revoked: Annotated[int, Meta(description="How many credentials are revoked.")]


# ── devices ───────────────────────────────────────────────────────────────────────────────────────────────────────────

DeviceId = Annotated[str, Meta(description="The device's id: it follows from its key.")]


class GatewayUp(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.gateway/1"):
    """A gateway that takes connections. Printed by `remit relay --json` once it does."""

    name: Annotated[str, Meta(description="What it calls itself.")]
    address: Annotated[str, Meta(description="Where it can be reached.")]
    folder: Annotated[str, Meta(description="Where it keeps what waits for devices that are not there.")]


class DeviceShown(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.device/1"):
    """This device. Printed by `remit devices init --json` and `devices show --json`."""

    id: DeviceId
    name: Annotated[str, Meta(description="What others see it called.")]
    fingerprint: Annotated[str, Meta(description="What two people read to each other to compare its key.")]
    gateway: Annotated[str, Meta(description="Where it can be reached, as its card says; empty if that is not said.")]
    file: Annotated[str, Meta(description="Where its identity is kept, locked.")]
    link: Annotated[str, Meta(description="Its card as a link, for those who are to know it. It holds no secret.")]


class KnownDevice(Struct, frozen=True, kw_only=True):
    """A device that this one knows."""

    id: DeviceId
    name: Annotated[str, Meta(description="What it calls itself.")]
    fingerprint: Annotated[str, Meta(description="What two people read to each other to compare its key.")]
    verified: Annotated[bool, Meta(description="Whether the two owners compared their codes.")]
    shared: Annotated[bool, Meta(description="Whether it shares an agent with this one, which may be asked from here.")]
    allowed: Annotated[bool, Meta(description="Whether it may reach this one of its own accord.")]
    revoked: Annotated[bool, Meta(description="Whether all of that is over, for good.")]


class Devices(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.devices/1"):
    """The devices that this one knows. Printed by `remit devices list --json`."""

    device: DeviceId
    devices: Annotated[tuple[KnownDevice, ...], Meta(description="Those that are known, by name.")]


class DevicePaired(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.pairing/1"):
    """A device that is known from now on. Printed by `remit devices pair --json`."""

    device: Annotated[KnownDevice, Meta(description="The device.")]
    code: Annotated[str, Meta(description="What both owners see if each has the other's true card.")]


class DeviceChanged(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.known-device/1"):
    """What a device may do from now on. Printed by `remit devices allow --json` and `devices revoke --json`."""

    device: Annotated[KnownDevice, Meta(description="The device.")]


class SharedAgent(Struct, frozen=True, kw_only=True):
    """An agent that others may ask."""

    name: Annotated[str, Meta(description="What it is shared as.")]
    agent: Annotated[str, Meta(description="Which agent of the team it is.")]
    devices: Annotated[tuple[str, ...], Meta(description="Who may ask it, as it was said: names or ids.")]


class SharingUp(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.sharing/1"):
    """A device that shares agents. Printed by `remit share --json` once it does."""

    device: DeviceId
    gateway: Annotated[str, Meta(description="Over which gateway.")]
    shared: Annotated[tuple[SharedAgent, ...], Meta(description="What it shares.")]


class SharedQuestion(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-question/1"):
    """That somebody asked a shared agent, or what came of it; never what was said. Printed by `remit share --jsonl`."""

    at_ms: AtMs
    device: DeviceId
    name: Annotated[str, Meta(description="What that device is called here.")]
    requester: Annotated[str, Meta(description="In whose name it asks, as it says; empty: in its own.")]
    shared: Annotated[str, Meta(description="What the agent is shared as; empty if it is not clear which was meant.")]
    event: Annotated[Literal["asked", "answered", "declined"], Meta(description="What happened.")]
    code: Annotated[str, Meta(description="Why it was declined: `remit errors CODE` explains it; else empty.")] = ""


# ── audit ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Verification(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.verification/1"):
    """Whether a record is what was written. Printed by `remit audit verify --json`."""

    ok: Annotated[bool, Meta(description="Whether it is whole.")]
    file: Annotated[str, Meta(description="The record.")]
    rows: Annotated[int, Meta(description="How many rows it has.")]
    checkpoints: Annotated[int, Meta(description="How many checkpoints can be relied on.")]
    unprotected: Annotated[int, Meta(description="Rows after the last checkpoint, where a cut would not be seen.")]
    findings: Annotated[tuple[Finding, ...], Meta(description="Each place where it is not what was written.")]
    keys: Annotated[tuple[str, ...], Meta(description="Who signed, to be compared with a note kept elsewhere.")]


class AuditRow(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.audit-row/1"):
    """A row as it was hashed; docs/audit.md says how to check it. Printed by `remit audit export`."""

    seq: Annotated[int, Meta(description="Its number.")]
    kind: Annotated[str, Meta(description="What it tells.")]
    at_ms: AtMs
    run: RunId
    session: Annotated[str, Meta(description="The session in whose conversation it stands.")]
    body: Annotated[str, Meta(description="The JSON text whose bytes in UTF-8 were hashed.")]
    previous: Annotated[str, Meta(description="The digest of the row before; 64 zeros for the first.")]
    digest: Annotated[str, Meta(description="Its own digest.")]


class AuditCheckpoint(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.audit-checkpoint/1"):
    """A signed statement about the chain. Printed by `remit audit export`, after the row that it is about."""

    number: Annotated[int, Meta(description="Its number: they are counted, so that none can be taken out unseen.")]
    seq: Annotated[int, Meta(description="The row up to which the chain is signed.")]
    digest: Annotated[str, Meta(description="The digest of that row.")]
    at_ms: AtMs
    key: Annotated[str, Meta(description="The public key (Ed25519).")]
    signature: Annotated[str, Meta(description="The signature.")]


# ── for programs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def outputs_schema() -> dict[str, Any]:
    """Return one JSON Schema (draft 2020-12) for every document; which it is, its `schema` says."""
    documents = [
        each
        for each in globals().values()
        if isinstance(each, type) and issubclass(each, Struct) and each.__struct_config__.tag_field == "schema"
    ]
    schema = msgspec.json.schema(Union[tuple(documents)])  # noqa: UP007 - made at run time
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What remit prints with --json and --jsonl",
        **cast("dict[str, Any]", as_others_read(schema)),
    }


def as_others_read(schema: object) -> object:
    r"""Return a schema whose patterns end as ECMA-262 has it: what is `\Z` to Python is `$` there."""
    match schema:
        case dict():
            members = cast("dict[str, object]", schema)
            return {
                name: each.replace(r"\Z", "$") if name == "pattern" and isinstance(each, str) else as_others_read(each)
                for name, each in members.items()
            }
        case list():
            return [as_others_read(each) for each in cast("list[object]", schema)]
        case _:
            return schema
