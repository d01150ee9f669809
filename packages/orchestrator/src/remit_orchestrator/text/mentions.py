"""Tells a text that says what is to be done from one that only names a subject.

It knows closed classes of words alone (articles, auxiliaries, pronouns, openings such as "a question about"), in
English and German. What it does not know it takes for a request, which the classifier judges by its examples.
"""

import re
from itertools import pairwise

from remit_orchestrator.text.lexicon import word_set
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
    said = text.strip()
    if len(said) > _LONGEST:
        return False
    if _UNDECIDED.search(said.casefold()):
        return True
    words = _words(said)
    after = _after_opening(words)
    subject = words if after is None else after
    if len(subject) < 2 or not any(map(_is_content, subject)):
        return True
    if _is_clause(subject, said):
        return False
    if after is not None:
        return len(subject) <= _MOST_AFTER_OPENING
    if len(subject) <= _MOST_WITH_NUMBER and _NUMBER.search(said) and subject[0] not in REQUEST_VERBS:
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


def _is_clause(words: list[str], said: str) -> bool:
    if any(word in _CLAUSE or word.endswith("n't") for word in words):
        return True
    # "My card stopped working": a verb in the past, unless it opens the text or follows an article ("the guided tour").
    if any(
        len(word) > len("used") and word.endswith("ed") and before not in _DETERMINERS
        for before, word in pairwise(words)
    ):
        return True
    # "Abschlag auf 80 Euro setzen": in German the infinitive stands at the end, in small letters.
    last = _WORD.findall(said)[-1]
    return last.islower() and last.endswith("en") and not _ENGLISH_DETERMINERS & set(words)
