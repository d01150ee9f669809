"""The interface of every dialect: foreign messages to ours and back, and how outcomes are told over HTTP."""

import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Protocol, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.codec import convert, decode, malformed, whole
from remit.protocol.envelope import VERSION, Json, Request, Response
from remit.protocol.errors import TABLE, Blame, Code, Fault, Problem, RemitError, fault, to_retry_after
from remit.protocol.generous import parse, read_generously
from remit.protocol.lifecycle import Status
from remit.protocol.remit import Name
from remit.protocol.submission import Submission

T = TypeVar("T")


class ForeignMessage(Struct, frozen=True, kw_only=True):
    """A message on the wire: its headers, with lower-case names, and its body."""

    headers: Mapping[str, str] = {}
    body: bytes = b""
    target: str = ""
    """The agent that the URL names, for a dialect without a field for it."""
    status: int = 200
    """The HTTP status of a reply; requests have none."""


class Dialect(Protocol):
    """A pure translation, both ways. What cannot be expressed is refused by field, with a `RemitError`."""

    def submission(self, message: ForeignMessage) -> Submission:
        """Return a foreign client's request as a submission."""
        ...

    def reply(self, response: Response, message: ForeignMessage) -> ForeignMessage:
        """Return the outcome as the foreign client expects it; also for a response that no agent gave."""
        ...

    def request(self, request: Request) -> ForeignMessage:
        """Return a hub's request for a foreign server."""
        ...

    def response(self, given: ForeignMessage, request: Request) -> Response:
        """Return the outcome that the foreign server sent."""
        ...


def read_envelope(raw: bytes, kind: type[T]) -> T:
    """Decode what a peer sends: strictly, except for numbers."""
    return convert(whole(decode(raw, object), kind), kind)


def refuse_another(message: ForeignMessage, field: str, target: str) -> None:
    """Refuse a message whose URL and body name different agents."""
    if message.target not in ("", target):
        raise RemitError(malformed((Problem(f"$.{field}", "is not the agent that the URL names"),)))


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


class _ClaimedName(Struct):
    name: Name


def as_uuid(name: str) -> str:
    """Return *name* if it is a UUID; else a version 4 UUID that is always the same for the same name."""
    if _UUID.fullmatch(name):
        return name
    digits = bytearray(blake2b(name.encode(errors="surrogatepass"), digest_size=16).digest())
    # RFC 9562: version 4, variant 10.
    digits[6], digits[8] = digits[6] & 0x0F | 0x40, digits[8] & 0x3F | 0x80
    text = digits.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def claimed(message: ForeignMessage, field: str, header: str = "") -> str | None:
    """Return the value of *field* in an envelope, however invalid the rest of it is; else the value of *header*.

    It is echoed to the sender, to identify the refused request, and used for nothing else.
    """
    try:
        # Also JSON that is not strict: NaN, duplicate keys, numbers of any length.
        envelope = json.loads(message.body, parse_int=float) if message.body else None
    except (ValueError, RecursionError):
        envelope = None
    stated = cast("dict[str, Json]", envelope).get(field) if isinstance(envelope, dict) else None
    for each in (stated, message.headers.get(header)):
        try:
            name = convert({"name": each}, _ClaimedName).name
            name.encode()  # an unpaired surrogate cannot be sent back
        except (RemitError, UnicodeEncodeError):
            continue
        return name
    return None


JSON = {"content-type": "application/json"}

_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)

# The characters that a header can carry unchanged.
_HEADER = re.compile(r"[!-~](?:[ -~]{0,998}[!-~])?", re.ASCII)

_OF_STATUS = {
    401: Code.PERMISSION_DENIED,
    403: Code.PERMISSION_DENIED,
    404: Code.AGENT_NOT_FOUND,
    408: Code.TIMEOUT,
    413: Code.TOO_LARGE,
    429: Code.RATE_LIMITED,
    503: Code.DELEGATION_UNAVAILABLE,
    504: Code.TIMEOUT,
}


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def settled(response: Response) -> Response:
    """Return a response that has a fault if and only if it is not a success, not even a partial one."""
    if response.ok:
        return replace(response, fault=None)
    if response.fault is None:
        return replace(response, fault=fault(Code.DELEGATION_FAILED, f"{response.target} gave no reason"))
    return response


