"""Questions to a person, and the person's decisions."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from remit.protocol.envelope import Json, Request


class Question(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a person is asked about a request: all of it redacted, so that it may be shown and kept."""

    id: str
    """The same whenever the same is asked of the same delegation, also after a restart."""
    text: str
    request: Request
    editable: frozenset[str] = frozenset()
    """What may be changed before agreeing: `objective`, `input`."""
    asked_ms: int
    expires_ms: int
    """When it is too late to answer, in milliseconds since 1970."""


class Decision(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a person said, and who it was."""

    agreed: bool
    by: str
    reason: str = ""
    edits: dict[str, Json] = {}
    """What was changed before agreeing, by field: `objective`, `input`."""


Approver = Callable[[Question], Awaitable[Decision | bool | None]]
"""Puts a question to a person and returns what they said; None: it is not for this approver to say."""
