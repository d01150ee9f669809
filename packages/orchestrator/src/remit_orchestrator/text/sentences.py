"""Splits a text into sentences, and finds its names and figures, without a language model.

Every pattern starts only at the start of a word, and then never backtracks (possessive) or is limited to a fixed
length. So a hostile text costs no more than any other of its length.
"""

import re
from collections.abc import Iterator
from functools import cache

from remit.words.components import squeezed
from remit.words.numbers import DATES, MONTH, NAMED_TIMES, NUMBERS, SPELLED
from remit_orchestrator.text.lexicon import word_set

# ── sentences ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_BOUNDARY = re.compile(r"[.!?…]['\"”’»)\]*_]{0,3}(?=\s)|[。？！]|\n")
_ABBREVIATIONS = word_set("sentence.abbreviations")
_MARK = re.compile(r"(?:[-*•–#>+]{1,6}|\d{1,3}[.)])(?=\s)\s*+")
_AFTER_DAY = re.compile(rf"\s{{1,3}}(?:[a-zäöü]|{MONTH}\b)")
_ENDING = "'\"”’»)]*_ "


def spoken(text: str) -> str:
    """Return a text without its code blocks, which are quotations."""
    parts = text.split("```")
    # A fence that is never closed hides nothing.
    return text if len(parts) < 3 else "\n".join((*parts[:-1:2], *parts[-1:]))


def sentences(text: str) -> Iterator[str]:
    """Yield each sentence as one line, without a list or heading mark before it."""
    return (unmarked(text[start:end]) for start, end in sentence_spans(text))


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each sentence."""
    start = 0
    for match in _BOUNDARY.finditer(text):
        end = match.end()
        if match[0][0] == "." and _is_within_sentence(text, start, match.start(), end):
            continue
        if unmarked(text[start:end]):
            yield start, end
        start = end
    if unmarked(text[start:]):
        yield start, len(text)


def is_question(sentence: str) -> bool:
    """Return whether a sentence ends with a question mark; closing quotes and brackets may follow."""
    return sentence.rstrip(_ENDING).endswith(("?", "？"))


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
    (?!(?:{MONTH}|{NAMED_TIMES}|{SPELLED})\b)[A-Za-z][a-zäöüß]*+(?:[ ,;!?()]++|[.:](?:\ |$))
  )++)
"""


@cache
def things() -> re.Pattern[str]:
    """Return the pattern of names and figures. It is compiled once it is needed, which takes a while."""
    return re.compile(f"{_PLAIN}|{DATES}|{_NAMES}|{NUMBERS}", re.VERBOSE)


# A longer name or figure is of no use in a summary.
_LONGEST = 120


def names_and_numbers(text: str) -> tuple[list[str], list[str]]:
    """Return the identifiers and quoted names of a line, and the figures that have a meaning by themselves."""
    names: list[str] = []
    numbers: list[str] = []
    for match in things().finditer(text):
        if is_name(match):
            if len(name := bare_name(match)) <= _LONGEST:
                names.append(name)
        elif match["date"] or match["time"] or (match["number"] and _telling(match)):
            numbers.append(match[0][:_LONGEST])
    return names, numbers


def is_name(match: re.Match[str]) -> bool:
    """Return whether a match of `things()` is an identifier, and not a figure or something that only looks like one."""
    text = match[0]
    match match.lastgroup:
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


def bare_name(match: re.Match[str]) -> str:
    if match["quoted"]:
        return squeezed(match[0][1:-1])
    return match[0].rstrip(".,;:!?+-") if match["path"] or match["url"] else match[0]


def _telling(match: re.Match[str]) -> bool:
    if match["spelled"]:
        return bool(match["unit"])
    return bool(match["unit"] or match["before"] or match["scale"]) or len(match["digits"]) > 1
