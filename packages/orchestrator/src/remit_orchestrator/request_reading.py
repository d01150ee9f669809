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
from remit_orchestrator.dialogue.gate import OPTIONS, PLANNED_FROM, GateDecision, Label, decide
from remit_orchestrator.dialogue.phrases import Phrases
from remit_orchestrator.dialogue.spans import TextPiece
from remit_orchestrator.splitting import split_request

# So many sentences that open as requests are several requests, however little each of them says.
MANY = 2


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
        """Return what the reader proposes, for several pieces also for the whole text, as the last of them.

        After a restart it is what was proposed before it, by the reading's *name*.
        """
        state = self.state(brief, self._names(pending), pending, talk)
        spans = [each.action for each in pieces]
        if may_be_one(pieces):
            spans.append(TextSpan(0, len(text)))
        offered = tuple(capability for _, capability in self._offered().values())
        if offered != self._seen:
            self._seen = offered
            self._decisions.clear()
        # A reader without a model reads the text alone.
        context = () if self._reader is self.support else _context(state)
        key = self._decisions.key(brief.user, text, [*self.labels(brief), *context])

        async def read() -> Json:
            known = self._decisions.get(key)
            if known is not None and len(known.commands.by_piece) == len(spans):
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


def may_be_one(pieces: Sequence[TextPiece]) -> bool:
    """Return whether pieces may ask for one thing together: there are several, or a condition, and no list."""
    return not any(each.listed for each in pieces) and (len(pieces) > 1 or any(each.condition for each in pieces))


def is_one_request(
    pieces: Sequence[TextPiece],
    decisions: Sequence[GateDecision],
    whole: GateDecision,
    labels: Mapping[str, Label],
    thresholds: Thresholds,
) -> bool:
    """Return whether the pieces of a text ask for what the *whole* asks for, and none for something else by itself."""
    judged = list(zip(pieces, decisions, strict=True))
    if any(each.condition for each in pieces):
        best = [code for each in (whole, *decisions) for code in each.codes[:1]]
        if any(not labels[code].read_only for code in best):
            return False
    asked = {
        decision.codes[0]
        for piece, decision in judged
        if decision.codes
        and decision.confidence >= (PLANNED_FROM if piece.sentence or piece.opens else thresholds.say_back)
    }
    if len(asked) > 1:
        return False
    alone = [
        decision
        for place, (piece, decision) in enumerate(judged)
        if piece.sentence and piece.opens and all(each.sentence for each in pieces[place + 1 : place + 2])
    ]
    if whole.confidence < thresholds.say_back:
        return len(alone) < MANY
    return all(each.codes[:1] == whole.codes[:1] for each in alone) and all(
        each.codes[:1] == whole.codes[:1] or each.confidence < whole.confidence for each in decisions
    )


def allowed_capabilities(brief: Brief) -> frozenset[str]:
    """Return the capabilities, and the names of workflows, that a brief may ask for."""
    delegates = brief.delegates
    return frozenset(each.name for each in delegates).union(*(each.capabilities for each in delegates))


def _context(state: DialogueState) -> list[str]:
    """Return what a text was read with, for the key under which the reading is cached."""
    return [state.question, *(f"{each.text} {each.capability}" for each in state.last[-1:])]
