"""Who carries out a call that names a capability and no agent, and who does it if that one cannot."""

import asyncio
import logging
from functools import cached_property

from msgspec.structs import replace

from remit.policy.budget import FLOOR_MS
from remit.policy.routing import may_try_another
from remit.protocol.card import AgentCard, Capability
from remit.protocol.envelope import Call, Response
from remit.protocol.errors import Fault
from remit.runtime import journal
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.draft import errands_of
from remit.runtime.frames import Frame, RoutedCall, Run, leg_path
from remit.runtime.ports import SessionOwner, StoreError
from remit.runtime.registry import RegisteredAgent

log = logging.getLogger("remit")

# What is read takes a tenth of that. Whoever has waited so long is better served by any choice.
RECALL_S = 0.25


class Routing:
    """The choice among several agents that offer the same; each is judged anew when its turn comes."""

    def __init__(self, parts: RuntimeContext) -> None:
        self.parts = parts

    def route(
        self, parent: Frame, call: Call, capability: str, path: str, owner: SessionOwner | None
    ) -> RoutedCall | None:
        """Return the way of a call by capability: as it went before a restart, else as it looks best now.

        A way that names nobody hangs on what this hub does not remember yet: find the way again after `recall`.
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
            return (owner.agent,)  # a conversation goes on with whom it began
        if parent.errands and (asked := parent.errands.keys() & errands_of(call, names)):
            # Asked again for the same, another would answer it as if it had not been asked before.
            return (asked.pop()[0],)
        if self.parts.ledger.is_new:
            return ()
        reachable = [entry for entry in offering if _may_reach(parent, call, entry)]
        ranked = self.parts.ledger.ranked(capability, reachable or offering, self.parts.clock.now())
        return ranked[:1] if call.session is not None else ranked

    async def recall(self) -> None:
        """Remember how agents did before this hub was opened: once, when it matters for the first time."""
        async with self._recalling:
            if not self.parts.ledger.is_new:
                return
            from remit.runtime.track_record import NEWEST, tracks  # few hubs have several agents for one capability

            clock = self.parts.clock
            try:
                async with asyncio.timeout(RECALL_S):
                    records = await self.parts.store.recent(NEWEST)
            except (TimeoutError, StoreError) as error:
                why = str(error) or "it takes too long"
                log.warning("how agents did before cannot be read, so it does not count: %s", why)
                records = []
            now, wall_ms = clock.now(), clock.wall_ms()
            self.parts.ledger.recall(tracks(records, lambda at_ms: now - (wall_ms - at_ms) / 1_000))

    @cached_property
    def _recalling(self) -> asyncio.Lock:
        return asyncio.Lock()

    def recorded_leg(self, run: Run, route: RoutedCall, first: int) -> RoutedCall | None:
        """Return an attempt, of those from *first* on, that was made before a restart.

        It is the first that was answered, else the first. Whom it went to is part of its digest; what cannot be found
        so is left to the journal to refuse.
        """
        if not run.steps or route.call.capability is None:
            return None
        keys = self.parts.redactor.keys
        names = [entry.card.name for entry in self.parts.registry.offering(route.call.capability)]
        made = [leg for leg in range(first, len(names)) if leg_path(route.path, leg) in run.steps]
        if not made:
            return None
        # Of two that were asked beside each other one may not have ended yet, though the other had answered.
        leg = next((leg for leg in made if journal.has_answer(run, leg_path(route.path, leg), keys)), made[0])
        name = journal.chosen(run, leg_path(route.path, leg), route.call, names, keys)
        others = tuple(each for each in (route.names[1:] if first else route.names) if each != name)
        return route._replace(names=route.names if name is None else (name, *others), leg=leg)

    def onward(self, route: RoutedCall, why: Fault) -> RoutedCall | None:
        """Return the way to the next after a refusal: only where this one could not take it on, and another might."""
        if len(route.names) < 2 or not may_try_another(why, begun=False, read_only=False):
            return None
        return route._replace(names=route.names[1:], leg=route.leg + 1)

    def next_leg(self, frame: Frame, response: Response) -> RoutedCall | None:
        """Return the way to the next after an attempt that failed, within the time and tokens that it left over."""
        route, why = frame.route, response.fault
        if route is None or route.call.capability is None or why is None or len(route.names) < 2:
            return None
        offered = _offered(frame.card, route)
        read_only = offered is not None and offered.read_only
        left_ms = frame.time_left_ms(self.parts.clock.now())
        if left_ms < FLOOR_MS or not may_try_another(why, begun=frame.ran, read_only=read_only):
            return None
        left = max(0, frame.granted + frame.aside - frame.used)
        return self._another(frame, route, replace(route.call, deadline_ms=left_ms, max_tokens=left))

    def beside(self, frame: Frame) -> RoutedCall | None:
        """Return the way to whom to ask beside one that takes long; what was set aside for that is free from now on."""
        route, left_ms = frame.route, frame.time_left_ms(self.parts.clock.now())
        if route is None or left_ms < FLOOR_MS or frame.stopping is not None or not frame.aside:
            return None
        tokens = self.parts.ledger.hand_over(frame)
        return self._another(frame, route, replace(route.call, deadline_ms=left_ms, max_tokens=tokens), beside=frame)

    def under_way(self, frame: Frame, route: RoutedCall, *, hedge: bool) -> None:
        """Note how a delegation came to its callee, and keep part of its grant for who may be asked beside it."""
        frame.route = route
        if route.beside is not None:
            self.parts.ledger.pair(frame, route.beside)
        offered = _offered(frame.card, route)
        if not hedge or len(route.names) < 2 or offered is None or offered.hedge_ms is None:
            return
        agents = self.parts.registry.agents
        others = [_offered(agents[name].card, route) for name in route.names[1:] if name in agents]
        if not all(other is not None and other.read_only for other in others):
            return  # what one of them does, it may not do twice
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
    """Say whether the guards would let it be asked, as far as that hangs on who it is."""
    remit, card = parent.request.remit, entry.card
    return (
        parent.card.may_reach(card.name)
        and (remit.targets is None or card.name in remit.targets)
        and entry.address not in remit.chain
        and entry.address != parent.address
        and (call.tools is None or call.tools <= card.tools)
    )
