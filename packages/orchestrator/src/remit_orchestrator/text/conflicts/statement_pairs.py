"""Chooses the pairs of statements that an entailment model reads: one of each of two results of the same question."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product, starmap
from typing import NamedTuple

from remit.protocol.envelope import Json
from remit.words.components import Component, laid_out
from remit_orchestrator.text.clauses import FIGURE, content
from remit_orchestrator.text.conflicts.reading import labels, words_said
from remit_orchestrator.text.conflicts.second_reader import LONGEST_QUOTE, MOST_CONTRADICTIONS
from remit_orchestrator.text.figures import figures
from remit_orchestrator.text.sentences import is_question, sentences

# A small model reads a pair in some 20 to 200 ms, so these take a few seconds at most on one core.
MOST_PAIRS = 60
# Longer results are summaries or documents; their first sentences give the answer.
_MOST_SENTENCES = 40
# "Yes." and "See above." say nothing that could be compared by itself.
_SHORTEST = 8


class ResultSentence(NamedTuple):
    """A sentence of a result."""

    result: int
    """The number of the result, counted from 1."""
    text: str
    roots: frozenset[str]
    """The stems of the words that carry meaning."""
    labels: frozenset[tuple[str, str]]
    """The numbered things that it names, each as its noun and number: `("ward", "3")`."""


class StatementPair(NamedTuple):
    """Two statements that may contradict each other."""

    first: ResultSentence
    second: ResultSentence


def statement_pairs(components: Sequence[Component]) -> list[StatementPair]:
    """Return the pairs of sentences to read, at most `MOST_PAIRS`, those with the most words in common first.

    Both sentences are from results of the same question. They have a word in common, unless each is all that its
    result says, they do not name two things by number ("Ward 3", "Ward 5"), and neither is in both results.
    """
    said = [list(_statements(number, each)) for number, each in enumerate(components, 1)]
    found: list[tuple[float, StatementPair]] = []
    for (here, ones), (there, others) in combinations(zip(components, said, strict=True), 2):
        if here.question != there.question:
            continue
        whole = len(ones) == len(others) == 1
        # What both say, they agree on.
        both = {each.text for each in ones} & {each.text for each in others}
        for pair in starmap(StatementPair, product(ones, others)):
            alike = _likeness(pair)
            if (alike or whole) and not _name_two_things(pair) and both.isdisjoint((pair.first.text, pair.second.text)):
                found.append((alike, pair))
    found.sort(key=lambda each: -each[0])
    return [pair for _, pair in found[:MOST_PAIRS]]


def contradictions(read: Iterable[tuple[StatementPair, float]]) -> Json:
    """Return pairs that were read as contradictions, in the form in which a model points at them.

    Each comes with its probability. The surest are kept; a statement is named once, with the surest of those that
    contradict it.
    """
    named: set[tuple[int, str]] = set()
    chosen: list[Json] = []
    for (one, other), _ in sorted(read, key=lambda each: -each[1]):
        both = {(one.result, one.text), (other.result, other.text)}
        if named.isdisjoint(both) and len(chosen) < MOST_CONTRADICTIONS:
            named |= both
            chosen.append(
                {
                    "first": {"result": one.result, "quote": one.text},
                    "second": {"result": other.result, "quote": other.text},
                }
            )
    return {"contradictions": chosen}


def _statements(number: int, component: Component) -> Iterator[ResultSentence]:
    left = _MOST_SENTENCES
    for sentence in sentences(laid_out(component.result)):
        if _SHORTEST <= len(sentence) <= LONGEST_QUOTE and not is_question(sentence):
            yield ResultSentence(number, sentence, frozenset(root for root, _ in content(sentence)), _labels(sentence))
            left -= 1
        if not left:
            return


def _labels(sentence: str) -> frozenset[tuple[str, str]]:
    found = figures(sentence)
    said = words_said(sentence, found)
    numbers = iter(found)
    named: set[tuple[str, str]] = set()
    places = labels(sentence, said, found)
    for place, token in enumerate(said):
        if token == FIGURE:
            figure = next(numbers)
            if place in places:
                named.add((said[place - 1], sentence[figure.start : figure.end]))
    return frozenset(named)


def _likeness(pair: StatementPair) -> float:
    """Return how many of the words of both statements are in each of them, from 0 to 1."""
    one, other = pair.first.roots, pair.second.roots
    return len(one & other) / len(one | other) if one and other else 0.0


def _name_two_things(pair: StatementPair) -> bool:
    one, other = pair.first.labels, pair.second.labels
    return any(noun == same and number != another for noun, number in one for same, another in other)
