"""The tokens that the transcripts of Gemini CLI tell, message by message."""

from pathlib import Path
from typing import Any, cast

from remit_guard.tokens import TokenUse, day_of, model_name
from remit_guard.tools.json_lines import GrowingFile, count, table


class GeminiTranscript:
    """The transcript of a session or of a sub-agent, which the tool writes before it runs its hooks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked = ""
        """The first text of the user: the task of a sub-agent."""
        self._file = GrowingFile(path)

    def read(self) -> dict[str, TokenUse]:
        """Read what was added; return the tokens of each message in it."""
        uses = dict[str, TokenUse]()
        for entry in self._file.added():
            self._take(entry, uses)
        return uses

    def _take(self, entry: dict[str, Any], uses: dict[str, TokenUse]) -> None:
        # A line can bring messages again, for instance after history was shortened.
        again: Any = table(entry.get("$set")).get("messages")
        for each in cast("list[object]", again) if isinstance(again, list) else ():
            self._take(table(each), uses)
        match entry.get("type"):
            case "user":
                self.asked = self.asked or text_of(entry.get("content"))
            case "gemini" if entry.get("tokens"):
                uses[str(entry.get("id"))] = _use(table(entry.get("tokens")), entry)
            case _:
                pass


def _use(tokens: dict[str, Any], entry: dict[str, Any]) -> TokenUse:
    cached = count(tokens, "cached")  # `input` has these too
    return TokenUse(
        input=max(0, count(tokens, "input") - cached) + count(tokens, "tool"),
        output=count(tokens, "output") + count(tokens, "thoughts"),
        cached=cached,
        day=day_of(entry.get("timestamp")),
        model=model_name("google", entry.get("model")),
    )


def text_of(content: object) -> str:
    """Return the text of a message, as the tool joins it for its hooks."""
    if isinstance(content, list):
        return "".join(text_of(part) for part in cast("list[object]", content))
    text = content if isinstance(content, str) else table(content).get("text")
    return text if isinstance(text, str) else ""
