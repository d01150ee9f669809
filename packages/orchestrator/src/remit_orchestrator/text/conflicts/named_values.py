"""Finds the name or place that a clause gives to a role: "the carrier is Hansen Lines", "stored in Hall B"."""

import re
from collections.abc import Sequence

from msgspec import Struct

from remit_orchestrator.text.conflicts.fields import fold_text
from remit_orchestrator.text.figures import MONTHS, NAMES
from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.vocabulary import (
    CLAUSE_VERBS,
    DETERMINERS,
    EVENTS,
    GERMAN,
    GERMAN_SIGNS,
    GERMAN_WEEKDAYS,
    IRREGULAR_FORMS,
    ROLES,
    german_stem,
    stem,
)


class NamedValue(Struct, frozen=True, gc=False):
    """A name or place that a clause gives to its subject: `Hall B` in "the samples are stored in Hall B"."""

    lead: str
    """The role that it has: the preposition before it (`in`), `is` after a verb such as "is", or a kind (`colour`)."""
    words: frozenset[str]
    """Its words, folded, for comparison."""
    text: str
    """As written."""
    raw: tuple[str, ...]
    """Its words in small letters."""

    def roots(self) -> frozenset[str]:
        """Return the stems by which the words of the value are known in the subject of its clause."""
        return frozenset([root for word in self.raw for root in (stem(word), stem(german_stem(word)), word)])


_TOKEN = re.compile(r"[^\W_][\w&'’-]*(?:\.(?=[A-Z]))?|[,:;()]")
_MAY_NAME = re.compile(
    r"\s[A-ZÄÖÜ]|:\s|\b(?:in|at|on|from|to|into|by) the\b|^The \w+ (?:is|was) |^[A-ZÄÖÜ]\w+ \w+ the |\b(?:of|by)\b"
)
# Where something is, comes from and goes to. What is in a town is on one of its streets: each is a role of its own.
_LEADS = word_set("name.leads")
_COPULAS = word_set("name.copulas")
# Whoever has one thing may have another.
_HAVING = word_set("name.having")
_SOME = word_set("name.some")
_TITLES = word_set("name.titles")
_HEDGED = frozenset(word for word, role in ROLES.items() if role == "hedge")
# What such a noun is said to be, it is alone: a thing has one owner, one colour, one cause. They are names of fields.
_ATTRIBUTES = word_set("name.attributes")
_UNIQUE = word_set("name.unique")
_TIMES = NAMES | MONTHS | GERMAN_WEEKDAYS | word_set("name.times")
# What one does to a thing, no other does to it.
_SOLE = word_set("name.sole")
# A name of more words is a description.
_LONGEST = 4


def may_name_value(text: str) -> bool:
    """Say whether a clause may name a value, from its signs alone: most do not, and need not be read closely."""
    return _MAY_NAME.search(text) is not None


def named_values(text: str) -> list[NamedValue]:
    """Return the names and places that are said of the subject of a clause."""
    if not may_name_value(text):
        return []
    tokens: list[str] = _TOKEN.findall(text)
    plain = [token.lower() for token in tokens]
    german = not GERMAN_SIGNS.isdisjoint(plain)
    if german:
        plain = [GERMAN.get(word, word) for word in plain]
    if any(word in _HEDGED and token != "May" for word, token in zip(plain, tokens, strict=True)):
        return []
    verb = _verb(tokens, plain)
    if verb is None:
        return _after_colon(tokens, plain)
    if _is_plural(plain, verb):
        return []
    if plain[verb] in _COPULAS and plain[verb + 1 : verb + 2] == ["the"] and _is_name(tokens, plain, 0, verb):
        return _value("is", tokens[:verb])  # "Ms. Thornton is the head teacher"
    if plain[verb] in _SOLE and plain[verb + 1 : verb + 2] == ["the"] and _is_name(tokens, plain, 0, verb):
        return _value("by", tokens[:verb])  # "Kiel won the final": the final was won by Kiel
    if plain[verb] in _COPULAS and (values := _of_attribute(tokens, plain, verb)):
        return values
    return _in_predicate(tokens, plain, verb, german)


