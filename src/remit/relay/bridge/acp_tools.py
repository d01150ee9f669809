"""Tool calls of an ACP agent, as text that is safe to show."""

from typing import Any

import msgspec
from msgspec import Struct

from remit.relay.bridge.limits import shown

MAX_DETAILS = 2_000


class AcpToolCall(Struct, frozen=True, kw_only=True):
    """What is known of a tool call; empty: unknown."""

    title: str = ""
    kind: str = ""
    details: str = ""
    """Its input as JSON, shortened."""

    def over(self, earlier: "AcpToolCall") -> "AcpToolCall":
        """Return this update merged over an *earlier* one."""
        return AcpToolCall(
            title=self.title or earlier.title,
            kind=self.kind or earlier.kind,
            details=self.details or earlier.details,
        )


class ToolCallUpdate(Struct, rename="camel"):
    """The fields of a tool call or of its update that are used. Each may be missing or of any type."""

    title: Any = None
    kind: Any = None
    raw_input: Any = None
    content: Any = None
    locations: Any = None

    def tool_call(self) -> AcpToolCall:
        return AcpToolCall(title=_words(self.title, 400), kind=_words(self.kind, 40), details=self._details())

    def _details(self) -> str:
        """Return its input; if an agent does not give it, its output, or at least its locations."""
        for each in (self.raw_input, [*_outcomes(self.content)], self.locations):
            if each:
                return shown(msgspec.json.encode(each).decode(), MAX_DETAILS)
        return ""


class _Content(Struct, rename="camel"):
    type: str
    path: str = ""
    new_text: str | None = None
    content: Any = None


def _outcomes(content: Any) -> list[Any]:
    """Return the content of a tool call: the new text of a file, or a message."""
    found: list[Any] = []
    for each in content if isinstance(content, list) else ():  # pyright: ignore[reportUnknownVariableType]
        try:
            read = msgspec.convert(each, _Content)
        except msgspec.ValidationError:
            continue
        if read.type == "diff":
            found.append({"path": read.path, "text": read.new_text})
        elif read.type == "content":
            found.append(read.content)
    return found


def _words(said: Any, most: int) -> str:
    return shown(said, most) if isinstance(said, str) else ""
