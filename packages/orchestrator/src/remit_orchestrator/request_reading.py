"""Reads what a user's words may ask for: in pieces, by the reader and the one without a model, once for each text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.ports.brief import Brief
from remit.protocol.card import Capability
from remit.protocol.envelope import Json
from remit.protocol.orchestration import Thresholds
from remit_orchestrator.conversation import Conversation
from remit_orchestrator.decision_cache import DecisionCache
from remit_orchestrator.dialogue.commands import Commands, DialogueState, PastTurn, RequestReader, TextSpan
from remit_orchestrator.dialogue.gate import OPTIONS, GateDecision, Label, decide
from remit_orchestrator.dialogue.phrases import Phrases
from remit_orchestrator.dialogue.spans import TextPiece
from remit_orchestrator.splitting import split_request


class ReadText(Struct, frozen=True):
    """What a reader proposed, and what the reader without a model did."""

    commands: Commands
    support: Commands | None = None


class RequestReading:
    """What the readers of an orchestrator propose, and what the gate decides about it."""

    def __init__(
        self,
        offered: Callable[[], Mapping[str, tuple[Label, Capability]]],
        reader: RequestReader,
        support: RequestReader,
        *,
        phrases: Phrases,
        options: int,
        thresholds: Thresholds,
        decisions: DecisionCache,
    ) -> None:
        """*support* is the reader without a model that a model's choice has to agree with."""
        self._offered = offered
        self._reader = reader
        self.support = support
        self._phrases = phrases
        self._options = options
        self.thresholds = thresholds
        self._decisions = decisions
        self._seen: tuple[Capability, ...] = ()
        """What was offered when the kept readings were made."""

    def decided(self, read: ReadText, labels: Mapping[str, Label]) -> list[GateDecision]:
        support = read.support
        return [
            decide(
                commands,
                labels,
                support=None if support is None else support.by_piece[place],
                options=self._options,
                thresholds=self.thresholds,
            )
            for place, commands in enumerate(read.commands.by_piece)
        ]

    async def read(
        self,
        brief: Brief,
        text: str,
        pieces: Sequence[TextPiece],
        pending: dict[str, Any] | None,
        talk: Conversation,
        *,
        name: str = "decision",
    ) -> tuple[ReadText, Literal["hit", "miss"]]:
        """Return what the reader proposes; after a restart, what it proposed before it, by the reading's *name*."""
        state = self.state(brief, self._names(pending), pending, talk)
        spans = [each.action for each in pieces]
        offered = tuple(capability for _, capability in self._offered().values())
        if offered != self._seen:
            self._seen = offered
            self._decisions.clear()
        # A reader without a model reads the text alone.
        context = () if self._reader is self.support else _context(state)
        key = self._decisions.key(brief.user, text, [*self.labels(brief), *context])

        async def read() -> Json:
            known = self._decisions.get(key)
            if known is not None and len(known.commands.by_piece) == len(pieces):
                return {"status": "hit", "read": msgspec.to_builtins(known)}
            commands = await self._reader.read(text, spans, state, brief)
            support = await self.support.read(text, spans, state, brief) if commands.proposed else None
            made = ReadText(commands, support)
            # Another reader's proposal was the best at that time only, so it is not cached.
            if not commands.notice:
                self._decisions.put(key, made)
            return {"status": "miss", "read": msgspec.to_builtins(made)}

        kept = cast("dict[str, Any]", await brief.once(name, read))
        return msgspec.convert(kept["read"], ReadText), kept["status"]

    def state(
        self, brief: Brief, options: tuple[str, ...], pending: dict[str, Any] | None, talk: Conversation | None
    ) -> DialogueState:
        done = () if talk is None else talk.done[-OPTIONS:]
        known = done[-1].input if done else None
        return DialogueState(
            capabilities=tuple(self.capabilities(brief)),
            question=str(pending["question"]) if pending else "",
            options=options,
            fields=cast("dict[str, Json]", known) if isinstance(known, dict) else {},
            last=tuple(PastTurn(each.request, each.code, each.input) for each in done),
        )

    def _names(self, pending: dict[str, Any] | None) -> tuple[str, ...]:
        if pending is None or "options" not in pending:
            return ()
        return tuple(each["words"] for each in pending["options"])

    async def pieces(self, brief: Brief, text: str) -> tuple[TextPiece, ...]:
        """Return the pieces of a text; whether words ask for something else is said by the reader without a model."""
        labels, state = self.labels(brief), self.state(brief, (), None, None)

        async def scored(texts: Sequence[str]) -> list[GateDecision]:
            joined = "\n".join(texts)
            spans: list[TextSpan] = []
            for each in texts:
                start = spans[-1].end + 1 if spans else 0
                spans.append(TextSpan(start, start + len(each)))
            read = await self.support.read(joined, spans, state, brief)
            return [decide(commands, labels, thresholds=self.thresholds) for commands in read.by_piece]

        return await split_request(text, self._phrases, scored, state.capabilities)

    def capabilities(self, brief: Brief) -> list[Capability]:
        labels = self.labels(brief)
        return [replace(each, code=code) for code, (_, each) in self._offered().items() if code in labels]

    def labels(self, brief: Brief) -> dict[str, Label]:
        within = allowed_capabilities(brief)
        return {code: label for code, (label, _) in self._offered().items() if code in within}


def allowed_capabilities(brief: Brief) -> frozenset[str]:
    """Return the capabilities, and the names of workflows, that a brief may ask for."""
    delegates = brief.delegates
    return frozenset(each.name for each in delegates).union(*(each.capabilities for each in delegates))


def _context(state: DialogueState) -> list[str]:
    """Return what a text was read with, for the key under which the reading is cached."""
    return [state.question, *(f"{each.text} {each.capability}" for each in state.last[-1:])]
