"""Tells whether two requests surely ask for the same in other words.

How alike two texts look says little: "cancel order 4411" and "cancel order 4412" are alike to 98 %, a route and its
way back to more than 99, and in a text that is long enough any one word may differ, "unpaid" too. So nothing is
weighed here. What carries nothing is taken away, and what is left must be the same, word for word: numbers, dates,
weekdays, months, negations, and the order of all of it. A difference that was overlooked is a wrong answer; a likeness
that was overlooked costs one call.
"""

import re
from unicodedata import normalize

# What people type as one request. Beyond that it is a document, in which line ends and spaces may be the point.
LONGEST = 1_000

# With so few words left, what was taken away may have been what it is about ("translate please").
FEWEST = 3

# Up to this length, capitals alone are an abbreviation, and another word than the same in small letters (US, IT).
LONGEST_ABBREVIATION = 5

# Words that mean something else with a capital: they stay as they were written.
TWO_MEANINGS = frozenset([
    "access", "amazon", "apple", "august", "bill", "chase", "chile", "china", "cork", "excel", "gap", "go", "it",
    "java", "job", "march", "mark", "may", "meta", "mobile", "nice", "oracle", "orange", "outlook", "polish", "python",
    "reading", "rose", "rust", "shell", "slack", "sprint", "square", "stripe", "swift", "target", "teams", "turkey",
    "us", "visa", "who", "windows", "word", "zoom",
])  # fmt: skip
# Some of these begin a question more often than a name does.
BEGINNINGS = frozenset(["it", "may", "who"])

NEGATIONS = frozenset(["except", "neither", "never", "no", "none", "nor", "not", "nothing", "nobody", "without"])
_IRREGULAR = {"ca": "can", "wo": "will", "sha": "shall"}
_SPELLED_OUT = {"cannot": "can not", "what's": "what is"}

# A sentence that ends within a text parts what belongs together: "don't. Stop" is not "don't stop".
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
    """Return what a request says, without what carries nothing; two texts with the same gist ask for the same."""
    if len(text) > LONGEST or len(text.splitlines()) > 1:
        return (text,)
    words = _words(normalize("NFC", text).replace("’", "'"))
    while words and words[-1] in _MARKS:
        words.pop()
    said = " ".join(words)
    said = _without(_LEADING.match(said), said)
    said = _without(_TRAILING.search(said), said)
    words = said.split()
    less = [word for word in words if word != "the"]
    words = less if _count(less) >= FEWEST else words
    if NEGATIONS.isdisjoint(words):
        return tuple(word for word in words if word != ",")
    return tuple(words)  # a comma may say what is negated


def _without(found: re.Match[str] | None, said: str) -> str:
    if found is None:
        return said
    rest = said[: found.start()] + said[found.end() :]
    return rest if _count(rest.split()) >= FEWEST else said


def _count(words: list[str]) -> int:
    return sum(word not in _MARKS for word in words)


def _words(text: str) -> list[str]:
    """Return the words of a text, and the marks between them as words of their own."""
    found: list[str] = []
    for chunk in text.split():
        bare = chunk.rstrip(_STOPS + ",")
        if not bare:
            # Alone it stands between words, or is one: "5 !" is another number.
            found.append("," if chunk == "," else "." if chunk in (".", "?") else chunk)
            continue
        if bare.replace("'", "").isalpha():
            found += _spelled(bare, first=not found).split()
        else:
            # Of numbers, addresses, formulas and code every sign may count, a capital too; but for the last stop.
            bare = chunk[:-1] if chunk[-1] in ".,;:?" else chunk
            found.append(bare)
        if after := chunk[len(bare) :]:
            found.append("," if after == "," else ".")
    return found


def _spelled(word: str, *, first: bool) -> str:
    """Return a word as all would write it."""
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
