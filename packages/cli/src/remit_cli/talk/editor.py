"""The input line of a chat, edited and drawn by prompt_toolkit."""

import asyncio
import os
import shutil
import sys
import termios
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from threading import get_ident

from prompt_toolkit import PromptSession
from prompt_toolkit.application import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.search import stop_search
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.utils import get_cwidth

from remit.words.terminal import CONTROL_BUT_LAYOUT, REPLACEMENT, speaks_unicode
from remit_cli.show.screen import without_style
from remit_cli.talk.transcript import PROMPT, Entered, Fragments

# Undoes what prompt_toolkit changes while it reads: paste marks, hidden cursor, unwrapped lines, style.
_UNDO = b"\x1b[?2004l\x1b[?25h\x1b[?7h\x1b[0m\r\n"


class LineEditor:
    """An `InputLine` with cursor keys, history, completion and pasting; visible from `open` on."""

    redraws = True

    def __init__(self, terminal: int, entered: Entered, commands: Sequence[str] = ()) -> None:
        self._terminal = terminal
        self._entered = entered
        self._thread = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: list[int | list[bytes | int]] | None = None
        self._styled = not without_style()
        self._lent = False
        self._rows = 0
        """The number of lines above the input at the last drawing."""
        self._message_of, self._last_message = -1, Fragments()
        """The drawing of which the last message is."""
        self.shown: Callable[[int, int], Fragments] = lambda _width, _height: [("bold", PROMPT)]
        more = "… " if speaks_unicode(sys.stderr) else ". "
        self._session = PromptSession[str](
            self._message,
            multiline=True,
            prompt_continuation=lambda _width, _line, wrapped: "" if wrapped else more,
            completer=_Commands(commands),
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            enable_suspend=True,
            erase_when_done=True,
            key_bindings=self._bindings(),
            input_processors=[_Harmless()],
            input=_Keys(sys.stdin),
            # This stderr, whatever replaces `sys.stderr` later to have the output of agents printed above the input.
            # Nothing that is drawn depends on the cursor's position, so the terminal is not asked for it.
            output=Vt100_Output(sys.stderr, _size, term=os.environ.get("TERM"), enable_cpr=False),
        )
        self._app = self._session.app
        self._buffer = self._session.default_buffer
        self._buffer.accept_handler = self._accept

    @property
    def text(self) -> str:
        return self._buffer.text

    def take(self) -> str:
        text = self._buffer.text
        if self._app.layout.is_searching:
            stop_search()
        # Not lost: the keys for earlier lines (Up, or Ctrl-P) bring it back.
        self._buffer.reset(append_to_history=True)
        return text

    def begin(self, text: str) -> None:
        if self._buffer.text.strip():
            self._buffer.append_to_history()
        self._buffer.document = Document(text)

    def ask(self) -> None:
        self.redraw()

    @asynccontextmanager
    async def open(self, history: Sequence[str] = ()) -> AsyncGenerator[None]:
        self._session.history = self._buffer.history = InMemoryHistory(history)
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        self._before = termios.tcgetattr(self._terminal)
        reading = self._loop.create_task(self._read_lines())
        try:
            yield
        finally:
            if self._app.is_running and not self._app.is_done:
                self._app.exit(result="")
            else:
                reading.cancel()
            await asyncio.wait({reading})
            self._before = None
            if not reading.cancelled():
                reading.result()

    @contextmanager
    def above(self) -> Generator[None]:
        if self._app.is_running and not self._lent:
            self._app.renderer.erase()
        yield
        self._app.invalidate()

    def in_turn(self, action: Callable[[], None]) -> None:
        if self._loop is not None and self._thread != get_ident():
            with suppress(RuntimeError):  # the loop is closed, and nobody waits for this output any more
                self._loop.call_soon_threadsafe(action)
            return
        action()

    def redraw(self) -> None:
        rows = "".join(text for _, text in self._drawn()).count("\n")
        # prompt_toolkit keeps its earlier height until it is erased.
        if rows < self._rows and self._app.is_running and not self._lent:
            self._app.renderer.erase()
        self._rows = rows
        self._app.invalidate()

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[None]:
        async with in_terminal():
            self._lent = True
            try:
                yield
            finally:
                self._lent = False

    def restore(self) -> None:
        if self._before is not None:
            os.write(2, _UNDO)
            termios.tcsetattr(self._terminal, termios.TCSANOW, self._before)
            self._before = None

    # ── drawing ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_lines(self) -> None:
        try:
            await self._session.prompt_async(handle_sigint=False, set_exception_handler=False)
        except (EOFError, OSError):  # the terminal is gone
            self._entered(None)
        except Exception:
            self._entered(None)
            raise

    def _message(self) -> StyleAndTextTuples:
        # prompt_toolkit asks for it ten times while it draws once.
        if self._message_of != self._app.render_counter:
            self._message_of, self._last_message = self._app.render_counter, self._drawn()
        return [*self._last_message]

    def _drawn(self) -> Fragments:
        width, height = shutil.get_terminal_size()
        # The input may take several rows; the lines above it give way, down to half of the window.
        typed = sum(-(-(get_cwidth(line) + len(PROMPT)) // width) for line in self._buffer.text.split("\n"))
        shown = self.shown(width, height - min(typed - 1, height // 2))
        return [(style if self._styled else "", text) for style, text in shown]

    def _accept(self, buffer: Buffer) -> bool:
        self._entered(buffer.text)
        return False

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()
        typing = has_focus(DEFAULT_BUFFER)

        @keys.add("enter", filter=typing)
        def _enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.text.endswith("\\"):
                buffer.document = Document(buffer.text[:-1] + "\n")
            else:
                buffer.validate_and_handle()

        @keys.add("c-d", filter=typing & Condition(lambda: not self._buffer.text))
        def _end(_: KeyPressEvent) -> None:
            self._entered(None)

        return keys


class _Keys(Vt100Input):
    """Keys of a terminal on which Ctrl-C stays a signal, so that the user can exit even if an agent blocks the
    event loop.
    """

    @contextmanager
    def raw_mode(self) -> Generator[None]:
        with super().raw_mode():
            attributes = termios.tcgetattr(self.fileno())
            attributes[3] |= termios.ISIG
            # Ctrl-Z stays a key: prompt_toolkit restores the terminal before it suspends the process.
            attributes[6][termios.VSUSP] = os.fpathconf(self.fileno(), "PC_VDISABLE").to_bytes()
            termios.tcsetattr(self.fileno(), termios.TCSANOW, attributes)
            yield


class _Commands(Completer):
    """Completes a word that starts with a slash."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002 - as prompt_toolkit calls it
        word = document.text_before_cursor.rpartition(" ")[2]
        for name in self._names:
            if word.startswith("/") and f"/{name}".startswith(word):
                yield Completion(f"/{name} ", start_position=-len(word))


class _Harmless(Processor):
    """Shows a placeholder for each character that a terminal would act on; the text itself is not changed."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        fragments = transformation_input.fragments
        return Transformation([(each[0], CONTROL_BUT_LAYOUT.sub(REPLACEMENT, each[1])) for each in fragments])


def _size() -> Size:
    columns, rows = shutil.get_terminal_size()
    return Size(rows=rows, columns=columns)
