"""The tokens that the transcripts of Claude Code tell, message by message."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

from remit.guard.tokens import TokenUse
from remit.guard.tools.growing_file import GrowingFile

# The tool writes a message 30 to 90 ms after its hooks run.
PATIENCE_S = 0.5
_POLL_S = 0.01


class ToolTranscript:
    """A file of JSON lines that grows while an agent works; each line is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.uses: dict[str, TokenUse] = {}
        """The tokens of each message: the last figures count, since a message is written several times."""
        self._tools: set[str] = set()
        self._file = GrowingFile(path)

    def read(self) -> None:
        """Read what was added; half a line is left for the next time."""
        for line in self._file.new_lines():
            self._take(line)

    async def read_up_to(self, tool_call: str) -> None:
        """Read until the message is there that calls a tool, or for a moment."""
        self.read()
        waited = 0.0
        while tool_call and tool_call not in self._tools and waited < PATIENCE_S:
            await asyncio.sleep(_POLL_S)
            waited += _POLL_S
            self.read()

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
        except ValueError:
            return
        message = _table(_table(entry).get("message"))
        usage, name = _table(message.get("usage")), message.get("id")
        if message.get("role") != "assistant" or not isinstance(name, str):
            return
        self.uses[name] = TokenUse(
            input=_count(usage, "input_tokens") + _count(usage, "cache_creation_input_tokens"),
            output=_count(usage, "output_tokens"),
            cached=_count(usage, "cache_read_input_tokens"),
        )
        content: Any = message.get("content")
        blocks = cast("list[Any]", content) if isinstance(content, list) else []
        self._tools.update(str(_table(block).get("id")) for block in blocks if _table(block).get("type") == "tool_use")


def _table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _count(usage: dict[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