def _verb(tokens: Sequence[str], plain: Sequence[str]) -> int | None:
    """Return the place of the verb: a known one, or a word that ends and stands like one."""
    for place, word in enumerate(plain):
        if place and word in CLAUSE_VERBS:
            return place
    for place in range(1, len(plain) - 1):
        word, before, after = plain[place], plain[place - 1], plain[place + 1]
        plural = place == 2 and plain[0] == "the" and before.endswith("s") and after in _LEADS  # "the roses come from"
        if (
            (plural or word.endswith(("s", "ed", "t")))
            and tokens[place][0].islower()
            and before not in DETERMINERS
            and before not in ROLES
            and (after in _LEADS or after in DETERMINERS or tokens[place + 1][0].isupper())
        ):
            return place
    return None


def _is_plural(plain: Sequence[str], verb: int) -> bool:
    """Say whether several things are spoken of, but not all of them: of each something else may be so."""
    noun, verb_word = plain[verb - 1], plain[verb]
    if plain[0] == "the" and (plain[verb - 1] in ROLES or verb == 2):
        return False  # "the posters": all that are meant
    return verb_word in ("are", "were", "have") or (
        noun.endswith("s") and not noun.endswith(("ss", "us", "is")) and not verb_word.endswith(("s", "ed"))
    )


def _after_colon(tokens: Sequence[str], plain: Sequence[str]) -> list[NamedValue]:
    """Return the value of a line that is written like a field: "Carrier: Polar Freight"."""
    if plain.count(":") != 1:
        return []
    colon = plain.index(":")
    value = tokens[colon + 1 :]
    if not 0 < colon <= _LONGEST or not 0 < len(value) <= _LONGEST or plain[colon - 1] not in _ATTRIBUTES:
        return []
    return _value("is", value)


def _of_attribute(tokens: Sequence[str], plain: Sequence[str], verb: int) -> list[NamedValue]:
    """Return what an attribute is that a thing has only one of: "the diagnosis is pneumonia"."""
    subject, rest = plain[:verb], plain[verb + 1 :]
    if subject[:1] and subject[0] not in DETERMINERS:
        return []
    if subject[-1] not in _ATTRIBUTES and _UNIQUE.isdisjoint(subject):
        return []
    start = verb + 2 if rest[:1] == ["the"] else verb + 1
    if not 0 < len(plain) - start <= _LONGEST or not _SOME.isdisjoint(rest) or not _LEADS.isdisjoint(rest):
        return []
    if any(word in ROLES and word not in _TITLES for word in plain[start:]) or any(not t[0].isalnum() for t in rest):
        return []
    return _value("is", tokens[start:])


def _in_predicate(tokens: Sequence[str], plain: Sequence[str], verb: int, german: bool) -> list[NamedValue]:
    values: list[NamedValue] = []
    place = verb + 1
    event = stem(plain[verb]) in EVENTS
    while place < len(tokens):
        if plain[place] in _SOME:
            break  # of what there is one among many, there may be another
        start = place
        while place < len(tokens) and (
            _is_capital(tokens[place])
            or _is_particle(tokens, place, german)
            or (place > start and _is_of_name(tokens, place))
        ):
            place += 1
        if place > start:
            lead = _lead(plain, start, verb, german)
            if lead and event and place == start + 1 and plain[start] in MONTHS:
                # What begins or ends does so in one month.
                values.append(NamedValue("when", frozenset([plain[start]]), tokens[start], (plain[start],)))
            elif lead and place - start <= _LONGEST:
                values += _value(lead, tokens[start:place])
        elif (end := _definite_place(plain, place, verb)) is not None:
            values += _value(f"{plain[place]} the", tokens[place + 2 : end])
            place = end
        elif (first := _cause_or_material(plain, place, verb)) is not None:
            values += _value(plain[place], tokens[first:])
            place = len(tokens)
        else:
            place += 1
    return values


def _lead(plain: Sequence[str], start: int, verb: int, german: bool) -> str:
    """Return the role of a name: the preposition before it, or the verb; empty if others may be named there as well."""
    before = start - 1
    while before > verb and plain[before] in ("the", "."):
        before -= 1
    word = plain[before]
    if before == verb:
        # Who speaks Polish may speak Estonian: what is done to somebody may be done to others.
        return "is" if word in _COPULAS else ""
    if word in ("called", "named") and before == verb + 1:
        return "is"
    if word not in _LEADS:
        return ""
    between = plain[verb + 1 : before]
    # "Popular in Japan" may be popular elsewhere; "stored in Hall B" is stored there alone.
    sent = len(between) == 4 and between[1] in _LEADS and between[2] == "the"  # "sent to the lab in Basel"
    stated = _is_participle(between[:1] if sent else between, word)
    if plain[verb] in _HAVING or (plain[verb] in _COPULAS and not german and not stated):
        return ""
    return word  # "am Abend" says when, "im Saal" where


