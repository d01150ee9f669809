"""The tokens that the transcripts of Claude Code tell, message by message."""

import asyncio
from pathlib import Path
from typing import Any, cast

from remit_guard.tokens import TokenUse, day_of, model_name
from remit_guard.tools.json_lines import GrowingFile, count, table

# The tool writes a message 30 to 90 ms after its hooks run.
PATIENCE_S = 0.5
_POLL_S = 0.01


class ToolTranscript:
    """The transcript of one agent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.uses: dict[str, TokenUse] = {}
        """The tokens of each message: the last figures count, since a message is written several times."""
        self.task = ""
        """What the agent was first told."""
        self.is_at_rest = False
        """Whether the last message is one in which the model ends its turn."""
        self.failed: set[str] = set()
        """The uses of tools that were refused, interrupted, or ended in an error."""
        self._tools: set[str] = set()
        self._file = GrowingFile(path)

    @property
    def is_there(self) -> bool:
        """Whether the tool writes it: one that is told not to keep sessions does not."""
        return self._file.is_there

    def read(self) -> None:
        """Read what was added."""
        for entry in self._file.added():
            self._take(entry)

    async def read_up_to(self, tool_call: str) -> None:
        """Read until the message is there that calls a tool, or for a moment."""
        self.read()
        waited = 0.0
        while tool_call and tool_call not in self._tools and waited < PATIENCE_S:
            await asyncio.sleep(_POLL_S)
            waited += _POLL_S
            self.read()

    def _take(self, entry: dict[str, Any]) -> None:
        kind, message = entry.get("type"), table(entry.get("message"))
        if kind in ("user", "assistant"):
            self.is_at_rest = kind == "assistant" and message.get("stop_reason") not in (None, "tool_use")
        if kind == "user" and not self.task:
            self.task = str(message.get("content"))
        content: Any = message.get("content")
        blocks = [table(block) for block in cast("list[Any]", content)] if isinstance(content, list) else []
        results = (block for block in blocks if kind == "user" and block.get("type") == "tool_result")
        self.failed.update(str(each.get("tool_use_id")) for each in results if each.get("is_error") is True)
        usage, name = table(message.get("usage")), message.get("id")
        if message.get("role") != "assistant" or not isinstance(name, str):
            return
        known = self.uses.get(name)
        self.uses[name] = TokenUse(
            day=day_of(entry.get("timestamp")) if known is None else known.day,
            input=count(usage, "input_tokens") + count(usage, "cache_creation_input_tokens"),
            output=count(usage, "output_tokens"),
            cached=count(usage, "cache_read_input_tokens"),
            model=model_name("anthropic", message.get("model")),
        )
        self._tools.update(str(block.get("id")) for block in blocks if block.get("type") == "tool_use")
