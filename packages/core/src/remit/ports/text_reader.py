"""The reader of texts that is installed beside the core, if there is one."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Protocol

from remit.installed import brought
from remit.policy.aggregate import Blend
from remit.ports.agents import ConversationReader, Payer, Summarizer, TokenCounter
from remit.ports.store import Store
from remit.protocol.card import AgentCard, Capability
from remit.protocol.envelope import Answer, Json, Note, Response
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


class NoReader:
    """Reads nothing: no notes are taken, nothing is compared, and no text of a model is trusted."""

    # ruff: noqa: ARG002 - a port

    def conversations(self, store: Store, summarizer: Summarizer | None, count: TokenCounter) -> ConversationReader:
        return self

    async def summary(self, session: str, payer: Payer | None) -> str:
        return ""

    def notes(self, text: str, question: str, /) -> list[Note]:
        return []

    def conflicts(
        self, components: Sequence[Component], codes: Sequence[str | None], capabilities: Iterable[Capability]
    ) -> Findings | None:
        return None

    def gist(self, text: str) -> Json:
        return text

    def for_user(self, response: Response, cards: Callable[[], Iterable[AgentCard]]) -> Response:
        return response

    def blended(self, merged: Answer, text: str, blend: Blend) -> Answer:
        return merged


@cache
def text_reader() -> TextReader:
    """Return the reader of the first plugin that brings one; it is looked for when a text is first to be read."""
    return next((bring() for bring in brought("text_reader")), NoReader())
