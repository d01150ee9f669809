"""What a classifier says about a text and its parts, and which texts only mention a subject."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.request_plan import RequestPart
from remit_orchestrator.text.vocabulary import COMMON_WORDS, REQUEST_VERBS

# Longer texts say more than a name. In words: "the invoice from last week" has five, what follows "a question about"
# may have one more, and "invoice 4411 please" has three.
_LONGEST = 160
_MOST_WORDS = 5
_MOST_AFTER_OPENING = 6
_MOST_WITH_NUMBER = 3

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_NUMBER = re.compile(r"\d")

# Words that say when, or that somebody wants something, and nothing about what.
_GENERIC = word_set("mention.generic")
_DETERMINERS = word_set("mention.determiners")
# What opens a text that only adds to something: "for three people", "am Montag um neun".
_ENGLISH_DETERMINERS = word_set("mention.english_determiners")
_PREPOSITIONS = word_set("mention.prepositions")
# A text that has one of these is a clause: somebody does something, or is asked.
_CLAUSE = word_set("mention.clause")
# What leads up to a subject: "hello, I have a quick question", "es geht".
_OPENING = word_set("mention.opening")
# What stands between such an opening and its subject.
_TOPIC = word_set("mention.topic")
_QUESTION = word_set("mention.question")
_UNDECIDED = re.compile(
    r"\bor\b.*\b(?:not sure|unsure|undecided|don.t know|one of|(?:can.t|cannot) decide)\b"
    r"|\boder\b.*\b(?:nicht (?:sicher|genau|entscheiden)|wei(?:ß|ss)(?: \w+){0,2} nicht)\b"
)


def content_words(text: str) -> list[str]:
    """Return the words of a text that say what it is about, in small letters: no numbers, days or generic words."""
    return [word for word in _words(text) if _is_content(word)]


def only_mentions(text: str) -> bool:
    """Say whether a text only names a subject ("my appointment", "a question about ward 3"), or nothing at all.

    Such a text does not say what is to be done, however well it fits the examples of a capability. A text with a verb,
    or with more words than a name has, is not one.
    """
    phrase = text.strip()
    if len(phrase) > _LONGEST:
        return False
    if _UNDECIDED.search(phrase.casefold()):
        return True
    words = _words(phrase)
    after = _after_opening(words)
    subject = words if after is None else after
    if len(subject) < 2 or not any(map(_is_content, subject)):
        return True
    if _is_clause(subject, phrase):
        return False
    if after is not None:
        return len(subject) <= _MOST_AFTER_OPENING
    if len(subject) <= _MOST_WITH_NUMBER and _NUMBER.search(phrase) and subject[0] not in REQUEST_VERBS:
        return True
    return subject[0] in _DETERMINERS | _PREPOSITIONS and len(subject) <= _MOST_WORDS


def asks_for_information(text: str) -> bool:
    """Say whether a text opens with a question word: "how much is it", not "can you send it"."""
    words = _words(text)
    return bool(words) and words[0] in _QUESTION


def _words(text: str) -> list[str]:
    return [word.replace("’", "'") for word in _WORD.findall(text.casefold())]


def _is_content(word: str) -> bool:
    return len(word) > 2 and not word[0].isdigit() and word not in COMMON_WORDS and word not in _GENERIC


def _after_opening(words: list[str]) -> list[str] | None:
    """Return what follows "I have a question about" and the like; None if the text opens in another way."""
    for place, word in enumerate(words):
        if word in _TOPIC:
            return words[place + 1 :]
        if word not in _OPENING:
            return None
    return None


def _is_clause(words: list[str], phrase: str) -> bool:
    if any(word in _CLAUSE or word.endswith("n't") for word in words):
        return True
    # "My card stopped working": a verb in the past, unless it opens the text or follows an article ("the guided tour").
    if any(
        len(word) > len("used") and word.endswith("ed") and before not in _DETERMINERS
        for before, word in pairwise(words)
    ):
        return True
    # "Abschlag auf 80 Euro setzen": in German the infinitive stands at the end, in small letters.
    last = _WORD.findall(phrase)[-1]
    return last.islower() and last.endswith("en") and not _ENGLISH_DETERMINERS & set(words)


# The placeholder of a redacted value: its kind, and twelve letters.
_REDACTED = re.compile(r"\[([A-Z][A-Z0-9_]{0,31}):[a-z]{12}\]")


class ScoredCapability(NamedTuple):
    """A capability and the probability that a text asks for it."""

    code: str
    confidence: float


class Scorer(Protocol):
    """Scores the capabilities that a text may ask for, from the text alone."""

    def scores(self, text: str) -> Sequence[ScoredCapability]:
        """Return the most likely ones, best first.

        Of those with a score of 0.8, eight in ten are right; a text that matches no capability gets low scores or none.
        """
        ...


class Clarity(NamedTuple):
    """How likely a text clearly asks for its best capability, is too vague to act on, or asks for something else."""

    clear: float
    vague: float
    foreign: float
    certain: bool = True
    """Whether the classifier is reliable enough for capabilities that change something."""


class Reading(NamedTuple):
    """What a classifier makes of one text."""

    scores: Sequence[ScoredCapability]
    clarity: Clarity | None = None
    """None if the classifier does not measure it: then its confidence alone decides."""


@runtime_checkable
class ReadingScorer(Protocol):
    """A scorer that also says how clear a text is."""

    def read(self, text: str) -> Reading:
        """Return the likeliest capabilities, and how clearly the best is asked for."""
        ...


class ClassifiedText(NamedTuple):
    """A classifier's result for a text, and for each of its parts if it has several."""

    whole: Sequence[ScoredCapability]
    parts: Sequence[Sequence[ScoredCapability]] = ()
    notice: str = ""
    """Why a fallback classified the text."""
    clarity: Clarity | None = None
    """How clear the whole is."""
    part_clarities: Sequence[Clarity | None] = ()
    """How clear each part is; empty if the classifier does not measure it."""
    plan: Sequence[RequestPart] = ()
    """The words, order and condition of each part; empty if only the scores are known."""


