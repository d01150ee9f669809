"""Shows a conversation: streamed answers on stdout, calls of other agents on stderr."""

import asyncio
import io
import math
import re
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from threading import RLock
from typing import Any, Protocol, TextIO

from rich.cells import chop_cells

from remit.protocol.envelope import Json, Request, Response
from remit.protocol.records import Approval, Delta, Record, Refusal, ToolUse
from remit.runtime.run_tree import Node, Tree
from remit.words.terminal import Pieces, one_line, several_lines, speaks_unicode
from remit_cli.drive.running import Data
from remit_cli.show.screen import now_ms, spell_ms, styled
from remit_cli.show.tree_lines import call_line, plain_ascii, return_line, sentence

PROMPT = "> "

Entered = Callable[[str | None], None]
"""Receives each line that a person enters; None at the end of input."""

Fragments = list[tuple[str, str]]
"""Text in pieces, each with its style: bold, dim, or none."""


class InputLine(Protocol):
    """Reads lines from a terminal without blocking the event loop, while other text is printed above the input."""

    redraws: bool
    """Whether the input stays below all other text."""
    shown: Callable[[int, int], Fragments]
    """Returns the lines above the input, and the prompt, for a width and a height."""

    @property
    def text(self) -> str:
        """The typed text that is not entered yet."""
        ...

    def take(self) -> str:
        """Return that text, and clear it."""
        ...

    def begin(self, text: str) -> None:
        """Put a text into the input, to be edited and entered."""
        ...

    def ask(self) -> None:
        """Show that a line is expected, if the prompt does not stay visible by itself."""
        ...

    def open(self, history: Sequence[str] = ()) -> AbstractAsyncContextManager[None]:
        """Read within the block; *history* has earlier lines, oldest first."""
        ...

    def above(self) -> AbstractContextManager[None]:
        """Hide the input within the block, in which whole lines are written to the terminal."""
        ...

    def in_turn(self, action: Callable[[], None]) -> None:
        """Run an action in the thread of the event loop: now if this is that thread, else soon."""
        ...

    def redraw(self) -> None:
        """Redraw what has changed."""
        ...

    def aside(self) -> AbstractAsyncContextManager[None]:
        """Lend the terminal, in its original state, within the block."""
        ...

    def restore(self) -> None:
        """Restore the terminal at once, from any thread: the process is about to end."""
        ...


# Streamed text arrives at once, records only after their commit: how long text waits for the records before it.
LATE_S = 0.05


