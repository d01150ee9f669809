"""Why something failed, in a plain sentence for users."""

import re

from msgspec.structs import replace

from remit.protocol.envelope import Response
from remit.protocol.errors import Code, Fault, fault
from remit.words.components import capital, in_words

_TOO_MANY_STEPS = "it would have taken more steps than are allowed"
_NOT_PERMITTED = "it is not permitted"
_NOT_PROVEN = "it could not be verified who is asking"
_NOT_UNDERSTOOD = "the details for it were not complete or not right"
_REASONS = {
    Code.MAX_DEPTH_EXCEEDED: _TOO_MANY_STEPS,
    Code.CHAIN_TOO_LONG: _TOO_MANY_STEPS,
    Code.LOOP_DETECTED: _TOO_MANY_STEPS,
    Code.CYCLE_DETECTED: "it had been asked for already",
    Code.FAN_OUT_EXCEEDED: "too much was asked for at once",
    Code.MAX_DELEGATIONS_EXCEEDED: _TOO_MANY_STEPS,
    Code.RECORD_LIMIT_EXCEEDED: "there was too much material for it",
    Code.NESTED_CALLS_FORBIDDEN: _TOO_MANY_STEPS,
    Code.TIMEOUT: "it took too long",
    Code.TOKEN_BUDGET_EXCEEDED: "it would have cost more than is allowed for it",
    Code.RATE_LIMITED: "it was asked for too often in a short time",
    Code.OVERLOADED: "too much was going on at the same time",
    Code.PERMISSION_DENIED: _NOT_PERMITTED,
    Code.TOOL_NOT_ALLOWED: _NOT_PERMITTED,
    Code.USER_MISMATCH: "it would have used what belongs to somebody else",
    Code.PATH_NOT_ALLOWED: _NOT_PERMITTED,
    Code.APPROVAL_DECLINED: "it was not approved",
    Code.UNAUTHENTICATED: _NOT_PROVEN,
    Code.CREDENTIAL_INVALID: _NOT_PROVEN,
    Code.CREDENTIAL_EXPIRED: "the sign-in has expired",
    Code.AGENT_NOT_FOUND: "nothing here can do it",
    Code.CAPABILITY_NOT_FOUND: "nothing here can do it",
    Code.NOT_FOUND: "it does not exist, or you may not see it",
    Code.INPUT_VALIDATION_FAILED: _NOT_UNDERSTOOD,
    Code.DATA_MISSING_REQUIRED_INPUT: "something that it needs to know was not said",
    Code.TOO_LARGE: "there was too much material for it",
    Code.RESULT_VALIDATION_FAILED: "what came of it could not be used",
    Code.DUPLICATE_REQUEST: "something else had been asked for under the same number",
    Code.STATE_CONFLICT: "something changed in the meantime",
    Code.USER_HAS_OPEN_RUN: "a run of the user is not over",
    Code.NOT_RECORDED: "it is not in the recording that is replayed",
    Code.DELEGATION_UNAVAILABLE: "it is not available at the moment",
    Code.DELEGATION_FAILED: "something went wrong on the way",
    Code.CANCELLED: "it was stopped",
    Code.OUTCOME_UNKNOWN: "it was interrupted, and may or may not have taken effect",
    Code.STORE_UNAVAILABLE: "it could not be recorded safely",
}


def reason(fault: Fault) -> str:
    """Return why something failed, in words for the user, and whether it can be retried."""
    why = _REASONS.get(fault.code, "there was a problem in how it was asked for or set up")
    if fault.problems and fault.code in (Code.INPUT_VALIDATION_FAILED, Code.DATA_MISSING_REQUIRED_INPUT):
        fields = (in_words(problem.path.removeprefix("$")) for problem in fault.problems)
        why = f"{why}: {', '.join(dict.fromkeys(fields))}"
    if not fault.recoverable:
        return f"{why}."
    wait = fault.retry_after_ms
    return f"{why}. It can be tried again{'' if wait is None else f' in {_duration(wait)}'}."


def plain_failure(fault: Fault) -> str:
    """Return the sentence that a user reads if something failed: without names of agents, codes and exceptions."""
    return f"This could not be done: {reason(fault)}"


def with_plain_summary(response: Response) -> Response:
    """Return a response whose summary can be shown to a user; if it failed without a summary, that says why."""
    if response.ok or response.fault is None or response.summary:
        return response
    return replace(response, summary=plain_failure(response.fault))


def plain_warning(text: str) -> str:
    """Return a warning; one with an error code says what the code means, one with an exception only that it failed."""
    if code := _CODE.search(text):
        return capital(reason(fault(Code(code[0]), "")))
    return _WENT_WRONG if _EXCEPTION.search(text) else text


def plain_part(text: str) -> str:
    """Return the name of a part that is missing, without the text of an exception."""
    return _SOME_PART if _CODE.search(text) or _EXCEPTION.search(text) else text


_CODE = re.compile(rf"\b(?:{'|'.join(sorted(code.value for code in Code))})\b")
# An exception as Python, JavaScript and Java print it. One that a sentence only speaks of ("catches every KeyError") is
# a word of that sentence.
_EXCEPTION = re.compile(
    r"\bTraceback \(most recent call last\)|\[Errno -?\d+\]|<[\w.]+ object at 0x|\bat 0x[0-9a-fA-F]{4,}"
    r"|\b[A-Z]\w*(?:Error|Exception|Interrupt)(?:[:()]|\s*\Z)"
)
_WENT_WRONG = "Something went wrong on the way."
_SOME_PART = "a part of it"


def _duration(milliseconds: int) -> str:
    seconds = max(1, round(milliseconds / 1_000))
    if seconds < 90:
        return f"{seconds} second{'s' if seconds > 1 else ''}"
    return f"about {round(seconds / 60)} minutes"
