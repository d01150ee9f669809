"""Fields that many documents share, the document of a failed command, and the table of errors."""

from typing import Annotated, Literal

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
    return Failure(
        code=why.code,
        message=why.message,
        summary=plain_failure(why),
        detail=why.detail,
        suggestion=why.suggestion,
        problems=why.problems,
        exit_code=TABLE[why.code].exit_code,
    )


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
