"""The reader of texts that is installed beside the core, if there is one."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from remit.policy.aggregate import Blend
from remit.protocol.card import AgentCard, Capability
from remit.protocol.envelope import Answer, Json, Note, Response
from remit.runtime.plugins import brought
from remit.runtime.ports.agents import ConversationReader, Payer, Summarizer, TokenCounter
from remit.runtime.ports.store import Store
from remit.runtime.ports.texts import TextReader
from remit.words.components import Component, Findings


class NoReader:
    """Reads nothing: no notes are taken, nothing is compared, and no text of a model is trusted."""

    # ruff: noqa: ARG002 - a port

    def conversations(self, store: Store, summarizer: Summarizer | None, count: TokenCounter) -> ConversationReader:
        return self

    async def summary(self, session: str, payer: Payer | None) -> str:
        return ""

    def notes(self, said: str, asked: str) -> list[Note]:
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