def _is_participle(between: Sequence[str], lead: str = "") -> bool:
    if between and between[-1] in _PARTICLES_OF_VERBS:
        between = between[:-1]  # "handed over to"
    if not between or (lead == "by" and len(between) == 1):
        return True  # "made by"
    return len(between) <= 2 and (between[-1].endswith(("ed", "en", "ing")) or _is_past(between[-1]))


def _definite_place(plain: Sequence[str], place: int, verb: int) -> int | None:
    """Return where "in the freezer" ends, if that is all that is said; None if it is no such place."""
    if plain[place] not in _LEADS or plain[place + 1 : place + 2] != ["the"]:
        return None
    rest = plain[place + 2 :]
    if plain[verb] not in _COPULAS:
        # What happened, happened in one place; what goes on may go on in several.
        verbs = plain[verb:place]
        once = verbs[0] in _PLACED or _is_past(verbs[0]) or plain[place] == "from"
        if verbs[0] in _HAVING or not once or not (len(verbs) == 1 or verbs in _TAKING_PLACE):
            return None
        return len(plain) if 0 < len(rest) <= 3 and _are_plain(rest) else None
    # What is in the office may be in a corner of it.
    between = plain[verb + 1 : place]
    if not 0 < len(rest) <= 2 or (between and not _is_participle(between)):
        return None
    if not between and len(rest) == 1 and rest[0] in _PARTS_OF_PLACES:
        return None
    return len(plain) if _are_plain(rest) else None


def _are_plain(words: Sequence[str]) -> bool:
    return all(word.isalpha() and ROLES.get(word, "axis") == "axis" for word in words)


_PARTS_OF_PLACES = word_set("name.parts_of_places")
# Where something lies or lives, it does so alone.
_PLACED = word_set("name.placed")
_TAKING_PLACE = (["takes", "place"], ["took", "place"])


def _is_past(verb: str) -> bool:
    return verb.endswith("ed") or (verb in IRREGULAR_FORMS and IRREGULAR_FORMS[verb] != verb)


_PARTICLES_OF_VERBS = word_set("name.particles_of_verbs")
# A thing is made of one material, and caused by one cause.
_ALONE = {"of": word_set("name.made"), "by": word_set("name.caused")}


def _cause_or_material(plain: Sequence[str], place: int, verb: int) -> int | None:
    """Return where "a power failure" begins in "was caused by a power failure"; None if it is nothing of the kind."""
    between = plain[verb + 1 : place]
    if plain[verb] not in _COPULAS or not between or between[-1] not in _ALONE.get(plain[place], ()):
        return None
    start = place + 2 if plain[place + 1 : place + 2] and plain[place + 1] in DETERMINERS else place + 1
    rest = plain[start:]
    return start if _are_plain(rest) and 0 < len(rest) <= _LONGEST else None


_PARTICLES = word_set("name.particles")


def _is_particle(tokens: Sequence[str], place: int, german: bool) -> bool:
    """Say whether a word in small letters belongs to the name after it: "de Hooch"."""
    return not german and tokens[place] in _PARTICLES and place + 1 < len(tokens) and _is_capital(tokens[place + 1])


def _is_of_name(tokens: Sequence[str], place: int) -> bool:
    """Say whether "of" is within a name: "Museum of Trento"."""
    return tokens[place] == "of" and place + 1 < len(tokens) and _is_capital(tokens[place + 1])


def _is_name(tokens: Sequence[str], plain: Sequence[str], start: int, end: int) -> bool:
    words = range(start, end)
    return 0 < end - start <= _LONGEST and all(_is_capital(tokens[n]) and plain[n] not in ROLES for n in words)


def _is_capital(token: str) -> bool:
    return token[0].isupper() and (len(token) > 1 or token.isalpha())


def _value(lead: str, tokens: Sequence[str]) -> list[NamedValue]:
    if any(token.lower() in _TIMES for token in tokens):
        return []  # a day or a month is a figure
    raw = tuple(token.lower().rstrip(".") for token in tokens if token[0].isalnum())
    words = frozenset(map(fold_text, raw)) - _TITLES
    return [NamedValue(lead, words, " ".join(tokens), raw)] if words else []
