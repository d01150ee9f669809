"""The state of runs and of their delegations in flight, and the slots that these hold."""

import asyncio
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from io import StringIO
from types import TracebackType
from typing import NamedTuple

from msgspec.structs import replace

from remit.policy import breaker
from remit.policy.breaker import FaultKey
from remit.policy.budget import fair_share, settle
from remit.policy.limits import Limits
from remit.policy.repeats import CallKey, EarlierAnswer, PastCall
from remit.policy.verdict import Guard, Sealing
from remit.ports.brief import Agent
from remit.ports.remote import Departure, Remote, Slot
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Answer, Call, Handover, Json, Note, Request, Response, Usage
from remit.protocol.errors import Fault
from remit.protocol.lifecycle import MOVES, DelegationState, IllegalMoveError, Status
from remit.protocol.remit import MAX_INTEGER
from remit.runtime.answer_cache import Lookup
from remit.runtime.purse import Purse, price_of

NOTHING = Usage()


class RoutedCall(NamedTuple):
    """A call by capability: the agent that is asked now, and the agents to fall back on."""

    call: Call
    path: str
    """The path of the call in its run, whichever agent executes it."""
    names: tuple[str, ...]
    leg: int = 0
    """The number of agents asked before."""
    beside: "Frame | None" = None
    """The attempt before, if it still runs and only takes long."""

    @property
    def leg_path(self) -> str:
        """The path of this attempt; the first attempt has the path of the call."""
        return leg_path(self.path, self.leg)


def leg_path(path: str, leg: int) -> str:
    """Return the path of an attempt: `run.2`, then `run.2+1`."""
    return f"{path}+{leg}" if leg else path


class Allowance(NamedTuple):
    """What a run has reserved of its user's day; None: that is not limited."""

    day: str
    """The day and the user, so that a run that ends after midnight gives nothing back to the next day."""
    tokens: int | None
    cost: int | None
    """Money in millionths."""


class TextFlow:
    """The live text of an agent: the part that is held back, and the words before it."""

    __slots__ = ("before", "pending")

    def __init__(self) -> None:
        self.before = ""
        self.pending = ""


class PassedCall(NamedTuple):
    """A call that set nothing but its text and its tokens, and from what its request was made."""

    request: Request
    max_tokens: int | None
    time_ms: int
    """The time that it would be granted if enough were left."""
    card: AgentCard
    """The card of its callee."""
    caller: AgentCard
    limits: Limits
    guards: tuple[Guard, ...]
    """The guards that allowed it."""
    is_share: bool
    """Whether nobody set its tokens."""
    draws: int
    """How many calls at once its caller's tokens are shared among, if it draws on them."""


class Tally:
    """Counts the delegations of a run, including requests that come back to this hub from it."""

    __slots__ = ("by_agent", "delegations")

    def __init__(self) -> None:
        self.delegations = 0
        self.by_agent: dict[str, int] = {}


