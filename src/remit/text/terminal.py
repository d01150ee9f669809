"""Makes texts of agents safe for a terminal: nothing in them moves the cursor, sets a colour or hides a word."""

import re
from typing import IO

from remit.text.plain import CONTROL_BUT_LAYOUT, REPLACEMENT, one_line, several_lines

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
    """Say whether a stream can show box-drawing lines and arrows."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")
