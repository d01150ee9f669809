"""What a host needs of a local agent, however that is spoken to."""

from typing import Protocol

from msgspec import Struct

from remit.relay.bridge.frames import PromptRequest


class Draft(Struct, frozen=True, kw_only=True):
    """What a local agent would have the host send."""

    text: str
    confidence: float | None = None
    done: bool = False
    tokens: int | None = None
    """What it spent; None: it did not say."""
    tool_rounds: int | None = None
    duration_ms: int = 0


class DraftFailure(Struct, frozen=True, kw_only=True):
    """Why there is no draft."""

    reason: str
    hard: bool
    """Whether the channel itself is gone or not to be trusted (crash, time-out, broken rules), not just this turn."""


class LocalAgent(Protocol):
    """A local agent that is there, or can be started."""

    async def prompt(self, request: PromptRequest) -> Draft | DraftFailure:
        """Ask for the next message; never raises for what the agent does. One at a time for each profile."""
        ...

    async def close(self) -> None:
        """End it and all that it started."""
        ...
