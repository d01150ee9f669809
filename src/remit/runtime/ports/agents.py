"""What a team brings: agents, tools, classifiers and the folder they work in."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from remit.protocol.card import ToolCard
from remit.protocol.envelope import Answer, Json, Usage
from remit.runtime.brief import Brief
from remit.text.intent import ClassifiedText

Agent = Callable[[Brief], Awaitable[Answer]]
"""Anything that answers: it gets a brief and gives an answer back. `agents/` makes one from whatever a user has."""


class Tool(NamedTuple):
    """A function that agents may use: its card, and how to run it with arguments for a user."""

    card: ToolCard
    run: Callable[[dict[str, Json], str], Awaitable[Json]]
    key: str | None = None
    """The key of the team file that says what it sees; None: `tools.NAME.sees`."""


TokenCounter = Callable[[str], int]
"""Says how many tokens a text is, exactly or about; it is called for every message that is kept, and takes no time."""

Summarizer = Callable[[str, int], Awaitable[tuple[str, Usage]]]
"""Makes a summary of a conversation, in at most so many tokens, and says what it spent on it."""


@runtime_checkable
class Classifier(Protocol):
    """Finds out which capabilities a user's words ask for: by words, by meaning, or by asking a model."""

    async def hears(self, text: str, brief: Brief) -> ClassifiedText:
        """Return what is likely meant, best first, spending no more than *brief* has left.

        It raises nothing for what it cannot find out: then nothing is likely, or it says how it found out otherwise.
        """
        ...


class Workspace(Protocol):
    """The folder that agents work in, as they may be told of it."""

    def describe(self, files: Sequence[str] | None, *, contents: bool, room: int, count: TokenCounter) -> str:
        """Return where it is, the named files or else its top level, and the project's name and stack.

        With *contents* the named files themselves, as far as they are text and fit into *room* tokens. Raises a
        `RemitError` for a path that leads out of it. It reads from the disk, so it is called in a thread.
        """
        ...
