"""Word lists for readers without a language model: verbs, and the function of words in a sentence."""

from functools import lru_cache

from remit_orchestrator.text.lexicon import groups, phrases, table, word_set

# Irregular forms of English and German words, with the plain form of each.
IRREGULAR_FORMS = {form: group[0] for group in groups("irregular_forms") for form in group}

# ── verbs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_TASKS = word_set("tasks")
REQUEST_VERBS = _TASKS | word_set("request_verbs")
"""Verbs that begin a request to an agent."""
DESCRIPTION_VERBS = _TASKS | word_set("description_verbs")
"""Verbs that begin the description of an agent's work. Here a first word like "email" is more often a noun."""
CLAUSE_VERBS = word_set("clause_verbs")
"""Verbs that show that a part of a statement is a clause."""

# ── words by their function in a sentence ─────────────────────────────────────────────────────────────────────────────

# Words that say nothing about the subject. Words that distinguish subjects are not here (before, after, without, per,
# total).
WEAK = word_set("weak")
_HEDGES = word_set("hedges")
COMMON_WORDS = word_set("common_words")
"""Words in seven languages that say nothing about what is wanted."""
PUNCTUATION = frozenset(",:;()")
DETERMINERS = word_set("determiners")
GERMAN_WEEKDAYS = word_set("german_weekdays")
NEGATIONS = word_set("negations")
# "No later than", "not only": nothing is denied.
NOT_DENIED = word_set("not_denied")
# After these, a day or time is the claim itself, and not the time of the claim.
EVENTS = word_set("events")
# A text about itself: "I am 80 % sure".
ON_ITSELF = word_set("on_itself")
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


# Adjectives that describe a thing; before a noun they separate things, as in "the cheap one".
_DEGREES = table("degrees")
# Words with an opposite; "increasing" describes a thing, "including" separates two things.
AXES = {
    word: (axis, sign)
    for axis, sides in {**table("axes"), **_DEGREES}.items()
    for sign, side in zip((1, -1), sides, strict=True)
    for word in side
}

DEGREES = frozenset(word for sides in _DEGREES.values() for side in sides for word in side)

# Words of advice for something, or against it.
ADVICE = {**dict.fromkeys(word_set("advice"), 1), **dict.fromkeys(word_set("advice_against"), -1)}
# Verbs that tell somebody what to do if a sentence begins with them.
IMPERATIVES = word_set("imperatives")
# Verbs that add nothing to advice: "take the early flight" advises the same as "the early flight".
LIGHT_VERBS = word_set("light_verbs")

# Several words that are read as one.
PHRASES = {tuple(phrase.split()): word for word, several in phrases("phrases").items() for phrase in several}
PHRASE_STARTS = {
    first: tuple(sorted((each for each in PHRASES if each[0] == first), key=len, reverse=True))
    for first in {phrase[0] for phrase in PHRASES}
}
"""The phrases by their first words, the longest first."""

# German function words with the English words that stand for them.
GERMAN: dict[str, str] = {word: english for english, (german,) in table("english").items() for word in german}
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


# The function of each word in a sentence, unless the word is about the subject.
ROLES = {
    **dict.fromkeys(WEAK | PUNCTUATION, "weak"),
    **dict.fromkeys(AXES, "axis"),
    **dict.fromkeys(NEGATIONS, "negation"),
    **dict.fromkeys(_HEDGES, "hedge"),
    **dict.fromkeys(ADVICE, "advice"),
    **dict.fromkeys(("now", "today", "currently", "presently"), "now"),
}
