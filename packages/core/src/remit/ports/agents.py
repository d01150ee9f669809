"""Agents, tools, the folder that agents work in, and the clock."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from remit.ports.brief import Agent, Brief
from remit.ports.remote import Remote
from remit.protocol.card import AgentCard, ToolCard
from remit.protocol.envelope import Answer, Json, Note, Usage


class Clock(Protocol):
    """A clock that tests can control."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        ...

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970, for people to read. Only leases depend on it."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call *callback* once `now()` reaches *when*. The returned function cancels it."""
        ...


class RegisteredAgent(NamedTuple):
    """An agent that is registered here."""

    card: AgentCard
    agent: Agent | Remote
    address: str

    @property
    def is_rated_here(self) -> bool:
        """Whether calls count for its rate limit here; those of an agent that another hub of the team hosts, there."""
        return self.card.rate is not None and not (isinstance(self.agent, Remote) and self.agent.shares_store)


class Tool(NamedTuple):
    """A function that agents may use: its card, and the function that runs it with arguments for a user."""

    card: ToolCard
    run: Callable[[dict[str, Json], str], Awaitable[Json]]
    key: str | None = None
    """The team-file key that sets which values the tool sees; None: `tools.NAME.sees`."""
    owner: str = ""
    """The agent that brings it along; empty: it is one of the hub."""
    recorded_characters: int | None = None
    """How many characters of each text among its arguments are recorded; None: all."""

    @property
    def rated_as(self) -> str:
        """Return the name under which its uses are counted."""
        return f"{self.owner}/{self.card.name}" if self.owner else self.card.name


TokenCounter = Callable[[str], int]
"""Counts the tokens of a text, exactly or roughly. It runs for every stored message, so it must be fast."""

Summarizer = Callable[[str, int], Awaitable[tuple[str, Usage]]]
"""Summarizes a conversation in at most the given number of tokens; returns the summary and the tokens spent on it."""


class LanguageModel(Protocol):
    """An agent backed by a language model."""

    async def __call__(self, brief: Brief, /) -> Answer: ...

    def check(self) -> None:
        """Raise a `RemitError` if the model cannot be called from here; nothing is sent to it."""
        ...

    def summarizer(self) -> Summarizer:
        """Return what summarizes conversations with this model."""
        ...


class Payer(Protocol):
    """A delegation that pays for the tokens of a model."""

    @property
    def left(self) -> int:
        """Tokens that are neither spent nor reserved."""
        ...

    def meter(self, usage: Usage) -> None:
        """Count tokens that were spent."""
        ...


class ConversationReader(Protocol):
    """Reads what was said in conversations."""

    async def summary(self, session: str, payer: Payer | None) -> str:
        """Return the summary of a conversation so far; without a *payer* no model is asked."""
        ...

    def notes(self, text: str, question: str, /) -> list[Note]:
        """Return the decisions and demands in a user's text, and its answer if the user was asked something."""
        ...


class Workspace(Protocol):
    """The folder that agents work in, as it is described to them."""

    def describe(self, files: Sequence[str] | None, *, contents: bool, room: int, count: TokenCounter) -> str:
        """Return its path, the named files or else its top level, and the project's name and stack.

        With *contents*, include the text of the named files, as far as they are text and fit into *room* tokens. Raises
        a `RemitError` for a path outside the folder. It reads from the disk, so it is called in a thread.
        """
        ...
