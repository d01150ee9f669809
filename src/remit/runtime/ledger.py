"""The one mutable place: what is in flight, what is reserved and spent, which breakers are open.

Nothing here awaits, so a check and the change that follows it are one step.
"""

import random
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from remit.policy import blame, routing
from remit.policy import breaker as breakers
from remit.policy import rate as rates
from remit.policy.breaker import Breaker, BreakerSettings, Phase
from remit.policy.rate import Window
from remit.policy.reception import trace_of
from remit.policy.routing import Candidate, Ranked, TrackRecord
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Request, Response
from remit.protocol.lifecycle import Status
from remit.protocol.remit import Remit
from remit.runtime.frames import Frame, Tally
from remit.runtime.registry import RegisteredAgent

# Runs of other hubs whose delegations are counted here; a hub has fewer under way. Each takes some 300 bytes.
MOST_TALLIES = 10_000

# Bound once, for every hop needs them: to look a member up on its enum costs as much as a guard.
_CLOSED, _SUCCESS = Phase.CLOSED, Status.SUCCESS

_FRESH = Breaker()

_UNTRIED = TrackRecord()


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
