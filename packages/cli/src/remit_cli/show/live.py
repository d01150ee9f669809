"""The tree of a run, redrawn in place on a terminal; other output appears above it."""

import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from remit.protocol.records import Record
from remit.runtime.run_tree import Node, Tree
from remit.words.terminal import several_lines, speaks_unicode
from remit_cli.show.tree_lines import STYLES, in_columns, lines_of, plain_ascii

# Below the tree: the cursor's line. Above it: one line of earlier output, so that its beginning is visible.
ROOM_AROUND = 2
HEIGHT_FOR_HEAD = 10
# Below the tree, the end of the agent's text may take one part in this many of the height, and the lines left over.
SHARE_FOR_SAYING = 3


class LiveTree:
    """A `Display` that redraws the tree."""

    def __init__(self, tree: Tree, now_ms: Callable[[], int], console: Console | None = None) -> None:
        self._tree = tree
        self._now_ms = now_ms
        self._console = console or Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        self._unicode = speaks_unicode(self._console.file)
        self._live: Live | None = None
        self._may_draw = True

    def show(self, record: Record, node: Node) -> None:
        pass  # drawn at the next tick: otherwise a thousand records a second would be drawn a thousand times

    def tick(self) -> None:
        if not self._may_draw or self._tree.root is None:
            return
        if self._live is None:
            self._live = self._start()
        self._live.update(self.drawn(self._console.height - ROOM_AROUND), refresh=True)

    def say(self, text: str) -> None:
        self._console.print(Text(text if self._unicode else plain_ascii(text)), soft_wrap=True)

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[None]:
        self._may_draw = False
        self._stop()
        try:
            yield
        finally:
            self._may_draw = True

    def close(self) -> None:
        """Leave the current tree on the screen."""
        if self._may_draw and self._tree.root is not None:
            self._stop()
            self._console.print(self.drawn(self._console.height - ROOM_AROUND))
        self._may_draw = False

    def abandon(self) -> None:
        """Show the cursor again, without rich: it may be in the middle of a drawing, and would hold back
        further output.
        """
        if self._may_draw:
            os.write(sys.stderr.fileno(), b"\x1b[?25h\r\n")

    def drawn(self, height: int) -> Group:
        """Return the current tree, in at most *height* lines."""
        size = self._tree.root.size if self._tree.root else 0
        saying = self._saying(max(height // SHARE_FOR_SAYING, height - size - 1))
        height -= len(saying)
        # The heading of the columns takes one line, if there is room.
        head = height >= HEIGHT_FOR_HEAD
        lines = lines_of(self._tree, self._now_ms(), height - head)
        # Terminals wrap a line that is as wide as the window.
        rows = in_columns(lines, self._console.width - 1, unicode=self._unicode, head=head)
        return Group(*(coloured(row) for row in rows), *saying)

    def _saying(self, height: int) -> list[Text]:
        """Return the end of the answer that the root agent is writing; the finished answer is printed as a whole."""
        root = self._tree.root
        if root is None or root.response is not None or not root.saying.strip() or height < 1:
            return []
        text = several_lines(root.saying).expandtabs().rstrip()
        shown = Text(text if self._unicode else plain_ascii(text), style=STYLES["saying"])
        lines = shown.wrap(self._console, self._console.width - 1)[-height:]
        return [Text(), *lines[-(height - 1) :]] if height > 1 else list(lines)

    def _start(self) -> Live:
        # Redrawn from the event loop and not from a thread, so that the tree never changes while it is drawn.
        live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            vertical_overflow="crop",
        )
        live.start()
        return live

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def coloured(row: list[tuple[str, str]]) -> Text:
    """Return a line of the tree with its colours."""
    return Text.assemble(*((text, STYLES[style]) for text, style in row), no_wrap=True, overflow="crop")
