"""Models that MCP hosts lend to the runs that they wait for."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from remit.protocol.card import Schema
from remit.protocol.envelope import Answer, Json, Message
from remit.protocol.errors import Code, RemitError, fault
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


class LentModel:
    """The model of one host, until it is taken back."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._samplings: set[asyncio.Future[Completion]] = set()

    async def sample(self, system: str, messages: tuple[Message, ...], most: int) -> Completion:
        """Ask the model as a `Sampler` does; raises a `RemitError` if it is taken back meanwhile."""
        sampling = asyncio.ensure_future(self._sampler(system, messages, most))
        self._samplings.add(sampling)
        try:
            await asyncio.wait({sampling})
        finally:
            self._samplings.discard(sampling)
            sampling.cancel()
        if sampling.cancelled():
            raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, "the MCP host no longer waits for this run"))
        return sampling.result()

    def take_back(self) -> None:
        """End what the model is asked now."""
        for sampling in self._samplings:
            sampling.cancel()


class LentModels:
    """Which run may ask the model of which host; a host lends its model while it waits, and no longer."""

    def __init__(self) -> None:
        self._by_run: dict[str, list[LentModel]] = {}

    @contextmanager
    def lend(self, run: str, sampler: Sampler | None) -> Generator[None]:
        """Lend a model to a run in this block; None: there is nothing to lend.

        If the block is cancelled, the host has gone: what its model was asked ends, too. If it ends otherwise, the host
        is there and may still answer.
        """
        if sampler is None:
            yield
            return
        lent = LentModel(sampler)
        self._by_run.setdefault(run, []).append(lent)
        try:
            yield
        except BaseException:
            lent.take_back()
            raise
        finally:
            self._by_run[run].remove(lent)
            if not self._by_run[run]:
                del self._by_run[run]

    def of(self, run: str) -> Sampler | None:
        """Return the model that was lent to a run last."""
        hosts = self._by_run.get(run)
        return hosts[-1].sample if hosts else None
