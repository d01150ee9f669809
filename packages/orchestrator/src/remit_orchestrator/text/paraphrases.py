"""Decides whether two requests certainly ask for the same in other words.

Similarity says little: "cancel order 4411" and "cancel order 4412" are 98 % similar, a route and its way back more than
99 %, and in a long text any one word may differ, even "unpaid". So nothing is weighed here. Words without meaning are
removed, and the rest must be the same, word for word: numbers, dates, weekdays, months, negations, and their order. A
missed difference causes a wrong answer; a missed paraphrase costs one call.
"""

import re
from unicodedata import normalize

from remit_orchestrator.text.lexicon import word_set

# The length of a typed request. A longer text is a document, in which line breaks and spaces may matter.
LONGEST = 1_000

# With so few words left, the removed words may have been the topic ("translate please").
FEWEST = 3

# Up to this length, a word in capitals is an abbreviation, and differs from the word in lower case (US, IT).
LONGEST_ABBREVIATION = 5

# Words that mean something else when capitalised: they stay as written.
TWO_MEANINGS = word_set("two_meanings")
# Some of these begin a question more often than a name does.
BEGINNINGS = frozenset(["it", "may", "who"])

NEGATIONS = frozenset(["except", "neither", "never", "no", "none", "nor", "not", "nothing", "nobody", "without"])
_IRREGULAR = {"ca": "can", "wo": "will", "sha": "shall"}
_SPELLED_OUT = {"cannot": "can not", "what's": "what is"}

# The end of a sentence separates words: "don't. Stop" is not "don't stop".
_STOPS = ".;:!?"
_MARKS = frozenset([".", ","])

_LEADING = re.compile(
    r"(?:(?:"
    r"(?:hi|hello|hey) [,.]"
    r"|please|kindly"
    r"|(?:can|could|would) you please"
    r"|(?:(?:can|could|would|will) you (?:please )?)?(?:tell|show|give) me"
    r"|(?:i (?:want|need|would like)|i'd like) to know"
    r")(?: [,.])? )+"
)
_TRAILING = re.compile(r"(?: ,)? please$| \. (?:thanks|thank you)$")


def gist(text: str) -> tuple[str, ...]:
    """Return a request without words that carry no meaning; two texts with the same gist ask for the same."""
    if len(text) > LONGEST or len(text.splitlines()) > 1:
        return (text,)
    words = _words(normalize("NFC", text).replace("’", "'"))
    while words and words[-1] in _MARKS:
        words.pop()
    phrase = " ".join(words)
    phrase = _cut_match(_LEADING.match(phrase), phrase)
    phrase = _cut_match(_TRAILING.search(phrase), phrase)
    words = phrase.split()
    less = [word for word in words if word != "the"]
    words = less if _count(less) >= FEWEST else words
    if NEGATIONS.isdisjoint(words):
        return tuple(word for word in words if word != ",")
    return tuple(words)  # a comma may decide what is negated


def _cut_match(match: re.Match[str] | None, phrase: str) -> str:
    if match is None:
        return phrase
    rest = phrase[: match.start()] + phrase[match.end() :]
    return rest if _count(rest.split()) >= FEWEST else phrase


def _count(words: list[str]) -> int:
    return sum(word not in _MARKS for word in words)


def _words(text: str) -> list[str]:
    """Return the words of a text, with the punctuation between them as words of their own."""
    words: list[str] = []
    for chunk in text.split():
        bare = chunk.rstrip(_STOPS + ",")
        if not bare:
            # A lone mark stands between words, or is one: "5 !" is another number.
            words.append("," if chunk == "," else "." if chunk in (".", "?") else chunk)
            continue
        if bare.replace("'", "").isalpha():
            words += _spelled(bare, first=not words).split()
        else:
            # In numbers, addresses, formulas and code every character may matter, also upper case; except a final full
            # stop.
            bare = chunk[:-1] if chunk[-1] in ".,;:?" else chunk
            words.append(bare)
        if after := chunk[len(bare) :]:
            words.append("," if after == "," else ".")
    return words


def _spelled(word: str, *, first: bool) -> str:
    """Return a word in its common spelling."""
    small = word.lower()
    if small in TWO_MEANINGS and not (first and small in BEGINNINGS):
        return word
    if word.isupper() and 1 < len(word) <= LONGEST_ABBREVIATION:
        return word
    if not word.isupper() and word[1:] != small[1:]:
        return word  # a name with capitals inside
    if small.endswith("n't") and small != "ain't":
        stem = small[:-3]
        return f"{_IRREGULAR.get(stem, stem)} not"
    return _SPELLED_OUT.get(small, small)
