"""Every extension point of the runtime, each with what it promises."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from remit.protocol.card import ToolCard
from remit.protocol.envelope import VERSION, Answer, ContextFilter, Json, Message, Note, Request, Response, Usage
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Approval, Body, Kind, Record
from remit.runtime.brief import Brief
from remit.text.intent import ClassifiedText

# ── an agent, a tool, a person ────────────────────────────────────────────────────────────────────────────────────────

Agent = Callable[[Brief], Awaitable[Answer]]
"""Anything that answers: it gets a brief and gives an answer back. `agents/` makes one from whatever a user has."""


class Departure(Struct, frozen=True, omit_defaults=True):
    """That a request was about to leave for somewhere else: from then on it may have been carried out there."""

    to: str
    """Where it went, and under which name."""
    at_ms: int
    task: str = ""
    """What the other side calls it, once it has said so."""
    id: str = ""
    """The request id under which it was sent; empty: the sender's own, as earlier versions did."""


class RemoteHandle(Protocol):
    """What may be done here for a delegation while it is carried out elsewhere."""

    @property
    def heard(self) -> bool:
        """Whether someone reads along: only then is it worth having what is said sent as it comes."""
        ...

    @property
    def traceparent(self) -> str:
        """Its place in the trace, as W3C writes it."""
        ...

    @property
    def root(self) -> Request:
        """The request that began its run, redacted: who brought it here, and under which id."""
        ...

    @property
    def handed_back(self) -> bool:
        """Whether its run stops here only to be taken up again: what is done elsewhere may go on."""
        ...

    @property
    def passed_on(self) -> Mapping[str, str]:
        """What came beside the request of its run for others to read: headers that go along as they are."""
        ...

    def time_left_ms(self) -> int: ...

    def progress(self, text: str, partial: Answer | None) -> None: ...

    def say(self, text: str) -> None: ...

    def settle(self, response: Response) -> None:
        """Count what was spent on what was stopped there, and keep what it had finished: it is known how it ended."""
        ...

    async def asked(self, approval: Approval) -> None:
        """Heed that a person is asked there, or has said: no time passes here meanwhile, within what a person may take.

        It is put on record, so that whoever waits for this hub's answer knows what it waits for.
        """
        ...

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Let no time pass here meanwhile, because a person is asked there: for where it is not said what."""
        ...

    async def depart(self, to: str) -> Departure | None:
        """Put on record that the request is about to leave for *to*; before this returns, nothing leaves the hub.

        Returns None if nothing has left before, as far as is known. Else it may have been carried out there, and is to
        end as what came of it, or as `OUTCOME_UNKNOWN`. Raises a `RemitError` if nothing may leave: another hub has
        taken the run over, or the request left for somewhere else.
        """
        ...

    def age_ms(self, left: Departure) -> int:
        """Return how long ago that was; less than nothing if a clock was set back since."""
        ...

    def name(self, task: str) -> None:
        """Keep what the other side calls it, so that it can be asked for by that name after a restart."""
        ...

    @property
    def in_doubt(self) -> bool:
        """Whether it may have been carried out elsewhere, and is not known to have ended."""
        ...

    def doubt(self, why: str) -> None:
        """Say before each sending why it is not known what comes of it; empty: it is certain that nothing left.

        If the delegation is stopped while that is so, it ends as `OUTCOME_UNKNOWN`.
        """
        ...


class Remote:
    """An agent that lives elsewhere: it is sent the request itself, and says how it ended there."""

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        """Return how it ended; cancelled, tell the other side before raising, and wait no longer than is polite."""
        raise NotImplementedError


class OutgoingRequest(NamedTuple):
    """One HTTP request as it leaves: its method, its path (below the address of a hub), its body."""

    method: str
    path: str
    body: bytes = b""


Credential = Callable[[Request, OutgoingRequest], Awaitable[dict[str, str]]]
"""Returns the headers that prove to another hub who asks, for what, and that nobody changed it on the way."""


class Tool(NamedTuple):
    """A function that agents may use: its card, and how to run it with arguments for a user."""

    card: ToolCard
    run: Callable[[dict[str, Json], str], Awaitable[Json]]
    key: str | None = None
    """The key of the team file that says what it sees; None: `tools.NAME.sees`."""


class Question(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a person is asked about a request: all of it redacted, so that it may be shown and kept."""

    id: str
    """The same whenever the same is asked of the same delegation, also after a restart."""
    text: str
    request: Request
    editable: frozenset[str] = frozenset()
    """What may be changed before agreeing: `objective`, `input`."""
    asked_ms: int
    expires_ms: int
    """When it is too late to answer, in milliseconds since 1970."""


