"""Conversations as the HTTP API shows them."""

from typing import Literal

from msgspec import Struct

from remit.protocol.envelope import Note
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status


class SessionLine(Struct, frozen=True, kw_only=True):
    """A conversation of a user with an agent."""

    session: str
    user: str
    agent: str
    objective: str
    """The objective of its newest run."""
    first_ms: int
    last_ms: int
    """When its newest run ended, or began if it has not ended."""
    runs: int
    messages: int
    """The number of requests and answers."""
    run: str
    """Its newest run."""
    via: str
    """The peer or client that sent the newest request; empty if it came from here."""


class SessionList(Struct, frozen=True, kw_only=True):
    """A page of conversations, the one with the newest request first."""

    sessions: tuple[SessionLine, ...]
    next: int | None
    """The value of `before` for the next page; None if there is none. A page may be short although there is one."""


class SessionMessage(Struct, frozen=True, kw_only=True):
    """A request or an answer of a conversation, as it is stored: personal values are tokens."""

    seq: int
    at_ms: int
    role: Literal["user", "assistant"]
    name: str
    """Who speaks: the caller of a request, the agent that answers."""
    text: str
    is_cut: bool
    """Whether the text is longer than what is shown; its delegation has all of it."""
    run: str
    delegation: str
    """The path of the delegation in its run."""
    status: Status | None
    """How it ended, for an answer."""
    code: Code | None
    """Why it did not succeed."""


class SessionView(Struct, frozen=True, kw_only=True):
    """A conversation: its newest messages, oldest first, and its notes."""

    session: str
    user: str
    agent: str
    messages: tuple[SessionMessage, ...]
    next: int | None
    """The value of `before` for the page of earlier messages; None if there are none."""
    notes: tuple[Note, ...]
