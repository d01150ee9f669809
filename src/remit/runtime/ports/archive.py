"""What readers ask of a store: sessions, records, runs, facts about users."""

from collections.abc import Collection
from typing import Literal, NamedTuple, Protocol

from remit.protocol.envelope import Response
from remit.protocol.lifecycle import Status
from remit.protocol.records import Record


class SessionOwner(NamedTuple):
    """Whose session it is, and with which agent."""

    user: str
    agent: str


class RunSummary(NamedTuple):
    """One line for one run."""

    run: str
    user: str
    agent: str
    objective: str
    started_ms: int
    response: Response | None
    state: Literal["waiting", "running", "silent", "finished"] = "finished"
    """Silent: its worker has not been heard of for longer than its lease."""
    via: str = ""
    """Who brought its request here from elsewhere."""
    session: str = ""
    changed_ms: int = 0
    """When it ended; of one that has not, when it began."""
    correlation: str = ""
    """What links its request to others of the same workflow; its own id where its sender names nothing."""


class RunScope(NamedTuple):
    """Which runs somebody may see; None bounds nothing."""

    users: Collection[str] | None = None
    agents: Collection[str] | None = None
    via: str | None = None
    """Who brought their requests here from elsewhere."""


ANYONES = RunScope()


class RunState(NamedTuple):
    """Where one run stands, without what was said in it."""

    run: str
    id: str
    """That of its request."""
    user: str
    via: str
    session: str
    correlation: str
    changed_ms: int
    """When it ended; of one that has not, when it began; of one that was called off after it asked back, when."""
    seq: int
    """The number of the record that says so."""
    status: Status | None
    asks_back: bool
    """Whether it ended with a question to its user."""
    called_off: bool
    """Whether nobody wants to know any more what it asked: a notice after its end says that it was cancelled."""


# Facts that an agent reads at once: 10,000 tokens, if each is a sentence.
MOST_FACTS = 1_000


class Archive(Protocol):
    """What readers ask of a store; readers never block the writer."""

    async def owner(self, session: str) -> SessionOwner | None:
        """Return whose session it is, or None if it is nobody's yet."""
        ...

    async def session(self, session: str, user: str, agent: str) -> SessionOwner:
        """Return whose session it is, and give it to *user* and *agent* if it is nobody's yet."""
        ...

    async def records(
        self, *, run: str | None = None, session: str | None = None, after: int = 0, limit: int = 1_000
    ) -> list[Record]:
        """Return committed records in order, those of one run or session if asked."""
        ...

    async def recent(self, limit: int) -> list[Record]:
        """Return who was asked and how it ended, of the newest *limit* records: in order, each as its `outline`.

        It takes little time and memory however large they are: older ones may be missing.
        """
        ...

    async def runs(
        self,
        *,
        user: str | None = None,
        run: str | None = None,
        correlation: str | None = None,
        of: RunScope = ANYONES,
        limit: int = 50,
    ) -> list[RunSummary]:
        """Return the newest runs first: those of one user if asked, and those whose id begins with *run*.

        With *correlation* those whose request has that correlation id; a run without one has its own id.
        """
        ...

    async def named(self, id: str, of: RunScope) -> list[str]:
        """Return the runs whose requests have that id, which their senders chose, unless it is forgotten by now."""
        ...

    async def states(
        self, *, agent: str, users: Collection[str] | None = None, session: str | None = None, limit: int = 10_000
    ) -> list[RunState]:
        """Return where an agent's runs stand, the one that changed last first; of some users, or in a session."""
        ...

    def remember(self, user: str, run: str, facts: tuple[str, ...]) -> None:
        """Keep facts about a user; durable like a record, each kept once."""
        ...

    async def facts(self, user: str) -> tuple[str, ...]:
        """Return what is known about a user, the newest `MOST_FACTS` of it, oldest first."""
        ...