class Decision(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a person said, and who it was."""

    agreed: bool
    by: str
    reason: str = ""
    edits: dict[str, Json] = {}
    """What was changed before agreeing, by field: `objective`, `input`."""


Approver = Callable[[Question], Awaitable[Decision | bool | None]]
"""Puts a question to a person and returns what they said; None: it is not for this approver to say."""


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


class Clock(Protocol):
    """Time, so that tests can turn it."""

    def now(self) -> float:
        """Seconds on a clock that only moves forward."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for people to read; nothing is decided by it but leases."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once `now()` has reached *when*; the function returned takes it back."""
        ...


# ── a transport ───────────────────────────────────────────────────────────────────────────────────────────────────────


class NobodyServesError(Exception):
    """No server for that agent can be reached: nothing was started."""


class Slot(Protocol):
    """One of an agent's places; given back while it waits for others, so that waiting never blocks working."""

    def release(self) -> None: ...

    def regain_now(self) -> bool:
        """Take a place again if that needs no waiting."""
        ...

    async def regain(self) -> None:
        """Return once there is a place again, ahead of all new work."""
        ...


Handler = Callable[[Request, Slot], Awaitable[Response]]
"""Carries out one request that a transport brought."""


class Transport(Protocol):
    """Brings requests to whoever serves an agent, in process or far away."""

    async def request(self, agent: str, request: Request, deadline: float) -> Response:
        """Return the reply; raise `NobodyServesError`, `TimeoutError` (too late), or `RemitError` (queue full)."""
        ...

    def serve(
        self, agent: str, slots: int, queue: int, handler: Handler, *, elsewhere: bool = False
    ) -> Callable[[], None]:
        """Hand requests for *agent* to *handler*, never more than *slots* at once; the function returned ends it.

        What is passed on for another hub to an agent that lives *elsewhere* does not wait for a slot: hubs that ask
        each other would wait in a circle.
        """
        ...

    def queued(self) -> dict[str, int]:
        """Return how many requests wait here for each agent that is served here."""
        ...

    def publish(self, topic: str, message: Json) -> None:
        """Tell whoever listens now; may lose, never lies."""
        ...

    def subscribe(self, topic: str) -> AsyncIterator[Json]: ...


# ── a store ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class StoreError(RemitError):
    """The store cannot do what it promises; its fault says why and what to mend."""


class AcceptedRequest(NamedTuple):
    """The request is new, durable, and claimed by the worker that submitted it."""

    epoch: int


class SingleUseProof(NamedTuple):
    """Something that counts once: the key by which it is remembered, and until when it has to be."""

    key: str
    until_ms: int


class ReusedProof(NamedTuple):
    """What came with the request counts once, and was used before: nothing was submitted."""


USED = fault(
    Code.UNAUTHENTICATED,
    "a hub has not proven who it is: its proof was used before",
    suggestion="Make a proof for each sending, also for one that is tried again.",
)
"""Why a request is refused whose proof counts once."""


class DuplicateRequest(NamedTuple):
    """The request was submitted before, as *run*; `response` is there once it has finished."""

    run: str
    same_content: bool
    response: Response | None


class OrphanedRun(NamedTuple):
    """A request whose worker went silent, or handed it back; whoever claims it next may take it up."""

    run: str
    request: Request
    waiting: bool = False
    """Whether it had not begun: it waited for a person."""


def unknown_outcome(request: Request, attempts: int) -> Response:
    """Return how every store ends a request whose workers went silent once too often."""
    times = "once" if attempts == 1 else f"{attempts} times"
    why = fault(Code.OUTCOME_UNKNOWN, f"{request.target} was started {times}, and its hub went silent each time")
    return Response(
        version=VERSION,
        id=request.id,
        target=request.target,
        status=Status.FAILED,
        run=request.run,
        session=request.session,
        fault=why,
    )


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


class ControlCommand(NamedTuple):
    """What someone outside wants of the hubs that share a store."""

    seq: int
    run: str
    """The run that it is about; empty: it is for every hub."""
    action: Literal["cancel", "reload"]
    by: str
    reason: str


class SealedValue(NamedTuple):
    """A raw value that a run's token stands for, encrypted, and whether the run's user may have it back."""

    token: str
    value: bytes
    of_user: bool


class NumberedRecord(NamedTuple):
    """A record-to-be of a log that is kept elsewhere, with its number there."""

    number: int
    kind: Kind
    at_ms: int
    run: str
    session: str
    body: Body


class Recorder(Protocol):
    """The record: append-only, hash-chained, one order for all processes that share the store."""

    sizes: dict[str, int]
    """The bytes that were recorded of each run that somebody put here, and who puts it here takes it out again."""

    def append(self, kind: Kind, at_ms: int, run: str, session: str, body: Body) -> None:
        """Take a record without waiting; it is durable once a later `flush`, `submit` or `finish` has returned."""
        ...

    @property
    def full(self) -> bool:
        """Whether there is no room: cheap to ask before each append, so that `room` need not be awaited every time."""
        ...

    async def room(self) -> None:
        """Return while there is room for more records; wait while there is not."""
        ...

    async def flush(self) -> None:
        """Return once everything appended so far is durable, or raise `StoreError`."""
        ...

    async def transfer(self, source: str, entries: Sequence[NumberedRecord]) -> int:
        """Record what stands in another log, in one step, each number of a *source* once; durable on return.

        Numbers grow. Those up to the highest that was recorded before are passed over; the highest by now is returned.
        """
        ...

    def listen(self, listener: Callable[[list[Record]], None], *, patient: bool = False) -> Callable[[], None]:
        """Call *listener* in the event loop with each group of records that this store committed, in order.

        For one that is *patient* nothing is committed sooner than it would be without it.
        """
        ...


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
    ) -> AcceptedRequest | DuplicateRequest | ReusedProof:
        """Make the request durable together with its first record and claim it; idempotent by (sender, user, id).

        A request that is *waiting* for a person has not begun; `begin` says when it does. What is to count *once* is
        remembered in the same step; if it was before, nothing is submitted.
        """
        ...

    async def begin(self, run: str, epoch: int, request: Request) -> bool:
        """Note durably that a waiting request begins, in the form that it has now; False: the epoch is stale."""
        ...

    async def release(self, run: str, epoch: int) -> bool:
        """Hand a claimed request back, so that another worker may take it up at once; that counts as no attempt."""
        ...

    async def find(self, request: Request, digest: bytes) -> DuplicateRequest | None:
        """Return what is known of a request without submitting it."""
        ...

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        """Take up an expired request: return the new epoch, or None if another worker has it or it has finished.

        If a person was being asked in it when its worker fell silent, that was no attempt; up to `MOST_EPOCHS`.
        """
        ...

    async def heartbeat(self, worker: str, lease_ms: int) -> None:
        """Extend the lease of everything that *worker* has claimed."""
        ...

    async def finish(self, run: str, epoch: int, response: Response, at_ms: int, *, keep: bool = True) -> bool:
        """Make the outcome and its record durable in one step; False: the epoch is stale and nothing was written.

        Without *keep* the outcome is recorded and not kept: the same request may be submitted again.
        """
        ...

    async def wait(self, run: str) -> Response:
        """Return the outcome once there is one, whichever process finishes it."""
        ...

    async def sweep(self, *, max_attempts: int, keep_ms: int) -> list[OrphanedRun]:
        """Requeue what expired and return it; what expired *max_attempts* times ends as OUTCOME_UNKNOWN.

        What waits for a person expires as often as it likes. Outcomes older than *keep_ms* are forgotten (their records
        stay), so their ids may be used again; what was sealed for them, and for no session, is deleted.
        """
        ...


