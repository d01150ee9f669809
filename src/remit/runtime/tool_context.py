"""What a tool may do besides returning a result, on behalf of the agent that uses it."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Protocol

from remit.protocol.card import Schema
from remit.protocol.envelope import Answer, Json, Message
from remit.protocol.records import StepPlan


class ToolCaller(Protocol):
    """The delegation whose agent uses a tool: see `LocalBriefBackend`."""

    def progress(
        self, text: str, partial: Answer | Callable[[], Answer] | None, plan: StepPlan | None = None
    ) -> None: ...

    async def fill(self, question: str, form: Schema) -> dict[str, Json] | None:
        """Ask a person to fill in a form, and return its fields; None: they declined, or nobody can be asked."""
        ...


TOOL_CALLER: ContextVar[ToolCaller | None] = ContextVar("remit_tool_caller", default=None)
"""Set while a tool runs."""

Completion = tuple[str, str]
"""The text of a model, and the name of the model."""

Sampler = Callable[[str, tuple[Message, ...], int], Awaitable[Completion]]
"""Has the model of the calling agent continue a conversation: instructions, messages, at most so many tokens.

The tokens are spent within the delegation of the agent. It raises a `RemitError` if the model fails.
"""

SAMPLER: ContextVar[Sampler | None] = ContextVar("remit_sampler", default=None)
"""Set while an agent that is backed by a model is at work."""
