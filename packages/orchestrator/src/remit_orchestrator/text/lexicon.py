"""The words by which texts are read: a file for each language in `words/`, loaded once.

A file is a list of sections. `[name]` opens one, a line that begins with `#` is a comment, and a section of the same
name in another language adds to it, in the order of `LANGUAGES`. What the lines of a section are, its reader says:

- `word_set`: words, with spaces between them; how they are divided into lines means nothing.
- `groups`: on each line, words that belong together.
- `lines`: one text on each line.
- `table`: on each line a key, a colon, and words; a bar divides them into sides: `rise: rise grow | fall sink`.
- `phrases`: on each line a key, a colon, and phrases with a slash between them: `delayed: behind schedule/im verzug`.
- `alternatives` and `pattern`: on each line one or more alternatives of a regular expression, in small letters.
"""

import re
from functools import cache
from importlib.resources import files

LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl")


@cache
def _sections(language: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    section: list[str] = []
    text = (files("remit_orchestrator.text") / "words" / f"{language}.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("[") and line.endswith("]"):
            section = sections.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            section.append(line)
    return sections


def lines(name: str, *languages: str) -> list[str]:
    """Return the lines of a section, in some languages or in all that have it; a section that none has is an error."""
    having = [sections for each in languages or LANGUAGES if name in (sections := _sections(each))]
    if not having:
        raise KeyError(name)
    return [line for sections in having for line in sections[name]]


def word_set(name: str, *languages: str) -> frozenset[str]:
    """Return the words of a section."""
    return frozenset(word for line in lines(name, *languages) for word in line.split())


def groups(name: str) -> list[tuple[str, ...]]:
    """Return the words of each line of a section."""
    return [tuple(line.split()) for line in lines(name)]


def table(name: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the words under each key of a section, by their sides."""
    rows: dict[str, tuple[tuple[str, ...], ...]] = {}
    for line in lines(name):
        key, _, entry = line.partition(": ")
        sides = tuple(tuple(side.split()) for side in entry.split("|"))
        known = rows.get(key)
        rows[key] = sides if known is None else tuple(a + b for a, b in zip(known, sides, strict=True))
    return rows


def phrases(name: str) -> dict[str, tuple[str, ...]]:
    """Return the phrases under each key of a section."""
    variants: dict[str, tuple[str, ...]] = {}
    for line in lines(name):
        key, _, entry = line.partition(": ")
        variants[key] = variants.get(key, ()) + tuple(entry.split("/"))
    return variants


def alternatives(*names: str) -> str:
    """Return the alternatives of sections as one part of a regular expression."""
    return "|".join(line for name in names for line in lines(name))


def pattern(*names: str) -> re.Pattern[str]:
    """Return a pattern for whole words and phrases in a text in small letters, not for parts of hyphenated words."""
    return re.compile(rf"(?<![\w-])(?:{alternatives(*names)})(?![\w-])")


def pattern_within(*names: str) -> re.Pattern[str]:
    """Return a pattern that finds words and phrases within hyphenated words, too."""
    return re.compile(rf"\b(?:{alternatives(*names)})(?!\w)")
