"""Checks that a text is grounded in its source: every name and figure is looked up there."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from remit.words.components import squeezed
from remit.words.numbers import SCALES, digit_readings, figures, spelled_number
from remit.words.units import Unit, unit_of
from remit_orchestrator.text.figures import date_readings
from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.sentences import bare_name, is_name, sentences, things, unmarked
from remit_orchestrator.text.vocabulary import REQUEST_VERBS, german_stem


def unfounded(text: str, source: str) -> tuple[str, ...]:
    """Return the names and figures of a summary that are not in its source, as written.

    Doubtful ones are reported: a summary can do without a name, but its reader cannot spot a wrong one.
    """
    german = is_german(text) and is_german(source)
    if german:
        text, source = _GROUPED.sub(_joined, text), _GROUPED.sub(_joined, source)
    grounds = _SourceIndex(source)
    missing: dict[str, None] = {}

    def look_up(match: re.Match[str]) -> None:
        if not (grounds.has_name(bare_name(match)) if is_name(match) else grounds.has_figure(match)):
            missing[match[0]] = None

    for line in _lines(text):
        rest = _without_things(line, look_up)
        missing.update(dict.fromkeys(grounds.unknown_names(_WORD.findall(rest), german=german)))
    return tuple(missing)


# About one in six words of a German text is one of these.
_GERMAN = word_set("grounding.german")
_GROUPED = re.compile(r"(?<![\w.,])\d{1,3}(?:\.\d{3})+(?![\w.]\w|,?\d{3})")


def _joined(match: re.Match[str]) -> str:
    return match[0].replace(".", "")


def is_german(text: str) -> bool:
    """Say whether a text is German, by its most frequent words: there every noun has a capital, and 8.400 is 8400."""
    words = text.lower().split()
    return sum(word in _GERMAN for word in words) * 12 > len(words)


def _lines(text: str) -> list[str]:
    """Return the lines of a text without list marks and formatting."""
    return [unmarked(line.replace("*", "")) for line in text.splitlines()]


# Placeholder for something that was already looked up: neither a word nor the end of a sentence.
_PLACE = "\ue000"


def _without_things(line: str, look_up: Callable[[re.Match[str]], None]) -> str:
    """Return a line with a placeholder for each identifier and figure; each is passed to *look_up* first."""

    def replace(match: re.Match[str]) -> str:
        if not (is_name(match) or match["date"] or match["time"] or match["number"]):
            return match[0]  # ordinary words
        look_up(match)
        return _PLACE

    return things().sub(replace, line)


# ── figures ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_DIGITS = re.compile(r"\d+")
# For conflicts they are things like any other; a summary must not confuse them with words or pages.
_TOKENS = Unit("tokens")


class _Date(NamedTuple):
    year: int
    month: int
    day: int
    """0 if not given, like the year."""

    def says(self, other: "_Date") -> bool:
        """Return whether this date includes all parts that *other* gives."""
        return self.month == other.month and other.day in {0, self.day} and other.year in {0, self.year}


def dates_in(text: str) -> list[_Date]:
    return [_Date(*reading) for reading in date_readings(text)]


def times_in(text: str) -> list[tuple[int, ...]]:
    """Return a time of day as written, and on the 24-hour clock if that is known."""
    if text[0].isalpha():
        return [(12 if text.lower() == "noon" else 0, 0, 0)]
    hour, minute, second = (*(int(digits) for digits in _DIGITS.findall(text)), 0, 0)[:3]
    half = next((sign for sign in text.casefold() if sign in "ap"), "")
    if not half:
        return [(hour, minute, second)]
    return [(hour % 12 + (12 if half == "p" else 0), minute, second), (hour, minute, second)]


def figure_value(match: re.Match[str]) -> str:
    """Return the normal form of a number; an ambiguous number stays as written."""
    scale = (match["scale"] or "").strip(" -").lower()
    written = str(spelled_number(match["spelled"])) if match["spelled"] else match["digits"]
    readings = () if "/" in written else digit_readings(written)
    if len(readings) != 1:
        return f"{match['sign'] or ''}{written} {scale}"
    [(whole, fraction)] = readings
    places = SCALES.get(scale, 0)
    fraction = fraction.ljust(places, "0")
    whole, fraction = (whole + fraction[:places]).lstrip("0") or "0", fraction[places:].rstrip("0")
    return f"{'-' if match['sign'] else ''}{whole}{'.' if fraction else ''}{fraction}"


def figure_unit(match: re.Match[str]) -> Unit | None:
    spelled = (match["before"] or match["unit"] or "").strip(" \u00a0-")
    if not spelled:
        return None
    return _TOKENS if spelled.lower() in {"token", "tokens"} else unit_of(spelled)


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_WORD = re.compile(r"(?:Mr|Mrs|Ms|Dr|Prof)\.|[A-Z]\.(?=\s?[A-Z])|[^\W\d_](?:[\w'’-]*\w)?|\S")
_POSSESSIVE = ("'s", "’s")
_OPENING = frozenset("\"'“„«‘([-–—•")
_CALENDAR = word_set("grounding.calendar")
_TITLES = word_set("grounding.titles")
# The subject of one of these verbs is a person.
_PERSONAL = word_set("grounding.personal")
# Words that begin sentences, headings and labels, and words for the participants of a conversation.
_COMMON = word_set("grounding.common")
_DETERMINERS = word_set("grounding.determiners")
_NOUN_ENDINGS = ("ung", "ungen", "heit", "heiten", "keit", "keiten", "schaft", "tion", "tionen", "tät", "nis", "nisse")
_ENDINGS = ("ing", "ed", "ly", "tion", "tions", "ment", "ments", "ness", "ity")


# Two numbers at most this many characters apart share a unit: "from 96 to 104 euros".
_JOINED = 6

# A longer word is not part of another word.
_LONG = 200


class _Run(NamedTuple):
    """Capitalised words in a row, and their position."""

    words: list[str]
    first: bool
    """Whether they begin a sentence, where every first word is capitalised."""
    label: bool
    """Whether they follow a colon."""
    then: str
    before: str = ""


def _runs(tokens: Sequence[str]) -> Iterator[_Run]:
    first, label = True, False
    run: list[str] = []
    before = ""
    for token in (*tokens, ""):
        if token[:1].isupper():
            run.append(token)
            continue
        if run:
            yield _Run(run, first, label, token, before)
            run, first, label = [], False, False
        if token and token in ".!?…:":
            first, label = True, token == ":"
        elif token not in _OPENING:
            first = label = False
        before = token


def _bare(word: str) -> str:
    return word[:-2] if word.endswith(_POSSESSIVE) else word


class _SourceIndex:
    """An index of the names and figures of a source."""

    def __init__(self, source: str) -> None:
        self._source = source
        lines = _lines(source)
        whole = " ".join(lines)
        self._line = whole.casefold()
        self._names: set[str] = set()
        self._numbers: set[tuple[str, Unit | None]] = set()
        self._dates: set[_Date] = set()
        self._times: set[tuple[int, ...]] = set()
        # Line by line, and as one line: a line break may separate a figure from its unit.
        for line in (*lines, whole):
            for match in figures().finditer(line):
                self._note(match)
        for sentence in sentences(source):
            self._note_shared_unit(sentence)
        # Also read the source as a summary is read: in "0C Paris", a word begins with C only after the 0 is removed.
        rest = " ".join(_without_things(line, self._note) for line in lines)
        read = [_bare(word).casefold() for word in _WORD.findall(rest)]
        # "Turbine: North" is a field, and the turbine called North.
        self._word_runs = _in_a_row(read) + _in_a_row([word for word in read if word != ":"])
        words = [_bare(word) for word in _WORD.findall(whole)]
        # Index the parts of hyphenated words as well.
        words += [part for word in words if "-" in word for part in word.split("-")]
        # "In basin D. Visitors": the end of a sentence looks like an initial.
        words += [word[0] for word in words if len(word) == 2 and word[0].isupper() and word[1] == "."]
        self._words = {word.casefold() for word in words} | set(read)
        self._german_stems = {german_stem(word) for word in self._words}
        self._plain = {word for word in words if word.islower()}

    def _note_shared_unit(self, sentence: str) -> None:
        """Note the unit of numbers without one that follow a number with it: "A has 9 days left, B has 4"."""
        numbers = [match for match in figures().finditer(sentence) if match["number"]]
        units = {figure_unit(match) for match in numbers} - {None}
        if len(units) != 1:
            return
        unit_seen = False
        for match, then in zip(numbers, (*numbers[1:], None), strict=True):
            if figure_unit(match):
                unit_seen = True
            elif unit_seen or (then and figure_unit(then) and then.start() - match.end() < _JOINED):
                self._numbers.update((figure_value(match), unit) for unit in units)

    def _note(self, match: re.Match[str]) -> None:
        if match.re is things() and is_name(match):
            self._names.add(_comparable(bare_name(match)))
        elif match["date"]:
            dates = dates_in(match[0])
            self._dates.update(dates)
            self._numbers.update((str(number), None) for date in dates for number in date)
        elif match["time"]:
            times = times_in(match[0])
            self._times.update(times)
            self._numbers.update((str(number), None) for time in times for number in time)
        else:
            value = figure_value(match)
            self._numbers.add((value, None))
            self._numbers.add((value, figure_unit(match)))

    def has_figure(self, match: re.Match[str]) -> bool:
        if match["date"]:
            return any(known.says(date) for date in dates_in(match[0]) for known in self._dates)
        if match["time"]:
            return times_in(match[0])[0] in self._times
        value = figure_value(match)
        # "One" is as often a pronoun as a number.
        return (value == "1" and match["spelled"] is not None) or (value, figure_unit(match)) in self._numbers

    def has_name(self, name: str) -> bool:
        """Return whether the source contains an identifier or phrase as a whole."""
        if name.startswith("["):
            return name in self._source
        name = _comparable(name)
        if name in self._names:
            return True
        if len(name) > _LONG:
            return name in self._line
        at = self._line.find(name)
        while at >= 0:
            end = at + len(name)
            if not (
                _continues_word(self._line[max(at - 2, 0) : at][::-1]) or _continues_word(self._line[end : end + 2])
            ):
                return True
            at = self._line.find(name, at + 1)
        return False

    def unknown_names(self, tokens: Sequence[str], *, german: bool = False) -> Iterator[str]:
        """Yield the names in a line that the source does not contain."""
        for run in _runs(tokens):
            words = run.words
            if german and self._is_german_noun(run):
                continue
            if run.first and (len(words) == 1 and not self._is_name_at_start(run)):
                continue
            if run.first and len(words) > 1 and self._is_ordinary(words[0]):
                words = words[1:]
            for name in _names(words):
                bare = [_bare(word) for word in name]
                if german and self._is_inflected([word.casefold() for word in bare]):
                    continue
                # Initials may be written with or without a space.
                apart = len(bare) > 1 and not any(word.endswith(".") for word in bare)
                # "Das Vanilleeis Milch enthält": after an article comes a noun, and not a name of two words.
                apart = apart and not (german and (run.before in _DETERMINERS or words[0].casefold() in _DETERMINERS))
                if not all(map(self._knows, bare)) or (apart and not self._has_in_a_row(bare)):
                    yield " ".join(name)

    def _has_in_a_row(self, words: Sequence[str]) -> bool:
        return _in_a_row([word.casefold() for word in words]) in self._word_runs or self.has_name(" ".join(words))

    def _knows(self, word: str) -> bool:
        if word.casefold() in self._words or word.casefold().removesuffix("s") in self._words:
            return True  # "the Petrovs" are the Petrov family
        return all(part.casefold() in self._words or part.islower() for part in word.split("-"))

    def _is_name_at_start(self, run: _Run) -> bool:
        """Return whether a single capitalised word at the start of a sentence is nevertheless a name."""
        word = run.words[0]
        bare = _bare(word).casefold()
        if bare in self._plain or bare in REQUEST_VERBS or self._is_of_a_verb(bare):
            return False
        return (
            bare in _CALENDAR
            or word.endswith(_POSSESSIVE)
            or (word.isupper() and len(word) > 1)
            or run.then in _PERSONAL
            or (run.label and (not run.then or run.then in ",.;)" or run.then in {"and", "und", _PLACE}))
        )

    def _is_of_a_verb(self, word: str) -> bool:
        """Return whether a word is made from a verb of the source: "painting" from "painted"."""
        ending = next((each for each in ("ation", "ment", "ing", "ion") if word.endswith(each)), "")
        stem = word.removesuffix(ending)
        return bool(ending) and len(stem) > 3 and any(each.startswith(stem) for each in self._plain)

    def _is_german_noun(self, run: _Run) -> bool:
        """Say whether what has a capital is an ordinary noun: names have no article, and seldom these endings."""
        noun = run.words[-1].casefold()
        if len(run.words) > 2 or (len(run.words) == 2 and run.words[0].casefold() not in _DETERMINERS):
            return False
        return run.before in _DETERMINERS or len(run.words) == 2 or noun.endswith(_NOUN_ENDINGS)

    def _is_inflected(self, words: Sequence[str]) -> bool:
        """Say whether German words are forms of those in the source: "Hunde" of "Hund", "Grazer" of "Graz"."""
        first, *others = words
        if not others:
            return german_stem(first) in self._german_stems
        return first.endswith("er") and first[:-2] in self._words and all(word in self._words for word in others)

    def _is_ordinary(self, word: str) -> bool:
        word = _bare(word).casefold()
        return word in self._plain or word in REQUEST_VERBS or (len(word) > 5 and word.endswith(_ENDINGS))


def _names(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names in capitalised words: a name ends before a word that is not part of one, and after a
    possessive.
    """
    name: list[str] = []
    for word in (*words, "the"):
        bare = _bare(word).removesuffix(".").casefold()
        ordinary = bare in _COMMON or bare in _TITLES or bare.startswith(("i'", "i’"))
        if not ordinary:
            name.append(word)
        if name and (ordinary or word.endswith(_POSSESSIVE)):
            yield name
            name = []


def _comparable(name: str) -> str:
    return squeezed(name).casefold().strip(".,;:!?")


def _in_a_row(words: Sequence[str]) -> str:
    return "".join(f"\n{word}" for word in words) + "\n"


def _continues_word(signs: str) -> bool:
    """Return whether these characters continue a word."""
    return signs[:1].isalnum() or signs[:1] == "_" or (signs[:1] == "-" and signs[1:].isalnum())
