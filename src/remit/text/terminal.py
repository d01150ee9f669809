"""Makes untrusted texts safe: nothing in them moves a cursor, sets a colour or hides a character."""

import re
from typing import IO

# What a terminal would take for a command rather than a text: colours and cursor moves, titles and links, the rest.
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-Z\\\\^-~]"
)
# Control characters; marks that turn the direction of writing; invisible letters; halves of letters.
_UNSAFE = "\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f\ud800-\udfff"
_CONTROL = re.compile(f"[{_UNSAFE}]")
CONTROL_BUT_LAYOUT = re.compile(f"(?![\n\t])[{_UNSAFE}]")
_LINE_BREAK = re.compile("\r\n?|[\u2028\u2029\x85]")

REPLACEMENT = "\ufffd"


def one_line(text: str, limit: int = 500) -> str:
    """Return a text as one line of at most *limit* characters."""
    # Four times as much is more than white space and sequences usually take, and bounds what a huge text costs.
    text = " ".join(_SEQUENCE.sub("", text[: 4 * limit]).split())
    return _CONTROL.sub(REPLACEMENT, text)[:limit]


def several_lines(text: str) -> str:
    """Return a text with its lines and tabs, and nothing else that a terminal would act on."""
    text = _LINE_BREAK.sub("\n", _SEQUENCE.sub("", text))
    return CONTROL_BUT_LAYOUT.sub(REPLACEMENT, text)


__all__ = ["REPLACEMENT", "Pieces", "json_for_terminal", "one_line", "several_lines", "speaks_unicode"]

# What may become one with what follows; or one line break with it.
_UNFINISHED = re.compile(
    "(?:(?:\x1b\\[|\x9b)[0-?]*[ -/]*"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]{0,4096}\x1b?"
    "|\x1b[ -/]*|\r)\\Z"
)


class Pieces:
    """A text that comes in pieces, each made safe, whatever is split between two of them."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, text: str) -> str:
        """Return as much as can be shown by now."""
        text = self._held + text
        unfinished = _UNFINISHED.search(text)
        end = unfinished.start() if unfinished else len(text)
        self._held = text[end:]
        return several_lines(text[:end])

    def rest(self) -> str:
        """Return what was held back, now that nothing follows."""
        rest, self._held = self._held, ""
        return several_lines(rest)


def json_for_terminal(text: str) -> str:
    """Return the same JSON with everything escaped that a terminal would act on."""
    return CONTROL_BUT_LAYOUT.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def speaks_unicode(stream: IO[str]) -> bool:
    """Return whether a stream can show box-drawing lines and arrows."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")
