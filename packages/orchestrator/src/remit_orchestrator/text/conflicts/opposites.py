"""Knows which words exclude each other when they are said of one thing: `thick` and `thin`, `blue` and `red`."""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache

from remit_orchestrator.text.lexicon import table
from remit_orchestrator.text.vocabulary import AXES, GERMAN_WEEKDAYS, IRREGULAR_FORMS, german_stem
from remit_orchestrator.text.word_relations import STATES, is_ambiguous

# States of people and things, beyond the `STATES` of `word_relations`: one line for each, with its two sides.
# What is advised: whoever advises one side advises against the other.
WEEKDAY = "weekday"
# Of each kind a thing has one at a time. Weekdays in English are read as dates.
_KIND_OF = {
    **{word: kind for kind, (members,) in table("kinds").items() for word in members},
    **dict.fromkeys(GERMAN_WEEKDAYS, WEEKDAY),
}
# Endings that make opposites of one stem: harmful and harmless, fettreich and fettarm.
_ENDINGS = (
    (re.compile(r"(.{3,})(?:ful|voll)"), re.compile(r"(.{3,})(?:less|los)")),
    (re.compile(r"(.{3,})reich(?:er)?"), re.compile(r"(.{3,})(?:arm|ärmer|ärm)")),
    (re.compile(r"(.{3,})st[aä]rk(?:er)?"), re.compile(r"(.{3,})schw[aä]ch(?:er)?")),
)


def kind_of(word: str) -> str:
    """Return the kind of which a thing has only one, if a word is of one: `blue` is a colour; else an empty text."""
    return _KIND_OF.get(word, "")


@lru_cache(maxsize=4096)
def state_of(word: str) -> tuple[str, int] | None:
    """Return the axis and side of a word for a state, `("deep", -1)` for `shallow`; None if it is no such word.

    Two words on two sides of one axis cannot both be said of one thing. Some words of `AXES` stand on a second axis,
    and for them it is that one: what is blocked is neither approved nor open.
    """
    known = AXES.get(word)
    found = _state_of(word)
    return None if known and found and found[0] == known[0] else found


def _state_of(word: str) -> tuple[str, int] | None:
    for positive, negative in _ENDINGS:
        for pattern, sign in ((positive, 1), (negative, -1)):
            if found := pattern.fullmatch(word):
                return f"-{found[1]}", sign
    return _states().get(word)


def action_of(word: str) -> tuple[str, int] | None:
    """Return the axis and side of an action that may be advised: whoever advises to stay advises against leaving."""
    return _actions().get(word)


def _named(sides: tuple[tuple[str, ...], tuple[str, ...]]) -> tuple[str, int]:
    """Return the name of the axis for two sides, and which side is its positive one.

    It is the axis of `AXES` on which most of their words stand, so that both tables can be compared; else a new one.
    """
    votes = Counter(
        (AXES[word][0], AXES[word][1] * sign)
        for sign, words in zip((1, -1), sides, strict=True)
        for word in words
        if word in AXES and not is_ambiguous(word)
    )
    return votes.most_common(1)[0][0] if votes else (sides[0][0], 1)


def _pairs(name: str) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(one, other) for one, other in table(name).values()]


def _table(several: Iterable[tuple[tuple[str, ...], tuple[str, ...]]]) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for sides in several:
        axis, way = _named(sides)
        for sign, words in zip((way, -way), sides, strict=True):
            for word in words:
                for form in () if is_ambiguous(word) else _forms(word):
                    found.setdefault(form, (axis, sign))
    return found


_IRREGULAR: dict[str, set[str]] = {}
for _form, _plain in IRREGULAR_FORMS.items():
    _IRREGULAR.setdefault(_plain, set()).add(_form)


def _forms(word: str) -> set[str]:
    """Return the forms in which a word is said of something; no derived nouns: there may be damage to what is whole."""
    short = word.removesuffix("e")
    forms = {word, f"{word}s", f"{short}es", f"{short}ed", f"{short}ing", f"{short}er", f"{short}est"}
    forms |= _IRREGULAR.get(word, set())
    if word.endswith("y"):
        forms |= {word[:-1] + ending for ending in ("ies", "ied", "ier", "iest")}
    return forms | {german_stem(form) for form in forms if len(form) > 5}


# They are made when the first text is read: most commands read none.


@cache
def _states() -> dict[str, tuple[str, int]]:
    return _table((*STATES, *_pairs("states")))


@cache
def _actions() -> dict[str, tuple[str, int]]:
    return _table(_pairs("actions"))