def hear(text: str, scorer: Scorer) -> ClassifiedText:
    """Ask *scorer* about a text and its parts."""
    from remit_orchestrator.text.request_plan import parts

    request_parts = parts(text)
    whole = _score_text(text, scorer)
    if len(request_parts) < 2 and not any(each.condition for each in request_parts):
        return ClassifiedText(whole.scores, [], clarity=whole.clarity)
    pieces: list[Reading] = []
    for each in request_parts:
        pieces.append(_read_part(each, scorer, {_best(earlier) for earlier in pieces}))
    return ClassifiedText(
        whole.scores,
        [each.scores for each in pieces],
        clarity=whole.clarity,
        part_clarities=tuple(each.clarity for each in pieces),
        plan=request_parts,
    )


def _read_part(part: RequestPart, scorer: Scorer, earlier: set[str]) -> Reading:
    """Read a part by itself, and with what it refers to in the place of the pronoun; the clearer reading counts.

    With the words of a part before it looks like that part, so a reading that says the same as one of the *earlier*
    counts less. "Take it" says nothing by itself.
    """
    alone = _score_text(part.text, scorer)
    if not part.full:
        return alone
    full = _score_text(part.full, scorer)
    enough = len(content_words(part.text)) >= _ENOUGH_WORDS
    if _best(full) in earlier and _best(alone) not in earlier and min(_clearness(alone)) >= _CLEAR:
        return alone
    if not enough and full.scores and _best(full) not in {*earlier, _best(alone)}:
        return full
    return max(alone, full, key=lambda each: min(_clearness(each)))


# As likely as a text has to be clear to change something.
_CLEAR = 0.6
_ENOUGH_WORDS = 2


def _best(reading: Reading) -> str:
    return max(reading.scores, key=lambda each: each.confidence).code if reading.scores else ""


def _clearness(reading: Reading) -> tuple[float, float]:
    best = max((each.confidence for each in reading.scores), default=0.0)
    return (best if reading.clarity is None else reading.clarity.clear, best)


def _score_text(text: str, scorer: Scorer) -> Reading:
    # The letters of a redacted value's token are random, and would change the scores from run to run.
    text = _REDACTED.sub(lambda match: match[1].lower(), text)
    return scorer.read(text) if isinstance(scorer, ReadingScorer) else Reading(scorer.scores(text))
