"""One turn of an ACP agent: its text, tool calls and time; and the messages of its process, within limits."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from remit.agents.piped_process import LineSplitter, OverlongLine
from remit_relay.bridge.ports import DraftFailure, PromptRequest, shown, too_long, too_many_rounds, tool_rounds_allowed
from remit_relay.bridge.supervised_agent import Child

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
    outcomes: list[Any] = []
    for each in content if isinstance(content, list) else ():  # pyright: ignore[reportUnknownVariableType]
        try:
            read = msgspec.convert(each, _Content)
        except msgspec.ValidationError:
            continue
        if read.type == "diff":
            outcomes.append({"path": read.path, "text": read.new_text})
        elif read.type == "content":
            outcomes.append(read.content)
    return outcomes


def _words(value: Any, most: int) -> str:
    return shown(value, most) if isinstance(value, str) else ""


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
        self.questions_asked = self.files_read = 0
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
        self._pieces: list[tuple[str | None, str]] = []
        self._chars = 0
        self._before = ""

    # ── text ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def say(self, text: str, message: str | None = None) -> None:
        """Append to the message, unless it gets too long; *message* is the id of the message that this is part of."""
        self._chars += len(text)
        if self._chars > self.request.constraints.max_output_chars + ROOM_FOR_DONE:
            self.fail(too_long(self.request.constraints))
        elif text:
            self._pieces.append((message, text))

    def text(self) -> str:
        """Return the text after the last tool call, or the text before it if there is none."""
        message = self._joined()
        return message if message.strip() else self._before

    def _joined(self) -> str:
        """Return the messages. If some have ids, text without an id is a remark of the agent's program: left out."""
        named = [piece for piece in self._pieces if piece[0] is not None]
        texts: list[str] = []
        last: str | None = None
        for message, text in named or self._pieces:
            if texts and message != last:
                texts.append("\n\n")
            texts.append(text)
            last = message
        return "".join(texts)

    # ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def tool_rounds(self) -> int:
        return len(self._tools)

    def use(self, tool: str, update: AcpToolCall) -> AcpToolCall:
        """Count a new tool call, and return all that is known of it."""
        if (known := self._tools.get(tool)) is not None:
            update = update.over(known)
        elif self.failure.done():
            return update
        self._tools[tool] = update
        if known is None:
            allowed = tool_rounds_allowed(self.request.constraints)
            if len(self._tools) > allowed:
                self.fail(too_many_rounds(len(self._tools), allowed))
            self._before = self.text()
            self._pieces.clear()
            self._chars = 0
        return update

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


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────

log = logging.getLogger("remit.relay")

# Agents that show tool results write long lines; but a message never needs this much.
MAX_LINE = 4_000_000
# Limits of one turn.
MAX_BYTES = 64_000_000
MAX_LINES = 100_000

ASK = "session/prompt"
UPDATE = "session/update"
PERMISSION = "session/request_permission"
READ = "fs/read_text_file"
_METHOD_NOT_FOUND = -32_601

# Where agents report tokens in `_meta`, and under which names.
_PLACES = (("usage",), ("quota", "token_count"))
_TOTAL = ("total_tokens", "totalTokens")
_PARTS = (("input_tokens", "inputTokens"), ("output_tokens", "outputTokens"))

Message = dict[str, Any]


class Content(Struct):
    """The content of a message chunk."""

    type: str = ""
    text: str = ""


class Update(ToolCallUpdate, rename="camel", kw_only=True):
    """An update of a turn; only the fields that are used here."""

    session_update: str
    tool_call_id: str | None = None
    message_id: str | None = None
    """The id of the message that this chunk belongs to, if it has one."""
    meta: Any = field(default=None, name="_meta")

    def text(self) -> str:
        """Return the text of a message chunk; empty: it is something else."""
        try:
            content = msgspec.convert(self.content, Content)
        except msgspec.ValidationError:
            return ""
        return content.text if content.type == "text" else ""


class Updated(Struct, rename="camel"):
    """An update and its session."""

    session_id: str
    update: Update


