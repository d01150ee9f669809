"""The state of runs and of their delegations in flight."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from remit.policy import blame
from remit.policy.blame import FaultKey
from remit.policy.budget import settle
from remit.policy.repeats import CallKey, EarlierAnswer
from remit.policy.verdict import Sealing
from remit.protocol.envelope import Answer, Call, Json, Note, Request, Response, Usage
from remit.protocol.errors import Fault
from remit.protocol.lifecycle import DelegationState, Status
from remit.protocol.remit import LONGEST_NAME, MAX_INTEGER
from remit.runtime.answer_cache import Lookup
from remit.runtime.ports import Departure, Slot
from remit.runtime.registry import RegisteredAgent

NOTHING = Usage()

# An attempt after the first adds to it, up to the length of a name.
LONGEST_PATH = LONGEST_NAME - 10


class RoutedCall(NamedTuple):
    """A call by capability on its way: who is asked now, and who could be asked instead."""

    call: Call
    path: str
    """The place of the call in its run, whoever carries it out."""
    names: tuple[str, ...]
    leg: int = 0
    """How many were asked before."""
    beside: "Frame | None" = None
    """The attempt before, if that is at work still and only takes long."""

    @property
    def leg_path(self) -> str:
        """The place of this attempt; the first has that of the call."""
        return leg_path(self.path, self.leg)


def child_path(parent: "Frame", name: str | int) -> str:
    """Return the place of a delegation in its run: that of its caller, and its name there.

    Where callers that name their calls call each other, that may become longer than an id can be: then it is a digest.
    """
    path = f"{parent.path}.{name}"
    if len(path) <= LONGEST_PATH:
        return path
    return f"{parent.run.id}.{hashlib.blake2b(path.encode(), digest_size=16).hexdigest()}"


def leg_path(path: str, leg: int) -> str:
    """Return the place of an attempt: `run.2`, then `run.2+1`."""
    return f"{path}+{leg}" if leg else path


class TextFlow:
    """What an agent says as it comes: the part that is held back, and the words before it."""

    __slots__ = ("before", "pending")

    def __init__(self) -> None:
        self.before = ""
        self.pending = ""


class PastCall:
    """A call to a callee and its answer, by which later ones are known to be nearly the same."""

    __slots__ = ("answer", "answer_words", "circles", "said", "words")

    def __init__(self, said: tuple[Json, ...]) -> None:
        self.said = said
        self.circles = False
        """Whether it is nearly the same as several before it, which brought nothing new."""
        self.answer: Json = None
        self.words: Counter[str] | None = None
        self.answer_words: Counter[str] | None = None


class Tally:
    """How many delegations were asked for: in a run, and in what comes back to this hub from it."""

    __slots__ = ("by_agent", "delegations")

    def __init__(self) -> None:
        self.delegations = 0
        self.by_agent: dict[str, int] = {}


class Run:
    """The tree of delegations that one request of a user started."""

    __slots__ = (
        "asked",
        "changed_at",
        "changes",
        "epoch",
        "handed_back",
        "held",
        "id",
        "known",
        "notes",
        "overrun",
        "refusals",
        "request",
        "scope",
        "sealing",
        "steps",
        "tally",
        "told",
        "unsaved",
    )

    def __init__(
        self, request: Request, epoch: int, steps: dict[str, bytes] | None, sealing: Sealing | None = None
    ) -> None:
        self.id = request.run
        self.scope = request.session or request.run
        """The conversation that it is part of: what is known and what is secret in it, its later runs know too."""
        self.request = request
        """The request of the user, redacted."""
        self.epoch = epoch
        self.overrun = False
        self.tally = Tally()
        self.changes = 0
        """How many calls and tools that may have changed something have ended in it."""
        self.changed_at = 0
        """The moment at which the last of them ended that is said to change something: kept answers are older."""
        self.refusals = 0
        """How many refusals of it are on record."""
        self.handed_back = False
        """Whether it stops here only to be taken up again elsewhere."""
        self.unsaved = False
        """Whether something that must not be done twice was done, and may not be known to the store yet."""
        self.steps = steps
        """What the journal knew of it when it was taken up; None if it is not resumable."""
        self.told: dict[tuple[str, str], int] | None = None
        """How often each delegation of it had said what of its work, when it was taken up."""
        self.sealing = sealing
        self.known: dict[str, str | int] = {}
        """The raw values of all its tokens."""
        self.held: dict[str, str | int] = {}
        """Those that its user gets back: what they sent themselves, and what was found for them."""
        self.notes: list[Note] = []
        """What is known in its conversation, redacted."""
        self.asked = ""
        """What its user was asked last, if that is still open."""


class Frame:
    """One delegation in flight: its place in the tree, its account, and the task that carries it out.

    What most delegations never touch is a default of the class, so that making one stays cheap.
    """

    task: asyncio.Task[None] | None = None
    """What carries it out; None until it is started."""
    outcome: asyncio.Future[Response]
    tick = 0

    state: DelegationState | Status = DelegationState.QUEUED
    begun = False
    """Whether its task has had its first step."""
    ran = False
    """Whether the agent's code was called: before that, nothing has happened that could not be asked for again."""
    abandoned = False
    stopping: Fault | None = None
    """Why it was told to stop."""

    reserved = 0
    aside = 0
    """Tokens that its parent keeps for who may be asked beside it: with its grant they are one reservation."""
    prompt = 0
    completion = 0
    estimated = False

    calls = 0
    """Delegations and tool calls so far: the next one's place."""
    errands: dict[CallKey, EarlierAnswer | None] | None = None
    """What it has asked for that is under way or succeeded, with the answers that it is given again."""
    beside: tuple[Json, ...] = ()
    """What its caller gave with it besides what makes its call key."""
    asked_of: dict[tuple[str, str | None], list[PastCall]] | None = None
    """What it has asked for, by callee and capability, or by tool."""
    asked: PastCall | None = None
    """What its caller remembers of asking for it."""
    changes_before = 0
    """How much had been changed in the run when it began."""
    changes_below = 0
    """How much of what was changed since then was changed by its own delegations and tools."""
    kept: tuple[int, bytes] | None = None
    """What its agent has kept in its conversation, as it knows it: the revision, and what stood there."""
    named: set[str] | None = None
    """The names that it has given to calls of its own."""
    children: "set[Frame] | None" = None
    slot: Slot | None = None
    waiting = 0
    """For how much it waits: while it is more than nothing, its slot is free."""
    pauses = 0
    paused_since = 0.0
    """Since when its clock stands, because a person is asked in its name or below it."""
    waited_s = 0.0
    """For how long its clock stood so far."""
    is_probe = False
    """Whether it is the one call that a breaker let through to see whether the callee has recovered."""
    step = b""
    """What identifies it at its place in a run that is resumable."""
    departed: Departure | None = None
    """That it was sent somewhere else before a restart."""
    doubt = ""
    """Why it is not known what came of it, if it were to be stopped now: it was sent, or had begun before a restart."""
    recorded: Request | None = None
    """The request as it is kept, where the callee sees more of it than others may."""
    held: dict[str, str | int] | None = None
    """The raw values that its agent has sent to others, by their tokens: it gets them back."""
    tool_calls: list[str] | None = None
    faults_below: set[FaultKey] | None = None
    """How its own delegations failed: a fault that it passes on did not begin in it."""
    passed_on = False
    """Whether it failed because of one of its delegations."""
    warnings: list[str] | None = None
    """What the hub has to say to its caller, besides what its agent does."""
    partial: Answer | Callable[[], Answer] | None = None
    """What its agent has until now, or what makes it."""
    progress_count = 0
    unheard = False
    """Whether its agent said something that nobody listened to."""
    flow: "TextFlow | None" = None
    """What its agent said, and nobody could be told yet."""
    session_read = False
    """Whether it, or one below it, read what was said or kept in a session before."""
    lookup: Lookup | None = None
    """What its answer is known by, where it may be given to others too, or was."""
    route: RoutedCall | None = None
    """How it came to be this callee, where the caller named a capability and no agent."""
    hedge_ms: int | None = None
    """After how long another is asked beside it; None: nobody is."""
    twin: "Frame | None" = None
    """The other of two that are asked for the same at once."""
    overtaken = False
    """Whether it was stopped because the other was faster."""
    hedges = 0
    """How many pairs there are among its delegations of which one is enough: each counts as one."""

    def __init__(
        self,
        request: Request,
        entry: RegisteredAgent,
        run: Run,
        parent: "Frame | None",
        started: float,
        errand: CallKey | None = None,
    ) -> None:
        self.request = request
        self.path = request.run if parent is None else request.id
        self.card, self.agent, self.address = entry
        self.run: Run = run
        self.parent = parent
        self.errand = errand
        self.started = self.taken_s = started
        self.deadline = started + request.remit.time_ms / 1_000
        self.granted = request.remit.tokens

    @property
    def used(self) -> int:
        """Tokens spent here and below, those beyond a grant included."""
        return self.prompt + self.completion

    @property
    def left(self) -> int:
        """Tokens neither spent nor reserved."""
        return self.granted - self.prompt - self.completion - self.reserved

    @property
    def overrun(self) -> int:
        """Tokens spent beyond the grant."""
        return settle(self.granted, self.used)[2] if self.used > self.granted else 0

    def usage(self) -> Usage:
        """What the delegation and all below it have spent."""
        if not self.used:
            return NOTHING
        return Usage(prompt=self.prompt, completion=self.completion, overrun=self.overrun, estimated=self.estimated)

    def time_left_ms(self, now: float) -> int:
        """How much time is left; while a person is asked in its name or below it, it does not get less."""
        return int((self.deadline - (self.paused_since if self.pauses else now)) * 1_000)

    def in_flight(self) -> int:
        """Delegations of this one that have not ended; two that are asked for the same are one."""
        return len(self.children) - self.hedges if self.children else 0

    def lineage(self) -> "list[Frame]":
        """This frame and all above it."""
        found: list[Frame] = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found

    def meter(self, usage: Usage) -> None:
        """Count what the agent itself has spent."""
        self.prompt = min(self.prompt + usage.prompt, MAX_INTEGER)
        self.completion = min(self.completion + usage.completion, MAX_INTEGER)
        self.estimated = self.estimated or usage.estimated

    def note_fault_below(self, why: Fault) -> None:
        """Remember how a delegation of this one failed."""
        if self.faults_below is None:
            self.faults_below = set()
        self.faults_below.add(blame.key_of(why))
        self.faults_below.add(blame.key_of(why.outward()))  # as an agent in a process of its own is told of it

    def note_session_read(self) -> None:
        """Remember that the answer depends on a session, and so do those of all above."""
        for each in self.lineage():
            each.session_read = True

    def subtree(self) -> "list[Frame]":
        """This frame and all that are in flight below it, parents first."""
        found: list[Frame] = [self]
        for frame in found:
            if frame.children:
                found.extend(frame.children)
        return found
