"""Every way a delegation can go wrong: a code for programs, a sentence for people, and what to do next.

Codes are stable and never reused. One table maps each to whom to blame, its HTTP status, its CLI exit code, and advice:

    RemitError             raised only at the outermost call, and only if asked (`response.unwrap()`)
     └─ Fault              the value that travels: code, message, suggestion, the fields that were wrong
         └─ Code → Row     the table below
"""

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace


class Blame(StrEnum):
    """Who must change something before it can work."""

    CALLER = "caller"
    PEER = "peer"
    HUB = "hub"


class Code(StrEnum):
    """What went wrong, for programs."""

    MAX_DEPTH_EXCEEDED = "MAX_DEPTH_EXCEEDED"
    CHAIN_TOO_LONG = "CHAIN_TOO_LONG"
    LOOP_DETECTED = "LOOP_DETECTED"
    CYCLE_DETECTED = "CYCLE_DETECTED"
    FAN_OUT_EXCEEDED = "FAN_OUT_EXCEEDED"
    MAX_DELEGATIONS_EXCEEDED = "MAX_DELEGATIONS_EXCEEDED"
    RECORD_LIMIT_EXCEEDED = "RECORD_LIMIT_EXCEEDED"
    NESTED_CALLS_FORBIDDEN = "NESTED_CALLS_FORBIDDEN"
    TIMEOUT = "TIMEOUT"
    TOKEN_BUDGET_EXCEEDED = "TOKEN_BUDGET_EXCEEDED"
    RATE_LIMITED = "RATE_LIMITED"
    OVERLOADED = "OVERLOADED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    TOOL_NOT_ALLOWED = "TOOL_NOT_ALLOWED"
    PATH_NOT_ALLOWED = "PATH_NOT_ALLOWED"
    USER_MISMATCH = "USER_MISMATCH"
    APPROVAL_DECLINED = "APPROVAL_DECLINED"
    CREDENTIAL_INVALID = "CREDENTIAL_INVALID"
    CREDENTIAL_EXPIRED = "CREDENTIAL_EXPIRED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    AGENT_NOT_FOUND = "AGENT_NOT_FOUND"
    CAPABILITY_NOT_FOUND = "CAPABILITY_NOT_FOUND"
    NOT_FOUND = "NOT_FOUND"
    VERSION_UNSUPPORTED = "VERSION_UNSUPPORTED"
    MALFORMED_ENVELOPE = "MALFORMED_ENVELOPE"
    TOO_LARGE = "TOO_LARGE"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    INPUT_VALIDATION_FAILED = "INPUT_VALIDATION_FAILED"
    DATA_MISSING_REQUIRED_INPUT = "DATA_MISSING_REQUIRED_INPUT"
    RESULT_VALIDATION_FAILED = "RESULT_VALIDATION_FAILED"
    DUPLICATE_REQUEST = "DUPLICATE_REQUEST"
    STATE_CONFLICT = "STATE_CONFLICT"
    USER_HAS_OPEN_RUN = "USER_HAS_OPEN_RUN"
    NOT_RECORDED = "NOT_RECORDED"
    DELEGATION_UNAVAILABLE = "DELEGATION_UNAVAILABLE"
    DELEGATION_FAILED = "DELEGATION_FAILED"
    CANCELLED = "CANCELLED"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    TEAM_INVALID = "TEAM_INVALID"


class ErrorRow(NamedTuple):
    """The consequences of a code."""

    blame: Blame
    status: int
    exit_code: int
    recoverable: bool
    meaning: str
    suggestion: str


