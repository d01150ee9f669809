"""Judges how clearly a text asks for the capability that a classifier takes it for.

A classifier always finds a most similar capability, also for texts that ask for nothing the team can do ("call me a
taxi") or say too little to act on ("my appointment"). A small logistic regression behind the classifier tells these
three kinds apart: clear, vague and foreign. It compares a text with three sorts of other texts: the examples of the
capability, bare mentions of the team's subjects ("my appointment"), and requests that people make of assistants in
general (`everyday_requests`).

All weights come from `bench/train_clarity.py`, which explains the data; run it again after a change of the signals.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from math import exp, log
from typing import NamedTuple

from remit_orchestrator.text.classification import Clarity, asks_for_information, content_words, only_mentions
from remit_orchestrator.text.lexicon import lines, word_set
from remit_orchestrator.text.vocabulary import german_stem, stem

VAGUE = Clarity(clear=0.0, vague=1.0, foreign=0.0)

# Two texts with this similarity say the same in hardly other words. Then even the classifier by words, which has
# everything else confirmed, may act. Chosen by hand, on the teams for development of tests/judgement/acting.toml.
_SAME = 0.9
# A text that only names a subject has to be an example itself: "my boarding pass" is not "get me my boarding pass". An
# example may be a noun alone ("taxi"). Below 1 only for differences in case and punctuation.
_EXAMPLE = 0.98
# With fewer content words than this a text is clear only with at least the second probability: one word seldom says
# what is to be done. Chosen by hand, on the same teams.
_FEW_WORDS = 2
_SURELY = 0.75
# A text that is for somebody else often has the team's verb with another object ("cancel my newspaper"), or its object
# with another verb ("sell my old sofa"). So to change something, a text with less than half of its content words from
# the team has to be clear with the second probability, and one that opens with an unknown verb with the third. Of texts
# drawn from CLINC150 that were clear enough otherwise, this lets 93 % of those through that ask for the capability,
# 70 % of foreign ones of the same domain, and 48 % of those of other domains.
_MOSTLY_KNOWN = 0.5
_CLEAR_IN_OTHER_WORDS = 0.8
_CLEAR_WITH_OTHER_VERB = 0.9


class Signals(NamedTuple):
    """How a text compares with a team's examples by meaning; each similarity is a cosine, from 0 to 1."""

    confidence: float
    """How sure the classifier is of its best capability."""
    near: float
    """The similarity to the most similar example of that capability."""
    middle: float
    """The similarity to the mean of its examples."""
    beyond_mention: float
    """How much more similar that example is than the most similar bare mention of the team's subjects."""
    beyond_everyday: float
    """How much more similar that example is than the most similar everyday request."""


# The bias first, then a weight for each signal; the weights of the third kind, foreign, are all 0.
CLEAR_WEIGHTS = (-4.16, 3.31, -2.88, 7.31, 2.92, 2.94)
VAGUE_WEIGHTS = (-7.28, 1.86, 5.85, -0.65, -15.76, 4.91)


def clarity_by_meaning(text: str, signals: Signals, known: Collection[str]) -> Clarity:
    """Return the clarity of a text by the signals of a sentence encoder; *known* are the stems of the team's words.

    A question for information is never certain, unless an example is such a question: "how much do I owe you" is very
    similar to "I want to pay what I owe", but nobody who asks it wants to have paid.
    """
    if only_mentions(text) and signals.near < _EXAMPLE:
        return VAGUE
    clear, vague = (exp(_weighed(weights, signals)) for weights in (CLEAR_WEIGHTS, VAGUE_WEIGHTS))
    total = clear + vague + 1
    certain = clear / total >= _needed(text, known) and (signals.near >= _SAME or not asks_for_information(text))
    return _with_few_words(text, Clarity(clear / total, vague / total, 1 / total, certain))


def _needed(text: str, known: Collection[str]) -> float:
    """Return how likely clear a text has to be to change something, by its words."""
    content = content_words(text)
    opens_with_verb = bool(content) and text.casefold().lstrip().startswith(content[0])
    if opens_with_verb and known_share(content[0], known) == 0:
        return _CLEAR_WITH_OTHER_VERB
    return 0.0 if known_share(text, known) >= _MOSTLY_KNOWN else _CLEAR_IN_OTHER_WORDS


class WordSignals(NamedTuple):
    """How a text compares with a team's examples by words; bare mentions are found by their form alone."""

    log_odds: float
    """Of the confidence in any capability at all."""
    near: float
    """The similarity to the most similar example of the best capability."""
    middle: float
    """The mean similarity to its examples."""
    beyond_everyday: float
    """How much more similar that example is than the most similar everyday request."""
    known: float
    """The share of its content words whose stems the team's examples have."""


