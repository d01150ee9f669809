"""The store of a hub: its requests, journal, questions and records as ports."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from remit.protocol.envelope import VERSION, ContextFilter, Json, Message, Note, Request, Response, Usage
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Body, Kind, Record
from remit.protocol.typed import JsonSchema


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


class Question(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A question to a person about a request. All of it is redacted, so that it can be shown and stored."""

    id: str
    """Stable: the same question about the same delegation has the same id, also after a restart."""
    text: str
    """The question."""
    request: Request
    """The request that it is about."""
    editable: frozenset[str] = frozenset()
    """The fields that the person may edit before approving: `objective`, `input`."""
    form: JsonSchema | None = None
    """The form that the fields of the request's input belong to; None: there is none."""
    asked_ms: int
    """When it was asked, in milliseconds since 1970."""
    expires_ms: int
    """The last moment to answer, in milliseconds since 1970."""


class Decision(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A person's decision, and who made it."""

    agreed: bool
    """Whether the request may continue."""
    by: str
    """Who answered."""
    reason: str = ""
    """Why."""
    edits: dict[str, Json] = {}
    """The edited fields and their new values: `objective`, `input`."""


Approver = Callable[[Question], Awaitable[Decision | bool | None]]
"""Asks a person and returns the decision; None: this approver does not decide about the question."""


class AcceptedRequest(NamedTuple):
    """The request is new, durable, and claimed by the worker that submitted it, if it has a lease."""

    epoch: int


class TakenRequest(NamedTuple):
    """A request that had not begun, and the epoch under which a worker has claimed it."""

    epoch: int
    request: Request


class SingleUseProof(NamedTuple):
    """A proof that may be used once: the key to remember it by, and until when to remember it."""

    key: str
    until_ms: int


class ReusedProof(NamedTuple):
    """The request's single-use proof was used before: nothing was submitted."""


USED = fault(
    Code.UNAUTHENTICATED,
    "hub authentication failed: its proof was used before",
    suggestion="Make a new proof for each request, including retries.",
)
"""The fault of a request whose single-use proof was used before."""


class DuplicateRequest(NamedTuple):
    """The request was submitted before, as *run*; `response` is set once it has finished."""

    run: str
    same_content: bool
    response: Response | None


Submitted = AcceptedRequest | DuplicateRequest | ReusedProof
"""The result of submitting a request."""


class OrphanedRun(NamedTuple):
    """A request whose worker stopped its heartbeats, or released it; the next worker that claims it may resume it."""

    run: str
    request: Request
    waiting: bool = False
    """Whether it had not begun, because it waited for a person."""


def unknown_outcome(request: Request, why: Fault) -> Response:
    """Return the end of a request that may have been executed: all that its caller granted counts as spent."""
    return Response(
        version=VERSION,
        id=request.id,
        target=request.target,
        status=Status.FAILED,
        run=request.run,
        session=request.session,
        # A user granted nothing to anybody: what was reserved of a user's own budget stays reserved.
        usage=Usage(prompt=request.remit.tokens, estimated=True) if request.remit.chain else Usage(),
        fault=why,
    )


def silent_outcome(request: Request, attempts: int) -> Response:
    """Return the outcome of a request whose workers went silent too often; every store ends it this way."""
    times = "once" if attempts == 1 else f"{attempts} times"
    why = f"{request.target} was started {times}, and its hub stopped responding each time"
    return unknown_outcome(request, fault(Code.OUTCOME_UNKNOWN, why))


# A run may wait for days while hubs come and go, but a run that crashes every hub must end some day.
MOST_EPOCHS = 30
# The epoch of a run that was submitted and not claimed again since.
FIRST_EPOCH = 1


class RunEpoch(NamedTuple):
    """A run, and the epoch under which a hub has claimed it; 0: no hub has, or what is written is not part of a run."""

    run: str
    epoch: int


NO_RUN = RunEpoch("", 0)


class Requests(Protocol):
    """Root requests: each is executed at most once, by one worker at a time."""

    async def submit(
        self,
        request: Request,
        digest: bytes,
        *,
        worker: str,
        lease_ms: int,
        waiting: bool = False,
        once: SingleUseProof | None = None,
    ) -> Submitted:
        """Make the request and its first record durable and claim it; idempotent by (sender, user, id).

        A request that is *waiting*, for a person or for a host, has not begun; `begin` says when it does. With a
        *lease_ms* of 0 and an empty *worker* nobody has claimed it: any worker may `take` it at once. The single-use
        proof *once* is stored in the same step; if it was used before, nothing is submitted.
        """
        ...

    def submit_soon(
        self, request: Request, digest: bytes, *, worker: str, lease_ms: int
    ) -> Awaitable[Submitted] | None:
        """Submit a request that may begin before it is durable, because its callee changes nothing.

        It becomes durable with the next write, and within a fraction of a second. Later writes of this process come
        after it. Its epoch is `FIRST_EPOCH` if it is accepted. None: it was submitted before, or the store gains
        nothing; use `submit`.
        """
        ...

    async def begin(self, run: str, epoch: int, request: Request) -> bool:
        """Record durably that a waiting request begins, in its current form; False: the epoch is stale."""
        ...

    async def release(self, run: str, epoch: int, *, begun: bool = True) -> bool:
        """Release a claimed request, so that another worker may resume it at once; it does not count as an attempt.

        Without *begun*, nothing of it was executed: it waits to be taken again, although it had begun.
        """
        ...

    async def find(self, request: Request, digest: bytes) -> DuplicateRequest | None:
        """Return what is known about a request without submitting it."""
        ...

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        """Claim an expired request: return the new epoch, or None if another worker has it or it has finished.

        If a person was being asked when its worker went silent, that does not count as an attempt, up to `MOST_EPOCHS`.
        """
        ...

    async def take(self, run: str, worker: str, lease_ms: int, *, begin: bool = False) -> TakenRequest | None:
        """Claim a request that has not begun and that no worker holds, and return it, in one transaction.

        None: another worker has it, it has begun, or it has ended. Unlike `claim`, this never returns a request that
        may have been executed before. With *begin*, it begins at once, as it was submitted.
        """
        ...

    async def heartbeat(self, worker: str, lease_ms: int) -> None:
        """Extend the lease of every request that *worker* has claimed."""
        ...

    async def claimed(self, worker: str) -> list[tuple[str, int]]:
        """Return the unfinished runs that *worker* has claimed, with their epochs."""
        ...

    async def late_workers(self, within_ms: int) -> list[str]:
        """Return the workers with claims whose leases end *within_ms*: they have sent no heartbeat for a while."""
        ...

    async def end_leases(self, worker: str, within_ms: int) -> bool:
        """End the leases of a worker that is known to be dead, so that its requests expire at once.

        False: it has none, or one of them ends later than *within_ms*, because the worker has sent a heartbeat or
        claimed a request since. Should it be alive, its next heartbeat keeps what nobody has claimed by then.
        """
        ...

    async def finish(self, run: str, epoch: int, response: Response, at_ms: int, *, keep: bool = True) -> bool:
        """Make the outcome and its record durable in one step; False: the epoch is stale and nothing was written.

        Without *keep*, the outcome is recorded but not stored: the same request may be submitted again.
        """
        ...

    async def wait(self, run: str) -> Response:
        """Return the outcome once there is one, whichever process finishes the request."""
        ...

    async def sweep(self, *, max_attempts: int, keep_ms: int) -> list[OrphanedRun]:
        """Requeue expired requests and return them; after *max_attempts* expiries a request ends as OUTCOME_UNKNOWN.

        Requests that wait for a person may expire any number of times. Outcomes older than *keep_ms* are deleted (their
        records stay), so their ids may be used again. Sealed values of those runs are deleted too, unless they belong
        to a session.
        """
        ...


class Journal(Protocol):
    """The finished steps of a resumable run: never lost, never repeated."""

    def journal(self, run: str, epoch: int, step: str, value: bytes) -> None:
        """Store a step's value, durable like a record. With a stale epoch nothing is written; the last value counts."""
        ...

    async def journal_durably(self, run: str, epoch: int, step: str, value: bytes) -> bool:
        """Store a step's value before its effects begin: durable on return, with everything appended before it.

        False: the epoch is stale, or the run has ended. Nothing was written, and the step must not begin.
        """
        ...

    async def load(self, run: str) -> dict[str, bytes]:
        """Return every stored step of the run, until it succeeds or its outcome is deleted."""
        ...


class StoreError(RemitError):
    """The store cannot keep its promises; the fault says why and how to fix it."""


FACTS = "facts "
"""Prefix of the scopes of sealed values in facts about users.

They are kept as long as the facts, whichever run ends.
"""

# More than this is a history, not a list of things to remember.
MOST_NOTES = 24


class SealedValue(NamedTuple):
    """The encrypted raw value of a token, and whether the run's user may have it back."""

    token: str
    value: bytes
    of_user: bool


class Vault(Protocol):
    """The encrypted values of a conversation's tokens; the store cannot read them.

    A scope is a session and is kept as long as the session. A run without a session is its own scope and is deleted
    with its outcome.
    """

    def secret(self) -> bytes:
        """Return 32 secret bytes, readable only with this store's key and the same for all who share the store."""
        ...

    def seal(self, scope: str, sealed: Sequence[SealedValue]) -> None:
        """Store values; durable like a record. The first value of a token counts; `of_user` stays set once set."""
        ...

    async def unseal(self, scope: str) -> list[SealedValue]:
        """Return all values of a scope."""
        ...


class Inbox(Protocol):
    """Questions that wait for a person, in whichever process the person answers."""

    async def put(self, question: Question) -> Question:
        """Add a question, durable on return. An existing question stays unchanged and is returned."""
        ...

    async def decide(self, question: str, decision: Decision) -> bool:
        """Answer a question, durable on return; False: unknown, expired or already answered."""
        ...

    async def decision(self, question: str) -> Decision | None:
        """Return the decision so far, whichever process wrote it."""
        ...

    async def withdraw(self, question: str) -> None:
        """Withdraw a question that needs no answer any more."""
        ...

    async def pending(self) -> list[Question]:
        """Return the questions that can still be answered, oldest first."""
        ...


ControlAction = Literal["cancel", "reload"]


class ControlCommand(NamedTuple):
    """A command to the hubs that share a store."""

    seq: int
    run: str
    """The run that it is about; empty: it is for every hub."""
    action: ControlAction
    by: str
    reason: str
    delegation: str = ""
    """The path of the delegation of that run that it is about; empty: the whole run."""


class Controls(Protocol):
    """Commands from one process to the runs of another."""

    async def control(self, run: str, action: ControlAction, by: str, reason: str, delegation: str = "") -> int:
        """Send a command to every hub that shares this store; durable on return. Returns its number.

        With *delegation*, it is about that delegation of the run and everything below it.
        """
        ...

    async def controls(self, after: int, run: str | None = None) -> list[ControlCommand]:
        """Return the commands after number *after*, optionally about one run.

        Commands older than a day may be gone, unless their run may still be resumed.
        """
        ...


class Conversations(Protocol):
    """The messages of each session, found without reading all of it. Only the record has the texts."""

    async def messages(self, session: str, wanted: ContextFilter, *, now_ms: int, tokens: int) -> list[Message]:
        """Return what `policy.context.select` chooses of everything committed in a session, oldest first."""
        ...

    async def seen(self, session: str, messages: Collection[int]) -> frozenset[int]:
        """Return which of these message numbers are in a session: said there, or shown to its agent before."""
        ...

    def note(self, session: str, notes: Sequence[Note], of: RunEpoch = NO_RUN) -> None:
        """Store notes of a conversation; durable like a record. A note that is stored again becomes the newest.

        They are refused as records are, if the epoch of the run that makes them is stale.
        """
        ...

    async def notes(self, session: str) -> list[Note]:
        """Return the notes of a conversation: the newest `MOST_NOTES`, oldest first."""
        ...


class Counters(Protocol):
    """Shared counters and small values."""

    async def incr(self, key: str, n: int, window_ms: int) -> int:
        """Add *n* in the current window and return the window's total."""
        ...

    async def cas(self, key: str, revision: int, value: bytes) -> int | None:
        """Write *value* if the key is still at *revision* (0: absent); return the new revision, or None if it moved."""
        ...

    async def get(self, key: str) -> tuple[int, bytes] | None:
        """Return revision and value."""
        ...


class Store(Recorder, Requests, Journal, Vault, Inbox, Controls, Conversations, Counters, Archive, Protocol):
    """Everything that a hub remembers. It is opened before the hub's first request and closed after its last."""

    @property
    def listings(self) -> Listings:
        """Lists of what the store holds, for people."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Make everything durable and close; nothing that was appended before is lost."""
        ...
