"""The one mutable place: what is in flight, what is reserved and spent, which breakers are open.

Nothing here awaits, so a check and the change that follows it are one step.
"""

import asyncio
import hashlib
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from remit.policy import blame, routing
from remit.policy import breaker as breakers
from remit.policy import rate as rates
from remit.policy.blame import FaultKey
from remit.policy.breaker import Breaker, BreakerSettings, Phase
from remit.policy.budget import settle
from remit.policy.rate import Window
from remit.policy.reception import trace_of
from remit.policy.repeats import CallKey, EarlierAnswer
from remit.policy.routing import Candidate, Ranked, TrackRecord
from remit.policy.verdict import Sealing
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Answer, Call, Json, Note, Request, Response, Usage
from remit.protocol.errors import Fault
from remit.protocol.lifecycle import DelegationState, Status
from remit.protocol.remit import LONGEST_NAME, MAX_INTEGER, Remit
from remit.runtime.answer_cache import Lookup
from remit.runtime.ports import Departure, Slot
from remit.runtime.registry import RegisteredAgent

NOTHING = Usage()

# Runs of other hubs whose delegations are counted here; a hub has fewer under way. Each takes some 300 bytes.
MOST_TALLIES = 10_000

# Bound once, for every hop needs them: to look a member up on its enum costs as much as a guard.
_CLOSED, _SUCCESS = Phase.CLOSED, Status.SUCCESS

# An attempt after the first adds to it, up to the length of a name.
LONGEST_PATH = LONGEST_NAME - 10

_FRESH = Breaker()

_UNTRIED = TrackRecord()


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


