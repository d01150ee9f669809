"""The record of a run: one row is event, audit record and message at once, and its text is stored once."""

from enum import StrEnum
from typing import Literal, cast

import msgspec
from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from remit.protocol.codec import VERSIONS, Versions
from remit.protocol.envelope import Json, Request, Response, Usage
from remit.protocol.errors import Code, Fault
from remit.protocol.lifecycle import Status
from remit.protocol.remit import Name


class Kind(StrEnum):
    """The kind of a record; a run's event stream is its records in order."""

    STARTED = "started"  # A run began: the request of the user, or of another hub.
    DELEGATION = "delegation"  # A delegation began.
    PROGRESS = "progress"  # An agent reports progress, or its plan.
    TOOL = "tool"  # An agent used a tool, or was denied it.
    NOTICE = "notice"  # A notice to the operator.
    RESULT = "result"  # A delegation ended; the last one of a run ends the run.
    REFUSED = "refused"  # A request was refused before it started.
    APPROVAL = "approval"  # A person was asked, or has answered.
    SHARED = "shared"  # A step of a run between agents of two devices.
    BREAK = "break"
    """The chain of signatures is broken here, as reported by the hub that found it."""
    REMOVED = "removed"
    """Texts were removed on purpose: by the retention rule, or because a user was erased."""
    DELTA = "delta"
    """Live only, never stored: a record of this kind has the number 0."""


class Delta(Struct, frozen=True, kw_only=True):
    """A piece of an agent's streamed answer."""

    delegation: Name  # The path of the delegation.
    agent: Name  # The agent that answers.
    text: str  # The piece.


class Refusal(Struct, frozen=True, kw_only=True):
    """A request that never started, and why."""

    request: Request  # The request.
    response: Response  # Its outcome, with the fault.


class PlannedStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that an agent plans to delegate. The delegation of each attempt has its name in its path."""

    name: Name  # Its name in the plan.
    title: str = ""  # Its progress text for the user.
    agent: Name | None = None
    """The agent that will be asked; None: whoever offers the capability."""
    capability: Name | None = None  # The capability that is asked for.
    after: tuple[Name, ...] = ()
    """The steps that must have ended before."""
    when: str = ""
    """The condition under which it is done."""
    optional: bool = False
    """Whether the plan can succeed without it."""
    attempts: int = 1  # How often one agent is asked.
    fallback: tuple[Name, ...] = ()
    """Agents that are asked in turn if it fails."""


class StepPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The steps that an agent plans, or what has become of them since it said so."""

    steps: tuple[PlannedStep, ...] = ()  # The steps, in the order of the plan.
    skipped: dict[Name, str] = {}
    """Steps that will not be done, and why."""


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent's progress report."""

    delegation: Name  # The path of the delegation.
    agent: Name  # The agent that reports.
    text: str  # The report.
    finished: tuple[str, ...] = ()  # Parts that are done.
    unfinished: tuple[str, ...] = ()  # Parts that are not.
    plan: StepPlan | None = None  # The steps that it plans.
    usage: Usage | None = None  # What it and those below it that have ended used so far.


class ToolUse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent used a tool, or was denied it."""

    delegation: Name  # The path of the delegation.
    agent: Name  # The agent that used it.
    tool: Name  # The name of the tool.
    input: Json = None  # Its arguments, redacted.
    duration_ms: int = 0  # How long it took.
    begun: bool = False
    """Recorded before the use, for a tool that is not safe to repeat."""
    replayed: bool = False
    """Answered from the journal after a restart."""
    revealed: tuple[Name, ...] = ()
    """Kinds of personal data that the tool got raw, while its agent has tokens."""
    clear: bool = False
    """Whether a model gets its result unredacted."""
    refused: bool = False
    """Whether a guard, a person or its schema refused it, so that it did not run."""
    fault: Fault | None = None  # What went wrong, if it failed or was denied.


class Notice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notice to the operator about a delegation: it overran, did not stop, came late, or was resumed."""

    delegation: Name  # The path of the delegation.
    agent: Name  # The agent that it is about.
    text: str  # The notice.
    code: Code | None = None  # Its error code, if it has one.


