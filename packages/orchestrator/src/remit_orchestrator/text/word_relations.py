"""Relations between words, in English and German: same meaning, opposite meaning, and what changes a statement."""

from functools import lru_cache

from remit_orchestrator.text.lexicon import groups, table, word_set
from remit_orchestrator.text.vocabulary import IRREGULAR_FORMS

# ── forms of one word ─────────────────────────────────────────────────────────────────────────────────────────────────

_ENDINGS = (
    *(ending for group in groups("endings") for ending in group),
    *("ern", "er", "en", "em", "et", "st", "e", "s", "n", "t", "y"),
)
_INFLECTIONS = frozenset({"ing", "ed", "s"})
_SOFTENED = ("ens", "ans", "cis", "lus", "vis")
_SHORTEST_ROOT = 4
_LONGEST_ROOT = 7


@lru_cache(maxsize=8192)
def root_of(word: str) -> str:
    """Return what the forms and derivations of a word have in common: `reserve`, `reservation` and `reserved` are one.

    It is rough on purpose: it tells whether two texts speak of one thing, not whether they say the same of it.
    """
    word = word.removesuffix("'s").removesuffix("'").replace("ß", "ss")
    if plain := IRREGULAR_FORMS.get(word):
        word = plain
    elif word.startswith("ge") and word.endswith(("t", "en")) and len(word) > 6:
        word = word[2:]  # a German participle
    while True:
        if len(word) > _SHORTEST_ROOT and word[-1] == word[-2]:
            word = word[:-1]
        ending = next((each for each in _ENDINGS if word.endswith(each)), "")
        if not ending or len(word) - len(ending) < _SHORTEST_ROOT - (ending in _INFLECTIONS):
            break
        word = word.removesuffix(ending)
        if len(word) > _SHORTEST_ROOT and word.endswith(_SOFTENED):
            word = word[:-1] + "d"  # extend and extension, decide and decision
            break
    return word[:_LONGEST_ROOT].translate(_PLAIN_VOWELS)


_PLAIN_VOWELS = str.maketrans("äöü", "aou")

# ── the same in other words ───────────────────────────────────────────────────────────────────────────────────────────


# ── the opposite ──────────────────────────────────────────────────────────────────────────────────────────────────────

# Sides of one axis; each side has words that mean the same. Not here: what is an opposite only in one trade.
# A star marks states: of one thing, at one time, only one side can be so. A film begins and ends; a door is open or
# shut.
_OPPOSED = table("opposites")
# Words with another common meaning are on no side.
_AMBIGUOUS = word_set("ambiguous")

Sides = frozenset[tuple[int, int]]
"""The axes on which a word stands, each with its side: 1 or -1."""


STATES = tuple((one, other) for axis, (one, other) in _OPPOSED.items() if axis.startswith("*"))
"""Words for states that exclude each other: those of one side, and those of the other."""


def is_ambiguous(word: str) -> bool:
    """Return whether a word has another common meaning, so that it stands on no side."""
    return word in _AMBIGUOUS


def _sides() -> dict[str, Sides]:
    sides: dict[str, set[tuple[int, int]]] = {}
    for axis, both in enumerate(_OPPOSED.values()):
        for sign, side in zip((1, -1), both, strict=True):
            for word in side:
                if word not in _AMBIGUOUS:
                    sides.setdefault(root_of(word), set()).add((axis, sign))
    return {root: frozenset(each) for root, each in sides.items()}


_SIDES = _sides()
_CLASSES: dict[str, str] = {}
for _group in groups("same_meaning"):
    for _word in _group:
        _CLASSES.setdefault(root_of(_word), root_of(_group[0]))
_NOWHERE: Sides = frozenset()


def concept_of(word: str) -> str:
    """Return what a word has in common with its forms and with words of the same meaning."""
    root = root_of(word)
    return _CLASSES.get(root, root)


def sides_of(word: str) -> Sides:
    """Return the axes on which a word stands; "increase" and "fall" are on two sides of one."""
    return _NOWHERE if word in _AMBIGUOUS else _SIDES.get(root_of(word), _NOWHERE)


def same_meaning(one: str, other: str) -> bool:
    """Return whether two words are known to mean the same."""
    return concept_of(one) == concept_of(other) or bool(sides_of(one) & sides_of(other))
