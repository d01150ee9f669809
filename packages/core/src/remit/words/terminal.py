"""Makes untrusted texts safe for a terminal: nothing in them moves the cursor, sets a colour or hides a character."""

import re
import unicodedata
from typing import IO

# Sequences that a terminal executes: colours and cursor moves, titles and links, others.
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-Z\\\\^-~]"
)
# Control characters, marks that change the writing direction, invisible letters, unpaired surrogates.
_UNSAFE = "\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f\ud800-\udfff"
_CONTROL = re.compile(f"[{_UNSAFE}]")
CONTROL_BUT_LAYOUT = re.compile(f"(?![\n\t])[{_UNSAFE}]")
_LINE_BREAK = re.compile("\r\n?|[\u2028\u2029\x85]")

REPLACEMENT = "\ufffd"


def one_line(text: str, limit: int = 500) -> str:
    """Return a text as one line of at most *limit* characters."""
    # White space and sequences usually take less than three quarters of a text; the factor bounds the cost of a huge
    # one.
    text = " ".join(_SEQUENCE.sub("", text[: 4 * limit]).split())
    return _CONTROL.sub(REPLACEMENT, text)[:limit]


def several_lines(text: str) -> str:
    """Return a text with its line breaks and tabs, and no other character that a terminal would act on."""
    text = _LINE_BREAK.sub("\n", _SEQUENCE.sub("", text))
    return CONTROL_BUT_LAYOUT.sub(REPLACEMENT, text)


_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff]"
)
_TAGS = re.compile("[\U000e0020-\U000e007e]{2,}")
_WORD = re.compile(r"[^\W\d_]{2,}")
_ALIKE = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "FULLWIDTH", "MATHEMATICAL")


def marked(text: str) -> str:
    """Return a text in which characters that cannot be seen, or that look like others, are written out."""
    if text.isascii() and text.isprintable():
        return text
    text = _TAGS.sub(lambda tags: f"⟨hidden: {''.join(chr(ord(tag) - 0xE0000) for tag in tags[0])}⟩", text)
    text = _WORD.sub(_with_likenesses, text)
    return _UNSEEN.sub(lambda unseen: f"⟨U+{ord(unseen[0]):04X}⟩", text)


def _with_likenesses(word: re.Match[str]) -> str:
    """Return a word of letters of several scripts with those written out that could be taken for Latin ones."""
    if word[0].isascii():
        return word[0]
    scripts = {letter: unicodedata.name(letter, "").partition(" ")[0] for letter in word[0]}
    if "LATIN" not in scripts.values():
        return word[0]
    return "".join(f"⟨{each} U+{ord(each):04X}⟩" if scripts[each] in _ALIKE else each for each in word[0])


__all__ = ["REPLACEMENT", "Pieces", "json_for_terminal", "marked", "one_line", "several_lines", "speaks_unicode"]

# Characters that may form a sequence, or one line break, with the next piece.
_UNFINISHED = (
    "(?:(?:\x1b\\[|\x9b)[0-?]*[ -/]*"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]{0,4096}\x1b?"
    "|\x1b[ -/]*|\r)\\Z"
)


class Pieces:
    """Makes a text in pieces safe, also where a sequence is split between two of them."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, text: str) -> str:
        """Return as much as can be shown so far."""
        text = self._held + text
        unfinished = re.search(_UNFINISHED, text)
        end = unfinished.start() if unfinished else len(text)
        self._held = text[end:]
        return several_lines(text[:end])

    def rest(self) -> str:
        """Return the rest that was held back, at the end of the text."""
        rest, self._held = self._held, ""
        return several_lines(rest)


def json_for_terminal(text: str) -> str:
    """Return the same JSON with every character escaped that a terminal would act on."""
    return CONTROL_BUT_LAYOUT.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def speaks_unicode(stream: IO[str]) -> bool:
    """Return whether a stream can show box-drawing lines and arrows."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")
