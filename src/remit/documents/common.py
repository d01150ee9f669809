"""What many documents say in the same words, and what each command prints when it fails."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remit.protocol.errors import TABLE, Code, Fault, Problem

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


class Failure(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.error/1"):
    """Why a command could not do what it was asked for."""

    code: Annotated[Code, Meta(description="What went wrong; `remit errors CODE` explains it.")]
    message: Annotated[str, Meta(description="The same as a sentence.")]
    detail: Annotated[str, Meta(description="What only the operator is told: addresses, the system's words.")] = ""
    suggestion: Annotated[str, Meta(description="What to do next.")]
    problems: Annotated[tuple[Problem, ...], Meta(description="Each place that is wrong.")] = ()
    exit_code: Annotated[int, Meta(description="With what the command exits.")]


def failure_of(why: Fault) -> Failure:
    """Return the document for a fault."""
    return Failure(
        code=why.code,
        message=why.message,
        detail=why.detail,
        suggestion=why.suggestion,
        problems=why.problems,
        exit_code=TABLE[why.code].exit_code,
    )
