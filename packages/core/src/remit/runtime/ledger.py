"""The accounts of a hub: delegations in flight, reservations, spending, breakers and rates.

All mutable state of delegations changes here. Nothing awaits, so a check and the change that follows it are atomic.
"""

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from remit.policy import breaker, routing
from remit.policy import breaker as breakers
from remit.policy import budget as rates
from remit.policy.breaker import Breaker, BreakerSettings, Phase
from remit.policy.budget import Window
from remit.policy.reception import trace_of
from remit.policy.routing import Candidate, Ranked, TrackRecord
from remit.ports.agents import RegisteredAgent, Tool
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Request, Response
from remit.protocol.lifecycle import Status
from remit.protocol.remit import Remit
from remit.runtime.frames import Frame, Tally

# Runs of other hubs whose delegations are counted here; a hub has fewer in flight. Each takes about 300 bytes.
MOST_TALLIES = 10_000

# Bound once, because every hop needs them: looking up an enum member costs as much as a guard.
_CLOSED, _SUCCESS = Phase.CLOSED, Status.SUCCESS

_FRESH = Breaker()

_UNTRIED = TrackRecord()


class Ledger:
    """The reservations, delegations in flight, breakers and rates of one hub."""

    def __init__(self, settings: BreakerSettings) -> None:
        self.settings = settings
        self.frames: dict[str, Frame] = {}
        self.begun: Callable[[], None] = lambda: None
        """Called when the first delegation in flight is added."""
        self.breakers: dict[str, Breaker] = {}
        self.windows: dict[str, Window] = {}
        self.tool_windows: dict[str, Window] = {}
        self.tracks: dict[tuple[str, str], TrackRecord] = {}
        """The track record of each agent, by capability and agent."""
        self.outbound: dict[str, list[Frame]] = {}
        """Delegations that run elsewhere, by trace: a request that comes back from there belongs below them."""
        self.tallies: OrderedDict[tuple[str, str], Tally] = OrderedDict()
        """The delegation counts of other hubs' runs, by hub and run."""
        self.is_new = True
        """Whether the track records from before this hub was opened are not loaded yet."""

    def tally_of(self, request: Request) -> Tally:
        """Return the tally that counts the delegations of a root request.

        A request that comes back to this hub belongs to the tally of its run, found by the trace. Another hub's request
        belongs to that hub's run, found by its id. A person's request is a run of its own.
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
        """Return how long to wait until the rate limit of an agent allows a call."""
        return 0 if card.rate is None else rates.wait_ms(self.windows.get(card.name, Window()), card.rate, now)

    def tool_wait_ms(self, tool: Tool | None, now: float) -> int:
        """Return how long to wait until the rate limit of a tool allows a use."""
        if tool is None or tool.card.rate is None:
            return 0
        return rates.wait_ms(self.tool_windows.get(tool.rated_as, Window()), tool.card.rate, now)

    def count_use(self, tool: Tool, now: float) -> int:
        """Count the use of a tool and return 0, or return how long to wait until its rate limit allows it."""
        if tool.card.rate is None:
            return 0
        wait_ms = self.tool_wait_ms(tool, now)
        if not wait_ms:
            before = self.tool_windows.get(tool.rated_as, Window())
            self.tool_windows[tool.rated_as] = rates.count(before, tool.card.rate, now)
        return wait_ms

    def breaker_wait_ms(self, target: str, now: float) -> int:
        """Return how long the breaker of an agent stays open."""
        breaker = self.breakers.get(target)
        if breaker is None or breaker.phase is _CLOSED:
            return 0
        return breakers.wait_ms(breaker, now, self.settings)

    def phase(self, target: str) -> Phase:
        """Return the phase of an agent's breaker."""
        return self.breakers.get(target, _FRESH).phase

    def open(self, frame: Frame) -> None:
        """Reserve the grant of a delegation and count it as in flight."""
        card, parent = frame.card, frame.parent
        if parent is not None:
            if frame.granted > parent.left:
                parent.draw(frame.granted - parent.left)
            assert frame.granted <= parent.left, "a grant is cut from what is left, and nothing awaits in between"
            parent.reserved += frame.granted
            if (children := parent.children) is None:
                children = parent.children = set()
            children.add(frame)
            if (call_key := frame.call_key) is not None:
                if (calls := parent.calls_by_key) is None:
                    calls = parent.calls_by_key = {}
                calls[call_key] = None
            frame.changes_before = frame.run.changes
        if not self.frames:
            self.begun()
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
        """Take back the reservation of a delegation that did not start."""
        self.frames.pop(frame.path, None)
        self._judge_target(frame, None, now)
        if frame.request.capability is not None:
            self._learn(frame, frame.request.capability, None, now)

    def _judge_target(self, frame: Frame, failed: bool | None, now: float, seconds: float | None = None) -> None:
        name = frame.card.name
        breaker = self.breakers.get(name, _FRESH)
        # A call from before the breaker opened does not show whether the callee has recovered.
        if breaker.phase is _CLOSED or frame.is_probe:
            self.breakers[name] = breakers.after(breaker, failed, now, self.settings, seconds)

    def close(self, frame: Frame, response: Response, now: float, default_ms: int) -> None:
        """Settle the account, return the unspent tokens, and update breaker and track record.

        *default_ms* is the time of a delegation when neither its caller nor its callee sets one.
        """
        parent = frame.parent
        if parent is not None:
            parent.reserved -= frame.granted + frame.aside
            if frame.purse is not None and parent.purse is not None and frame.purse is not parent.purse:
                parent.purse.reserved -= frame.purse.granted
            if parent.children is not None:
                parent.children.discard(frame)
            if frame.twin is not None:
                parent.hedges -= 1
                frame.twin.twin = frame.twin = None
            if response.status is not _SUCCESS and frame.call_key is not None and parent.calls_by_key is not None:
                parent.calls_by_key.pop(frame.call_key, None)
        if frame.prompt or frame.completion or frame.bill is not None:
            if parent is not None:
                parent.meter_below(frame.usage(), frame.purse)
            if frame.overrun or (frame.purse is not None and frame.path in frame.purse.overspent):
                frame.run.overrun = True
        self.frames.pop(frame.path, None)
        if frame.run.returned is not None:
            frame.run.note_return()
        failed = False if response.fault is None else self._counts_against(frame, response, now, default_ms)
        if frame.lookup is not None and frame.lookup.follows:
            failed = None
        self._judge_target(frame, failed, now, now - frame.taken_s - frame.waited_s)
        if frame.request.capability is not None:
            self._learn(
                frame, frame.request.capability, failed, now, late=frame.ran and breaker.is_late(response, failed)
            )

    def _counts_against(self, frame: Frame, response: Response, now: float, default_ms: int) -> bool | None:
        """Return whether a fault counts against the agent of a frame; None: it says nothing about the agent."""
        known_s = breakers.usual_now_s(self.breakers.get(frame.card.name, _FRESH), now)
        # Time in the queue was not available to the agent; time that the caller granted beyond that was.
        had_s = frame.request.remit.time_ms / 1_000 - (frame.taken_s - frame.started) if frame.ran else 0.0
        return breaker.counts_against(
            response,
            # A handover names the agents behind it, also if it happened on a peer.
            passed_on=frame.passed_on or len(response.path) > 1,
            had_s=had_s,
            usual_s=breaker.usual_time_s(known_s, frame.card, frame.request.capability, default_ms),
        )

    def set_aside(self, frame: Frame, hedge_ms: int) -> Remit:
        """Set half of a grant aside for a hedge and return the remit with the rest."""
        frame.hedge_ms, frame.aside = hedge_ms, frame.granted // 2
        frame.granted -= frame.aside
        remit = frame.request.remit
        return replace(remit, tokens=frame.granted, context_tokens=min(remit.context_tokens, frame.granted))

    def pair(self, frame: Frame, first: Frame) -> None:
        """Count a delegation and its hedge as one while both are in flight."""
        if frame.parent is not None and not isinstance(first.state, Status):
            frame.parent.hedges += 1
            frame.twin, first.twin = first, frame

    def hand_over(self, frame: Frame) -> int:
        """Return the tokens that were set aside to the parent, to be granted to the hedge at once; return how many."""
        freed, frame.aside = frame.aside, 0
        if frame.parent is not None:
            frame.parent.reserved -= freed
        return freed

    def take_back(self, frame: Frame, tokens: int) -> None:
        """Set tokens aside again that were handed over and not granted to anyone."""
        if frame.parent is not None and not isinstance(frame.state, Status):
            tokens = min(tokens, max(0, frame.parent.left))
            frame.parent.reserved += tokens
        frame.aside = tokens

    # ── who does what how well ────────────────────────────────────────────────────────────────────────────────────────

    def ranked(self, capability: str, entries: Iterable[RegisteredAgent], now: float) -> tuple[str, ...]:
        """Return the names of these agents in the order to ask them: the first choice, then the fallbacks."""
        candidates = [self._candidate(capability, entry.card, now) for entry in entries]
        return tuple(each.name for each in routing.rank(candidates, now, random.betavariate))

    def explained(self, capability: str, entries: Iterable[RegisteredAgent], now: float) -> tuple[Ranked, ...]:
        """Return the ranking of these agents at a capability, with the reasons."""
        return routing.explain([self._candidate(capability, entry.card, now) for entry in entries], now)

    def recall(self, past: Mapping[tuple[str, str], TrackRecord]) -> None:
        """Load earlier track records; newer observations of an agent take precedence."""
        for at, track in past.items():
            known = self.tracks.get(at, _UNTRIED)
            if known.is_new:
                self.tracks[at] = replace(track, in_flight=known.in_flight)
        self.is_new = False

    def learn_from(self, seen: Mapping[tuple[str, str], TrackRecord]) -> None:
        """Replace track records by those that the record shows, which has the calls of all hubs."""
        for at, track in seen.items():
            self.tracks[at] = replace(track, in_flight=self.tracks.get(at, _UNTRIED).in_flight)

    def _candidate(self, capability: str, card: AgentCard, now: float) -> Candidate:
        breaker = self.breakers.get(card.name, _FRESH)
        wait_ms = self.breaker_wait_ms(card.name, now)
        offered = card.capability(capability)
        return Candidate(
            name=card.name,
            track=self.tracks.get((capability, card.name), _UNTRIED),
            wait_ms=wait_ms or self.rate_wait_ms(card, now),
            # Only where another agent can answer if this one has not recovered: no call should fail for a probe.
            probe=not wait_ms and breaker.phase is Phase.OPEN and offered is not None and offered.read_only,
        )

    def _learn(self, frame: Frame, capability: str, failed: bool | None, now: float, *, late: bool = False) -> None:
        at = capability, frame.card.name
        # The time that a person took to decide does not count.
        seconds = now - frame.started - frame.waited_s
        if frame.overtaken or late:
            self.tracks[at] = routing.overtaken(self.tracks[at], seconds, now)
        else:
            self.tracks[at] = routing.track_after_call(self.tracks[at], failed, seconds, frame.used, now)