class Approval(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question to a person whether a delegation may continue, or the answer."""

    delegation: Name  # The path of the delegation.
    agent: Name
    """The agent that would be called."""
    id: Name  # The id of the question, for `remit pending`.
    question: str  # The question.
    agreed: bool | None = None
    """None: nobody has answered yet."""
    by: str = ""
    """Who answered: the name of a person, or of the policy that answered for them."""
    reason: str = ""  # The reason that the person gives.
    edited: tuple[str, ...] = ()
    """The person's edits before approval."""


class SharedFile(Struct, frozen=True, kw_only=True):
    """A file between two devices, without its name and its content."""

    name: str
    """A digest of its name."""
    media_type: str  # Its media type.
    size: int  # Its size in bytes.


class SharedStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a run between agents of two devices, without its content."""

    side: Literal["asks", "shares"]
    """Whether this device's agent is the caller or the shared agent."""
    profile: str
    """The calling profile; on the sharing side, the name of the shared agent, empty if that is unclear."""
    device: str
    """The other device."""
    requester: str = ""
    """The user; on the sharing side, as the other device reports it."""
    event: str
    """The event: an event of a run, or `asked`, `answered`, `declined`."""
    turn: int = 0  # The number of the turn.
    mode: str = ""  # The mode of the profile.
    state: str = ""
    """The state of the run after it."""
    active_ms: int = 0
    """The working time until then."""
    label: str = ""
    """How a message sent in this step was approved: `auto_sent`, `approved`, `edited`, `yours`."""
    rules: tuple[str, ...] = ()
    """The rules that require a person's review of a draft."""
    by: str = ""
    """The person who did it, if it was one."""
    via: str = ""
    """The means by which they did it: `chat`, `pending`, `api`."""
    origin: str = ""
    """On the sharing side: the device where the task began."""
    hops: int = 0  # How many devices the task has passed.
    task: str = ""
    """On the sharing side: the hub's run for it."""
    code: str = ""  # The error code, if it failed.
    failure: str = ""  # What went wrong.
    files: tuple[SharedFile, ...] = ()
    """The files of the message of this step."""


class ChainBreak(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A store was opened whose signed checkpoints did not match its rows or its key; verification reports it."""

    finding: str
    """The name of the finding: `key changed`, `checkpoint missing`, …"""
    text: str  # The finding in a sentence.
    old_key: str = ""
    """The public key that signed before; empty if it is not known."""
    new_key: str = ""
    """The public key that signs from here on."""


class Removal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records of a segment were removed on purpose. Signed, so that verification can tell it from tampering.

    The newest statement about a segment says everything that was removed from it so far. Ranges are pairs of the first
    and the last row, one after another.
    """

    why: Literal["pruned", "erased"]  # The reason: retention, or the erasure of a user.
    rule: str
    """The rule that removed them: `messages 90d, records 400d`."""
    first: int
    """The first row of the segment."""
    last: int  # The last row of the segment.
    before: str
    """The digest of the row before the segment, in hexadecimal."""
    after: str
    """The digest of its last row."""
    gone: tuple[int, ...] = ()
    """Ranges of rows that were removed; the chain keeps the digests of their contents."""
    outlined: tuple[int, ...] = ()
    """Ranges of rows of which only the texts were removed: who, when, how it ended and what it cost is kept."""
    outlines: str = ""
    """The digest of what is kept of the outlined rows."""
    subject: str = ""
    """A keyed digest of the erased user's name; empty if nobody was erased."""
    at_ms: int  # When, in milliseconds since 1970.
    key: str  # The public key that signed it.
    signature: str = ""  # The signature.


Body = Request | Response | Refusal | Progress | ToolUse | Notice | Approval | SharedStep | ChainBreak | Removal | Delta

BODIES: dict[Kind, type[Body]] = {
    Kind.STARTED: Request,
    Kind.DELEGATION: Request,
    Kind.PROGRESS: Progress,
    Kind.TOOL: ToolUse,
    Kind.NOTICE: Notice,
    Kind.RESULT: Response,
    Kind.REFUSED: Refusal,
    Kind.APPROVAL: Approval,
    Kind.SHARED: SharedStep,
    Kind.BREAK: ChainBreak,
    Kind.REMOVED: Removal,
    Kind.DELTA: Delta,
}


class Record(Struct, frozen=True, kw_only=True):
    """One row of the record: numbered, in order, and immutable once it is committed."""

    seq: int  # Its number, without gaps from 1; 0: live only.
    kind: Kind  # Which kind its body is.
    at_ms: int  # When, in milliseconds since 1970.
    run: Name  # The run that it belongs to.
    session: Name
    """The callee's session, whose conversation it is part of."""
    body: Body  # What happened.


_DECODERS = {kind: Decoder(body) for kind, body in BODIES.items()}


def read_body(kind: Kind, raw: bytes, versions: Versions = VERSIONS) -> Body:
    """Return the body of a stored row, whichever version wrote it: rows are never rewritten, so readers upgrade."""
    if not versions.steps:
        return _DECODERS[kind].decode(raw)
    value = msgspec.json.decode(raw)
    match kind:
        case Kind.STARTED | Kind.DELEGATION | Kind.RESULT:
            value = versions.upgrade(value, value["version"])
        case Kind.REFUSED:
            value = {part: versions.upgrade(envelope, envelope["version"]) for part, envelope in value.items()}
        case Kind.PROGRESS | Kind.TOOL | Kind.NOTICE | Kind.APPROVAL | Kind.SHARED:
            pass
        case Kind.BREAK | Kind.REMOVED | Kind.DELTA:
            pass
    return msgspec.convert(value, BODIES[kind])


def read_request(raw: bytes) -> Request:
    """Return the request of a stored row that started something."""
    return cast("Request", read_body(Kind.STARTED, raw))


def read_response(raw: bytes) -> Response:
    """Return the response of a stored row that ended something."""
    return cast("Response", read_body(Kind.RESULT, raw))


def outward(record: "Record") -> "Record":
    """Return a record for everyone except its hub's own programs: see `Fault.outward`."""
    match record.body:
        case Response() as response:
            body = response.outward()
            return record if body is response else replace(record, body=body)
        case Refusal(response=Response(fault=Fault()) as response) as refusal:
            return replace(record, body=replace(refusal, response=response.outward()))
        case ToolUse(fault=Fault() as why) as use:
            return replace(record, body=replace(use, fault=why.outward()))
        case _:
            return record


def agent_of(body: Body) -> str:
    """Return the agent that a record is about: the callee of a delegation; empty if it is about none."""
    match body:
        case Request(target=agent) | Response(target=agent) | Refusal(request=Request(target=agent)):
            return agent
        case Progress(agent=agent) | ToolUse(agent=agent) | Notice(agent=agent) | Approval(agent=agent):
            return agent
        case SharedStep(profile=agent) | Delta(agent=agent):
            return agent
        case ChainBreak() | Removal():
            return ""


def request_in(body: Body) -> Request | None:
    """Return the request in a record of one, also of one that was refused."""
    match body:
        case Request() as request:
            return request
        case Refusal(request=request):
            return request
        case _:
            return None


def response_in(body: Body) -> Response | None:
    """Return the response in a record of one, also to a request that was refused."""
    match body:
        case Response() as response:
            return response
        case Refusal(response=response):
            return response
        case _:
            return None


def outcome_in(run: str, body: Body) -> Response | None:
    """Return the outcome of a run, if this record of it is the one that holds it."""
    match body:
        # The id of a nested request is its path. That of the root is its sender's choice.
        case Response() as response if not response.id.startswith(f"{run}."):
            return response
        case Refusal(request=Request(parent=None), response=response):
            return response
        case _:
            return None


# The texts of an envelope; the rest is route, remit and outcome.
ENVELOPE_TEXTS = (
    *("objective", "input", "handoff", "handover", "context", "view", "hints", "reason", "files"),
    *("result", "summary", "artifacts", "new_facts", "sources", "findings"),
    *("warnings", "finished", "unfinished", "metadata"),
)


def outline(body: Body) -> Body | None:
    """Return a request or a response without its texts; None for anything else."""
    if not isinstance(body, Request | Response):
        return None
    plain: dict[str, Json] = msgspec.to_builtins(body)
    return msgspec.convert({name: value for name, value in plain.items() if name not in ENVELOPE_TEXTS}, type(body))


class Delegation(Struct, frozen=True, kw_only=True):
    """One delegation: caller, callee, objective, and outcome (None: in progress)."""

    id: Name  # Its path in the run.
    parent: Name | None  # The path of its caller's delegation; None: the root.
    origin: Name  # The caller: `user`, or an agent.
    target: Name  # The agent that was asked.
    user: Name  # The user of the run.
    objective: str  # The objective, redacted.
    depth: int  # How deep it is; the root has 0.
    started_ms: int  # When it began, in milliseconds since 1970.
    status: Status | None = None  # How it ended; None: in progress.
    preview: str = ""  # The start of the result.
    duration_ms: int = 0  # How long it took.
    usage: Usage = Usage()  # Tokens spent by the callee and all below it.
    tool_calls: tuple[str, ...] = ()  # The tools that were used, in order.
    fault: Fault | None = None  # What went wrong.