class Journal(Protocol):
    """The finished steps of a resumable run: never lost, never repeated."""

    def journal(self, run: str, epoch: int, step: str, value: bytes) -> None:
        """Note a step's value, durable like a record. A stale epoch writes nothing; the last value counts."""
        ...

    async def journal_durably(self, run: str, epoch: int, step: str, value: bytes) -> bool:
        """Note a step's value before its effects begin: durable on return, with everything appended before it.

        False: the epoch is stale, or the run has ended. Nothing was written, and nothing may begin.
        """
        ...

    async def load(self, run: str) -> dict[str, bytes]:
        """Return every step noted for the run, until it succeeds or its outcome is forgotten."""
        ...


class Vault(Protocol):
    """What the tokens of a conversation stand for; the store cannot read it.

    A scope is a session, and is kept as long; for a run without one it is the run, and goes with the run's outcome.
    """

    def secret(self) -> bytes:
        """Return 32 bytes that only those who may read this store's key know; the same for all who share the store."""
        ...

    def seal(self, scope: str, sealed: Sequence[SealedValue]) -> None:
        """Keep values; durable like a record, the first of each token counts, `of_user` once said stays."""
        ...

    async def unseal(self, scope: str) -> list[SealedValue]:
        """Return everything kept for a scope."""
        ...


