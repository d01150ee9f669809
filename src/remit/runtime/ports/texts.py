"""What reads the texts of people and agents; the core brings none."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from remit.policy.aggregate import Blend
from remit.protocol.card import AgentCard, Capability
from remit.protocol.envelope import Answer, Json, Response
from remit.runtime.ports.agents import ConversationReader, Summarizer, TokenCounter
from remit.runtime.ports.store import Store
from remit.words.components import Component, Findings


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
