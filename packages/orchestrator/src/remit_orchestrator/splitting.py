"""Splits a request into pieces with a reader's help: only it knows whether words ask for something else."""

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import cast

from msgspec.structs import replace

from remit.protocol.card import Capability, Schema
from remit.runtime.aside import aside
from remit_orchestrator.dialogue.commands import TextSpan
from remit_orchestrator.dialogue.gate import PLANNED_FROM, GateDecision
from remit_orchestrator.dialogue.phrases import Phrases, tokens
from remit_orchestrator.dialogue.spans import MOST_PIECES, TextPiece, Vocabulary, openings_of, split, unexplained
from remit_orchestrator.text.constraints import demand_in
from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.vocabulary import REQUEST_VERBS

Scored = Callable[[Sequence[str]], Awaitable[list[GateDecision]]]
"""Decides about texts alone."""


async def split_request(
    text: str, phrases: Phrases, scored: Scored, capabilities: tuple[Capability, ...]
) -> tuple[TextPiece, ...]:
    """Return the pieces of a request; words after a conjunction that nothing explains are a piece of their own."""
    vocabulary = await aside.run(_vocabulary, capabilities, phrases)
    pairs: dict[tuple[str, str], bool] = {}

    def collect(left: str, right: str) -> bool:
        pairs.setdefault((left, right), False)
        return False

    pieces = await aside.run(split, text, phrases, vocabulary, collect)
    if pairs:
        texts = list(dict.fromkeys(each for pair in pairs for each in pair))
        decisions = dict(zip(texts, await scored(texts), strict=True))
        for left, right in pairs:
            pairs[left, right] = _asks_for_another(decisions[left], decisions[right])
        if any(pairs.values()):

            def asks(left: str, right: str) -> bool:
                return pairs.get((left, right), False)

            pieces = await aside.run(split, text, phrases, vocabulary, asks)
    known = _known_words(capabilities) | vocabulary.openings
    return _with_unexplained(text, pieces, phrases, known)


def _asks_for_another(left: GateDecision, right: GateDecision) -> bool:
    clear = right.action in {"do", "say_back"}
    return clear and left.confidence >= PLANNED_FROM and left.codes[:1] != right.codes[:1]


def _with_unexplained(
    text: str, pieces: Sequence[TextPiece], phrases: Phrases, known: frozenset[str]
) -> tuple[TextPiece, ...]:
    made: list[TextPiece] = []
    for each in pieces:
        words = unexplained(each.action.of(text), phrases, known)
        # "But no sports" says how it is to be done.
        if not words or len(pieces) >= MOST_PIECES or demand_in(words) is not None:
            made.append(each)
            continue
        start = each.action.start + each.action.of(text).rfind(words)
        rest = TextSpan(start, start + len(words))
        # The piece keeps its words: they may say more of it.
        made.append(replace(each, whole=TextSpan(each.whole.start, start)))
        made.append(TextPiece(whole=TextSpan(start, each.whole.end), action=rest, opens=True))
    return tuple(made)


# They open statements as well as requests.
_PRONOUNS = word_set("request.pronouns")


@lru_cache(maxsize=8)
def known_verbs() -> frozenset[str]:
    """Return verbs that tell somebody to do something, in the languages whose words are known."""
    return (REQUEST_VERBS | word_set("request.verbs")) - word_set("request.closed") - {"bitte"}


def _vocabulary(capabilities: tuple[Capability, ...], phrases: Phrases) -> Vocabulary:
    examples = [text for each in capabilities for text in each.examples]
    verbs = known_verbs()
    openings = (
        openings_of(examples, phrases) - word_set("request.determiners") - word_set("request.objects") - _PRONOUNS
    )
    return Vocabulary(verbs, verbs | openings, tuple(tokens(each) for each in examples))


def _known_words(capabilities: Sequence[Capability]) -> frozenset[str]:
    """Return the words of a team: of its examples, descriptions, and fields with their options."""
    texts: list[str] = []
    for each in capabilities:
        texts += [*each.examples, each.description]
        for name, field in cast("dict[str, Schema]", (each.input_schema or {}).get("properties") or {}).items():
            texts += [name.replace("_", " "), str(field.get("description", ""))]
            texts += [str(option) for option in cast("list[object]", field.get("enum") or [])]
    return frozenset(word for text in texts for word in tokens(text))
