"""Permission requests of a local agent to its user."""

from collections.abc import Awaitable, Callable

from msgspec import Struct


class Choice(Struct, frozen=True, kw_only=True):
    """An option that an agent offers."""

    id: str
    name: str
    kind: str
    """`allow_once`, `allow_always`, `reject_once` or `reject_always`."""


class PermissionRequest(Struct, frozen=True, kw_only=True):
    """A permission request before a tool is used; all texts are the agent's own, made safe to show."""

    session_id: str
    """The session of the run."""
    title: str
    kind: str
    """The kind of tool, as the agent says: `read`, `edit`, `execute`, … or empty."""
    details: str
    """The input of the tool as JSON, shortened."""
    choices: tuple[Choice, ...]


AskUser = Callable[[PermissionRequest], Awaitable[str | None]]
"""Asks the user and returns the id of a choice; None: no. It is cancelled when the answer is no longer needed."""


async def deny(question: PermissionRequest) -> str | None:  # noqa: ARG001
    """Deny every request."""
    return None
