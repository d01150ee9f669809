"""The append-only record in a store, and read access to it: sessions, records, runs, facts about users."""

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from remit.protocol.envelope import Response
from remit.protocol.lifecycle import Status
from remit.protocol.records import Body, Kind, Record


class NumberedRecord(NamedTuple):
    """An entry of another log, to be recorded here, with its number in that log."""

    number: int
    kind: Kind
    at_ms: int
    run: str
    session: str
    body: Body


class Recorder(Protocol):
    """The record: append-only, hash-chained, in one order for all processes that share the store."""

    sizes: dict[str, int]
    """Recorded bytes by run. Only runs whose key was inserted are counted; whoever inserts a key removes it again."""

    def append(self, kind: Kind, at_ms: int, run: str, session: str, body: Body, epoch: int = 0) -> None:
        """Append a record without waiting; it is durable once a later `flush`, `submit` or `finish` has returned.

        What a hub records of its work on a run has the *epoch* of its claim. It is not written if the run was claimed
        or released since.
        """
        ...

    @property
    def full(self) -> bool:
        """Whether the queue is full: cheap to check before each append, so that `room` is not awaited every time."""
        ...

    async def room(self) -> None:
        """Return once there is room for more records."""
        ...

    async def flush(self) -> None:
        """Return once everything appended so far is durable, or raise `StoreError`."""
        ...

    async def transfer(self, source: str, entries: Sequence[NumberedRecord]) -> int:
        """Record the entries of another log in one step, each number of a *source* once; durable on return.

        Numbers grow. Entries up to the highest number that was already recorded are skipped. Returns the highest number
        now recorded.
        """
        ...

    def listen(self, listener: Callable[[list[Record]], None], *, patient: bool = False) -> Callable[[], None]:
        """Call *listener* in the event loop with each group of records that this store committed, in order.

        A *patient* listener does not make the store commit any sooner.
        """
        ...


class SessionOwner(NamedTuple):
    """The user and the agent of a session."""

    user: str
    agent: str


class RunSummary(NamedTuple):
    """A summary of one run."""

    run: str
    user: str
    agent: str
    objective: str
    started_ms: int
    response: Response | None
    state: Literal["waiting", "running", "silent", "finished"] = "finished"
    """`silent`: its worker has sent no heartbeat for longer than its lease."""
    via: str = ""
    """The peer or client that sent its request, if it came from elsewhere."""
    session: str = ""
    changed_ms: int = 0
    """When the run ended, or when it began if it has not ended."""
    correlation: str = ""
    """The correlation id of its request; the run's own id if the sender set none."""


class RunScope(NamedTuple):
    """The runs that are read: those that a reader may see, and a part of the list; None sets no bound."""

    users: Collection[str] | None = None
    agents: Collection[str] | None = None
    via: str | None = None
    """The peer or client that sent their requests."""
    before: str | None = None
    """Only runs that were submitted before this run. If it is not known, there are none."""
    since_ms: int | None = None
    """Only runs that started at this time or later."""
    until_ms: int | None = None
    """Only runs that started before this time."""


ANYONES = RunScope()


class RunState(NamedTuple):
    """The state of one run, without its texts."""

    run: str
    id: str
    """The id of its request."""
    user: str
    via: str
    session: str
    correlation: str
    changed_ms: int
    """When the run ended, or began if it has not ended.

    If it was cancelled after it asked its user back: when that happened.
    """
    seq: int
    """The number of the record that shows this state."""
    status: Status | None
    asks_back: bool
    """Whether it ended with a question to its user."""
    called_off: bool
    """Whether its question to the user was withdrawn: a notice after its end says that it was cancelled."""


# The most facts that an agent reads at once: about 10,000 tokens if each is a sentence.
MOST_FACTS = 1_000