class Inbox(Protocol):
    """Questions that wait for a person, whichever process they sit at."""

    async def put(self, question: Question) -> Question:
        """Put a question there, durable on return; one that is there already stays as it is, and is returned."""
        ...

    async def decide(self, question: str, decision: Decision) -> bool:
        """Answer a question, durable on return; False: it is not there, has expired, or was answered before."""
        ...

    async def decision(self, question: str) -> Decision | None:
        """Return what was answered so far, whichever process wrote it."""
        ...

    async def withdraw(self, question: str) -> None:
        """Take back a question to which no answer is wanted any more."""
        ...

    async def pending(self) -> list[Question]:
        """Return the questions that can still be answered, oldest first."""
        ...


class Controls(Protocol):
    """How one process reaches the runs of another."""

    async def control(self, run: str, action: Literal["cancel", "reload"], by: str, reason: str) -> int:
        """Tell every hub that shares this store; durable on return, which is its number."""
        ...

    async def controls(self, after: int, run: str | None = None) -> list[ControlCommand]:
        """Return what was said after number *after*, about one run if asked.

        Those that are a day old may be gone, unless their run may still be taken up.
        """
        ...

    async def last_control(self) -> int:
        """Return the number of the newest, 0 if there is none."""
        ...


FACTS = "facts "
"""How the scopes begin under which values in facts about users are kept: as long as the facts, whatever run ends."""

# More is a history, and not what somebody should bear in mind.
MOST_NOTES = 24
# Facts that an agent reads at once: 10,000 tokens, if each is a sentence.
MOST_FACTS = 1_000
# A run may wait for days in hubs that come and go; but one that brings down each of them is to end some day.
MOST_EPOCHS = 30


class Conversations(Protocol):
    """What was said in each session, found without reading all of it; the record alone has the text."""

    async def messages(self, session: str, wanted: ContextFilter, *, now_ms: int, tokens: int) -> list[Message]:
        """Return what `policy.context.select` chooses of everything committed in a session, oldest first."""
        ...

    async def seen(self, session: str, messages: Collection[int]) -> frozenset[int]:
        """Return which of these messages, by number, stand in a session: said there, or shown to its agent before."""
        ...

    def note(self, session: str, notes: Sequence[Note]) -> None:
        """Keep what became known in a conversation; durable like a record, each kept once."""
        ...

    async def notes(self, session: str) -> list[Note]:
        """Return what is known in a conversation, the newest `MOST_NOTES` of it, oldest first."""
        ...


class Counters(Protocol):
    """Small shared numbers and values."""

    async def incr(self, key: str, n: int, window_ms: int) -> int:
        """Add *n* in the current window and return the window's total."""
        ...

    async def cas(self, key: str, revision: int, value: bytes) -> int | None:
        """Write *value* if the key is still at *revision* (0: absent); return the new revision, or None if it moved."""
        ...

    async def get(self, key: str) -> tuple[int, bytes] | None:
        """Return revision and value."""
        ...


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


class Store(Recorder, Requests, Journal, Vault, Inbox, Controls, Conversations, Counters, Archive, Protocol):
    """Everything a hub remembers. It is opened before the hub's first request and closed after its last."""

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Make everything durable and let go; what was appended before is not lost."""
        ...
