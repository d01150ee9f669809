"""What a reply to a question means by its phrases alone; a score never decides it.

A reply counts only if it agrees, refuses, or names an option. Everything else is `Other`: a new text, or asked again.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from remit.protocol.card import Schema
from remit.protocol.envelope import Json
from remit.words.components import in_words
from remit_orchestrator.dialogue.phrases import Phrases, PhraseSet, consists_of, phrase_set, tokens

# Nobody agrees at greater length, and searching a megabyte would block the event loop.
LONGEST_REPLY = 2_000


class Agreed(Struct, frozen=True):
    """The user agrees; *rest* is what the reply says besides: "yes, but on Tuesday"."""

    rest: str = ""


class TurnedDown(Struct, frozen=True):
    """The user does not want it; *rest* is what the reply says besides: "no, to my bank"."""

    rest: str = ""


class ChosenOption(Struct, frozen=True):
    """The user names an option by its number or its full name."""

    place: int


class NamedInPart(Struct, frozen=True):
    """The words stand in the name of one option alone; it is said back before anything is done."""

    place: int


class NoneOfThese(Struct, frozen=True):
    """The user wants none of the options."""


class Other(Struct, frozen=True):
    """The reply is no answer to the question."""


Reply = Agreed | TurnedDown | ChosenOption | NamedInPart | NoneOfThese | Other


def read_reply(text: str, options: Sequence[str], phrases: Phrases) -> Reply:
    """Return what a reply to a question with these options means; the last number beyond them is "none of these"."""
    words = tokens(text) if len(text) <= LONGEST_REPLY else ()
    if not words:
        return Other()
    fillers = phrase_set(phrases, "fillers")
    if consists_of(words, phrase_set(phrases, "agree"), fillers):
        return Agreed()
    if consists_of(words, phrase_set(phrases, "none_of_these"), phrase_set(phrases, "fillers", "choose", "deny")):
        return NoneOfThese()
    if consists_of(words, phrase_set(phrases, "deny", "never_mind"), fillers):
        return TurnedDown()
    if options and (chosen := _chosen(words, options, phrases)) is not None:
        return chosen
    agreed, denied = phrase_set(phrases, "agree").prefix(words), phrase_set(phrases, "deny", "never_mind").prefix(words)
    # The longer beginning counts: "no problem" and "of course not".
    if denied >= max(agreed, 1):
        return TurnedDown(_rest(text, denied))
    return Agreed(_rest(text, agreed)) if agreed else Other()


def _chosen(
    words: Sequence[str], options: Sequence[str], phrases: Phrases
) -> ChosenOption | NamedInPart | NoneOfThese | None:
    around = phrase_set(phrases, "fillers", "choose", "agree")
    numbers = {word: place for place, forms in enumerate(phrases.places) for word in forms}
    numbers |= dict.fromkeys(phrases.last, len(options) - 1)
    by_number = {numbers[word] for word in words if word in numbers and _has_only(words, (word,), around)}
    if len(by_number) == 1:
        [place] = by_number
        if place < len(options):
            return ChosenOption(place)
        return NoneOfThese() if place == len(options) else None
    names = [tokens(each) for each in options]
    full = [place for place, name in enumerate(names) if name and _has_only(words, name, around)]
    if len(full) == 1:
        return ChosenOption(full[0])
    rest = [word for word in words if (word,) not in around]
    if not rest or not any(len(word) > 2 for word in rest):
        return None
    within = [place for place, name in enumerate(names) if set(rest) <= set(name)]
    return NamedInPart(within[0]) if len(within) == 1 else None


def numbers_in(text: str, count: int, phrases: Phrases) -> tuple[int, ...]:
    """Return the places that a reply names in a list of so many, if it says nothing else: "only 1 and 3"."""
    words = tokens(text) if len(text) <= LONGEST_REPLY else ()
    numbers = {word: place for place, forms in enumerate(phrases.places[:count]) for word in forms}
    around = phrase_set(phrases, "fillers", "choose", "conjunctions", "correct")
    if not consists_of(words, PhraseSet(numbers), around):
        return ()
    return tuple(sorted({numbers[word] for word in words if word in numbers}))


def gives_only(text: str, values: Mapping[str, Json], fields: Mapping[str, Schema], phrases: Phrases) -> bool:
    """Return whether a reply is nothing but these values, each a number or one of a few words."""
    if any("enum" not in schema and schema.get("type") not in {"integer", "number"} for schema in fields.values()):
        return False
    given = [f"{each}" for each in values.values()]
    words = tokens(text) if len(text) <= LONGEST_REPLY else ()
    around = PhraseSet([*phrases.fillers, *phrases.conjunctions, *map(in_words, fields)])
    return values.keys() == fields.keys() and consists_of(words, PhraseSet(given), around)


def _has_only(words: Sequence[str], name: Sequence[str], around: PhraseSet) -> bool:
    """Return whether words are a name, with nothing but courtesies around it."""
    return consists_of(words, PhraseSet([" ".join(name)]), around)


_WORD = re.compile(r"[^\W_]+(?:['’‘`´][^\W_]+)*|[👍👎👌✅❌✔]")


def _rest(text: str, count: int) -> str:
    """Return a text without its first words, as the user wrote it."""
    matches = list(_WORD.finditer(text))
    return text[matches[count - 1].end() :].strip(" \t\n,.;:!–—-") if count <= len(matches) else ""


def after_words(text: str, count: int) -> str:
    """Return what follows the first words of a text, without the punctuation between."""
    return _rest(text, count) if count else text