class Archive(Protocol):
    """Read access to a store; readers never block the writer."""

    async def owner(self, session: str) -> SessionOwner | None:
        """Return the owner of a session, or None if it has none yet."""
        ...

    async def session(self, session: str, user: str, agent: str) -> SessionOwner:
        """Return the owner of a session; if it has none yet, assign it to *user* and *agent*."""
        ...

    async def records(
        self, *, run: str | None = None, session: str | None = None, after: int = 0, limit: int = 1_000
    ) -> list[Record]:
        """Return committed records in order, optionally of one run or session."""
        ...

    async def newest(self) -> int:
        """Return the number of the newest record, whichever process committed it; 0 if there is none."""
        ...

    async def recent(self, limit: int) -> list[Record]:
        """Return requests and outcomes among the newest *limit* records, in order, each as its `outline`.

        It takes little time and memory however large the records are; older ones may be missing.
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
        """Return runs, newest first: optionally those of one user, or those whose id begins with *run*.

        With *correlation*, return the runs whose request has that correlation id; a run without one has its own id.
        """
        ...

    async def named(self, id: str, of: RunScope) -> list[str]:
        """Return the runs whose requests have that id, which their senders chose. Forgotten ids are not found."""
        ...

    async def handed_over(self, run: str, user: str) -> list[tuple[str, str]]:
        """Return the calls of a run that other hubs on this store executed: request id, and run there."""
        ...

    async def states(
        self, *, agent: str, users: Collection[str] | None = None, session: str | None = None, limit: int = 10_000
    ) -> list[RunState]:
        """Return the states of an agent's runs, last changed first; optionally of some users, or in one session."""
        ...

    def remember(self, user: str, run: str, facts: tuple[str, ...], epoch: int = 0) -> None:
        """Store facts about a user; durable like a record, and refused like one. Duplicates are stored once."""
        ...

    async def facts(self, user: str) -> tuple[str, ...]:
        """Return the facts about a user: the newest `MOST_FACTS`, oldest first."""
        ...


# ── lists for people who look through a store: newest first, filtered, in pages ───────────────────────────────────────

# Rows that one page may look at where no index helps: about 100 ms of reading.
MOST_LOOKED_AT = 50_000
# If the body of each row has to be read too.
MOST_READ = 5_000


class RecordFilter(Struct, frozen=True, kw_only=True):
    """The records that a reader wants; None sets no bound."""

    run: str | None = None
    session: str | None = None
    kinds: frozenset[Kind] | None = None
    user: str | None = None
    """Only records of runs of this user."""
    agent: str | None = None
    """Only records about this agent; see `agent_of`."""
    since_ms: int | None = None
    until_ms: int | None = None


class ListedRecords(NamedTuple):
    """A page of records, newest first."""

    records: list[Record]
    next: int | None
    """The `before` of the next page; None: there are no older records.

    A page may hold fewer records than were asked for, or none, although older ones exist: the work for each is bounded.
    """


class SessionFilter(Struct, frozen=True, kw_only=True):
    """The conversations that a reader wants; None sets no bound."""

    session: str | None = None
    user: str | None = None
    agent: str | None = None
    text: str = ""
    """Only conversations whose last objective or id contains this text, ignoring case."""
    since_ms: int | None = None
    """Only conversations that changed since."""
    until_ms: int | None = None
    of: RunScope = ANYONES


class SessionSummary(NamedTuple):
    """A conversation of a user with an agent."""

    session: str
    user: str
    agent: str
    objective: str
    """The objective of its newest run."""
    first_ms: int
    last_ms: int
    """When its newest run ended, or began if it has not ended."""
    runs: int
    messages: int
    """The number of requests and answers."""
    run: str
    """Its newest run."""
    via: str = ""
    """The peer or client that sent the newest request, if it came from elsewhere."""


class ListedSessions(NamedTuple):
    """A page of conversations, the one with the newest request first."""

    sessions: list[SessionSummary]
    next: int | None
    """The `before` of the next page; None: there are no older ones. Pages may be short, as with `ListedRecords`."""


class Listings(Protocol):
    """Lists the content of a store."""

    async def records(self, wanted: RecordFilter, *, before: int | None = None, limit: int = 100) -> ListedRecords:
        """Return the newest committed records that a filter selects, of those before a number."""
        ...

    async def sessions(self, wanted: SessionFilter, *, before: int | None = None, limit: int = 50) -> ListedSessions:
        """Return the conversations that users began and a filter selects. *before* is the `next` of another page."""
        ...
