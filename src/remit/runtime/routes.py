"""Who carries out a call that names a capability and no agent, and who does it if that one cannot."""

from msgspec.structs import replace

from remit.policy.budget import FLOOR_MS
from remit.policy.routing import may_try_another
from remit.protocol.envelope import Call, Response
from remit.protocol.errors import Fault
from remit.runtime import journal
from remit.runtime.consult import Consult
from remit.runtime.draft import errands_of
from remit.runtime.ledger import Frame, Route, Run, leg_path
from remit.runtime.ports import Owner
from remit.runtime.registry import Entry


class Routing(Consult):
    """The choice among several who offer the same, each of them judged anew when its turn comes."""

    def route(self, parent: Frame, call: Call, capability: str, path: str, owner: Owner | None) -> Route | None:
        """Return the way of a call by capability: as it went before a restart, else as it looks best now."""
        offering = self.parts.registry.offering(capability)
        if not offering:
            return None
        route = Route(call, path, self._names(parent, call, capability, offering, owner))
        return self.recorded_leg(parent.run, route, 0) or route

    def _names(
        self, parent: Frame, call: Call, capability: str, offering: list[Entry], owner: Owner | None
    ) -> tuple[str, ...]:
        names = [entry.card.name for entry in offering]
        if len(names) == 1:
            return tuple(names)
        if owner is not None and owner.user == parent.request.remit.user and owner.agent in names:
            return (owner.agent,)  # a conversation goes on with whom it began
        if parent.errands and (asked := parent.errands & errands_of(call, names)):
            # Asked again for the same, another would answer it as if it had not been asked before.
            return (asked.pop()[0],)
        reachable = [entry for entry in offering if _may_reach(parent, call, entry)]
        ranked = self.parts.ledger.ranked(capability, reachable or offering, self.parts.clock.now())
        return ranked[:1] if call.session is not None else ranked

    def recorded_leg(self, run: Run, route: Route, first: int) -> Route | None:
        """Return the first attempt, of those from *first* on, that was made before a restart.

        Whom it went to is part of its digest. What cannot be found so is left to the journal to refuse.
        """
        if not run.steps or route.call.capability is None:
            return None
        names = [entry.card.name for entry in self.parts.registry.offering(route.call.capability)]
        for leg in range(first, len(names)):
            at = leg_path(route.path, leg)
            if at in run.steps:
                name = journal.chosen(run, at, route.call, names, self.parts.redactor.keys)
                others = tuple(each for each in (route.names[1:] if first else route.names) if each != name)
                return route._replace(names=route.names if name is None else (name, *others), leg=leg)
        return None

    def onward(self, route: Route, why: Fault) -> Route | None:
        """Return the way to the next after a refusal: only where this one could not take it on, and another might."""
        if len(route.names) < 2 or not may_try_another(why, begun=False, read_only=False):
            return None
        return route._replace(names=route.names[1:], leg=route.leg + 1)

    def next_leg(self, frame: Frame, response: Response) -> Route | None:
        """Return the way to the next after an attempt that failed, within the time and tokens that it left over."""
        route, why = frame.route, response.fault
        if route is None or route.call.capability is None or why is None or len(route.names) < 2:
            return None
        offered = frame.card.capability(route.call.capability)
        read_only = offered is not None and offered.read_only
        left_ms = frame.time_left_ms(self.parts.clock.now())
        if left_ms < FLOOR_MS or not may_try_another(why, begun=frame.ran, read_only=read_only):
            return None
        call = replace(route.call, deadline_ms=left_ms, max_tokens=max(0, frame.granted - frame.used))
        return Route(call, route.path, route.names[1:], route.leg + 1)


def _may_reach(parent: Frame, call: Call, entry: Entry) -> bool:
    """Say whether the guards would let it be asked, as far as that hangs on who it is."""
    remit, card = parent.request.remit, entry.card
    return (
        parent.card.may_reach(card.name)
        and (remit.targets is None or card.name in remit.targets)
        and entry.address not in remit.chain
        and entry.address != parent.address
        and (call.tools is None or call.tools <= card.tools)
    )