class Wire:
    """The transport to the agent's process for the SDK's client (`acp.Transport`).

    The SDK handles updates in separate tasks, so the end of a message may come after the end of its turn, and accepts
    lines of any length. Here *update* is called as updates are read, *ended* is called at the response to a prompt and
    before anything later is read, and all lengths are limited. Of the agent's requests only those *offered* are passed
    on; the others are declined here.
    """

    def __init__(
        self,
        profile: str,
        child: Child,
        *,
        offered: Collection[str],
        update: Callable[[Updated], None],
        ended: Callable[[], None],
    ) -> None:
        self._profile = profile
        self._offered = offered
        self._child = child
        self._update = update
        self._ended = ended
        self._lines = LineSplitter(MAX_LINE)
        self._unread: list[bytes | OverlongLine] = []
        self._prompt: Any = None
        """The id of the current prompt."""
        self._bytes = self._count = 0
        self._complained = False
        self.is_over = False
        """Whether the output has ended."""
        self.flooded = False

    async def send(self, message: Message) -> None:
        """Write a message, or raise an `OSError`."""
        if message.get("method") == ASK:
            self._prompt = message["id"]
            self._bytes = self._count = 0
        await self._child.write(msgspec.json.encode(message))

    async def receive(self) -> Message | None:
        """Return the next message for the SDK; None: there are no more."""
        while True:
            while self._unread:
                message = self._message(self._unread.pop())
                if message is not None and (passed := await self._sorted(message)) is not None:
                    return passed
            chunk = b"" if self.is_over else await self._child.output.read(65_536)
            if not chunk:
                self.is_over = True
                return None
            self._unread = list(self._lines.feed(chunk))[::-1]
            self._bytes += len(chunk)
            self._count += len(self._unread)
            if self._bytes > MAX_BYTES or self._count > MAX_LINES:
                log.warning("profile %s: its agent writes too much output and is ended", self._profile)
                self._child.kill()
                self.is_over = self.flooded = True
                return None

    async def close(self) -> None:
        """Do nothing: the process is ended by its owner."""

    async def _sorted(self, message: Message) -> Message | None:
        """Return a message for the SDK; handle all others."""
        method, number = message.get("method"), message.get("id")
        if method == UPDATE:
            self._handle_update(message.get("params"))
        elif method is not None and number is not None:
            if isinstance(method, str) and method in self._offered and isinstance(number, int | str):
                return message
            await self._decline(number)
        elif method is None and isinstance(number, int):
            if number == self._prompt:
                self._prompt = None
                self._ended()
            return _answer(message, number)
        return None

    def _handle_update(self, params: Any) -> None:
        try:
            updated = msgspec.convert(params, Updated)
        except msgspec.ValidationError:
            self._complain()
            return
        self._update(updated)

    async def _decline(self, number: Any) -> None:
        error = {"code": _METHOD_NOT_FOUND, "message": "Method not found"}
        try:
            await self._child.write(msgspec.json.encode({"jsonrpc": "2.0", "id": number, "error": error}))
        except OSError:
            self.is_over = True

    def _message(self, line: bytes | OverlongLine) -> Message | None:
        try:
            # As text, because otherwise invalid UTF-8 in unknown fields would not be noticed.
            return None if isinstance(line, OverlongLine) else msgspec.json.decode(line.decode(), type=Message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._complain()
            return None

    def _complain(self) -> None:
        if not self._complained:
            self._complained = True
            log.info("profile %s: ignoring lines of its agent that are not messages", self._profile)


def _answer(message: Message, number: int) -> Message:
    """Return a response in the form that the SDK requires."""
    if "error" not in message:
        return {"jsonrpc": "2.0", "id": number, "result": message.get("result")}
    try:
        error = msgspec.convert(message["error"], _Error)
    except msgspec.ValidationError:
        error = _Error()
    return {"jsonrpc": "2.0", "id": number, "error": {"code": error.code, "message": error.words()}}


class _Error(Struct):
    code: int = -32_603
    message: str = "unspecified error"
    data: Any = None

    def words(self) -> str:
        """Return the error text; some agents say "Internal error" and give the cause in `data`."""
        try:
            details = msgspec.convert(self.data, _Data).details
        except msgspec.ValidationError:
            details = self.data if isinstance(self.data, str) else ""
        return f"{self.message}: {details}" if details and details not in self.message else self.message


class _Data(Struct):
    details: str = ""


# ── extensions of the protocol (`_meta`) ──────────────────────────────────────────────────────────────────────────────


def tokens_in(meta: Any) -> int | None:
    """Return the tokens that a `_meta` reports; None: none.

    An agent that reports the sum of its session is counted too high, never too low.
    """
    for place in _PLACES:
        counts = _lookup(meta, *place)
        if (total := _number(counts, _TOTAL)) is not None:
            return total
        parts = [part for part in (_number(counts, names) for names in _PARTS) if part is not None]
        if parts:
            return sum(parts)
    return None


def is_broken(meta: Any) -> bool:
    """Return whether a turn failed: Codex reports that here, and ends the turn normally with the error as its text."""
    return _lookup(meta, "codex", "threadStatus", "type") == "systemError"


def _number(counts: Any, names: tuple[str, ...]) -> int | None:
    values = (_lookup(counts, name) for name in names)
    return next((each for each in values if isinstance(each, int) and each >= 0), None)


def _lookup(table: Any, *names: str) -> Any:
    for name in names:
        table = cast("Mapping[str, Any]", table).get(name) if isinstance(table, Mapping) else None
    return table