def reply_with_status(response: Response, body: bytes) -> ForeignMessage:
    """Return a reply with the HTTP status of its outcome."""
    why = response.fault
    if why is None:
        return ForeignMessage(headers={**JSON}, body=body)
    wait = {} if why.retry_after_ms is None else {"retry-after": str(-(-why.retry_after_ms // 1_000))}
    return ForeignMessage(headers=JSON | wait, body=body, status=TABLE[why.code].status)


def sentence(why: Fault) -> str:
    """Return a fault as one text, including the invalid fields."""
    # A problem of the whole body is in the message already.
    problems = (f"{problem.path}: {problem.message}" for problem in why.problems if problem.path != "$")
    return "; ".join(filter(None, (why.message.strip(), *problems))).strip() or TABLE[why.code].meaning


def header(name: str, value: str) -> dict[str, str]:
    """Return a header, or none for a value that a header cannot carry: the body has it anyway."""
    return {name: value} if _HEADER.fullmatch(value) else {}


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def answered_by(request: Request) -> Generator[None]:
    """Report anything that cannot be decoded as an unusable answer of the peer."""
    try:
        yield
    except RemitError as error:
        why = error.fault
        message = f"{request.target} sent an unusable answer: {why.message}"
        raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, message, problems=why.problems)) from error


def read_reply(
    given: ForeignMessage, kind: type[T], request: Request, blanks: Mapping[str, Json] | None = None
) -> tuple[T, tuple[str, ...]] | Response:
    """Return a server's answer, and warnings about what cannot be read of it; *blanks* are what it may leave out.

    If it is not in the dialect, such as a proxy's, return what its HTTP status says.
    """
    try:
        if given.status >= 300:
            return read_envelope(given.body, kind), ()
        value, warnings = parse(given.body)
        words, more = read_generously(value, kind, blanks=blanks)
    except RemitError:
        if given.status < 300:
            raise
    else:
        return words, (*warnings, *more)
    code = _OF_STATUS.get(given.status, Code.DELEGATION_FAILED)
    how = "Check the token that this hub sends." if given.status == 401 else None
    why = fault(code, f"{request.target} sent no answer but HTTP status {given.status}", suggestion=how)
    response = Response(version=VERSION, id=request.id, target=request.target, status=status_of(code), fault=why)
    return in_time(response, given)


def in_time(response: Response, given: ForeignMessage) -> Response:
    """Return the answer, with the retry time if only a header has it; contradictions are refused."""
    why = response.fault
    if response.ok is (why is not None):
        raise RemitError(malformed((Problem("$", f"{response.status} contradicts whether there is an error"),)))
    if why is None:
        if given.status >= 300:
            raise RemitError(malformed((Problem("$", f"a success cannot have HTTP status {given.status}"),)))
        return response
    wait = why.retry_after_ms if why.retry_after_ms is not None else retry_after_ms(given)
    return replace(response, fault=to_retry_after(why, wait))


def retry_after_ms(given: ForeignMessage) -> int | None:
    """Return the retry time in a header that gives seconds; a date would require a clock."""
    seconds = given.headers.get("retry-after", "")
    return int(seconds) * 1_000 if _SECONDS.fullmatch(seconds) else None


def status_of(code: Code) -> Status:
    """Return the outcome of a request of which only the code is known: errors of the caller did not start."""
    match code:
        case Code.TIMEOUT:
            return Status.TIMEOUT
        case Code.CANCELLED:
            return Status.CANCELLED
        case _:
            return Status.REFUSED if TABLE[code].blame is Blame.CALLER else Status.FAILED


def known(code: str, message: str, *, suggestion: str | None = None, recoverable: bool | None = None) -> Fault:
    """Return the fault of a peer's own code: ours if it is one of ours, else a failure that keeps it."""
    ours = Code.__members__.get(code)
    made = fault(ours or Code.DELEGATION_FAILED, message, suggestion=suggestion, foreign=None if ours else code)
    return made if recoverable is None else replace(made, recoverable=recoverable)


# Errors are short, and text further down is not the document's sentence.
_READ = 200

_CODES = (
    # employees
    (re.compile(r"Delegation depth limit reached|Max delegation depth exceeded"), Code.MAX_DEPTH_EXCEEDED),
    (re.compile(r"Too many concurrent delegates"), Code.FAN_OUT_EXCEEDED),
    (re.compile(r"Cycle detected"), Code.CYCLE_DETECTED),
    (re.compile(r"Delegation timeout after [0-9]+ ?ms"), Code.TIMEOUT),
    (re.compile(r"Estimated tokens \([0-9]+\) exceeds budget"), Code.TOKEN_BUDGET_EXCEEDED),
    (re.compile(r"User ID mismatch"), Code.USER_MISMATCH),
    (re.compile(r"Employee \S+ not authorized to use tool"), Code.TOOL_NOT_ALLOWED),
    # sub-agents
    (re.compile(r"Agent '[^']*' is not allowed to call other agents"), Code.PERMISSION_DENIED),
    (re.compile(r"[Aa]gent '[^']*' not found"), Code.AGENT_NOT_FOUND),
    (re.compile(r"Recursive sub-agent calls detected"), Code.LOOP_DETECTED),
)

# Sentences that end with an instruction, so that no more advice is needed.
_ADVISES = re.compile(r"Return results to parent|Choose (?:the )?top [0-9]+ most relevant|Simplify task")

# Where our sentences differ from those of the employees.
_THEIRS = (
    (re.compile(r"Choose the top ([0-9]+) most relevant agents"), r"Choose top \1 most relevant employees"),
    (
        re.compile(r"^Cycle detected: (\S+) -> (\S+) with the same objective is already in progress or done"),
        r"Cycle detected: \1 → \2 with same objective already in progress",
    ),
    (re.compile(r"^(?:Agent )?(\S+ not authorized to use tool)s? "), r"Employee \1 "),
)
_DEPTHS = re.compile(r"(?<=Delegation depth limit reached )\(([0-9]{1,15})/([0-9]{1,15})\)")


def in_sentences(why: Fault) -> str:
    """Return the text of a fault for an employee."""
    words = _counted(sentence(why), 1)
    for ours, theirs in _THEIRS:
        words = ours.sub(theirs, words, count=1)
    return words


# Where our sentences differ from those of the librarians.
_REASONS = (
    (re.compile(r"^Delegation depth limit reached .*", re.DOTALL), "Maximum delegation depth exceeded"),
    (re.compile(r"^Delegation chain too long \(.*", re.DOTALL), "Delegation chain too long"),
    (re.compile(r"^\S+ is already in the chain: "), "Delegation loop detected: "),
)


def in_reasons(why: Fault) -> str:
    """Return the text of a fault for a librarian."""
    words = sentence(why)
    for ours, theirs in _REASONS:
        words = ours.sub(theirs, words, count=1)
    return words


def fault_of(error: str) -> Fault:
    """Return the fault of a document's sentence; an unknown sentence is a failure."""
    begins = error[:_READ]
    code = next((code for pattern, code in _CODES if pattern.search(begins)), Code.DELEGATION_FAILED)
    return fault(code, _counted(error, -1), suggestion="" if _ADVISES.search(begins) else None)


def _counted(words: str, more: int) -> str:
    """Return a sentence about depth with its numbers as the other side counts them: its limit is exclusive."""
    return _DEPTHS.sub(lambda match: "({}/{})".format(*(max(0, int(each) + more) for each in match.groups())), words)