# Exit codes: 1 run failed, 2 usage, 3 configuration, 4 refused by policy, 5 limit or budget, 6 time-out,
# 7 unreachable or breaker open, 130 interrupted.
TABLE: dict[Code, ErrorRow] = {
    Code.MAX_DEPTH_EXCEEDED: ErrorRow(
        Blame.CALLER,
        422,
        5,
        False,
        "The callee would be deeper in the tree of delegations than its remit allows.",
        "Return what you have to the parent instead of delegating further.",
    ),
    Code.CHAIN_TOO_LONG: ErrorRow(
        Blame.CALLER,
        422,
        5,
        False,
        "More agents already stand between the user and this call than a chain may have.",
        "Return what you have to the parent instead of delegating further.",
    ),
    Code.LOOP_DETECTED: ErrorRow(
        Blame.CALLER,
        409,
        4,
        False,
        "The callee is already in the chain: it would end up asking itself.",
        "Ask an agent that is not in the chain, or answer with what you have.",
    ),
    Code.CYCLE_DETECTED: ErrorRow(
        Blame.CALLER,
        409,
        4,
        False,
        "The caller asks the same callee for the same again, with the same input, while that is in progress, or has "
        "succeeded and nothing else was changed since. Where that only reads, the earlier answer is given instead.",
        "Wait for the delegation in progress, or use its response. If it has to be done once more, say in the "
        "objective or the input what is different this time.",
    ),
    Code.FAN_OUT_EXCEEDED: ErrorRow(
        Blame.CALLER,
        422,
        5,
        False,
        "More delegations at once than one agent may have in flight; none of them was started.",
        "Choose the most relevant callees, or ask in turns.",
    ),
    Code.MAX_DELEGATIONS_EXCEEDED: ErrorRow(
        Blame.CALLER,
        422,
        5,
        False,
        "The run, or one agent in it, has asked for as many delegations as it may.",
        "Return what you have. Ask for many items in one delegation, or have the team raise the limit that is named.",
    ),
    Code.RECORD_LIMIT_EXCEEDED: ErrorRow(
        Blame.CALLER,
        422,
        5,
        False,
        "The records of the run take as much room as those of one run may.",
        "Return what you have. Pass references to large data on, or have the team raise `max_record_bytes`.",
    ),
    Code.NESTED_CALLS_FORBIDDEN: ErrorRow(
        Blame.CALLER,
        403,
        4,
        False,
        "The remit of this agent does not let it delegate further.",
        "Do the work yourself, or ask the caller to allow nested calls.",
    ),
    Code.TIMEOUT: ErrorRow(
        Blame.PEER,
        504,
        6,
        True,
        "The time of the delegation ran out; the work was cancelled, and what was finished is in the response.",
        "Retry with more time under a new id, go on with the part that was finished, or ask another agent.",
    ),
    Code.TOKEN_BUDGET_EXCEEDED: ErrorRow(
        Blame.CALLER,
        422,
        5,
        True,
        "The tokens asked for, estimated or spent are more than the remit has left.",
        "Simplify the task or increase the budget.",
    ),
    Code.RATE_LIMITED: ErrorRow(
        Blame.CALLER,
        429,
        5,
        True,
        "The callee was asked more often than its rate allows.",
        "Wait for the time given and try again.",
    ),
    Code.OVERLOADED: ErrorRow(
        Blame.HUB,
        503,
        5,
        True,
        "The callee's queue is full; nothing was started.",
        "Wait for the time given and try again, or ask another agent.",
    ),
    Code.PERMISSION_DENIED: ErrorRow(
        Blame.CALLER,
        403,
        4,
        False,
        "The caller may not call this agent, or not in this session.",
        "Ask for something that the caller may do, or have the team allow it.",
    ),
    Code.TOOL_NOT_ALLOWED: ErrorRow(
        Blame.CALLER,
        403,
        4,
        False,
        "The tool is not named by both the agent's card and its remit.",
        "Use a tool that its card and its remit both name, or have the team add it to the agent's `tools`.",
    ),
    Code.PATH_NOT_ALLOWED: ErrorRow(
        Blame.CALLER,
        403,
        4,
        False,
        "A path leads out of the workspace, or to something in it that is not shown to agents: keys, devices, pipes.",
        "Name a file inside the workspace, by its path from there and spelled as it is.",
    ),
    Code.USER_MISMATCH: ErrorRow(
        Blame.CALLER,
        403,
        4,
        False,
        "A session, source or reference belongs to another user than the one this remit acts for.",
        "Use only what belongs to the user of the request.",
    ),
    Code.APPROVAL_DECLINED: ErrorRow(
        Blame.CALLER,
        403,
        4,
        False,
        "A person had to agree and did not.",
        "Ask for something that needs no approval, or ask the approver again with a better reason.",
    ),
    Code.CREDENTIAL_INVALID: ErrorRow(
        Blame.CALLER,
        403,
        4,
        False,
        "The credential of a request was not made for this hub, by its sender, or for this request, or was revoked.",
        "Ask whoever passed the request on for a new one; the message says which check failed.",
    ),
    Code.CREDENTIAL_EXPIRED: ErrorRow(
        Blame.CALLER,
        401,
        4,
        True,
        "The credential of a request was valid once, and its time is over.",
        "Get a new one and send the request again; if it was new, compare the clocks of both machines.",
    ),
    Code.UNAUTHENTICATED: ErrorRow(
        Blame.CALLER,
        401,
        4,
        False,
        "Nothing that came with the request proves who sends it.",
        "Send the token that the team file gives this client, or that in `.remit/serve.token` if it names none, "
        "as `Authorization: Bearer …`.",
    ),
    Code.AGENT_NOT_FOUND: ErrorRow(
        Blame.CALLER,
        404,
        2,
        False,
        "No agent of that name is registered here.",
        "Check the name against those that `remit agents list` or `GET /v1/agents` gives.",
    ),
    Code.CAPABILITY_NOT_FOUND: ErrorRow(
        Blame.CALLER,
        404,
        2,
        False,
        "No registered agent offers that capability, or the named agent does not.",
        "Check the code against the registered capabilities.",
    ),
    Code.NOT_FOUND: ErrorRow(
        Blame.CALLER,
        404,
        2,
        False,
        "There is no run of that id, or no such address, that whoever asks may see.",
        "Look at the ids that `GET /v1/runs` or `remit runs list` gives, and at `/openapi.json`.",
    ),
    Code.VERSION_UNSUPPORTED: ErrorRow(
        Blame.CALLER,
        400,
        2,
        False,
        "The envelope's version is neither the current one nor one of the two before it.",
        "Send one of the versions named in the message.",
    ),
    Code.MALFORMED_ENVELOPE: ErrorRow(
        Blame.CALLER,
        400,
        2,
        False,
        "The envelope is not valid: unknown, missing or mistyped fields, duplicate keys, or not JSON at all.",
        "Correct the fields that are named and send it again.",
    ),
    Code.TOO_LARGE: ErrorRow(
        Blame.CALLER,
        413,
        2,
        False,
        "The envelope is larger, is nested deeper, or holds more values or more personal data, than a hub takes.",
        "Send less, or a reference to where the data lies.",
    ),
    Code.UNSUPPORTED_MEDIA_TYPE: ErrorRow(
        Blame.CALLER,
        415,
        2,
        False,
        "The body is compressed, or of a type that is not read here.",
        "Send plain JSON, with the header `Content-Type: application/json`.",
    ),
    Code.INPUT_VALIDATION_FAILED: ErrorRow(
        Blame.CALLER,
        400,
        2,
        False,
        "The input does not fit the schema of the capability or tool; it was not run.",
        "Correct the fields that are named and try again.",
    ),
    Code.DATA_MISSING_REQUIRED_INPUT: ErrorRow(
        Blame.CALLER,
        400,
        2,
        False,
        "The input lacks fields that the schema of the capability requires, and nothing else is wrong with it.",
        "Add the fields that are named and try again; what is not known can be asked of the user.",
    ),
    Code.RESULT_VALIDATION_FAILED: ErrorRow(
        Blame.PEER,
        502,
        1,
        True,
        "The callee gave back something that is not an answer: the wrong type or schema, or too much of it.",
        "Retry, or ask another agent. The callee has to be corrected.",
    ),
    Code.DUPLICATE_REQUEST: ErrorRow(
        Blame.CALLER,
        409,
        2,
        False,
        "The request id was used before with other content.",
        "Send a different request under an id of its own.",
    ),
    Code.STATE_CONFLICT: ErrorRow(
        Blame.CALLER,
        409,
        1,
        True,
        "Another run of the same session has changed what this one wanted to change, since this one read it.",
        "Read the state again, then decide again.",
    ),
    Code.USER_HAS_OPEN_RUN: ErrorRow(
        Blame.CALLER,
        409,
        1,
        True,
        "A user cannot be erased while one of their runs is not over: what it still records would stay.",
        "Wait until the run is over, or cancel it; then erase the user.",
    ),
    Code.NOT_RECORDED: ErrorRow(
        Blame.CALLER,
        409,
        1,
        False,
        "A run is replayed from a recording, and asks a model, a tool or an agent for something that is not in it.",
        "If the change is meant, record the run again, or let the replay ask what is new.",
    ),
    Code.DELEGATION_UNAVAILABLE: ErrorRow(
        Blame.PEER,
        503,
        7,
        True,
        "The callee has failed too often lately and is given time to recover, or cannot be reached.",
        "Try again later or use an alternative.",
    ),
    Code.DELEGATION_FAILED: ErrorRow(
        Blame.PEER,
        502,
        1,
        True,
        "The callee's code raised an error or its process died.",
        "Retry if the task is safe to repeat, or ask another agent.",
    ),
    Code.CANCELLED: ErrorRow(
        Blame.CALLER,
        499,
        130,
        True,
        "The delegation, or one that it was part of, was cancelled.",
        "If this was not intended, ask again under a new id.",
    ),
    Code.OUTCOME_UNKNOWN: ErrorRow(
        Blame.HUB,
        500,
        1,
        False,
        "The work was begun, or sent to a peer, and it is not known whether it took effect.",
        "Look at what the work left behind before you ask for it again under a new id.",
    ),
    Code.STORE_UNAVAILABLE: ErrorRow(
        Blame.HUB,
        503,
        7,
        True,
        "The store cannot record, so nothing may start and no answer may leave.",
        "Correct what the message names (disk, file, permission); then send the same request id again.",
    ),
    Code.TEAM_INVALID: ErrorRow(
        Blame.HUB,
        500,
        3,
        False,
        "The agents, tools and limits that were registered do not fit together.",
        "Correct what the message names where the team is defined.",
    ),
}


