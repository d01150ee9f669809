"""The input line of a chat at a terminal, as the rest of the chat sees it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

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
