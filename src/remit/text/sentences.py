"""Splits a text into sentences, and finds its names and figures, without a language model.

Every pattern starts only at the start of a word, and then never backtracks (possessive) or is limited to a fixed
length. So a hostile text costs no more than any other of its length.
"""

import re
from collections.abc import Iterator
from functools import cache

from remit.text.dates import MONTH
from remit.text.numbers import SCALE, SPELLED, any_of
from remit.text.vocabulary import words_of
from remit.words.units import CODES, UNITS

# ── sentences ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_BOUNDARY = re.compile(r"[.!?…]['\"”’»)\]*_]{0,3}(?=\s)|[。？！]|\n")
_ABBREVIATIONS = words_of(
    "approx bzw ca dr ebd etc evtl fig ggf hr incl inkl max min mr mrs ms nr no prof resp st vgl vs"
)
_MARK = re.compile(r"(?:[-*•–#>+]{1,6}|\d{1,3}[.)])(?=\s)\s*+")
_AFTER_DAY = re.compile(rf"\s{{1,3}}(?:[a-zäöü]|{MONTH}\b)")
_ENDING = "'\"”’»)]*_ "


def spoken(text: str) -> str:
    """Return a text without its code blocks, which are quotations."""
    parts = text.split("```")
    # A fence that is never closed hides nothing.
    return text if len(parts) < 3 else "\n".join((*parts[:-1:2], *parts[-1:]))


def squeezed(text: str) -> str:
    """Return a text as one line with single spaces."""
    return " ".join(text.split())


def sentences(text: str) -> Iterator[str]:
    """Yield each sentence as one line, without a list or heading mark before it."""
    return (unmarked(text[start:end]) for start, end in sentence_spans(text))


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each sentence."""
    start = 0
    for found in _BOUNDARY.finditer(text):
        end = found.end()
        if found[0][0] == "." and _is_within_sentence(text, start, found.start(), end):
            continue
        if unmarked(text[start:end]):
            yield start, end
        start = end
    if unmarked(text[start:]):
        yield start, len(text)


def is_question(sentence: str) -> bool:
    """Return whether a sentence ends with a question mark; closing quotes and brackets may follow."""
    return sentence.rstrip(_ENDING).endswith(("?", "？"))


def cut(text: str, length: int, around: int = 0) -> str:
    """Return at most *length* characters of a line, cut between words, including the text at *around*."""
    if len(text) <= length:
        return text
    lead = ""
    if around > length // 2:
        # A quarter of the length is for the text before.
        start = around - length // 4
        lead, text = "… ", text[1 + text.find(" ", start, around) or start :]
    room = length - len(lead)
    if len(text) <= room:
        return lead + text
    space = text.rfind(" ", room // 2, room)
    head = text[: space if space > 0 else room - 1]
    if head.rfind("[") > head.rfind("]"):
        # A placeholder for a redacted value is kept whole or left out.
        head = head[: head.rfind("[")]
    return f"{lead}{head.rstrip(' ,;:')}…"


def unmarked(text: str) -> str:
    """Return a text as one line, without a list or heading mark before it."""
    line = squeezed(text)
    mark = _MARK.match(line)
    return line[mark.end() :] if mark else line


def _is_within_sentence(text: str, start: int, dot: int, end: int) -> bool:
    """Return whether the full stop belongs to an abbreviation, a list mark or a German date."""
    before = text[max(start, dot - 12) : dot]
    word = (before.rsplit(None, 1) or [""])[-1].lstrip("(\"'")
    if word.isdecimal():
        return len(word) < 3 and (before.strip(" -*•\t\r\n") == word or _AFTER_DAY.match(text, end) is not None)
    if len(word) == 1 and word.isalpha():
        # "Plan B." and "at 2,000 m." end a sentence unless a lower-case letter follows, as in "z. B. so".
        measures = before[: -len(word)].rstrip()[-1:].isdecimal()
        return (word.islower() and not measures) or text[end : end + 2].strip().islower()
    return word.casefold() in _ABBREVIATIONS or ("." in word and len(word) < 6)


# ── names and figures ─────────────────────────────────────────────────────────────────────────────────────────────────

# A bare "s" is more often a plural than a second: the 1990s.
_UNIT_WORDS = any_of(*(word for word in UNITS if word.isalpha() and word != "s"))
_UNITS = (
    rf"%|‰|°[cf]?|[$€£¥₹]|{_UNIT_WORDS}|cents?|[kmg]ib|tokens?|words?|pages?|people|persons?|personen|users?|st[üÜ]ck"
)
# Any counted thing that looks like a plural: "3 categories".
_COUNTED = "(?!this|does|always|plus|less|versus|perhaps|besides)[a-z]{3,20}s"
_NAMED_TIMES = "(?ai:noon|midnight)"
_DATES = rf"""
  (?P<date>(?<![\w.,:/-])(?:
      \d{{4}}-\d{{2}}-\d{{2}}(?!\d)
    | \d{{1,2}}(?P<point>[./])\d{{1,2}}(?P=point)(?:\d{{4}}|\d{{2}})(?![\d./])
    | \d{{1,2}}(?i:st|nd|rd|th|\.)?\ (?i:of\ )?{MONTH}\b(?:\.?,?\ \d{{4}}\b)?
    | {MONTH}\.?\ \d{{1,2}}(?i:st|nd|rd|th)?(?![\w:.]\w|\w)(?:,?\ \d{{4}}\b)?
    | {MONTH}\ \d{{4}}\b
  ))
