"""Finds figures in a text, and reads numbers in digits or in English or German words; all other readers use this one.

Every pattern starts only at the start of a word, and then never backtracks (possessive) or is limited to a fixed
length. So a hostile text costs no more than any other of its length.
"""

import re
from functools import cache, lru_cache

from remit.words.units import CODES, UNITS


def _list(words: str) -> list[str]:
    return words.split()


_ENGLISH = _list(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_GERMAN = _list(
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
)
_ENGLISH_TENS = _list("twenty thirty forty fifty sixty seventy eighty ninety")
_GERMAN_TENS = _list("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
# "Eins" loses its ending before another word: einundzwanzig, einhundert.
_GERMAN_DIGITS = ["ein", *_GERMAN[2:10]]

_SINGLE = {
    word: number
    for words in (_ENGLISH, _GERMAN)
    for number, word in enumerate(words)
} | {
    word: 10 * number
    for words in (_ENGLISH_TENS, _GERMAN_TENS)
    for number, word in enumerate(words, 2)
}  # fmt: skip
_NUMBER_WORDS = {
    **_SINGLE,
    **{
        f"{ten}-{one}": 10 * tens + ones
        for tens, ten in enumerate(_ENGLISH_TENS, 2)
        for ones, one in enumerate(_ENGLISH[1:10], 1)
    },
    **{
        f"{one}und{ten}": 10 * tens + ones
        for tens, ten in enumerate(_GERMAN_TENS, 2)
        for ones, one in enumerate(_GERMAN_DIGITS, 1)
    },
}
NUMBER_WORDS = _NUMBER_WORDS | {word.replace("ß", "ss"): number for word, number in _NUMBER_WORDS.items()}
"""The words for 0 to 99."""

OTHER_MEANINGS = frozenset({"one", "null", "elf"})
"""Words that often mean something else: a pronoun, a missing value, an animal."""

ORDINALS = {
    **{"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8},
    **{"ninth": 9, "tenth": 10, "1st": 1, "2nd": 2, "3rd": 3},
    **{
        f"{stem}{ending}": number
        for number, stem in enumerate(_list("erst zweit dritt viert fünft sechst siebt acht neunt zehnt"), 1)
        for ending in ("e", "er", "es", "en")
    },
}

SCALES = {
    **{"hundred": 2, "hundert": 2, "k": 3, "thousand": 3, "tausend": 3},
    **{"m": 6, "mn": 6, "mio": 6, "million": 6, "millions": 6, "millionen": 6},
    # "Billion" is read as English: the German one is a thousand times as much, and differs only in its plural.
    **{"b": 9, "bn": 9, "mrd": 9, "billion": 9, "billions": 9, "milliarde": 9, "milliarden": 9},
    **{"trillion": 12, "trillions": 12, "billionen": 12},
}
"""The power of ten for each word or sign."""


def _either_case(word: str) -> str:
    """Return the pattern of a word that ignores case for letters outside ASCII, too."""
    word = word.replace("ß", "(?:ß|ẞ|ss)")
    return re.sub("[äöü]", lambda letter: f"[{letter[0]}{letter[0].upper()}]", word)


def any_of(*words: str) -> str:
    """Return a pattern of any of these words, for use within `(?ai:...)`.

    It is grouped by first letter, because a regular expression tries all alternatives at every word of a text. ASCII
    rules for case exclude the dotless i and the long s, which no table has.
    """
    by_letter: dict[str, list[str]] = {}
    for word in sorted(words, key=len, reverse=True):
        by_letter.setdefault(word[0], []).append(_either_case(word[1:]))
    return "|".join(f"{letter}(?:{'|'.join(rests)})" for letter, rests in by_letter.items())


_ONES = any_of(*_ENGLISH[1:10])
# A word joined to "zero" by a hyphen is an idiom: zero-day, zero-trust.
_BELOW_100 = (
    rf"(?:(?:{any_of(*_ENGLISH_TENS)})(?:[ -](?:{_ONES})\b)?"
    rf"|(?:{any_of(*_GERMAN_DIGITS)})und(?:{any_of(*_GERMAN_TENS)})"
    rf"|zero(?!-)|{any_of(*(word for word in _SINGLE if word not in {'zero', *_ENGLISH_TENS}))})"
)
_AND = "(?:[ -](?:and )?|und)?"
_BELOW_1000 = rf"(?:(?:{_BELOW_100}|ein)[ -]?(?:hundred|hundert)(?:{_AND}{_BELOW_100})?|{_BELOW_100})"
_THOUSANDS = (
    rf"(?:{_BELOW_1000}|ein)tausend(?:(?:und)?{_BELOW_1000})?|{_BELOW_1000}[ -](?:thousand|tausend){_AND}{_BELOW_1000}"
)
# Spaces are escaped, because the readers use verbose patterns.
SPELLED = f"(?ai:{_THOUSANDS}|{_BELOW_1000})".replace(" ", r"\ ")
"""The pattern of a number in words. "Two thousand" is a number and a scale; "two thousand and ten" is a number."""
SCALE = f"(?ai:{any_of(*(word for word in SCALES if len(word) > 1))})"
"""The pattern of a scale in words."""

_PART = re.compile(
    "|".join(sorted({*_SINGLE, *_GERMAN_DIGITS, "hundred", "hundert", "thousand", "tausend"}, key=len, reverse=True))
    .replace("ß", "ss")
)  # fmt: skip


@lru_cache(maxsize=1024)
def spelled_number(words: str) -> int:
    """Return the number that `SPELLED` matched."""
    whole = part = 0
    for word in _PART.findall(words.casefold()):
        match SCALES.get(word):
            case None:
                part += _PART_VALUES[word]
            case 2:
                part *= 100
            case _:
                whole, part = whole + part * 1000, 0
    return whole + part


_PART_VALUES = {word.replace("ß", "ss"): number for word, number in _SINGLE.items()} | {"ein": 1}

_GROUPING, _POINT = re.compile("[ \u00a0\u202f'’]"), re.compile("[.,]")


def digit_readings(written: str) -> tuple[tuple[str, str], ...]:
    """Return the readings of a number in digits, as integer digits and fraction digits; none if it is not a number.

    1,500 is fifteen hundred. 1.500 is one and a half, or fifteen hundred in German.
    """
    if written.isdecimal():
        return ((written, ""),)
    plain = _GROUPING.sub("", written)
    groups = _POINT.split(plain)
    if len(groups) == 1:
        return ((plain, ""),)
    if "." in plain and "," in plain:
        # The last separator begins the fraction.
        return (("".join(groups[:-1]), groups[-1]),)
    whole = ("".join(groups), "")
    thousands = len(groups[0]) < 4 and groups[0] != "0" and all(len(group) == 3 for group in groups[1:])
    if len(groups) > 2:
        return (whole,) if thousands else ()
    fraction = (groups[0], groups[1])
    if not thousands:
        return (fraction,)
    return (whole,) if "," in plain else (fraction, whole)


# ── figures in a text ─────────────────────────────────────────────────────────────────────────────────────────────────

# ASCII rules for case exclude similar letters, which no table has.
MONTH = (
    "(?ai:jan(?:uary?)?|feb(?:ruary?)?|mar(?:ch)?|m[äÄ]rz|apr(?:il)?|ma[yi]|jun[ei]?|jul[yi]?|aug(?:ust)?"
    "|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)"
)
"""The pattern of a month's name, English or German, in full or abbreviated."""

# A bare "s" is more often a plural than a second: the 1990s.
_UNIT_WORDS = any_of(*(word for word in UNITS if word.isalpha() and word != "s"))
_UNITS = (
    rf"%|‰|°[cf]?|[$€£¥₹]|{_UNIT_WORDS}|cents?|[kmg]ib|tokens?|words?|pages?|people|persons?|personen|users?|st[üÜ]ck"
)
# Any counted thing that looks like a plural: "3 categories".
_COUNTED = "(?!this|does|always|plus|less|versus|perhaps|besides)[a-z]{3,20}s"
NAMED_TIMES = "(?ai:noon|midnight)"
DATES = rf"""
  (?P<date>(?<![\w.,:/-])(?:
      \d{{4}}-\d{{2}}-\d{{2}}(?!\d)
    | \d{{1,2}}(?P<point>[./])\d{{1,2}}(?P=point)(?:\d{{4}}|\d{{2}})(?![\d./])
    | \d{{1,2}}(?i:st|nd|rd|th|\.)?\ (?i:of\ )?{MONTH}\b(?:\.?,?\ \d{{4}}\b)?
    | {MONTH}\.?\ \d{{1,2}}(?i:st|nd|rd|th)?(?![\w:.]\w|\w)(?:,?\ \d{{4}}\b)?
    | {MONTH}\ \d{{4}}\b
  ))
| (?P<time>(?<![\w.,:])(?:
      \d{{1,2}}(?::\d{{2}}(?::\d{{2}})?(?!\d)(?:\ ?(?i:[ap]\.?m\b\.?))?|\ ?(?i:[ap]\.?m\b\.?))
    | {NAMED_TIMES}\b
  ))
"""
NUMBERS = rf"""
  (?P<number>(?<![\w.,:])(?<![A-Za-z_][/-])
    (?P<sign>(?<![^\s(])[-−](?=[\d$€£¥₹]))?
    (?:(?P<before>[$€£¥₹]|(?:{"|".join(CODES).upper()}|US\$)(?=\ ?\d))\ ?)?
    (?:(?P<digits>\d{{1,4}}/\d{{1,4}}(?![\w/.])
        |\d{{1,3}}(?:[\ \u00a0\u202f]\d{{3}}){{1,6}}(?!\d)
        |\d++(?:[.,'’]\d++){{0,9}}+)
      |(?P<spelled>{SPELLED}\b))
    (?:(?P<scale>[kMB]\b|[\ -]?{SCALE}\b)\.?)?
    (?P<unit>(?:(?<=\d)(?:st|nd|rd|th)\b)|[\ \u00a0-]?(?:(?ai:{_UNITS})|{_COUNTED})(?!\w))?
  )
"""


@cache
def figures() -> re.Pattern[str]:
    """Return the pattern of dates, times and numbers. It is compiled once it is needed, which takes a while."""
    return re.compile(f"{DATES}|{NUMBERS}", re.VERBOSE)
