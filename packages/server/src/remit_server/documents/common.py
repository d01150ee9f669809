"""Fields that many documents share, and the documents of failures, benchmarks and the guard of coding tools."""

from typing import Annotated, Literal, TypeVar

from msgspec import Meta, Struct

from remit.protocol.errors import TABLE, Code, Fault, Problem
from remit.words.failures import plain_failure

AtMs = Annotated[int, Meta(description="Time in milliseconds since 1970.")]
RunId = Annotated[str, Meta(description="The run's id.")]
DelegationId = Annotated[
    str, Meta(description="The delegation's path in the run: `run.2.1` is the first child of the second child.")
]
State = Annotated[
    Literal["waiting", "running", "silent", "finished"],
    Meta(
        description="`waiting` for a person, `running`, `silent` (no sign of life from its process for some time) or "
        "`finished`."
    ),
]


S = TypeVar("S", bound=Struct)


def shown_as(kind: type[S], source: object, /, **fields: object) -> S:
    """Return what a document shows of *source*: the attributes that have the names of its fields, and *fields*."""
    names = (name for name in kind.__struct_fields__ if name not in fields)
    return kind(**{name: getattr(source, name) for name in names}, **fields)


class Failure(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.error/1"):
    """Why a command failed."""

    code: Annotated[Code, Meta(description="Error code; `remit errors CODE` explains it.")]
    message: Annotated[str, Meta(description="The error as a sentence.")]
    summary: Annotated[str, Meta(description="The error in plain words, for a user.")]
    detail: Annotated[str, Meta(description="Details for the operator only: addresses, system messages.")] = ""
    suggestion: Annotated[str, Meta(description="What to do next.")]
    problems: Annotated[tuple[Problem, ...], Meta(description="Each invalid field.")] = ()
    exit_code: Annotated[int, Meta(description="Exit code of the command.")]


def failure_of(why: Fault) -> Failure:
    """Return the document for a fault."""
    return shown_as(Failure, why, summary=plain_failure(why), exit_code=TABLE[why.code].exit_code)


class ErrorCode(Struct, frozen=True, kw_only=True):
    """An error code with its properties."""

    code: Annotated[Code, Meta(description="The code; it is stable and never reused.")]
    meaning: Annotated[str, Meta(description="What it means.")]
    suggestion: Annotated[str, Meta(description="What to do.")]
    blame: Annotated[str, Meta(description="Who must change something: `caller`, `peer` or `hub`.")]
    status: Annotated[int, Meta(description="The HTTP status.")]
    exit_code: Annotated[int, Meta(description="Exit code of a command.")]
    recoverable: Annotated[bool, Meta(description="Whether a retry can succeed.")]


class ErrorCodes(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.errors/1"):
    """Error codes, explained. Printed by `remit errors`."""

    errors: Annotated[tuple[ErrorCode, ...], Meta(description="The requested codes, or all.")]


class BenchFigure(Struct, frozen=True, kw_only=True):
    """The time of an operation, and of the floor that it is compared with."""

    operation: Annotated[str, Meta(description="What was measured.")]
    us: Annotated[float, Meta(description="Its least time, in microseconds.")]
    floor: Annotated[str, Meta(description="What has to be done anyway, measured in the same run.")]
    floor_us: Annotated[float, Meta(description="The least time of that, in microseconds.")]
    ratio: Annotated[float, Meta(description="The time of the operation, divided by that of its floor.")]


class BenchReport(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.bench/1"):
    """How fast Remit is on this machine. Printed by `remit bench --json`."""

    figures: Annotated[tuple[BenchFigure, ...], Meta(description="The figures.")]


class GuardedTool(Struct, frozen=True, kw_only=True):
    """A file of a coding tool that the guard was put into."""

    tool: Annotated[str, Meta(description="Its name on the command line.")]
    path: Annotated[str, Meta(description="The file.")]
    state: Annotated[
        Literal["heard", "silent", "gone"],
        Meta(
            description="`heard`: the tool was heard since the guard was put in; `silent`: not yet, so start a session "
            "of it; `gone`: the guard is no longer in the file."
        ),
    ]
    heard_ms: Annotated[
        int | None, Meta(description="When the tool was last heard, in milliseconds since 1970; null: never.")
    ]
    events: Annotated[int, Meta(description="Events heard since the guard was started.")]
    version: Annotated[str | None, Meta(description="The version that is installed; null: its command was not found.")]
    tried: Annotated[tuple[str, ...], Meta(description="The versions that the guard was tried with.")]
    obstacle: Annotated[
        str, Meta(description="What keeps the tool from running the guard, and what to do; empty: nothing is known.")
    ] = ""

    @property
    def is_untried(self) -> bool:
        """Whether the version that is installed was not tried."""
        return self.version is not None and self.version not in self.tried


class GuardedSessionUse(Struct, frozen=True, kw_only=True):
    """What a session of a coding tool has used of its limits."""

    tool: Annotated[str, Meta(description="The name of the tool.")]
    session: Annotated[str, Meta(description="The id that the tool gives it.")]
    tokens: Annotated[int, Meta(description="Tokens that it and its sub-agents have used.")]
    token_limit: Annotated[int, Meta(description="Tokens that they may use.")]
    cost: Annotated[int | None, Meta(description="Money that they have spent, in millionths; null: the run has ended.")]
    cost_limit: Annotated[int | None, Meta(description="Money that they may spend, in millionths; null: no limit.")]


class GuardReport(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.guard-status/1"):
    """Whether the guard of coding tools works. Printed by `remit guard status --json`."""

    ok: Annotated[bool, Meta(description="Whether it runs, is in all of its files, and nothing keeps it out.")]
    process: Annotated[int | None, Meta(description="The process that answers; null: none does.")]
    unanswering: Annotated[
        str | None, Meta(description="The process of a guard that runs but does not answer; null: there is none.")
    ] = None
    sessions: Annotated[int, Meta(description="Sessions that are open.")]
    use: Annotated[
        tuple[GuardedSessionUse, ...], Meta(description="What each open session has used of its limits.")
    ] = ()
    currency: Annotated[str, Meta(description="The currency of its money.")] = "USD"
    tools: Annotated[tuple[GuardedTool, ...], Meta(description="The files that it was put into.")]
