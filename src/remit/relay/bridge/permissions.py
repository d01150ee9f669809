"""What a local agent asks its user before it uses a tool."""

from collections.abc import Awaitable, Callable

from msgspec import Struct


class Choice(Struct, frozen=True, kw_only=True):
    """One of the answers that an agent offers."""

    id: str
    name: str
    kind: str
    """`allow_once`, `allow_always`, `reject_once` or `reject_always`."""


class PermissionRequest(Struct, frozen=True, kw_only=True):
    """What an agent asks its user before it uses a tool; all of it is the agent's own words, made safe to show."""

    session_id: str
    """The session of the overlay in which it asks."""
    title: str
    kind: str
    """What the tool does, as the agent says: `read`, `edit`, `execute`, … or empty."""
    details: str
    """What it would use the tool with, as JSON, cut."""
    choices: tuple[Choice, ...]


AskUser = Callable[[PermissionRequest], Awaitable[str | None]]
"""Asks the user and returns the id of a choice; None: no. It is cancelled when the answer is not wanted any more."""


async def deny(question: PermissionRequest) -> str | None:  # noqa: ARG001
    """Answer every question with no."""
    return None
