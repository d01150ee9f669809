"""Reads the words of a clause: figures, phrases, German function words, and numbers that are part of a name."""

import re
from collections.abc import Sequence

from remit_orchestrator.text.clauses import FIGURE, tokens
from remit_orchestrator.text.conflicts.opposites import state_of
from remit_orchestrator.text.lexicon import groups
from remit_orchestrator.text.quantities import Amount, Figure
from remit_orchestrator.text.vocabulary import (
    CLAUSE_VERBS,
    DEGREES,
    DETERMINERS,
    GERMAN,
    GERMAN_SIGNS,
    LABELS,
    PHRASE_STARTS,
    PHRASES,
    ROLES,
    german_stem,
)


def words_said(text: str, found: Sequence[Figure]) -> list[str]:
    """Return the words of a clause in the form in which they are compared.

    They are in small letters. `FIGURE` stands for each figure, a phrase is one word (`went up` is `rose`), and German
    function words are in English (`nicht` is `not`).
    """
    return _read(_tokens(text, found))


def _tokens(text: str, found: Sequence[Figure]) -> list[str]:
    said: list[str] = []
    end = 0
    for figure in found:
        said += tokens(text[end : figure.start])
        said.append(FIGURE)
        end = figure.end
    if end < len(text):
        said += tokens(text[end:])
    if "frei" in text or "free" in text:
        said = [word for token in said for word in _without(token)]
    return said


# "Sugar-free", "alkoholfrei": without what stands before it.
_FREE_OF = re.compile(r"([^\W\d_]{4,})(?:-free|-?frei(?:e[nmrs]?)?)")


def _without(token: str) -> tuple[str, ...]:
    found = _FREE_OF.fullmatch(token)
    return ("lacks", found[1]) if found else (token,)


_ENGLISH = frozenset({"the", "is", "are", "was", "were", "of", "and", "has", "have", "to", "at"})


def _read(said: list[str]) -> list[str]:
    """Return the words of a clause with each phrase as one word, and German function words in English."""
    if not _BOUNDS.isdisjoint(said):
        said = [
            token for place, token in enumerate(said) if token not in _BOUNDS or said[place + 1 : place + 2] != [FIGURE]
        ]
    switched = len(said) > 2 and said[-2] in _SWITCHED and said[-1] in ("on", "off")
    if switched or (len(said) > 2 and said[-2] in _BEING and said[-1] in _LAST):
        said = [*said[:-1], _LAST[said[-1]]]
    if "than" in said:
        said = _with_more(said)
    if not PHRASE_STARTS.keys().isdisjoint(said):
        said = _with_phrases(said)
    if GERMAN_SIGNS.isdisjoint(said) or not _ENGLISH.isdisjoint(said):
        return said
    if said[-1] == "mehr" and not _NOT_ANY.isdisjoint(said):
        said = said[:-1]  # "es gibt keine Karten mehr"
    verb = -3 if len(said) > 3 and said[-2] == "nicht" else -2
    if len(said) > 2 and (said[verb], said[-1]) in _SEPARABLE:
        said = [*said[:verb], *said[verb + 1 : -1], _SEPARABLE[said[verb], said[-1]]]  # "der Kurs fällt aus"
    if said[-1] == "ab" and not _ADVISING.isdisjoint(said):
        said = ["abraten" if token in _ADVISING else token for token in said[:-1]]  # "wir raten vom Kauf ab"
    return [_in_english(token) for token in said]


def _with_more(said: list[str]) -> list[str]:
    """Return the words with "funnier than" as "more funny than"; those with a known opposite stay as they are."""
    place = said.index("than") - 1
    word = said[place] if place >= 0 else ""
    if not word.endswith("er") or len(word) < 6 or word in ROLES or word in _NOT_MORE or state_of(word):
        return said
    plain = f"{word[:-3]}y" if word.endswith("ier") else word[:-2]
    return [*said[:place], "more", plain, *said[place + 1 :]]


_NOT_MORE = frozenset({"rather", "other", "further", "either", "neither", "whether", "number", "together"})


def _with_phrases(said: list[str]) -> list[str]:
    read: list[str] = []
    end = 0
    for place, token in enumerate(said):
        if place < end:
            continue
        for phrase in PHRASE_STARTS.get(token, ()):
            if tuple(said[place : place + len(phrase)]) == phrase:
                token, end = PHRASES[phrase], place + len(phrase)
                break
        read += token.split()
    return read


