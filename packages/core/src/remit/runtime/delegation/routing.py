"""Routing of calls that name a capability: the agent to ask, its fallbacks, and the track records behind the choice."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import cached_property

from msgspec.structs import replace

from remit.policy import routing
from remit.policy.breaker import FaultKey, counts_against, is_late, key_of
from remit.policy.budget import FLOOR_MS, tokens_wanted
from remit.policy.limits import Limits
from remit.policy.repeats import call_keys_of
from remit.policy.routing import TrackRecord, may_try_another
from remit.ports import RegisteredAgent, Remote, SessionOwner, StoreError
from remit.protocol.card import AgentCard, Capability
from remit.protocol.envelope import Call, Request, Response
from remit.protocol.errors import Code, Fault
from remit.protocol.records import Record, Refusal
from remit.runtime import journal
from remit.runtime.context import RuntimeContext
from remit.runtime.frames import Frame, RoutedCall, Run, leg_path

# About fifty outcomes of each agent are remembered, and an outcome is two records: this is enough for ten agents.
# Reading it takes 20 ms in a thread, and processing it 4.
NEWEST = 1_000

Tracks = dict[tuple[str, str], TrackRecord]
"""By capability and agent."""


def tracks(records: Iterable[Record], at: Callable[[int], float], running: Collection[str] = ()) -> Tracks:
    """Return each agent's track record by capability, as the caller of these calls would know it now.

    *at* returns the moment of a record on the clock of the tracks. Unfinished calls count as in flight only in runs
    that are *running*: how others end is not known.
    """
    by_agent: Tracks = {}
    requests: dict[tuple[str, str], Request] = {}
    below: dict[tuple[str, str], set[FaultKey]] = {}
    answered: set[tuple[str, str]] = set()
    for record in records:
        match record.body:
            case Request() as request:
                requests[record.run, request.id] = request
            case Refusal(request=request, response=response):
                _note_fault(below, record.run, request, response)
            case Response() as response if (request := requests.pop((record.run, response.id), None)) is not None:
                _note_fault(below, record.run, request, response)
                known_below = below.pop((record.run, request.path), ())
                if request.capability is None:
                    continue
                place = record.run, _call_of(request.id)
                if response.ok:
                    answered.add(place)
                key = request.capability or "", request.target
                known = routing.begun(by_agent.get(key, TrackRecord()))
                failed = _failed(known, request, response, known_below)
                by_agent[key] = _ended(known, failed, response, at(record.at_ms), overtaken=place in answered)
            case _:
                pass
    for (run, _), request in requests.items():
        if run in running and request.capability is not None:
            key = request.capability or "", request.target
            by_agent[key] = routing.begun(by_agent.get(key, TrackRecord()))
    return by_agent


def _note_fault(below: dict[tuple[str, str], set[FaultKey]], run: str, request: Request, response: Response) -> None:
    """Remember for a caller how one of its delegations failed."""
    if response.fault is not None and request.parent is not None:
        below.setdefault((run, request.parent), set()).add(key_of(response.fault))


def _failed(track: TrackRecord, request: Request, response: Response, below: Collection[FaultKey]) -> bool | None:
    """Return whether an outcome counts against the callee, as far as the record shows; None: it says nothing."""
    # A shared answer says nothing more about the agent that found it.
    if response.cache in ("hit", "similar"):
        return None
    return counts_against(
        response,
        passed_on=len(response.path) > 1 or (response.fault is not None and key_of(response.fault) in below),
        had_s=(request.remit.time_ms - response.queued_ms) / 1_000,
        # Cards are not recorded: for an agent without a success, the default time replaces the time of its card.
        usual_s=track.latency_s or Limits().delegation_time_ms / 1_000,
    )


def _ended(track: TrackRecord, failed: bool | None, response: Response, now: float, *, overtaken: bool) -> TrackRecord:
    seconds = (response.duration_ms - response.waited_ms) / 1_000
    is_overtaken = response.fault is not None and response.fault.code is Code.CANCELLED and overtaken
    if is_overtaken or is_late(response, failed):
        return routing.overtaken(track, seconds, now)
    return routing.track_after_call(track, failed, seconds, response.usage.total, now)


def _call_of(path: str) -> str:
    """Return the path of a call, given the path of one of its attempts: `run.2` for `run.2+1`."""
    call, _, attempt = path.rpartition("+")
    return call if attempt.isdecimal() else path


log = logging.getLogger("remit")

# Reading the track records takes a tenth of this. After so long a wait, any choice is better than none.
RECALL_S = 0.25


class Routing:
    """Chooses among several agents that offer the same capability; each is judged when its turn comes."""

    def __init__(self, parts: RuntimeContext) -> None:
        self.parts = parts

    def route(
        self, parent: Frame, call: Call, capability: str, path: str, owner: SessionOwner | None
    ) -> RoutedCall | None:
        """Return the route of a call by capability: as before a restart, else the best one now.

        A route without names depends on track records that are not loaded yet: call this again after `recall`.
        """
        offering = self.parts.registry.offering(capability)
        if not offering:
            return None
        route = RoutedCall(call, path, self._names(parent, call, capability, offering, owner))
        return route if not route.names else self.recorded_leg(parent.run, route, 0) or route

    def _names(
        self, parent: Frame, call: Call, capability: str, offering: list[RegisteredAgent], owner: SessionOwner | None
    ) -> tuple[str, ...]:
        names = [entry.card.name for entry in offering]
        if len(names) == 1:
            return tuple(names)
        if owner is not None and owner.user == parent.request.remit.user and owner.agent in names:
            return (owner.agent,)  # a conversation continues with the agent it began with
        if parent.calls_by_key and (earlier_keys := parent.calls_by_key.keys() & call_keys_of(call, names)):
            # Another agent would answer a repeated call as if it were new.
            return (earlier_keys.pop()[0],)
        if self.parts.ledger.is_new:
            return ()
        reachable = [entry for entry in offering if _may_reach(parent, call, entry)]
        ranked = self.parts.ledger.ranked(capability, reachable or offering, self.parts.clock.now())
        return ranked[:1] if call.session is not None else ranked

    async def recall(self) -> None:
        """Load the track records from before this hub was opened: once, when they first matter."""
        async with self._recalling:
            if not self.parts.ledger.is_new:
                return
            try:
                async with asyncio.timeout(RECALL_S):
                    past = await self._recorded()
            except (TimeoutError, StoreError) as error:
                why = str(error) or "it takes too long"
                log.warning("earlier track records cannot be read and do not count: %s", why)
                past = {}
            self.parts.ledger.recall(past)

    async def refresh(self) -> None:
        """Load the track records anew: what other hubs that share the store have seen counts like this hub's own."""
        if not self.parts.ledger.is_new:
            self.parts.ledger.learn_from(await self._recorded())

    async def _recorded(self) -> dict[tuple[str, str], TrackRecord]:
        """Return the track records that the newest records show."""
        records = await self.parts.store.recent(NEWEST)
        now, wall_ms = self.parts.clock.now(), self.parts.clock.wall_ms()
        return tracks(records, lambda at_ms: now - (wall_ms - at_ms) / 1_000)

    @cached_property
    def _recalling(self) -> asyncio.Lock:
        return asyncio.Lock()

    def recorded_leg(self, run: Run, route: RoutedCall, first: int) -> RoutedCall | None:
        """Return an attempt, from *first* on, that was made before a restart.

        It is the first that was answered, else the first. The callee is part of its digest; an attempt that is not
        found this way is left to the journal to refuse.
        """
        if not run.steps or route.call.capability is None:
            return None
        keys = self.parts.redactor.keys
        names = [entry.card.name for entry in self.parts.registry.offering(route.call.capability)]
        made = [leg for leg in range(first, len(names)) if leg_path(route.path, leg) in run.steps]
        if not made:
            return None
        # Of a hedged pair, one may not have ended although the other had answered.
        leg = next((leg for leg in made if journal.has_answer(run, leg_path(route.path, leg), keys)), made[0])
        name = journal.chosen(run, leg_path(route.path, leg), route.call, names, keys)
        others = tuple(each for each in (route.names[1:] if first else route.names) if each != name)
        return route._replace(names=route.names if name is None else (name, *others), leg=leg)

    def onward(self, route: RoutedCall, why: Fault) -> RoutedCall | None:
        """Return the route to the next agent after a refusal, if this agent cannot take the call and another might."""
        if len(route.names) < 2 or not may_try_another(why, begun=False, read_only=False):
            return None
        return route._replace(names=route.names[1:], leg=route.leg + 1)

    def next_leg(self, frame: Frame, response: Response) -> RoutedCall | None:
        """Return the route to the next agent after a failed attempt, within the time and tokens that are left."""
        route, why = frame.route, response.fault
        if route is None or route.call.capability is None or why is None or len(route.names) < 2:
            return None
        offered = _offered(frame.card, route)
        read_only = offered is not None and offered.read_only
        left_ms = frame.time_left_ms(self.parts.clock.now())
        if left_ms < FLOOR_MS or not may_try_another(why, begun=frame.ran, read_only=read_only):
            return None
        left = None if self._has_share(frame, route) else max(0, frame.reservation - frame.used)
        return self._another(frame, route, replace(route.call, deadline_ms=left_ms, max_tokens=left))

    def _has_share(self, frame: Frame, route: RoutedCall) -> bool:
        """Return whether nobody set the tokens of an attempt: then nothing limits those of the next one either."""
        return tokens_wanted(route.call, frame.card, self.parts.limits) is None

    def beside(self, frame: Frame) -> RoutedCall | None:
        """Return the route to the hedge of a slow delegation; the tokens set aside for it become free."""
        route, left_ms = frame.route, frame.time_left_ms(self.parts.clock.now())
        if route is None or left_ms < FLOOR_MS or frame.stopping is not None or not (frame.aside or frame.draws):
            return None
        tokens = self.parts.ledger.hand_over(frame)
        tokens = None if self._has_share(frame, route) else tokens
        return self._another(frame, route, replace(route.call, deadline_ms=left_ms, max_tokens=tokens), beside=frame)

    def under_way(self, frame: Frame, route: RoutedCall, *, hedge: bool) -> None:
        """Note the route of a delegation, and set part of its grant aside for a hedge."""
        frame.route = route
        if route.beside is not None:
            self.parts.ledger.pair(frame, route.beside)
        offered = _offered(frame.card, route)
        if not hedge or len(route.names) < 2 or offered is None or offered.hedge_ms is None:
            return
        agents = self.parts.registry.agents
        others = [_offered(agents[name].card, route) for name in route.names[1:] if name in agents]
        if not all(other is not None and other.read_only for other in others):
            return  # an agent that changes something must not be asked twice
        remit = self.parts.ledger.set_aside(frame, offered.hedge_ms)
        frame.request = replace(frame.request, remit=remit)
        if frame.recorded is not None:
            frame.recorded = replace(frame.recorded, remit=remit)

    def _another(self, frame: Frame, route: RoutedCall, call: Call, *, beside: Frame | None = None) -> RoutedCall:
        onward = route._replace(call=call, beside=beside)
        return self.recorded_leg(frame.run, onward, route.leg + 1) or onward._replace(
            names=route.names[1:], leg=route.leg + 1
        )


def _offered(card: AgentCard, route: RoutedCall) -> Capability | None:
    return None if route.call.capability is None else card.capability(route.call.capability)


def _may_reach(parent: Frame, call: Call, entry: RegisteredAgent) -> bool:
    """Return whether the guards would allow this agent, as far as that depends on its name."""
    remit, card = parent.request.remit, entry.card
    knows_its_own = isinstance(entry.agent, Remote) and entry.agent.judges_tools and not card.tools
    return (
        parent.card.may_reach(card.name)
        and (remit.targets is None or card.name in remit.targets)
        and entry.address not in remit.chain
        and entry.address != parent.address
        and (
            call.tools is None or card.tools.issuperset(call.tools) or (knows_its_own and isinstance(call.tools, dict))
        )
    )
