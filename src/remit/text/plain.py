"""Untrusted texts as plain text: nothing in them moves the cursor, sets a colour or hides a word."""

import re

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
