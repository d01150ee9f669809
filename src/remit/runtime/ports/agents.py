"""Agents, tools, the folder that agents work in, and the clock."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from remit.protocol.card import AgentCard, ToolCard
from remit.protocol.envelope import Json
from remit.runtime.brief import Agent
from remit.runtime.ports.remote import Remote
from remit.runtime.ports.texts import TokenCounter


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


class Workspace(Protocol):
    """The folder that agents work in, as it is described to them."""

    def describe(self, files: Sequence[str] | None, *, contents: bool, room: int, count: TokenCounter) -> str:
        """Return its path, the named files or else its top level, and the project's name and stack.

        With *contents*, include the text of the named files, as far as they are text and fit into *room* tokens. Raises
        a `RemitError` for a path outside the folder. It reads from the disk, so it is called in a thread.
        """
        ...
