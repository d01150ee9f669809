"""What comes of one prompt to an ACP agent while it is in flight: its words, its tools, and the time it has left."""

import asyncio
from contextlib import suppress

from remit.relay.bridge.acp_tools import AcpToolCall
from remit.relay.bridge.frames import PromptRequest
from remit.relay.bridge.limits import too_long, too_many_rounds, tool_rounds_allowed
from remit.relay.bridge.ports import DraftFailure

# What says that all is done does not count towards the length of a message, so there is a little room for it.
ROOM_FOR_DONE = 100


class AcpTurn:
    """One prompt. What the agent says after its last tool call is its message."""

    def __init__(self, session: str, request: PromptRequest, timer: asyncio.Timeout) -> None:
        self.session = session
        self.request = request
        self.is_over = False
        self.failure: asyncio.Future[DraftFailure] = asyncio.get_running_loop().create_future()
        """Why it has to be cancelled, once it does."""
        self.questions: set[asyncio.Future[str | None]] = set()
        self.asked = self.files_read = 0
        self.refused: str | None = None
        """The tool that the user did not allow last."""
        self.is_broken = False
        """Whether the agent tells beside its message that something went wrong."""
        self.tokens: int | None = None
        """What it says along the way that it spent; None: it does not say."""
        self._timer = timer
        self._left_s: float | None = None
        """How much time it had when its clock was stopped."""
        self._tools: dict[str, AcpToolCall] = {}
        self._said: list[tuple[str | None, str]] = []
        self._chars = 0
        self._before = ""

    # ── what it says ──────────────────────────────────────────────────────────────────────────────────────────────────

    def say(self, text: str, message: str | None = None) -> None:
        """Add to the message, unless it gets too long; *message* is the name of the one that it is a piece of."""
        self._chars += len(text)
        if self._chars > self.request.constraints.max_output_chars + ROOM_FOR_DONE:
            self.fail(too_long(self.request.constraints))
        elif text:
            self._said.append((message, text))

    def text(self) -> str:
        """Return what was said after the last tool call, or before it if that is all there is."""
        said = self._joined()
        return said if said.strip() else self._before

    def _joined(self) -> str:
        """Return the messages. Where some have names, what has none is a remark of the agent's program."""
        named = [piece for piece in self._said if piece[0] is not None]
        texts: list[str] = []
        last: str | None = None
        for message, text in named or self._said:
            if texts and message != last:
                texts.append("\n\n")
            texts.append(text)
            last = message
        return "".join(texts)

    # ── which tools it uses ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def tool_rounds(self) -> int:
        return len(self._tools)

    def use(self, tool: str, told: AcpToolCall) -> AcpToolCall:
        """Count a tool call, unless it is known, and return all that was told of it."""
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

    # ── how it ends ───────────────────────────────────────────────────────────────────────────────────────────────────

    def fail(self, failure: DraftFailure) -> None:
        if not self.failure.done():
            self.failure.set_result(failure)

    def end(self) -> None:
        """Take nothing more, and withdraw what the user is being asked."""
        self.is_over = True
        for question in self.questions:
            question.cancel()

    def stop_clock(self) -> None:
        """Let no time pass while a person is asked."""
        when = self._timer.when()
        if self._left_s is None and when is not None and not self._timer.expired():
            self._left_s = when - asyncio.get_running_loop().time()
            self._timer.reschedule(None)

    def start_clock(self) -> None:
        """Let time pass again, once nobody is asked any more."""
        if self._left_s is not None and not self.questions and not self.is_over:
            with suppress(RuntimeError):  # whoever waited has just gone
                self._timer.reschedule(asyncio.get_running_loop().time() + self._left_s)
            self._left_s = None
