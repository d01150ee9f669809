"""The state of one turn of an ACP agent: its text, its tool calls as safe text, and its remaining time."""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from remit_relay.bridge.ports import DraftFailure, PromptRequest, shown, too_long, too_many_rounds, tool_rounds_allowed

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


# The line that says that all is done does not count towards the length of a message.
ROOM_FOR_DONE = 100


class AcpTurn:
    """One turn. The text after the last tool call is the message."""

    def __init__(self, session: str, request: PromptRequest, timer: asyncio.Timeout) -> None:
        self.session = session
        self.request = request
        self.is_over = False
        self.failure: asyncio.Future[DraftFailure] = asyncio.get_running_loop().create_future()
        """Why it must be cancelled, once that is known."""
        self.questions: set[asyncio.Future[str | None]] = set()
        self.asked = self.files_read = 0
        self.refused: str | None = None
        """The last tool that the user did not allow."""
        self.is_broken = False
        """Whether the agent reported an error beside its message."""
        self.tokens: int | None = None
        """The tokens that it reported during the turn; None: none."""
        self._timer = timer
        self._left_s: float | None = None
        """The remaining time when the clock was stopped."""
        self._tools: dict[str, AcpToolCall] = {}
        self._said: list[tuple[str | None, str]] = []
        self._chars = 0
        self._before = ""

    # ── text ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def say(self, text: str, message: str | None = None) -> None:
        """Append to the message, unless it gets too long; *message* is the id of the message that this is part of."""
        self._chars += len(text)
        if self._chars > self.request.constraints.max_output_chars + ROOM_FOR_DONE:
            self.fail(too_long(self.request.constraints))
        elif text:
            self._said.append((message, text))

    def text(self) -> str:
        """Return the text after the last tool call, or the text before it if there is none."""
        said = self._joined()
        return said if said.strip() else self._before

    def _joined(self) -> str:
        """Return the messages. If some have ids, text without an id is a remark of the agent's program: left out."""
        named = [piece for piece in self._said if piece[0] is not None]
        texts: list[str] = []
        last: str | None = None
        for message, text in named or self._said:
            if texts and message != last:
                texts.append("\n\n")
            texts.append(text)
            last = message
        return "".join(texts)

    # ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def tool_rounds(self) -> int:
        return len(self._tools)

    def use(self, tool: str, told: AcpToolCall) -> AcpToolCall:
        """Count a new tool call, and return all that is known of it."""
        if (known := self._tools.get(tool)) is not None:
            told = told.over(known)
        elif self.failure.done():
            return told
        self._tools[tool] = told
        if known is None:
            allowed = tool_rounds_allowed(self.request.constraints)
            if len(self._tools) > allowed:
                self.fail(too_many_rounds(len(self._tools), allowed))
            self._before = self.text()
            self._said.clear()
            self._chars = 0
        return told

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    def fail(self, failure: DraftFailure) -> None:
        if not self.failure.done():
            self.failure.set_result(failure)

    def end(self) -> None:
        """End the turn, and cancel open questions to the user."""
        self.is_over = True
        for question in self.questions:
            question.cancel()

    def stop_clock(self) -> None:
        """Pause the time limit while a person is asked."""
        when = self._timer.when()
        if self._left_s is None and when is not None and not self._timer.expired():
            self._left_s = when - asyncio.get_running_loop().time()
            self._timer.reschedule(None)

    def start_clock(self) -> None:
        """Continue the time limit when no question is open."""
        if self._left_s is not None and not self.questions and not self.is_over:
            with suppress(RuntimeError):  # the caller has just gone
                self._timer.reschedule(asyncio.get_running_loop().time() + self._left_s)
            self._left_s = None
