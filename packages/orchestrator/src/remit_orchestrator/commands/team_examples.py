"""Adds an example to the text of a team file, and leaves every other character of it as it is."""

import json
import re
import tomllib
from typing import Any

# What may stand in an array between its brackets, as far as it matters where the array ends.
_PIECE = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]]|[^\[\]"\'#]+', re.DOTALL
)
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_EXAMPLES = re.compile(r"^[ \t]*examples[ \t]*=[ \t]*\[", re.MULTILINE)


def with_example(text: str, code: str, example: str) -> str | None:
    """Return a team file with one more example of a capability, or None if it is not written in a way that is known.

    What comes out is parsed, and has to be the team as it was with that example at the end of the list.
    """
    wanted: dict[str, Any] = tomllib.loads(text)
    capability: dict[str, Any] | None = wanted.get("capabilities", {}).get(code)
    if capability is None:
        return None
    capability["examples"] = [*capability.get("examples", ()), example]
    changed = _inserted(text, code, example)
    try:
        return changed if changed is not None and tomllib.loads(changed) == wanted else None
    except tomllib.TOMLDecodeError:
        return None


def _inserted(text: str, code: str, example: str) -> str | None:
    quoted = re.escape(code)
    header = re.search(
        rf"^[ \t]*\[[ \t]*capabilities[ \t]*\.[ \t]*(?:{quoted}|\"{quoted}\"|'{quoted}')[ \t]*\][^\n]*(?:\n|\Z)",
        text,
        re.MULTILINE,
    )
    if header is None:
        return None
    literal = _literal(example)
    line_end = "\r\n" if header[0].endswith("\r\n") else "\n"
    found = _EXAMPLES.search(text, header.end())
    following = _TABLE.search(text, header.end())
    if found is None or (following is not None and following.start() < found.start()):
        before = "" if header[0].endswith("\n") else line_end
        return f"{text[: header.end()]}{before}examples = [{literal}]{line_end}{text[header.end() :]}"
    end, last = _end_of_array(text, found.end())
    if end is None:
        return None
    if last is None:
        return f"{text[: found.end()]}{literal}{text[found.end() :]}"
    start, after = last
    indent = text[text.rfind("\n", 0, start) + 1 : start]
    line = text.find(line_end, after)
    if indent.strip() or not 0 <= line < end:
        return f"{text[:after]}, {literal}{text[after:]}"
    # Each value has a line of its own, perhaps with a comment behind it.
    has_comma = text[after:end].lstrip().startswith(",")
    comma, last_comma = ("", ",") if has_comma else (",", "")
    return f"{text[:after]}{comma}{text[after:line]}{line_end}{indent}{literal}{last_comma}{text[line:]}"


def _end_of_array(text: str, at: int) -> tuple[int | None, tuple[int, int] | None]:
    """Return where the closing bracket of an array stands, and from where to where its last value does."""
    last: tuple[int, int] | None = None
    while (piece := _PIECE.match(text, at)) is not None:
        match piece[0][0]:
            case "]":
                return at, last
            case "[":
                return None, None  # examples are texts
            case '"' | "'":
                last = piece.span()
            case _:
                pass
        at = piece.end()
    return None, None


def _literal(text: str) -> str:
    # TOML escapes as JSON does, and the one control character that JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
