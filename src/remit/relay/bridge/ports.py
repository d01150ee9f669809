"""The interface of a local agent, independent of its protocol."""

from typing import Protocol

from msgspec import Struct

from remit.relay.bridge.frames import PromptRequest


class Draft(Struct, frozen=True, kw_only=True):
    """The message that a local agent proposes to send."""

    text: str
    confidence: float | None = None
    done: bool = False
    tokens: int | None = None
    """The tokens it spent; None: it did not say."""
    tool_rounds: int | None = None
    duration_ms: int = 0


class DraftFailure(Struct, frozen=True, kw_only=True):
    """Why there is no draft."""

    reason: str
    hard: bool
    """Whether the agent itself is gone or untrusted (crash, timeout, broken rules), not just this turn."""


class LocalAgent(Protocol):
    """A local agent that runs or can be started."""

    async def prompt(self, request: PromptRequest) -> Draft | DraftFailure:
        """Ask for the next message, one at a time for each profile; never raises because of the agent."""
        ...

    async def close(self) -> None:
        """End it and all processes that it started."""
        ...
