"""The tokens that the transcripts of Gemini CLI tell, message by message."""

from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from remit.guard.tokens import TokenUse
from remit.guard.tools.growing_file import GrowingFile


class GeminiTokens(Struct, frozen=True):
    """The tokens of one call of the model; `input` has those that were read from a cache."""

    input: int = 0
    output: int = 0
    cached: int = 0
    thoughts: int = 0
    tool: int = 0

    def use(self) -> TokenUse:
        """Return them as the guard counts them."""
        return TokenUse(
            input=max(0, self.input - self.cached) + self.tool, output=self.output + self.thoughts, cached=self.cached
        )


class GeminiMessage(Struct, frozen=True):
    """A line of a transcript, or one of the messages in it; other lines have none of these fields."""

    id: str = ""
    type: str = ""
    content: Any = None
    tokens: GeminiTokens | None = None
    changes: "GeminiChanges | None" = msgspec.field(name="$set", default=None)


class GeminiChanges(Struct, frozen=True):
    """What a line changes: it can bring messages again, for instance after history was shortened."""

    messages: list[GeminiMessage] = []


class GeminiTranscript:
    """The transcript of a session or of a sub-agent, which the tool writes before it runs its hooks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked = ""
        """The first text of the user: the task of a sub-agent."""
        self.uses: dict[str, TokenUse] = {}
        """The tokens of each message."""
        self._file = GrowingFile(path)

    def read(self) -> None:
        """Read what was added."""
        for line in self._file.new_lines():
            try:
                self._take(msgspec.json.decode(line, type=GeminiMessage))
            except msgspec.DecodeError:
                continue  # a line of another kind

    def _take(self, message: GeminiMessage) -> None:
        for each in message.changes.messages if message.changes is not None else ():
            self._take(each)
        if message.type == "user":
            self.asked = self.asked or text_of(message.content)
        if message.type == "gemini" and message.tokens is not None:
            self.uses[message.id] = message.tokens.use()


def text_of(content: object) -> str:
    """Return the text of a message, as the tool joins it for its hooks."""
    if isinstance(content, list):
        return "".join(text_of(part) for part in cast("list[object]", content))
    text = cast("dict[str, object]", content).get("text") if isinstance(content, dict) else content
    return text if isinstance(text, str) else ""