__all__ = [
    "INWARD",
    "TABLE",
    "Blame",
    "Code",
    "ErrorRow",
    "Fault",
    "Origin",
    "Problem",
    "RemitError",
    "SourceLine",
    "advice",
    "duration",
    "fault",
    "in_sentences",
    "to_retry_after",
]


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """One invalid field: its place and what was expected there."""

    path: str
    """The field, as a dotted path."""
    message: str
    """What is wrong with it."""


class SourceLine(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of a program on the stack when an exception was raised."""

    file: str
    """The file."""
    line: int
    """The number of the line."""
    function: str
    """The function."""
    code: str = ""
    """The line itself."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}, in {self.function}" + (f": {self.code}" if self.code else "")


class Origin(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where in an agent's own code an exception was raised. Only the agent's own hub shows it."""

    agent: str
    """The agent whose code raised it."""
    tool: str = ""
    """The tool in which it was raised, if it was one."""
    error: str = ""
    """The exception's type and text, if the fault's message quotes it; empty if the agent chose the message."""
    frames: tuple[SourceLine, ...] = ()
    """The last frames of the agent's own code, the innermost last; those of libraries are left out."""

    @property
    def file(self) -> str:
        """The file in which it was raised; empty if that is not known."""
        return self.frames[-1].file if self.frames else ""

    @property
    def line(self) -> int:
        """The line in that file; 0 if that is not known."""
        return self.frames[-1].line if self.frames else 0


class Fault(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An error as a value: it travels in a response and is never raised between agents."""

    code: Code
    """The error code."""
    message: str
    """What happened, in a sentence."""
    recoverable: bool = False
    """Whether trying again can help."""
    suggestion: str = ""
    """What to do."""
    problems: tuple[Problem, ...] = ()
    """Each invalid field."""
    retry_after_ms: int | None = None
    """When to try again, in milliseconds from now."""
    foreign: str | None = None
    """The peer's own code, where it has one (`BENCHMARK_SOURCE_CLOSED`)."""
    origin: Origin | None = None
    """Where in the code of an agent of this hub it was raised; never sent to others."""
    detail: str = ""
    """Details for the hub's operator alone: addresses, and messages of the system; never sent to others."""

    def outward(self) -> "Fault":
        """Return the fault for others: without origin, detail, and the text of an exception."""
        if self.code is Code.STORE_UNAVAILABLE:
            # The file's path and the system's message are useful to the operator alone.
            return fault(self.code, _STORE_MESSAGE, retry_after_ms=self.retry_after_ms, suggestion=_STORE_ADVICE)
        origin = self.origin
        if origin is None:
            return replace(self, detail="") if self.detail else self
        who = f"tool {origin.tool} of {origin.agent}" if origin.tool else origin.agent
        message = f"{who} failed; the reason is on record at its hub" if origin.error else self.message
        return replace(self, origin=None, detail="", message=message)


# The names of the fields that are never sent to others.
INWARD = ("origin", "detail")

_STORE_MESSAGE = "the store cannot record now, so nothing may start and no answer may leave"
_STORE_ADVICE = "Send the same request id again later."


def fault(
    code: Code,
    message: str,
    *,
    problems: tuple[Problem, ...] = (),
    retry_after_ms: int | None = None,
    foreign: str | None = None,
    suggestion: str | None = None,
    detail: str = "",
) -> Fault:
    """Make the fault for *code*, with the table's suggestion unless another is given, or none (`""`).

    Everybody sees *message*; only the hub's operator sees *detail*.
    """
    row = TABLE[code]
    if suggestion is None:
        suggestion = advice(code, problems, retry_after_ms)
    return Fault(
        code=code,
        message=message,
        recoverable=row.recoverable,
        suggestion=suggestion,
        problems=problems,
        retry_after_ms=retry_after_ms,
        foreign=foreign,
        detail=detail,
    )


_TIME_GIVEN, _LATER, _FIELDS = "for the time given", "Try again later", "the fields that are named"


def advice(code: Code, problems: tuple[Problem, ...] = (), retry_after_ms: int | None = None) -> str:
    """Return the table's suggestion for a fault: with the time to wait if known, and about fields if any."""
    suggestion = TABLE[code].suggestion if problems else TABLE[code].suggestion.replace(_FIELDS, "it")
    if retry_after_ms is None:
        return suggestion.replace(_TIME_GIVEN, "a while")
    wait = duration(retry_after_ms)
    return suggestion.replace(_TIME_GIVEN, wait).replace(_LATER, f"Try again in {wait}")


def to_retry_after(fault: Fault, retry_after_ms: int | None) -> Fault:
    """Return a fault with a retry time; a suggestion from the table mentions that time too."""
    known = advice(fault.code, fault.problems, fault.retry_after_ms)
    timed = advice(fault.code, fault.problems, retry_after_ms)
    suggestion = timed if fault.suggestion == known else fault.suggestion
    return replace(fault, retry_after_ms=retry_after_ms, suggestion=suggestion)


def duration(milliseconds: int) -> str:
    """Return a time to wait in words, rounded up."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    seconds = -(-milliseconds // 1_000)
    return f"{seconds} s" if seconds < 120 else f"{-(-seconds // 60)} minutes"


def in_sentences(*parts: str) -> str:
    """Return parts as consecutive sentences: each keeps its ending, or gets a full stop."""
    return " ".join(each if each[-1] in ".!?…" else f"{each}." for each in map(str.strip, parts) if each)


class RemitError(Exception):
    """A fault as an exception, for callers that want one."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault
        """What went wrong, and what to do."""

    def __str__(self) -> str:
        lines = [f"{self.fault.code}: {self.fault.message}"]
        lines += [f"  {self.fault.detail}"] if self.fault.detail else []
        lines += [f"  {problem.path}: {problem.message}" for problem in self.fault.problems]
        if self.fault.suggestion:
            lines.append(f"  → {self.fault.suggestion}")
        return "\n".join(lines)