_NOT_ANY = frozenset({"kein", "keine", "keinen", "keinem", "keiner", "nichts", "niemand"})
# Before a figure they say how far it reaches, not what is spoken of.
_BOUNDS = frozenset({"above", "below"})
# "The server is up": at the end of a clause they are said of a thing.
_LAST = {"up": "running", "down": "stopped", "on": "enabled", "off": "disabled"}
_SWITCHED = frozenset({"switched", "turned", "powered"})
_BEING = frozenset({"is", "are", "was", "were"})
# German verbs that stand in two parts, where nothing stands between them.
_SEPARABLE = {(verb, part): word for verb, part, word in groups("separable_verbs")}
_ADVISING = frozenset({"rate", "raten", "rät"})


def _in_english(token: str) -> str:
    known = GERMAN.get(token)
    if known is not None:
        return known
    return token if token in ROLES or token in CLAUSE_VERBS or not token.isalpha() else german_stem(token)


def labels(text: str, said: Sequence[str], found: Sequence[Figure]) -> frozenset[int]:
    """Return the places of the figures that are part of a name: order 4411, Ward 3."""
    places: list[int] = []
    numbers = iter(found)
    for place, token in enumerate(said):
        if token == FIGURE and _is_label(text, said, place, next(numbers), len(found)):
            places.append(place)
    return frozenset(places) if places else NO_LABELS


def _is_label(text: str, said: Sequence[str], place: int, figure: Figure, several: int) -> bool:
    quantity = figure.quantity
    noun = said[place - 1] if place else ""
    if noun == "the" and place > 1:
        noun = said[place - 2]
    if not isinstance(quantity, Amount) or quantity.kind != "number":
        return False
    if noun in LABELS:
        return True
    if not text[figure.start : figure.end].isdigit() or not noun.isalpha() or noun in ROLES or noun in CLAUSE_VERBS:
        return False
    following = said[place + 1] if place + 1 < len(said) else ""
    if following in CLAUSE_VERBS or ROLES.get(following) in ("advice", "hedge", "negation"):
        return True  # "Ward 3 has", "hive 4 should": it belongs to what is spoken of
    if several < 2 or (following and following not in ROLES):
        # "Hall 2 seats 300": a name has a capital, and a verb has none.
        return several > 1 and place == 1 and text[:1].isupper() and text[figure.end :].lstrip()[:1].islower()
    before = said[place - 2] if place > 1 else ""
    return before in _BEFORE_NAMES or text[: figure.start].rsplit(maxsplit=1)[-1][:1].isupper()


NO_LABELS: frozenset[int] = frozenset()
_BEFORE_NAMES = frozenset({"in", "on", "at", "of", "for", "from", "to", "the"})


def tells_apart(said: Sequence[str], place: int, verb: int, figured: bool) -> bool:
    """Say whether a word that could be the opposite of another tells a thing from others: "the cheap one is quick"."""
    token = said[place]
    if figured and token in DEGREES and (said[place + 1 : place + 2] != ["than"] or FIGURE in said[place : place + 3]):
        return True  # "no later than 9:40", "the new price is $12"; not "higher than in 2019"
    following = said[place + 1] if place + 1 < len(said) else ""
    if place and place < verb and said[place - 1] == "the" and following in CLAUSE_VERBS:
        return True  # "the stable is full": it is a noun
    if not following.isalpha() or following in ROLES or following in CLAUSE_VERBS:
        return False
    if place and said[place - 1] in _ONE_OF_MANY:
        return True
    if place > 1 and token in DEGREES and said[place - 1] == "the" and said[place - 2] not in _BEING:
        return True  # "switch to the new release"
    return place < verb and (token in DEGREES or verb < len(said)) and token not in _MUCH


def is_told(said: Sequence[str]) -> bool:
    """Say whether a clause that begins with a verb tells somebody what to do: "take the ridge", not "order 4411"."""
    return said[1:2] != [] and (said[1] in _BEFORE_NOUNS or said[1] in ROLES or said[1].isalpha()) and said[1] != ":"


def is_predicate(said: Sequence[str], place: int, verb: int) -> bool:
    """Say whether a word is said of the subject by itself: "is thin", "died"; not "the thin one", "by the thief"."""
    before = said[place - 1] if place else ""
    following = said[place + 1] if place + 1 < len(said) else ""
    if place <= verb < len(said) or (verb == len(said) and place < 2):
        return False
    if not before or before in _BEFORE_NOUNS or before == FIGURE:
        return False
    return not following.isalpha() or following in ROLES or following in CLAUSE_VERBS or following in _BEFORE_NOUNS


# After these comes a noun, which is not said of the subject.
_BEFORE_NOUNS = DETERMINERS | frozenset(
    {"another", "of", "in", "on"}
    | {"at", "by", "for", "from", "to", "into", "via", "with", "near", "through", "over", "under", "between", "against"}
    | {"about", "during", "without", "within", "per", "no", "some", "any", "one"}
)
_ONE_OF_MANY = frozenset({"a", "an", "another", "both"})
_MUCH = frozenset({"more", "mehr", "less", "fewer", "weniger"})
