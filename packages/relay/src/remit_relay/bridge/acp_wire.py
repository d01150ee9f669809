"""The messages of an ACP agent's process, in order and within limits."""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from remit.agents.piped_process import LineSplitter, OverlongLine
from remit_relay.bridge.acp_turn import ToolCallUpdate
from remit_relay.bridge.supervised_agent import Child

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
        self._read: list[bytes | OverlongLine] = []
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
            while self._read:
                message = self._message(self._read.pop())
                if message is not None and (passed := await self._sorted(message)) is not None:
                    return passed
            chunk = b"" if self.is_over else await self._child.said.read(65_536)
            if not chunk:
                self.is_over = True
                return None
            self._read = list(self._lines.feed(chunk))[::-1]
            self._bytes += len(chunk)
            self._count += len(self._read)
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
        counts = _at(meta, *place)
        if (total := _number(counts, _TOTAL)) is not None:
            return total
        parts = [part for part in (_number(counts, names) for names in _PARTS) if part is not None]
        if parts:
            return sum(parts)
    return None


def is_broken(meta: Any) -> bool:
    """Return whether a turn failed: Codex reports that here, and ends the turn normally with the error as its text."""
    return _at(meta, "codex", "threadStatus", "type") == "systemError"


def _number(counts: Any, names: tuple[str, ...]) -> int | None:
    found = (_at(counts, name) for name in names)
    return next((each for each in found if isinstance(each, int) and each >= 0), None)


def _at(table: Any, *names: str) -> Any:
    for name in names:
        table = cast("Mapping[str, Any]", table).get(name) if isinstance(table, Mapping) else None
    return table
