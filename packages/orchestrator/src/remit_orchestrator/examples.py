"""Whether a team's examples tell its capabilities apart: each is read by what the others have taught."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from remit.protocol.card import Capability

Rank = Callable[[Sequence[Capability], str], Sequence[tuple[str, float]]]
"""Returns the capabilities that a text may ask for with their scores, best first."""

# With two, leaving one out leaves one, and people have more than two ways to say a thing.
ENOUGH_EXAMPLES = 3
# One example that is read as another may be an odd one; two between the same two capabilities are a pattern.
TOO_CLOSE = 2


def rank(capabilities: Sequence[Capability], text: str) -> Sequence[tuple[str, float]]:
    """Return the capabilities that a text may ask for with their scores, best first."""
    from remit_orchestrator.readers.ngrams import NgramScorer

    return NgramScorer(capabilities).score(text).ranked


class Misreading(NamedTuple):
    """An example that is read as another capability once it is left out; empty: as none."""

    code: str
    text: str
    read_as: str


class ClosePair(NamedTuple):
    """Two capabilities, and how many examples of either are read as the other."""

    one: str
    other: str
    examples: int


class ExamplesVerdict(NamedTuple):
    """What the examples of a team are worth."""

    total: int
    misread: tuple[Misreading, ...]
    close: tuple[ClosePair, ...]
    few: tuple[tuple[str, int], ...]
    """Capabilities with too few examples, and how many each has."""


def judge_examples(capabilities: Sequence[Capability], rank: Rank = rank) -> ExamplesVerdict:
    """Read each example with all others, and say which are read as another capability."""
    misread: list[Misreading] = []
    for place, capability in enumerate(capabilities):
        for at, text in enumerate(capability.examples):
            left = (*capability.examples[:at], *capability.examples[at + 1 :])
            others = [*capabilities[:place], replace(capability, examples=left), *capabilities[place + 1 :]]
            read_as = next((code for code, _ in rank(others, text)), "")
            if read_as != capability.code:
                misread.append(Misreading(capability.code, text, read_as))
    pairs = Counter(tuple(sorted((each.code, each.read_as))) for each in misread if each.read_as)
    close = (ClosePair(one, other, count) for (one, other), count in pairs.most_common() if count >= TOO_CLOSE)
    return ExamplesVerdict(
        sum(len(each.examples) for each in capabilities), tuple(misread), tuple(close), few_examples(capabilities)
    )


def few_examples(capabilities: Sequence[Capability]) -> tuple[tuple[str, int], ...]:
    """Return the capabilities that users can ask for in too few known ways, and how many each has."""
    counts = ((each.code, len(set(each.examples))) for each in capabilities)
    return tuple((code, count) for code, count in counts if count < ENOUGH_EXAMPLES)