# The bias first, then a weight for each signal: clear texts against foreign ones.
WORD_WEIGHTS = (-3.14, 0.66, 0.40, 2.37, 3.58, 2.04)


def clarity_by_words(text: str, signals: WordSignals, known: Collection[str]) -> Clarity:
    """Return the clarity of a text by its words; it is certain only if it says the same as an example.

    Words do not tell vague texts from foreign ones. So where a text is not clear, it counts what it is about. If the
    team knows at least half of its content words, and not the first alone, it is about the team's subjects: then it is
    at most twice as likely foreign as clear, and the user is asked instead of being told that nothing matches. The
    first word is mostly the verb: "order a pizza" is not about the subjects of a team that orders contact lenses.
    """
    if only_mentions(text) and signals.near < _EXAMPLE:
        return VAGUE
    clear = 1 / (1 + exp(-_weighed(WORD_WEIGHTS, signals)))
    foreign = min(1 - clear, 2 * clear) if _is_about(text, known) else 1 - clear
    return _with_few_words(text, Clarity(clear, 1 - clear - foreign, foreign, certain=signals.near >= _SAME))


def _is_about(text: str, known: Collection[str]) -> bool:
    first, *others = _stems(text) or [""]
    return known_share(text, known) >= _MOSTLY_KNOWN and any(each in known for each in others or [first])


def log_odds(share: float) -> float:
    """Return the log-odds of a probability; 0 and 1 are taken for very small and very large."""
    within = min(max(share, 1e-4), 1 - 1e-4)
    return log(within / (1 - within))


def stems_of(texts: Iterable[str]) -> frozenset[str]:
    """Return the stems of all content words of texts: "extended" and "extend" have the same."""
    return frozenset(each for text in texts for each in _stems(text))


def known_share(text: str, known: Collection[str]) -> float:
    """Return the share of a text's content words whose stems are *known*; 0 if it has no content words."""
    stems = _stems(text)
    return sum(each in known for each in stems) / max(1, len(stems))


def _stems(text: str) -> list[str]:
    # Both languages at once: an English word that loses a German ending loses it in the examples as well.
    return [german_stem(stem(word)) for word in content_words(text)]


def _weighed(weights: Sequence[float], signals: Sequence[float]) -> float:
    bias, *rest = weights
    return bias + sum(weight * signal for weight, signal in zip(rest, signals, strict=True))


def _with_few_words(text: str, judged: Clarity) -> Clarity:
    """Return the clarity of a text, which is vague if it has too few content words for its probability."""
    if judged.clear >= _SURELY or judged.foreign >= judged.clear or len(content_words(text)) >= _FEW_WORDS:
        return judged
    return judged._replace(clear=0.0, vague=judged.clear + judged.vague)


# ── bare mentions ─────────────────────────────────────────────────────────────────────────────────────────────────────

_ENGLISH = "{}", "my {}", "about the {}", "I have a question about my {}"
_GERMAN = "{}", "mein {}", "wegen der {}", "ich habe eine Frage zu {}"
_GERMAN_WORDS = word_set("clarity.signs", "de")
_ENGLISH_WORDS = word_set("clarity.signs", "en")
# Each word costs four encodings of about 5 ms, once; the frequent ones are the team's subjects.
_MOST_WORDS = 120
_MOST_PAIRS = 40


def is_german(texts: Sequence[str]) -> bool:
    """Say whether texts have more function words of German than of English."""
    occurrences = Counter(word for text in texts for word in text.casefold().split())
    return sum(occurrences[word] for word in _GERMAN_WORDS) > sum(occurrences[word] for word in _ENGLISH_WORDS)


def bare_mentions(texts: Sequence[str]) -> list[str]:
    """Return texts that name the subjects of a team's examples, and say nothing of what is to be done."""
    words: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    for text in texts:
        all_words = text.casefold().split()
        content = content_words(text)
        words.update(set(content))
        pairs.update(f"{one} {other}" for one, other in pairwise(all_words) if one in content and other in content)
    subjects = [*_frequent(words, _MOST_WORDS), *_frequent(pairs, _MOST_PAIRS)]
    templates = _GERMAN if is_german(texts) else _ENGLISH
    return [template.format(subject) for subject in subjects for template in templates]


def _frequent(counted: Counter[str], most: int) -> list[str]:
    return [each for each, _ in sorted(counted.items(), key=lambda each: (-each[1], each[0]))[:most]]


def everyday_requests() -> list[str]:
    """Return requests that people make of assistants in general, in English and German, of all common subjects.

    What a team does not offer is mostly like one of these. A team's own subject may be among them: `embeddings` leaves
    out those that are as similar to an example as the team's examples usually are to each other.
    """
    return lines("everyday")
