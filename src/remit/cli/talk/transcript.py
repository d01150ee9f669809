"""Shows a conversation: streamed answers on stdout, calls of other agents on stderr."""

import asyncio
import io
import math
import re
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from threading import RLock
from typing import Any, TextIO

from rich.cells import chop_cells

from remit.cli.drive.running import Data
from remit.cli.show.screen import now_ms, styled
from remit.cli.show.tree import Node, Tree
from remit.cli.show.tree_lines import call_line, plain_ascii, return_line, sentence, spell_ms
from remit.cli.talk.input_line import PROMPT, Fragments, InputLine
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.records import Approval, Delta, Record, Refusal, ToolUse
from remit.text.terminal import Pieces, one_line, several_lines, speaks_unicode

# What is said is heard at once, and what is recorded after it is committed: so long the one waits for the other.
LATE_S = 0.05


class Transcript:
    """A `Display` of one run after the other.

    Where stdout is a terminal, an answer is written as it comes; into a file it goes as a whole. Below it is the input
    line. While an answer is made, the prompt says which agent is at work and for how long, and the line of the answer
    that has not ended yet stands above it.
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
            line.shown = self._shown
        # Agents print from their own threads.
        self._lock = RLock()
        self._tree = Tree()
        self._answer = AnswerSoFar()
        self._coming: deque[tuple[int, str]] = deque()
        self._pieces = Pieces()
        self._partial = ""
        """The last line of the answer so far, if it has not ended yet."""
        self._at_work = False
        self.asked = ""
        """Who is asked here whether something may go on."""

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
        """Write the answer, as far as it has not been written yet."""
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

    # ── what a display does ───────────────────────────────────────────────────────────────────────────────────────────

    def show(self, record: Record, node: Node) -> None:
        if isinstance(record.body, Delta):
            if node.parent is None and self._streams:
                self._coming.append((record.at_ms, record.body.text))
                asyncio.get_running_loop().call_later(LATE_S, self._speak)
            return
        # What an agent says after a call has returned must not stand before it.
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
                # What sub-agents use is told with what they return.
                if node.parent is None and not begun:
                    self._tell(sentence(record, node), node)
            case Approval(agreed=agreed, by=by):
                # A question is put to whoever sits here, or announced; and they know what they said.
                if agreed is not None and by != self.asked:
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
        """Say something that is of less weight than an answer."""
        self.say(styled(text, dim=True) if self._err.isatty() else text)

    def echo(self, text: str) -> None:
        """Keep what was entered in sight."""
        if self._redraws:
            more = "\n… " if self.unicode else "\n. "
            self.say(styled(PROMPT, bold=True) + several_lines(text).replace("\n", more))

    def ask(self) -> None:
        """Show that a request can be typed."""
        if self._line is not None:
            self._line.ask()

    def drop_line(self) -> None:
        """Clear the input, and say how to exit."""
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

    # ── how ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _speak(self, before_ms: float = math.inf) -> None:
        """Write what was said before a time."""
        with self._lock:
            while self._coming and self._coming[0][0] < before_ms:
                self._hear(self._coming.popleft()[1])

    def _hear(self, text: str) -> None:
        if not self._answer.text:
            text = text.lstrip("\n")  # models like to begin with some
        self._answer.add(text)
        self._write(self._pieces.add(text))

    def _write(self, text: str) -> None:
        """Write a part of the answer; a line that has not ended is drawn above the input, where that can be."""
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
        # A terminal that is gone must not keep a run from being stopped: its signal says so first.
        with self._lock, suppress(OSError) if self._line is not None else nullcontext():
            self._end_line()
            with self._above():
                self._err.write((text if self.unicode else plain_ascii(text)) + "\n")
                self._err.flush()

    def _tell(self, text: str, node: Node) -> None:
        depth = sum(1 for _ in node.lineage()) - 1
        self.remark("  " * max(1, depth) + text)

    def _end_line(self) -> None:
        """Put the cursor at the beginning of a line that is empty."""
        self._write(self._pieces.rest())
        if self._partial:
            self._write("\n")
        self._answer.interrupt()

    def _above(self) -> AbstractContextManager[None]:
        return nullcontext() if self._line is None else self._line.above()

    def _shown(self, width: int, height: int) -> Fragments:
        """Return the line of the answer that has not ended, and the prompt."""
        # As much of a long line as leaves room for what is typed; all of it is written once it has ended.
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


# So much of a text stands nowhere by chance.
TELLING = 8
# And so far back is looked for it.
LATELY = 5_000
_WORD = re.compile(r"(?<!\S)\S")


class AnswerSoFar:
    """What has been written of an answer so far, to know what of it is missing."""

    def __init__(self) -> None:
        self.text = ""
        self._since = 0

    def add(self, text: str) -> None:
        self.text += text

    def interrupt(self) -> None:
        """Note that something else was written: what was said before may have been no part of the answer."""
        self._since = len(self.text)

    def missing_of(self, answer: str) -> str | None:
        """Return what has still to be written of an answer; None if what was written is no part of it."""
        answer, said = answer.strip(), self.text
        if not answer or said.rstrip().endswith(answer):
            return ""
        words = [found.start() for found in _WORD.finditer(said, max(0, len(said) - min(len(answer), LATELY)))]
        for start in sorted({self._since, *words}):
            shown = said[start:].lstrip()
            if start in (0, self._since) or len(shown) >= TELLING:
                for written in (shown, shown.rstrip()):
                    if written and answer.startswith(written):
                        return answer[len(written) :]
        return None


class Printed(io.TextIOBase):
    """A stream that hands on each line that is printed to it."""

    def __init__(self, stream: TextIO, hand_on: Callable[[str], None]) -> None:
        self._stream = stream
        self._hand_on = hand_on
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
        """Hand on what was left without an end."""
        with self._lock:
            rest, self._rest = self._rest, ""
        if rest:
            self._hand_on(several_lines(rest))
