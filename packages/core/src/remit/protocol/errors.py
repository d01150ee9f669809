"""Every way a delegation can go wrong: a code for programs, a sentence for people, and what to do next.

Codes are stable and never reused. One table maps each to whom to blame, its HTTP status, its CLI exit code, and advice:

    RemitError             raised only at the outermost call, and only if asked (`response.unwrap()`)
     └─ Fault              the value that travels: code, message, suggestion, the fields that were wrong
         └─ Code → Row     the table below
"""

from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.error_table import TABLE, Blame, Code, ErrorRow

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
            return fault(self.code, _STORE_TOLD, retry_after_ms=self.retry_after_ms, suggestion=_STORE_ADVICE)
        origin = self.origin
        if origin is None:
            return replace(self, detail="") if self.detail else self
        who = f"tool {origin.tool} of {origin.agent}" if origin.tool else origin.agent
        message = f"{who} failed; the reason is on record at its hub" if origin.error else self.message
        return replace(self, origin=None, detail="", message=message)


# The names of the fields that are never sent to others.
INWARD = ("origin", "detail")

_STORE_TOLD = "the store cannot record now, so nothing may start and no answer may leave"
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
