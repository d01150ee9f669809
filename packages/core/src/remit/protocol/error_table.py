"""The table of errors: a code for programs, the blame, a message for people, and a suggestion."""

from enum import StrEnum
from typing import NamedTuple


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
        "The caller asks the same callee for the same again, with the same input, while that is in progress or has "
        "succeeded. Where that only reads, the earlier answer is given again instead.",
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
