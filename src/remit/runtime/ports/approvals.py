"""Questions to a person, and the person's decisions."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from remit.protocol.envelope import Json, Request


class Question(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A question to a person about a request. All of it is redacted, so that it can be shown and stored."""

    id: str
    """Stable: the same question about the same delegation has the same id, also after a restart."""
    text: str
    request: Request
    editable: frozenset[str] = frozenset()
    """The fields that the person may edit before approving: `objective`, `input`."""
    asked_ms: int
    expires_ms: int
    """The last moment to answer, in milliseconds since 1970."""


class Decision(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A person's decision, and who made it."""

    agreed: bool
    by: str
    reason: str = ""
    edits: dict[str, Json] = {}
    """The edited fields and their new values: `objective`, `input`."""


Approver = Callable[[Question], Awaitable[Decision | bool | None]]
"""Asks a person and returns the decision; None: this approver does not decide about the question."""