class Transcript:
    """A `Display` of successive runs.

    On a terminal, an answer is written as it is streamed; to a file, it is written as a whole. The input line is below
    it. While an agent answers, the prompt shows which agent works and for how long, and the unfinished line of the
    answer stands above it.
    """

    def __init__(self, data: Data, *, as_jsonl: bool, line: InputLine | None) -> None:
        self.unicode = speaks_unicode(sys.stderr)
        self._data = data
        self._as_jsonl = as_jsonl
        self._streams = data.is_terminal and not as_jsonl
        self._line = line
        self._err = sys.stderr
        self._redraws = line is not None and line.redraws
        if line is not None:
            line.shown = self._fragments
        # Agents print from their own threads.
        self._lock = RLock()
        self._tree = Tree()
        self._answer = AnswerSoFar()
        self._coming: deque[tuple[int, str]] = deque()
        self._pieces = Pieces()
        self._partial = ""
        """The unfinished last line of the answer."""
        self._at_work = False
        self.approver = ""
        """The user at the terminal, who is asked for approvals."""

    # ── a run ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def run(self, tree: Tree) -> Generator[None]:
        """Show a run, from its first record to its answer."""
        self._tree, self._answer, self._at_work = tree, AnswerSoFar(), True
        self.tick()
        try:
            yield
        finally:
            self._speak()
            with self._lock:
                self._end_line()
            self._at_work = False
            self.tick()

    def answer(self, result: Json) -> None:
        """Write the part of the answer that has not been written yet."""
        if self._as_jsonl:
            return
        self._speak()
        with self._lock:
            if not self._streams or not isinstance(result, str):
                self._end_line()
                with self._above():
                    self._data.answer(result)
                return
            rest = self._answer.missing_of(result)
            if rest is None:
                self._end_line()
                rest = result
            self._write(self._pieces.add(rest) + self._pieces.rest())
            self._end_line()

    def document(self, document: object) -> None:
        """Write a JSON document to stdout."""
        with self._above() if self._data.is_terminal else nullcontext():
            self._data.document(document)

    # ── the display ───────────────────────────────────────────────────────────────────────────────────────────────────

    def show(self, record: Record, node: Node) -> None:
        if isinstance(record.body, Delta):
            if node.parent is None and self._streams:
                self._coming.append((record.at_ms, record.body.text))
                asyncio.get_running_loop().call_later(LATE_S, self._speak)
            return
        # Text that an agent streams after a call has returned must not appear before that call.
        self._speak(record.at_ms + isinstance(record.body, Request))
        match record.body:
            case Request():
                if node.parent is not None:
                    self._tell(call_line(node), node)
            case Response():
                if node.parent is not None:
                    self._tell(return_line(node), node)
            case Refusal():
                if node.parent is not None:
                    self._tell(call_line(node), node)
                    self._tell(return_line(node), node)
            case ToolUse(begun=begun):
                # The tools of sub-agents are shown with their results.
                if node.parent is None and not begun:
                    self._tell(sentence(record, node), node)
            case Approval(agreed=agreed, by=by):
                # Questions are asked at this terminal or announced, and the user knows their own answers.
                if agreed is not None and by != self.approver:
                    self._tell(sentence(record, node), node)
            case _:
                self._tell(sentence(record, node), node)

    def tick(self) -> None:
        if self._line is not None:
            self._line.redraw()

    def say(self, text: str) -> None:
        if self._line is not None:
            self._line.in_turn(partial(self._say, text))
        else:
            self._say(text)

    def remark(self, text: str) -> None:
        """Print a remark, which is less important than an answer."""
        self.say(styled(text, dim=True) if self._err.isatty() else text)

    def echo(self, text: str) -> None:
        """Keep the entered text visible."""
        if self._redraws:
            more = "\n… " if self.unicode else "\n. "
            self.say(styled(PROMPT, bold=True) + several_lines(text).replace("\n", more))

    def ask(self) -> None:
        """Show that a request can be typed."""
        if self._line is not None:
            self._line.ask()

    def drop_line(self) -> None:
        """Clear the input, and print how to exit."""
        if self._line is not None:
            self.echo(self._line.take())
        self.say("(Ctrl-D or /quit to exit.)")

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[None]:
        self._end_line()
        if self._line is None:
            yield
            return
        async with self._line.aside():
            yield

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        if self._line is not None:
            self._line.restore()

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _speak(self, before_ms: float = math.inf) -> None:
        """Write the text that was streamed before a time."""
        with self._lock:
            while self._coming and self._coming[0][0] < before_ms:
                self._hear(self._coming.popleft()[1])

    def _hear(self, text: str) -> None:
        if not self._answer.text:
            text = text.lstrip("\n")  # models often begin with line breaks
        self._answer.add(text)
        self._write(self._pieces.add(text))

    def _write(self, text: str) -> None:
        """Write a part of the answer; an unfinished line is drawn above the input, if that is possible."""
        if not text:
            return
        *lines, self._partial = (self._partial + text).split("\n")
        if not self._redraws:
            self._data.piece(text)
        elif lines:
            with self._above():
                self._data.piece("".join(f"{line}\n" for line in lines))
        else:
            self.tick()

    def _say(self, text: str) -> None:
        # A closed terminal must not prevent the run from being stopped; its signal arrives first.
        with self._lock, suppress(OSError) if self._line is not None else nullcontext():
            self._end_line()
            with self._above():
                self._err.write((text if self.unicode else plain_ascii(text)) + "\n")
                self._err.flush()

    def _tell(self, text: str, node: Node) -> None:
        depth = sum(1 for _ in node.lineage()) - 1
        self.remark("  " * max(1, depth) + text)

    def _end_line(self) -> None:
        """Move the cursor to the start of an empty line."""
        self._write(self._pieces.rest())
        if self._partial:
            self._write("\n")
        self._answer.interrupt()

    def _above(self) -> AbstractContextManager[None]:
        return nullcontext() if self._line is None else self._line.above()

    def _fragments(self, width: int, height: int) -> Fragments:
        """Return the unfinished line of the answer, and the prompt."""
        # As much of a long line as leaves room for the input; all of it is written once it is complete.
        rows = chop_cells(self._partial.expandtabs(8), width)[-max(1, height - 2) :] if self._partial else []
        return [("", "".join(f"{row}\n" for row in rows)), self._prompt(width)]

    def _prompt(self, width: int) -> tuple[str, str]:
        if not self._at_work:
            return "bold", PROMPT
        status, root = "… ", self._tree.root
        if root is not None:
            at_work = next((node for node in reversed(self._tree.in_flight.values()) if not node.open), root)
            status = f"… {one_line(at_work.agent, min(40, width // 2))} {spell_ms(root.taken_ms(now_ms()))}  "
        return "", status if self.unicode else plain_ascii(status)


# A text of this length does not match by chance.
TELLING = 8
# How far back to search for it.
LATELY = 5_000
_WORD = re.compile(r"(?<!\S)\S")


class AnswerSoFar:
    """The written part of an answer, to find out what is missing."""

    def __init__(self) -> None:
        self.text = ""
        self._since = 0

    def add(self, text: str) -> None:
        self.text += text

    def interrupt(self) -> None:
        """Note that other text was written: the text before it may not be part of the answer."""
        self._since = len(self.text)

    def missing_of(self, answer: str) -> str | None:
        """Return the part of an answer that is not written yet; None if the written text is not part of it."""
        answer, text = answer.strip(), self.text
        if not answer or text.rstrip().endswith(answer):
            return ""
        words = [word.start() for word in _WORD.finditer(text, max(0, len(text) - min(len(answer), LATELY)))]
        for start in sorted({self._since, *words}):
            shown = text[start:].lstrip()
            if start in (0, self._since) or len(shown) >= TELLING:
                for written in (shown, shown.rstrip()):
                    if written and answer.startswith(written):
                        return answer[len(written) :]
        return None


class Printed(io.TextIOBase):
    """A stream that passes on each printed line."""

    def __init__(self, stream: TextIO, forward: Callable[[str], None]) -> None:
        self._stream = stream
        self._hand_on = forward
        self._rest = ""
        self._lock = RLock()

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - there it is a variable
        return self._stream.encoding

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._hand_on(several_lines(line))
        return len(text)

    def finish(self) -> None:
        """Pass on an unfinished last line."""
        with self._lock:
            rest, self._rest = self._rest, ""
        if rest:
            self._hand_on(several_lines(rest))