class Ledger:
    """Reservations, calls in flight, breakers and rates of one hub."""

    def __init__(self, settings: BreakerSettings) -> None:
        self.settings = settings
        self.frames: dict[str, Frame] = {}
        self.breakers: dict[str, Breaker] = {}
        self.windows: dict[str, Window] = {}
        self.tracks: dict[tuple[str, str], TrackRecord] = {}
        """How each agent did at each of its capabilities, by capability and agent."""
        self.outbound: dict[str, list[Frame]] = {}
        """What is being carried out elsewhere, by trace: a request that comes back from there belongs below it."""
        self.tallies: OrderedDict[tuple[str, str], Tally] = OrderedDict()
        """What runs of other hubs asked for here, by the hub and its run."""
        self.is_new = True
        """Whether it knows nothing yet of how they did before this hub was opened."""

    def tally_of(self, request: Request) -> Tally:
        """Return where the delegations of a root request are counted: with those of the run that it is part of.

        That is the run of this hub from which it comes back, by its trace; else the run of the hub that sent it, by its
        id. What a person asks for is a run of its own.
        """
        trace = trace_of(request.traceparent) if request.via is not None else None
        if trace is not None and (out := self.outbound.get(trace)):
            return out[0].run.tally
        sender_run, dot, _ = request.id.partition(".")
        if request.via is None or not request.remit.chain or not dot:
            return Tally()
        key = request.via, sender_run
        tally = self.tallies.setdefault(key, Tally())
        self.tallies.move_to_end(key)
        if len(self.tallies) > MOST_TALLIES:
            self.tallies.popitem(last=False)
        return tally

    def rate_wait_ms(self, card: AgentCard, now: float) -> int:
        """How long the rate of an agent has to be waited for."""
        return 0 if card.rate is None else rates.wait_ms(self.windows.get(card.name, Window()), card.rate, now)

    def breaker_wait_ms(self, target: str, now: float) -> int:
        """How long an agent is left alone."""
        breaker = self.breakers.get(target)
        if breaker is None or breaker.phase is _CLOSED:
            return 0
        return breakers.wait_ms(breaker, now, self.settings)

    def phase(self, target: str) -> Phase:
        """Return whether an agent is asked as usual, left alone, or tried out."""
        return self.breakers.get(target, _FRESH).phase

    def open(self, frame: Frame) -> None:
        """Reserve what the delegation was granted and count it as in flight."""
        card, parent = frame.card, frame.parent
        if parent is not None:
            assert frame.granted <= parent.left, "a grant is cut from what is left, and nothing awaits in between"
            parent.reserved += frame.granted
            if parent.children is None:
                parent.children = set()
            parent.children.add(frame)
            if frame.errand is not None:
                if parent.errands is None:
                    parent.errands = {}
                parent.errands[frame.errand] = None
            frame.changes_before = frame.run.changes
        self.frames[frame.path] = frame
        if frame.request.capability is not None:
            at = frame.request.capability, card.name
            self.tracks[at] = routing.begun(self.tracks.get(at, _UNTRIED))
        if card.rate is not None:
            self.windows[card.name] = rates.count(self.windows.get(card.name, Window()), card.rate, frame.started)
        breaker = self.breakers.get(card.name)
        if breaker is not None and breaker.phase is not _CLOSED:
            self.breakers[card.name] = breakers.admitted(breaker, frame.started)
            frame.is_probe = True

    def withdraw(self, frame: Frame, now: float) -> None:
        """Take back a reservation that nothing came of."""
        self.frames.pop(frame.path, None)
        self._judge_target(frame, None, now)
        if frame.request.capability is not None:
            self._learn(frame, frame.request.capability, None, now)

    def _judge_target(self, frame: Frame, failed: bool | None, now: float, seconds: float | None = None) -> None:
        name = frame.card.name
        breaker = self.breakers.get(name, _FRESH)
        # A call from before the opening says nothing about whether the callee has recovered.
        if breaker.phase is _CLOSED or frame.is_probe:
            self.breakers[name] = breakers.after(breaker, failed, now, self.settings, seconds)

    def close(self, frame: Frame, response: Response, now: float, default_ms: int) -> None:
        """Settle the account, give the rest back, and remember how it went.

        *default_ms* is the time of a delegation for which neither its caller nor its callee says one.
        """
        parent = frame.parent
        if parent is not None:
            parent.reserved -= frame.granted + frame.aside
            if frame.used:
                parent.meter(frame.usage())
            if parent.children is not None:
                parent.children.discard(frame)
            if frame.twin is not None:
                parent.hedges -= 1
                frame.twin.twin = frame.twin = None
            if frame.errand is not None and parent.errands is not None and response.status is not _SUCCESS:
                parent.errands.pop(frame.errand, None)
        if frame.overrun:
            frame.run.overrun = True
        self.frames.pop(frame.path, None)
        failed = False if response.fault is None else self._counts_against(frame, response, now, default_ms)
        if frame.lookup is not None and frame.lookup.follows:
            failed = None
        self._judge_target(frame, failed, now, now - frame.taken_s - frame.waited_s)
        if frame.request.capability is not None:
            self._learn(
                frame, frame.request.capability, failed, now, late=frame.ran and blame.is_late(response, failed)
            )

    def _counts_against(self, frame: Frame, response: Response, now: float, default_ms: int) -> bool | None:
        """Say whether a fault counts against the agent of a frame; None: it says nothing about it."""
        known_s = breakers.usual_now_s(self.breakers.get(frame.card.name, _FRESH), now)
        # What it waited for in its queue it did not have; what the caller granted beyond that it could have used.
        had_s = frame.request.remit.time_ms / 1_000 - (frame.taken_s - frame.started) if frame.ran else 0.0
        return blame.counts_against(
            response,
            # A hand-on names the agents behind it, also where that happened at a peer.
            passed_on=frame.passed_on or len(response.path) > 1,
            had_s=had_s,
            usual_s=blame.usual_time_s(known_s, frame.card, frame.request.capability, default_ms),
        )

    def set_aside(self, frame: Frame, hedge_ms: int) -> Remit:
        """Keep half of a grant for who may be asked beside it after a while, and return the remit with the rest."""
        frame.hedge_ms, frame.aside = hedge_ms, frame.granted // 2
        frame.granted -= frame.aside
        remit = frame.request.remit
        return replace(remit, tokens=frame.granted, context_tokens=min(remit.context_tokens, frame.granted))

    def pair(self, frame: Frame, first: Frame) -> None:
        """Count a delegation and the one that it was asked beside as one, while both are in flight."""
        if frame.parent is not None and not isinstance(first.state, Status):
            frame.parent.hedges += 1
            frame.twin, first.twin = first, frame

    def hand_over(self, frame: Frame) -> int:
        """Give back to the parent what was set aside, to be granted at once to who is asked beside; return how much."""
        freed, frame.aside = frame.aside, 0
        if frame.parent is not None:
            frame.parent.reserved -= freed
        return freed

    def take_back(self, frame: Frame, tokens: int) -> None:
        """Set aside again what was handed over and not granted to anyone."""
        if frame.parent is not None and not isinstance(frame.state, Status):
            tokens = min(tokens, max(0, frame.parent.left))
            frame.parent.reserved += tokens
        frame.aside = tokens

    # ── who does what how well ────────────────────────────────────────────────────────────────────────────────────────

    def ranked(self, capability: str, entries: Iterable[RegisteredAgent], now: float) -> tuple[str, ...]:
        """Return who of these is to be asked for a capability, in order: the first, and whom to fall back on."""
        candidates = [self._candidate(capability, entry.card, now) for entry in entries]
        return tuple(each.name for each in routing.rank(candidates, now, random.betavariate))

    def explained(self, capability: str, entries: Iterable[RegisteredAgent], now: float) -> tuple[Ranked, ...]:
        """Return how these stand at a capability, and why."""
        return routing.explain([self._candidate(capability, entry.card, now) for entry in entries], now)

    def recall(self, past: Mapping[tuple[str, str], TrackRecord]) -> None:
        """Take over how agents did before; of whom something was heard since then, that alone counts."""
        for at, track in past.items():
            known = self.tracks.get(at, _UNTRIED)
            if known.is_new:
                self.tracks[at] = replace(track, in_flight=known.in_flight)
        self.is_new = False

    def _candidate(self, capability: str, card: AgentCard, now: float) -> Candidate:
        breaker = self.breakers.get(card.name, _FRESH)
        wait_ms = self.breaker_wait_ms(card.name, now)
        offered = card.capability(capability)
        return Candidate(
            name=card.name,
            track=self.tracks.get((capability, card.name), _UNTRIED),
            wait_ms=wait_ms or self.rate_wait_ms(card, now),
            # Only where another may answer if it has not recovered: nobody's call is to fail for it.
            probe=not wait_ms and breaker.phase is Phase.OPEN and offered is not None and offered.read_only,
        )

    def _learn(self, frame: Frame, capability: str, failed: bool | None, now: float, *, late: bool = False) -> None:
        at = capability, frame.card.name
        # What a person took to decide does not count.
        seconds = now - frame.started - frame.waited_s
        if frame.overtaken or late:
            self.tracks[at] = routing.overtaken(self.tracks[at], seconds, now)
        else:
            self.tracks[at] = routing.track_after_call(self.tracks[at], failed, seconds, frame.used, now)
