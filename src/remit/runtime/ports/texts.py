"""What reads the texts of people and agents; the core brings none."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from remit.policy.aggregate import Blend
from remit.protocol.card import AgentCard, Capability
from remit.protocol.envelope import Answer, Json, Note, Response, Usage
from remit.runtime.ports.store import Store
from remit.words.components import Component, Findings

TokenCounter = Callable[[str], int]
"""Counts the tokens of a text, exactly or roughly. It runs for every stored message, so it must be fast."""

Summarizer = Callable[[str, int], Awaitable[tuple[str, Usage]]]
"""Summarizes a conversation in at most the given number of tokens; returns the summary and the tokens spent on it."""


class Payer(Protocol):
    """A delegation that pays for the tokens of a model."""

    @property
    def left(self) -> int:
        """Tokens that are neither spent nor reserved."""
        ...

    def meter(self, usage: Usage) -> None:
        """Count tokens that were spent."""
        ...


class ConversationReader(Protocol):
    """Reads what was said in conversations."""

    async def summary(self, session: str, payer: Payer | None) -> str:
        """Return the summary of a conversation so far; without a *payer* no model is asked."""
        ...

    def notes(self, said: str, asked: str) -> list[Note]:
        """Return the decisions and demands in a user's text, and its answer if the user was asked something."""
        ...


class TextReader(Protocol):
    """Reads texts without a model; it is called outside the event loop where a text may be long."""

    def conversations(self, store: Store, summarizer: Summarizer | None, count: TokenCounter) -> ConversationReader:
        """Return the reader of a store's conversations."""
        ...

    def conflicts(
        self, components: Sequence[Component], codes: Sequence[str | None], capabilities: Iterable[Capability]
    ) -> Findings | None:
        """Return where results contradict each other; *codes* are the capabilities that were asked for."""
        ...

    def gist(self, text: str) -> Json:
        """Return what is equal for texts that ask for the same in other words."""
        ...

    def for_user(self, response: Response, cards: Callable[[], Iterable[AgentCard]]) -> Response:
        """Return a response in plain sentences, without names of agents, codes and exceptions."""
        ...

    def blended(self, merged: Answer, text: str, blend: Blend) -> Answer:
        """Return what the results carry of a model's text as the answer, or *merged* if that is not enough."""
        ...