| (?P<time>(?<![\w.,:])(?:
      \d{{1,2}}(?::\d{{2}}(?::\d{{2}})?(?!\d)(?:\ ?(?i:[ap]\.?m\b\.?))?|\ ?(?i:[ap]\.?m\b\.?))
    | {_NAMED_TIMES}\b
  ))
"""
_NUMBERS = rf"""
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
    return re.compile(f"{_DATES}|{_NUMBERS}", re.VERBOSE)


_NAMES = r"""
  (?P<token>\[[A-Z][A-Z0-9_]{0,31}:[a-z]{12}\])
| (?P<url>\b(?:https?|ftp|file)://[^\s<>"'`)\]}]{1,300})
| (?P<quoted>"[^"\n]{1,200}"|“[^”\n]{1,200}”|„[^“”\n]{1,200}[“”]|«[^»\n]{1,200}»|`[^`\n]{1,200}`
    |(?<!\w)['‘](?=\S)[^'’\n]{1,200}['’](?!\w))
| (?P<mail>(?<![\w.+@-])[\w.+-]{1,64}+@[\w-]{1,63}+(?:\.[\w-]{1,63}+){1,8}+)
| (?P<ticket>(?<![\w-])(?:[A-Z][A-Z0-9]{1,9}-\d{1,9}|\#\d{1,9})(?![\w-]))
| (?P<path>(?<![\w.$/\\~@:-])(?!\d{1,9}/\d)(?:[A-Za-z]:)?[~.]{0,2}[/\\]?(?:[\w.@+-]{1,80}+[/\\]){1,16}+[\w.@+-]{0,80}+)
| (?P<version>(?<![\w.,])(?!\d{1,3}(?:\.\d{3}){1,9}(?![\d.]))
    (?:v\d{1,6}+(?:\.\d{1,6}+){0,4}+|\d{1,6}+(?:\.\d{1,6}+){2,4}+)(?:[-+]?[A-Za-z][\w.]{0,20}+)?(?!\w))
| (?P<snake>(?<![\w.$-])_{0,4}+[A-Za-z][A-Za-z0-9]*+_\w++)
| (?P<camel>(?<![\w.$-])(?:[A-Z]*+[a-z][a-z0-9]*+[A-Z]\w*+|[A-Z]{2,}+[a-z]{2,}+\w*+))
| (?P<dotted>(?<![\w.$@/-])[A-Za-z_$][\w$-]*+(?:\.[A-Za-z_$][\w$-]*+)++(?:\(\))?)
"""
# Most words are none of these, and are skipped together.
_PLAIN = rf"""
  (?P<plain>(?<![\w.$@/\\~'’-])(?:
    (?!(?:{MONTH}|{_NAMED_TIMES}|{SPELLED})\b)[A-Za-z][a-zäöüß]*+(?:[ ,;!?()]++|[.:](?:\ |$))
  )++)
"""


@cache
def things() -> re.Pattern[str]:
    """Return the pattern of names and figures. It is compiled once it is needed, which takes a while."""
    return re.compile(f"{_PLAIN}|{_DATES}|{_NAMES}|{_NUMBERS}", re.VERBOSE)


# A longer name or figure is of no use in a summary.
_LONGEST = 120


def names_and_numbers(text: str) -> tuple[list[str], list[str]]:
    """Return the identifiers and quoted names of a line, and the figures that have a meaning by themselves."""
    names: list[str] = []
    numbers: list[str] = []
    for found in things().finditer(text):
        if is_name(found):
            if len(name := bare_name(found)) <= _LONGEST:
                names.append(name)
        elif found["date"] or found["time"] or (found["number"] and _telling(found)):
            numbers.append(found[0][:_LONGEST])
    return names, numbers


def is_name(found: re.Match[str]) -> bool:
    """Return whether a match of `things()` is an identifier, and not a figure or something that only looks like one."""
    text = found[0]
    match found.lastgroup:
        case "path":
            # `and/or` is not an identifier.
            return text[0] in "~./\\" or text[1:2] == ":" or sum(map(text.count, "/\\_.")) > 1
        case "dotted":
            # Nor is `e.g.`, nor a full stop without a space after it.
            parts = text.split(".")
            return all(len(part) > 1 for part in parts) and not (parts[-1].istitle() and parts[-2].islower())
        case "plain" | "date" | "time" | "number":
            return False
        case _:
            return True


def bare_name(found: re.Match[str]) -> str:
    if found["quoted"]:
        return squeezed(found[0][1:-1])
    return found[0].rstrip(".,;:!?+-") if found["path"] or found["url"] else found[0]


def _telling(found: re.Match[str]) -> bool:
    if found["spelled"]:
        return bool(found["unit"])
    return bool(found["unit"] or found["before"] or found["scale"]) or len(found["digits"]) > 1
