"""The table of errors."""

from typing import Annotated

from msgspec import Meta, Struct

from remit.protocol.errors import Code


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
