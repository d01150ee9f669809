"""A reader that proposes what a test says, by the text of each piece."""

from collections.abc import Callable, Mapping, Sequence

from remit import Brief
from remit_orchestrator.dialogue.commands import (
    Command,
    Commands,
    DialogueState,
    NothingFits,
    StartCapability,
    TextSpan,
)

Ranking = Sequence[tuple[str, float]]


class ScriptedReader:
    """Proposes capabilities by text; a text that it does not know is far from everything."""

    def __init__(self, by_text: Mapping[str, Ranking] | Callable[[str], Ranking]) -> None:
        self._by_text = by_text
        self.read_texts: list[str] = []
        self.far = 0.1

    async def read(self, text: str, pieces: Sequence[TextSpan], state: DialogueState, brief: Brief) -> Commands:
        """Return the capabilities that the test gave for each piece."""
        self.read_texts.append(text)
        return Commands(tuple(self._proposed(each.of(text), each) for each in pieces))

    def _proposed(self, words: str, span: TextSpan) -> tuple[Command, ...]:
        ranked = self._by_text(words) if callable(self._by_text) else self._by_text.get(words, ())
        starts = [StartCapability(capability=code, confidence=sure, span=span) for code, sure in ranked]
        return (*starts, NothingFits(confidence=self.far if ranked else 0.95, span=span))
