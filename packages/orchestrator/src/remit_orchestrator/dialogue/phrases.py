"""The phrases of a language: how users agree, refuse and choose, and what they read."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import cast
from unicodedata import normalize

import msgspec
from msgspec import Struct, field

from remit.protocol.errors import RemitError
from remit.runtime.registry import team_invalid

LANGUAGES = ("en", "de")


class FieldForms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """The expected form of a value, by the type or the format of its field."""

    number: str
    integer: str
    boolean: str
    array: str
    date: str
    time: str
    date_time: str
    email: str


class Texts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What users read; words in braces are replaced."""

    confirm: str
    first_or_another: str
    pick: str
    none: str
    greeting: str
    offer: str
    tells: str
    does: str
    cannot: str
    perhaps_cannot: str
    again: str
    dropped: str
    not_understood: str
    plan: str
    agree: str
    then: str
    only_if: str
    asked_condition: str
    left_out: str
    cannot_part: str
    background: str
    one_request: str
    about_part: str
    no_undo: str
    who_can: str
    nothing_done: str
    given_up: str
    ask_field: str
    ask_fields: str
    as_before: str
    taken_from_before: str
    or_: str = field(name="or")
    forms: FieldForms


class Phrases(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What users say, in small letters and without punctuation."""

    texts: Texts
    language: str = ""
    agree: frozenset[str] = frozenset()
    deny: frozenset[str] = frozenset()
    never_mind: frozenset[str] = frozenset()
    none_of_these: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()
    undo: frozenset[str] = frozenset()
    greet: frozenset[str] = frozenset()
    help: frozenset[str] = frozenset()
    fillers: frozenset[str] = frozenset()
    places: tuple[tuple[str, ...], ...] = ()
    last: frozenset[str] = frozenset()
    choose: frozenset[str] = frozenset()
    correct: frozenset[str] = frozenset()
    follow_up: frozenset[str] = frozenset()
    conjunctions: frozenset[str] = frozenset()
    order: frozenset[str] = frozenset()
    conditions: frozenset[str] = frozenset()
    otherwise: frozenset[str] = frozenset()
    whether: frozenset[str] = frozenset()
    courtesies: frozenset[str] = frozenset()


@cache
def phrases_of(language: str) -> Phrases:
    """Return the phrases of a language, or of the file with that path; texts of users are read in English and German
    as well.

    Raises TEAM_INVALID if the file cannot be read.
    """
    if language in LANGUAGES:
        own = _parsed(language, (files("remit_orchestrator") / "phrases" / f"{language}.toml").read_text("utf-8"))
    else:
        try:
            own = _parsed(language, Path(language).read_text("utf-8"))
        except OSError as error:
            raise team_invalid(
                f"the phrases of the orchestrator cannot be read: {language}: {error.strerror}"
            ) from error
    others = [_shipped(each) for each in LANGUAGES if each != language]
    merged: dict[str, object] = {}
    for name in Phrases.__struct_fields__:
        value = getattr(own, name)
        if isinstance(value, frozenset):
            value = cast("frozenset[str]", value).union(*(getattr(each, name) for each in others))
        elif isinstance(value, tuple):
            value = tuple(_by_place([own, *others]))
        merged[name] = value
    return Phrases(**merged)  # pyright: ignore[reportArgumentType]


def _shipped(language: str) -> Phrases:
    return _parsed(language, (files("remit_orchestrator") / "phrases" / f"{language}.toml").read_text("utf-8"))


def _by_place(several: Sequence[Phrases]) -> Iterable[tuple[str, ...]]:
    for place in range(max(len(each.places) for each in several)):
        yield tuple(word for each in several if place < len(each.places) for word in each.places[place])


def _parsed(name: str, text: str) -> Phrases:
    try:
        return msgspec.convert(tomllib.loads(text), Phrases)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise _unreadable(name, str(error)) from error


def _unreadable(name: str, why: str) -> RemitError:
    return team_invalid(f"the phrases of the orchestrator cannot be read: {name}: {why}")


_APOSTROPHES = re.compile("['’‘`´]")
_TOKEN = re.compile(r"[^\W_]+|[👍👎👌✅❌✔]")


def tokens(text: str) -> tuple[str, ...]:
    """Return the words of a text in small letters, without punctuation; "don't" is one."""
    return tuple(_TOKEN.findall(_APOSTROPHES.sub("", normalize("NFKC", text).casefold())))


class PhraseSet:
    """Phrases as sequences of words, to be found in others."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self._all = {found for each in phrases if (found := tokens(each))}
        self._longest = max(map(len, self._all), default=0)

    def __contains__(self, words: Sequence[str]) -> bool:
        return tuple(words) in self._all

    def lengths_at(self, words: Sequence[str], at: int) -> Iterable[int]:
        """Return the lengths of the phrases that begin at a place, the longest first."""
        for length in range(min(self._longest, len(words) - at), 0, -1):
            if tuple(words[at : at + length]) in self._all:
                yield length

    def prefix(self, words: Sequence[str]) -> int:
        """Return the length of the longest phrase with which words begin; 0 if there is none."""
        return next(iter(self.lengths_at(words, 0)), 0)


@cache
def phrase_set(phrases: Phrases, *names: str) -> PhraseSet:
    """Return the phrases of some kinds."""
    return PhraseSet(each for name in names for each in getattr(phrases, name))


def consists_of(words: Sequence[str], phrases: PhraseSet, besides: PhraseSet) -> bool:
    """Return whether words are nothing but phrases that were looked for, at least one, and fillers *besides*."""
    # For each place, whether it is reached, and whether with a phrase that counts.
    reached: list[set[bool]] = [set() for _ in range(len(words) + 1)]
    reached[0].add(False)
    for at in range(len(words)):
        for counted in reached[at]:
            for length in phrases.lengths_at(words, at):
                reached[at + length].add(True)
            for length in besides.lengths_at(words, at):
                reached[at + length].add(counted)
    return True in reached[-1]