class Run:
    """The tree of delegations under one root request."""

    __slots__ = (
        "changed_at",
        "changes",
        "drawable_cost",
        "drawable_tokens",
        "epoch",
        "handed_back",
        "held",
        "id",
        "in_charge",
        "keeps_limit",
        "known",
        "more_tokens",
        "notes",
        "open_question",
        "overrun",
        "refusals",
        "reported",
        "request",
        "reserved",
        "returned",
        "scope",
        "sealing",
        "steps",
        "tally",
        "unpriced",
        "unsaved",
        "wasted",
    )

    def __init__(
        self,
        request: Request,
        epoch: int,
        steps: dict[str, bytes] | None,
        sealing: Sealing | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.id = request.run
        self.scope = request.session or request.run
        """The conversation that it belongs to. Later runs of the conversation share its notes and its secrets."""
        self.request = request
        """The redacted root request."""
        self.epoch = epoch
        self.overrun = False
        self.keeps_limit = False
        """Whether nobody agreed to more tokens for it when a person was asked, so that nobody is asked again."""
        self.more_tokens: asyncio.Future[None] | None = None
        """Set while a person is asked for more tokens for it; all of its delegations wait for the same answer."""
        self.unpriced: dict[str, asyncio.Future[bool]] = {}
        """Whether a person lets it go on with what has no price, by the words for that; not done while one is asked."""
        self.returned: asyncio.Future[None] | None = None
        """Set while calls or agents wait for tokens or money that others of it hold; done once some came back."""
        self.reserved: tuple[Allowance, ...] = ()
        """What it has reserved of its user's day: what it began with, and what it drew."""
        self.drawable_tokens = 0
        """The tokens that its limit leaves it and that are not reserved of its user's day yet."""
        self.drawable_cost = 0
        """The same of its money."""
        self.tally = tally or Tally()
        self.changes = 0
        """How many calls and tools that may have changed something have ended in it."""
        self.changed_at = 0
        """When the last call or tool ended that changes something; cached answers are older."""
        self.wasted = 0
        """How many of its calls repeated others and brought nothing new."""
        self.refusals = 0
        """How many of its refusals are recorded."""
        self.handed_back = False
        """Whether it stops here only to be resumed elsewhere."""
        self.unsaved = False
        """Whether something that must not be done twice was done and may not be stored yet."""
        self.steps = steps
        """The journal at the time the run was resumed; None if the run is not resumable."""
        self.reported: dict[tuple[str, str], int] | None = None
        """How often each delegation had reported which progress when the run was resumed."""
        self.sealing = sealing
        self.known: dict[str, str | int] = {}
        """The raw values of all its tokens."""
        self.held: dict[str, str | int] = {}
        """The raw values that its user gets back: values the user sent, and values found for the user."""
        self.notes: list[Note] = []
        """The redacted notes of its conversation."""
        self.open_question = ""
        """The open question to its user, if there is one."""
        self.in_charge: tuple[Handover, ...] = ()
        """The agents to which its conversation was handed over before it, one after another."""

    def note_return(self) -> None:
        """Wake all that wait for tokens or money of others."""
        if self.returned is not None:
            self.returned.set_result(None)
            self.returned = None


@dataclass(slots=True, eq=False, repr=False)
class Frame:
    """One delegation in flight: its place in the tree, its account, and its task.

    It has slots, because a hop reads some forty of its attributes that were never set: a default of the class costs
    four times as much to read as a slot. Setting all of them once costs less than that.
    """

    request: Request
    entry: InitVar[tuple[AgentCard, Agent | Remote, str]]
    run: Run
    parent: "Frame | None"
    started: float
    call_key: CallKey | None = None

    path: str = field(init=False)
    card: AgentCard = field(init=False)
    agent: Agent | Remote = field(init=False)
    address: str = field(init=False)
    taken_s: float = field(init=False)
    """When it got its slot; until then, when it was started."""
    deadline: float = field(init=False)
    granted: int = field(init=False)

    task: asyncio.Task[None] | None = None
    """The task that executes it; None until it is started."""
    outcome: asyncio.Future[Response] = field(init=False)
    tick: int = 0

    state: DelegationState | Status = DelegationState.QUEUED
    begun: bool = False
    """Whether its task has taken its first step."""
    ran: bool = False
    """Whether the agent's code was called. Before that, the delegation can be repeated safely."""
    abandoned: bool = False
    stopping: Fault | None = None
    """The reason why it was told to stop."""

    reserved: int = 0
    journaled: dict[str, int] | None = None
    """Tokens of its calls from before a restart, by path, reserved until its code makes them again."""
    kept_back: int = 0
    """Tokens that its agent keeps from those that it asks; they are reserved."""
    aside: int = 0
    """Tokens that its parent keeps for a hedge; together with its grant they are one reservation."""
    prompt: int = 0
    completion: int = 0
    estimated: bool = False
    bill: Usage | None = None
    """The cost of its tokens, and those of a provider's cache; None: neither is known."""

    tokens_below: int = 0
    """What its delegations that have ended spent of its tokens, and of its money."""
    cost_below: int = 0

    purse: Purse | None = None
    """The money that it may spend, perhaps together with its caller; None: there is no limit."""

    calls: int = 0
    """The number of delegations and tool calls so far, which gives the next one its path."""
    passed: PassedCall | None = None
    """Its last short text that all guards allowed; the next one often differs in nothing but its text."""
    calls_by_key: dict[CallKey, EarlierAnswer | None] | None = None
    """Its calls that succeeded; None: the call is in flight."""
    beside: tuple[Json, ...] = ()
    """What its caller passed besides the parts of the call key."""
    asked_of: dict[tuple[str, str | None], list[PastCall]] | None = None
    """Its past calls, by callee and capability, or by tool."""
    past_call: PastCall | None = None
    """The caller's entry about this call, until it is answered."""
    news: int = 0
    """How many of its calls and tools may have changed something and were not repetitions."""
    changes_before: int = 0
    """The run's count of changes when it began."""
    changes_below: int = 0
    """How many changes since then were made by its own delegations and tools."""
    kept: tuple[int, bytes] | None = None
    """The agent's state in its conversation as last read: the revision and the value."""
    named: set[str] | None = None
    """The names that it gave to its own calls."""
    sampling: int = 0
    """The tokens that models of hosts may spend on what it is asking them now."""
    questions: dict[tuple[str, bytes], int] | None = None
    """How often its agent has asked a person the same, by the question and its form."""
    children: "set[Frame] | None" = None
    places: asyncio.Semaphore | None = None
    """The places of its calls that may wait for one."""
    slot: Slot | None = None
    waiting: int = 0
    """The number of things it waits for; while this is above zero, its slot is free."""
    beginning: int = 0
    """The number of its calls that are examined and not started yet."""
    lacking: int = 0
    """How many of these wait for tokens or money that others hold."""
    pauses: int = 0
    paused_since: float = 0.0
    """Since when its clock stands still, because a person is asked for it or below it."""
    waited_s: float = 0.0
    """For how long its clock stood still so far."""
    is_probe: bool = False
    """Whether it is the one call that a half-open breaker let through to test the callee."""
    step: bytes = b""
    """The digest that identifies it in a resumable run."""
    departed: Departure | None = None
    """Set if it was sent elsewhere before a restart."""
    doubt: str = ""
    """Why its outcome would be unknown if it were stopped now: it was sent, or had begun before a restart."""
    recorded: Request | None = None
    """The request as recorded, if the callee sees more of it than others may."""
    held: dict[str, str | int] | None = None
    """The raw values that its agent has sent to others, by token; the agent gets them back."""
    hidden: dict[str, str | int] | None = None
    """The raw values that its agent has and its model does not, by token: tools get them for what the model passes."""
    tool_calls: list[str] | None = None
    faults_below: set[FaultKey] | None = None
    """The faults of its own delegations: a fault that it only passes on did not start here."""
    passed_on: bool = False
    """Whether it failed because one of its delegations failed."""
    warnings: list[str] | None = None
    """The hub's warnings to its caller, besides those of its agent."""
    warned: set[str] | None = None
    """The details of these warnings, which are recorded."""
    partial: Answer | Callable[[], Answer] | None = None
    """The agent's partial answer so far, or a function that makes it."""
    streamed: StringIO | None = None
    """The text that its agent has streamed so far, which is its partial answer unless it reports another."""
    progress_count: int = 0
    consulted: bool = False
    """Whether it says what it thinks of an answer: its own answer is for the guards alone, and not judged."""
    unheard: bool = False
    """Whether its agent said something while nobody listened."""
    flow: "TextFlow | None" = None
    """Live text of its agent that could not be passed on yet."""
    session_read: bool = False
    """Whether it, or a delegation below it, read earlier messages or state of a session."""
    lookup: Lookup | None = None
    """The cache entry of its answer, where the answer may be shared or was."""
    route: RoutedCall | None = None
    """How it was routed, if the caller named a capability instead of an agent."""
    hedge_ms: int | None = None
    """After how many milliseconds a second agent is asked too; None: never."""
    twin: "Frame | None" = None
    """The other one of a hedged pair."""
    overtaken: bool = False
    """Whether it was stopped because the other one of its pair was faster."""
    draws: int = 0
    """How many calls at once its caller's tokens are shared among; it draws on them. 0: it keeps to its grant."""
    drawn: int = 0
    """Tokens taken from the caller beyond the grant."""
    hedges: int = 0
    """The number of hedged pairs among its delegations; each pair counts as one delegation."""

    def __post_init__(self, entry: tuple[AgentCard, Agent | Remote, str]) -> None:
        request, started = self.request, self.started
        self.path = request.run if self.parent is None else request.id
        self.card, self.agent, self.address = entry
        self.taken_s = started
        self.deadline = started + request.remit.time_ms / 1_000
        self.granted = request.remit.tokens

    def advance(self, to: DelegationState | Status) -> None:
        """Move to a state, as the lifecycle table allows; nothing else changes the state of a delegation."""
        if to not in MOVES[self.state]:
            raise IllegalMoveError(f"a delegation cannot move from {self.state} to {to}")
        self.state = to

    @property
    def used(self) -> int:
        """Tokens spent here and below, including those beyond the grant."""
        return self.prompt + self.completion

    @property
    def left(self) -> int:
        """Tokens that are neither spent nor reserved."""
        return self.granted - self.prompt - self.completion - self.reserved

    @property
    def reach(self) -> int:
        """Tokens that are left here, and with its callers as far as it may draw on them."""
        if self.parent is None or not self.draws:
            return self.left
        return self.left + self.aside + max(0, self.parent.reach)

    def holders(self) -> "list[Frame]":
        """Return those whose unspent tokens and money come back to it, or to those that it draws on, when they end."""
        frames, each = [*(self.children or ())], self
        while each.parent is not None and each.draws:
            frames += [other for other in each.parent.children or () if other is not each]
            each = each.parent
        return frames

    @property
    def is_busy(self) -> bool:
        """Whether it goes on by itself: it waits for nothing, a call of it is examined, or one below it is busy."""
        if isinstance(self.state, Status):
            return False
        if not self.waiting or (self.beginning > self.lacking and not self.pauses):
            return True
        return any(child.is_busy for child in self.children or ())

    def share(self, slots: int) -> int:
        """Return the tokens of a call for which nobody sets any, if so many calls may still be started."""
        return fair_share(self.left, self.reach, slots=slots)

    def top_up(self, wanted: int) -> None:
        """Take tokens from its caller until it has as many as are *wanted*, and as a new call of that caller gets."""
        if self.parent is not None and self.draws:
            more = max(wanted, self.parent.share(self.draws)) - self.left
            if more > 0:
                self.draw(more)

    @property
    def journaled_tokens(self) -> int:
        """Tokens reserved for calls from before a restart; for its code they are left until it makes them again."""
        return sum(self.journaled.values()) if self.journaled else 0

    def release_journaled(self, path: str) -> None:
        """End the reservation for a call from before a restart, which its code has made again."""
        if self.journaled:
            self.reserved -= self.journaled.pop(path, 0)

    @property
    def reservation(self) -> int:
        """Tokens that its caller has reserved for it."""
        return self.granted + self.aside

    def draw(self, tokens: int) -> None:
        """Take tokens set aside for a hedge, then from the caller, which takes what it lacks from its own; as many as
        are there.
        """
        parent = self.parent
        if parent is None or not self.draws:
            return
        if self.aside:
            taken = min(tokens, self.aside)
            self.aside -= taken
            self.granted += taken
            tokens -= taken
        if tokens > parent.left:
            parent.draw(tokens - parent.left)
        taken = max(0, min(tokens, parent.left))
        parent.reserved += taken
        self.granted += taken
        self.drawn += taken

    @property
    def overrun(self) -> int:
        """Tokens spent beyond the grant."""
        return settle(self.granted, self.used)[2] if self.used > self.granted else 0

    def usage(self) -> Usage:
        """Return what this delegation and all below it have spent."""
        bill = self.bill
        if not self.used and bill is None:
            return NOTHING
        usage = Usage(prompt=self.prompt, completion=self.completion, overrun=self.overrun, estimated=self.estimated)
        if bill is None:
            return usage
        return replace(
            usage,
            cache_write=min(bill.cache_write, MAX_INTEGER),
            cache_read=min(bill.cache_read, MAX_INTEGER),
            cost=min(bill.cost, MAX_INTEGER),
            priced=min(bill.priced, MAX_INTEGER),
        )

    def time_left_ms(self, now: float) -> int:
        """Return the time left; it stands still while a person is asked for it or below it."""
        return int((self.deadline - (self.paused_since if self.pauses else now)) * 1_000)

    def in_flight(self) -> int:
        """Return the number of its delegations that have not ended; a hedged pair counts as one."""
        return len(self.children) - self.hedges if self.children else 0

    def lineage(self) -> "list[Frame]":
        """Return this frame and all frames above it."""
        frames: list[Frame] = [self]
        while frames[-1].parent is not None:
            frames.append(frames[-1].parent)
        return frames

    def meter(self, usage: Usage, model: str = "") -> None:
        """Count tokens that the agent itself has spent, and their cost."""
        self._count(usage)
        if self.purse is not None:
            self.purse.charge(self.path, usage, may_be_unpriced=self.may_be_unpriced(model))

    def may_be_unpriced(self, model: str) -> bool:
        """Return whether a person lets its run go on with a model that has no price."""
        answer = self.run.unpriced.get(price_of(self.card.name, model))
        return answer is not None and answer.done() and answer.result()

    def meter_below(self, usage: Usage, purse: Purse | None = None) -> None:
        """Count what a delegation of its agent has spent, from a *purse* that may be its own."""
        self._count(usage)
        self.tokens_below += usage.total
        self.cost_below += usage.cost
        if self.purse is not None and purse is not self.purse:
            self.purse.spent += usage.cost

    def _count(self, usage: Usage) -> None:
        self.prompt = min(self.prompt + usage.prompt, MAX_INTEGER)
        self.completion = min(self.completion + usage.completion, MAX_INTEGER)
        self.estimated = self.estimated or usage.estimated
        if usage.priced or usage.cost or usage.cache_write or usage.cache_read:
            self.bill = usage if self.bill is None else self.bill + usage
        if self.left < 0:
            self.draw(-self.left)

    def meter_all(self) -> None:
        """Count the whole grant as spent: what was spent of it is not known."""
        tokens, purse = max(0, self.granted - self.used), self.purse
        if purse is None or (self.parent is not None and purse is self.parent.purse):
            self.meter(Usage(prompt=tokens, estimated=True))
        else:
            self.meter(Usage(prompt=tokens, estimated=True, cost=max(0, purse.left), priced=tokens))

    def note_fault_below(self, why: Fault) -> None:
        """Remember how one of its delegations failed."""
        if self.faults_below is None:
            self.faults_below = set()
        self.faults_below.add(breaker.key_of(why))
        self.faults_below.add(breaker.key_of(why.outward()))  # as an agent in a separate process sees it

    def note_session_read(self) -> None:
        """Remember that this answer, and those of all frames above, depend on a session."""
        for each in self.lineage():
            each.session_read = True

    def subtree(self) -> "list[Frame]":
        """Return this frame and all frames in flight below it, parents first."""
        frames: list[Frame] = [self]
        for frame in frames:
            if frame.children:
                frames.extend(frame.children)
        return frames


class PlaceInQueue:
    """`async with`: a call begins once its caller may have one more at once, in the order of the calls."""

    __slots__ = ("_limit", "_parent", "_places")

    def __init__(self, parent: Frame, limit: int) -> None:
        self._parent = parent
        self._limit = limit
        if parent.places is None:
            parent.places = asyncio.Semaphore(max(1, limit))
        self._places = parent.places

    async def __aenter__(self) -> None:
        if not self._places.locked() and self._parent.in_flight() < self._limit:
            await self._places.acquire()  # returns at once
            return
        has_place = False
        try:
            async with SlotGivenUp(self._parent):  # which may be cancelled while it gets the slot back
                has_place = await self._places.acquire()
                # Calls of the same agent that do not wait may have taken places meanwhile.
                while self._parent.in_flight() >= self._limit > 0 and (others := self._unfinished()):
                    await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            if has_place:
                self._places.release()
            raise

    def _unfinished(self) -> list[asyncio.Future[Response]]:
        # One whose settlement failed stays among the children, and there is nothing to wait for.
        return [child.outcome for child in self._parent.children or () if not child.outcome.done()]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._places.release()


class SlotGivenUp:
    """`async with`: others have the slot of a delegation while it waits; it has one again before it goes on."""

    __slots__ = ("_frame",)

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    async def __aenter__(self) -> None:
        give_up_slot(self._frame)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        frame = self._frame
        frame.waiting -= 1
        # A delegation that is stopped needs no slot. One that only gave up waiting, by a time-out of its own, works on.
        if (kind is None or frame.stopping is None) and not _has_slot(frame):
            await regain_slot(frame)


def give_up_slot(frame: Frame) -> None:
    """Let others have the slot of a delegation that waits, for one thing or for several."""
    waiting, slot = frame.waiting, frame.slot
    frame.waiting = waiting + 1
    if not waiting and slot is not None:
        slot.release()


async def regain_slot(frame: Frame) -> None:
    """Take a slot again once the delegation waits for nothing any more."""
    if frame.slot is not None and not _has_slot(frame):
        await frame.slot.regain()


def _has_slot(frame: Frame) -> bool:
    """Take a slot again if one is free; return whether the delegation has one now, or needs none yet."""
    slot = frame.slot
    return frame.waiting != 0 or slot is None or slot.regain_now()
