"""Shows a conversation: streamed answers on stdout, calls of other agents on stderr."""

import asyncio
import io
import math
import re
import shutil
import sys
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from threading import RLock
from typing import Any, TextIO

from rich.cells import cell_len

from remit.cli.drive.running import Data
from remit.cli.show.display import can_redraw
from remit.cli.show.screen import now_ms, styled
from remit.cli.show.tree import Node, Tree
from remit.cli.show.tree_lines import call_line, plain_ascii, return_line, sentence, spell_ms
from remit.cli.talk.typeahead import TypeAhead
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.records import Approval, Delta, Record, Refusal, ToolUse
from remit.text.terminal import Pieces, one_line, several_lines, speaks_unicode

# What is said is heard at once, and what is recorded after it is committed: so long the one waits for the other.
LATE_S = 0.05

_ERASE = "\r\x1b[K"


class Transcript:
    """A `Display` of one run after the other.

    Where stdout is a terminal, an answer is written as it comes; into a file it goes as a whole. Below it, while there
    is nothing to read, a line says how long it takes, and shows what is being typed.
    """

    def __init__(self, data: Data, *, as_jsonl: bool, ahead: TypeAhead | None) -> None:
        self.unicode = speaks_unicode(sys.stderr)
        self._data = data
        self._as_jsonl = as_jsonl
        self._streams = data.is_terminal and not as_jsonl
        self._ahead = ahead
        self._err = sys.stderr
        self._redraws = can_redraw() and ahead is not None
        if ahead is not None:
            ahead.changed = self.tick
        # What agents print comes from threads of their own.
        self._lock = RLock()
        self._tree = Tree()
        self._answer = AnswerSoFar()
        self._coming: deque[tuple[int, str]] = deque()
        self._pieces = Pieces()
        self._unended = False
        """Whether the cursor stands behind a part of the answer."""
        self._has_status = False
        self._at_work = False
        self._kept: list[str] = []
        self.asked = ""
        """Who is asked here whether something may go on."""

    # ── a run ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def run(self, tree: Tree) -> Generator[None]:
        """Show a run, from its first record to its answer."""
        self._tree, self._answer, self._at_work = tree, AnswerSoFar(), True
        printed = Printed(self._err, self.say)
        if self._ahead is not None:
            self._ahead.start()
        try:
            if self._redraws:
                with redirect_stdout(printed), redirect_stderr(printed):
                    yield
                printed.finish()
            else:
                yield
        finally:
            with self._lock:
                self._speak()
                self._end_line()
                self._at_work = False
            if self._ahead is not None:
                self._ahead.stop()

    def answer(self, result: Json) -> None:
        """Write the answer, as far as it has not been written yet."""
        if self._as_jsonl:
            return
        self._speak()
        with self._lock:
            if not self._streams or not isinstance(result, str):
                self._end_line()
                self._data.answer(result)
                return
            self._erase_status()
            rest = self._answer.missing_of(result)
            if rest is None:
                self._end_line()
                rest = result
            self._write(self._pieces.add(rest) + self._pieces.rest())
            self._end_line()

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
        with self._lock:
            if self._redraws and self._at_work and not self._unended and self._ahead is not None:
                self._err.write(f"{_ERASE}{self._status(self._ahead.text)}")
                self._err.flush()
                self._has_status = True

    def say(self, text: str) -> None:
        with self._lock:
            self._end_line()
            self._err.write((text if self.unicode else plain_ascii(text)) + "\n")
            self._err.flush()

    def remark(self, text: str) -> None:
        """Say something that is of less weight than an answer."""
        self.say(styled(text, dim=True) if self._err.isatty() else text)

    def log(self, text: str) -> None:
        """Say it now, or, while someone types at the prompt, after that."""
        with self._lock:
            if self._at_work or self._ahead is None:
                self.say(text)
            else:
                self._kept.append(text)

    def catch_up(self) -> None:
        """Say what was kept back."""
        while self._kept:
            self.say(self._kept.pop(0))

    @contextmanager
    def aside(self) -> Generator[None]:
        with self._lock:
            self._end_line()
            self._at_work = False
        if self._ahead is not None:
            self._ahead.stop()
        try:
            yield
        finally:
            if self._ahead is not None:
                self._ahead.start()
            self._at_work = True

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        if self._ahead is not None:
            self._ahead.restore()

    # ── how ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _speak(self, before_ms: float = math.inf) -> None:
        """Write what was said before a time."""
        with self._lock:
            while self._coming and self._coming[0][0] < before_ms:
                self._hear(self._coming.popleft()[1])

    def _hear(self, text: str) -> None:
        self._erase_status()
        if not self._answer.text:
            text = text.lstrip("\n")  # models like to begin with some
        self._answer.add(text)
        self._write(self._pieces.add(text))

    def _write(self, text: str) -> None:
        if text:
            self._data.piece(text)
            self._unended = not text.endswith("\n")

    def _tell(self, text: str, node: Node) -> None:
        depth = sum(1 for _ in node.lineage()) - 1
        self.remark("  " * max(1, depth) + text)

    def _end_line(self) -> None:
        """Put the cursor at the beginning of a line that is empty."""
        self._erase_status()
        self._write(self._pieces.rest())
        if self._unended:
            self._write("\n")
        self._answer.interrupt()

    def _erase_status(self) -> None:
        if self._has_status:
            self._err.write(_ERASE)
            self._err.flush()
            self._has_status = False

    def _status(self, typed: str) -> str:
        """Return who is at work and for how long, and what is being typed."""
        status, root = "… ", self._tree.root
        if root is not None:
            at_work = next((node for node in reversed(self._tree.in_flight.values()) if not node.open), root)
            status = f"… {one_line(at_work.agent, 40)} {spell_ms(root.taken_ms(now_ms()))}  "
        if not self.unicode:
            status = plain_ascii(status)
        width = shutil.get_terminal_size().columns - 1
        typed = one_line(typed)[-width:]
        while cell_len(status + typed) > width:
            status, typed = (status, typed[1:]) if typed else (status[:-1], "")
        return status + typed


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
