"""Judges how clearly a text asks for the capability that a classifier takes it for."""

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from math import exp, log
from typing import NamedTuple

from remit.text.classification import Clarity
from remit.text.mentions import content_words, only_mentions
from remit.text.vocabulary import words_of

VAGUE = Clarity(clear=0.0, vague=1.0, foreign=0.0)

# So much like an example is only what says the same; an example may be a noun alone ("taxi").
_SAME = 0.9
# A text that only names a subject has to be an example itself: "my boarding pass" is not "get me my boarding pass".
_EXAMPLE = 0.98
# With fewer words that say what it is about, a text is taken for clear only if it is surely so.
_FEW_WORDS = 2
_SURELY = 0.75


class Signals(NamedTuple):
    """What tells a clear request from a vague or a foreign one; likeness is a cosine, from 0 to 1."""

    confidence: float
    """How sure the classifier is of its best capability."""
    near: float
    """The likeness to the most similar example of that capability."""
    middle: float
    """The likeness to the mean of its examples."""
    beyond_mention: float
    """By how much it is nearer to that example than to any bare mention of the team's subjects."""
    beyond_everyday: float
    """By how much it is nearer to that example than to any everyday request."""


# Logistic regression on 28 teams of 5 to 12 intents drawn from CLINC150, with 3 to 7 examples each; foreign texts are
# those of other intents, of the same domains as well, and those of the set that are for none; vague texts are words of
# the team in fourteen templates, which are others than those below. Bias first, then a weight for each signal.
_CLEAR = (-1.87, 2.77, -7.81, 8.39, 9.35, 3.25)
_VAGUE = (-0.61, -1.78, 6.10, -3.65, -13.53, -0.54)
_FOREIGN = (2.48, -0.99, 1.71, -4.74, 4.18, -2.71)


def clarity_by_meaning(text: str, signals: Signals, known: Collection[str]) -> Clarity:
    """Return the clarity of a text by the signals of an encoder; *known* are the content words of the team's examples.

    A text that shares less than half of its content words with them has to be surely clear: "cancel my newspaper" may
    have nothing to do with a team that cancels appointments. If it shares one word alone, and not what is to be done,
    it is never certain: "teach my dog to sit" is not for a team that registers dogs.
    """
    if only_mentions(text) and signals.near < _EXAMPLE:
        return VAGUE
    clear, vague, foreign = (exp(_weighed(weights, signals)) for weights in (_CLEAR, _VAGUE, _FOREIGN))
    total = clear + vague + foreign
    said = content_words(text)
    shared = sum(word in known for word in said)
    certain = 2 * shared >= len(said) or (clear / total >= _SURELY and (shared != 1 or said[0] in known))
    judged = Clarity(clear / total, vague / total, foreign / total, certain)
    return _with_few_words(text, judged)


class WordSignals(NamedTuple):
    """The same by words, where bare mentions are found by their form alone."""

    log_odds: float
    """Of the confidence in any capability at all."""
    near: float
    middle: float
    beyond_everyday: float
    known: float
    """The share of its content words that the team's examples have."""


# Logistic regression of clear texts against foreign ones, by bench/train_clarity.py with data_full.json of CLINC150.
_BY_WORDS = (-2.35, 0.67, 0.32, 1.11, 2.44, 1.89)
# A text with so many of the team's words is rather vague than foreign.
_MOSTLY_KNOWN = 0.5


def clarity_by_words(text: str, signals: WordSignals) -> Clarity:
    """Return the clarity of a text by its words; it is certain only if it says the same as an example."""
    same = signals.near >= _SAME
    if only_mentions(text) and signals.near < _EXAMPLE:
        return VAGUE
    clear = 1 / (1 + exp(-_weighed(_BY_WORDS, signals)))
    foreign = min(1 - clear, 2 * clear) if signals.known >= _MOSTLY_KNOWN else 1 - clear
    return _with_few_words(text, Clarity(clear, 1 - clear - foreign, foreign, certain=same))


def log_odds(share: float) -> float:
    """Return the log-odds of a probability; 0 and 1 are taken for very small and very large."""
    within = min(max(share, 1e-4), 1 - 1e-4)
    return log(within / (1 - within))


def _weighed(weights: Sequence[float], signals: Sequence[float]) -> float:
    bias, *rest = weights
    return bias + sum(weight * signal for weight, signal in zip(rest, signals, strict=True))


def _with_few_words(text: str, judged: Clarity) -> Clarity:
    if judged.clear >= _SURELY or judged.foreign >= judged.clear or len(content_words(text)) >= _FEW_WORDS:
        return judged
    return judged._replace(clear=0.0, vague=judged.clear + judged.vague)


# ── bare mentions ─────────────────────────────────────────────────────────────────────────────────────────────────────

_ENGLISH = "{}", "my {}", "about the {}", "I have a question about my {}"
_GERMAN = "{}", "mein {}", "wegen der {}", "ich habe eine Frage zu {}"
_GERMAN_WORDS = words_of("der die das den dem ich und nicht eine einen mein meine bitte ist wie was mir für auf")
_ENGLISH_WORDS = words_of("the a my i you is to of for how what can me please")
# Each word costs four encodings of about 5 ms, once; the frequent ones are the team's subjects.
_MOST_WORDS = 120
_MOST_PAIRS = 40


def is_german(texts: Sequence[str]) -> bool:
    """Say whether texts have more function words of German than of English."""
    said = Counter(word for text in texts for word in text.casefold().split())
    return sum(said[word] for word in _GERMAN_WORDS) > sum(said[word] for word in _ENGLISH_WORDS)


def bare_mentions(texts: Sequence[str]) -> list[str]:
    """Return texts that name the subjects of a team's examples, and say nothing of what is to be done."""
    words: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    for text in texts:
        said = text.casefold().split()
        content = content_words(text)
        words.update(set(content))
        pairs.update(f"{one} {other}" for one, other in pairwise(said) if one in content and other in content)
    subjects = [*_frequent(words, _MOST_WORDS), *_frequent(pairs, _MOST_PAIRS)]
    templates = _GERMAN if is_german(texts) else _ENGLISH
    return [template.format(subject) for subject in subjects for template in templates]


def _frequent(counted: Counter[str], most: int) -> list[str]:
    return [each for each, _ in sorted(counted.items(), key=lambda each: (-each[1], each[0]))[:most]]
