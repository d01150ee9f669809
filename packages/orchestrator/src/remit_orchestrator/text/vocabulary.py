"""What words do in a sentence, and how they relate: forms, opposites, negations, doubts and conditions."""

from functools import lru_cache

from remit_orchestrator.text.lexicon import groups, pattern, table, word_set

# Irregular forms of English and German words, with the plain form of each.
IRREGULAR_FORMS = {form: group[0] for group in groups("irregular_forms") for form in group}

# ── verbs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_TASKS = word_set("tasks")
REQUEST_VERBS = _TASKS | word_set("request_verbs")
"""Verbs that begin a request to an agent."""
DESCRIPTION_VERBS = _TASKS | word_set("description_verbs")
"""Verbs that begin the description of an agent's work. Here a first word like "email" is more often a noun."""
# ── words by their function in a sentence ─────────────────────────────────────────────────────────────────────────────

COMMON_WORDS = word_set("common_words")
"""Words in seven languages that say nothing about what is wanted."""
NEGATIONS = word_set("negations")
# A number after one of these is part of a name.
LABELS = word_set("labels")
# "Stand" is English as well as a form of "stehen".
_PLAIN_FORMS = frozenset(IRREGULAR_FORMS.values())
_SYNONYMS = {word: group[0] for group in groups("synonyms") for word in group}


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """Return the common stem of the forms of a word."""
    word = word.removesuffix("'s")
    if word not in _PLAIN_FORMS:
        word = IRREGULAR_FORMS.get(word, word)
    if len(word) > 3:
        if word.endswith("ies"):
            word = word[:-3] + "y"
        elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-1]
        for ending in ("ing", "ed"):
            if word.endswith(ending) and len(word) > len(ending) + 2:
                word = word.removesuffix(ending)
                if word[-1] == word[-2] and word[-1] not in "ls":
                    word = word[:-1]
                break
        if word.endswith("e") and len(word) > 3:
            word = word[:-1]
    return _SYNONYMS.get(word, word)


# Words that show that a sentence is German if it has no English function word.
GERMAN_SIGNS = word_set("german_signs")
_GERMAN_ENDINGS = ("en", "er", "es", "em", "e", "n", "s")


@lru_cache(maxsize=4096)
def german_stem(word: str) -> str:
    """Return a German word without the ending of its case and number."""
    for ending in _GERMAN_ENDINGS:
        if word.endswith(ending) and len(word) > len(ending) + 3:
            return word.removesuffix(ending)
    return word


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

# ── the opposite ──────────────────────────────────────────────────────────────────────────────────────────────────────

# Sides of one axis; each side has words that mean the same. Not here: what is an opposite only in one trade.
# A star marks states: of one thing, at one time, only one side can be so. A film begins and ends; a door is open or
# shut.
_OPPOSED = table("opposites")
# Words with another common meaning are on no side.
_AMBIGUOUS = word_set("ambiguous")

Sides = frozenset[tuple[int, int]]
"""The axes on which a word stands, each with its side: 1 or -1."""


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


ALL_NEGATIONS = NEGATIONS | word_set("marker.negations")


_NEGATIVE_PREFIXES = ("un", "in", "im", "ir", "il", "dis", "non-", "non", "mis")


def positive_of(word: str) -> tuple[str, ...]:
    """Return what a word may be the denial of, by its prefix or ending: `unpaid`, `non-compliant`, `harmless`."""
    roots = [word.removeprefix(each) for each in _NEGATIVE_PREFIXES if word.startswith(each) and len(word) > 5]
    roots += [word.removesuffix(each) for each in ("less", "los") if word.endswith(each) and len(word) > 6]
    return tuple(roots)


DOUBT = pattern("marker.doubt")
"""What is certainly a doubt."""


STRICT_CONDITION = pattern("marker.strict_condition")
