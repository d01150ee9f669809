"""Finds the device and the shared agent that a run works with: the named device, or one of the named group."""

import asyncio
from collections.abc import Callable, Collection, Sequence

from remit.protocol.errors import Code, RemitError, fault
from remit_relay.client.connection import DevicePresence
from remit_relay.client.delivery import MessageDelivery
from remit_relay.device.peers import PeerDevice
from remit_relay.e2e.channel import MessageCipher
from remit_relay.messages.types import AgentOffer, choose, latest_offers
from remit_relay.session import moves
from remit_relay.session.run import Overlay

_LOOK_S = 0.25


class RunTargets:
    """The devices that runs can work with, since the device was started."""

    def __init__(self, sealer: MessageCipher, delivery: MessageDelivery) -> None:
        self._sealer = sealer
        self._delivery = delivery
        self._settled_at = 0.0

    def started(self, news_s: float) -> None:
        """Note that the device is connecting: for some seconds lists of shared agents may still arrive."""
        self._settled_at = asyncio.get_running_loop().time() + news_s

    async def offers(self, device: str) -> tuple[AgentOffer, ...] | None:
        """Return the agents that a known device says it shares with this one; None if it sent no list yet."""
        return await self._delivery.do(latest_offers, self._sealer.device.state, device)

    async def device(self, named: str, agent: str, permitted: Collection[str]) -> str:
        """Return the id of the device with an id or name, or of the best device of a group; an unknown name as it is.

        Of a group only the *permitted* devices count, unless none is: then the refusal names one of them. Raises a
        `RemitError` if none of them shares the *agent*.
        """
        while True:
            peers = await self._delivery.do(self._sealer.peers.list)
            members = [each for each in peers if named in each.groups]
            if not members:
                ids = (each.device for each in peers if named == each.card.name and not each.revoked)
                return named if any(named == each.device for each in peers) else next(ids, named)
            members = [each for each in members if each.device in permitted] or members[:1]
            best = await self._delivery.do(self._best, members, agent)
            settled = asyncio.get_running_loop().time() > self._settled_at
            if best is not None and (settled or self._delivery.presence.of(best.device).present):
                return best.device
            if settled:
                raise nobody_offers(named, members, agent)
            await asyncio.sleep(_LOOK_S)

    def _best(self, members: Sequence[PeerDevice], agent: str) -> PeerDevice | None:
        state = self._sealer.device.state
        return best_member(members, agent, lambda device: latest_offers(state, device), self._delivery.presence.of)

    async def talking(self, device: str) -> PeerDevice:
        """Return a known device that messages may be exchanged with, or raise a `RemitError`."""
        _, peer = await self._delivery.do(self._sealer.talking, device)
        return peer

    async def agent(self, peer: PeerDevice, agent: str) -> str:
        """Return the requested agent of a device; soon after the start its list may not have arrived yet."""
        while True:
            try:
                return choose(await self.offers(peer.device), agent, peer.card.name)
            except RemitError as error:
                if error.fault.code is not Code.AGENT_NOT_FOUND or asyncio.get_running_loop().time() > self._settled_at:
                    raise
            await asyncio.sleep(_LOOK_S)

    async def resuming(self, run: Overlay, event: moves.Resume) -> moves.Resume:
        """Return the event with the agent, for a run that started before the list of the device was known."""
        if run.agent and event.agent not in ("", run.agent):
            why = f"the run is with `{run.agent}`, which cannot be changed"
            raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion="Start a new run for another agent."))
        _, peer = await self._delivery.do(self._sealer.peers.row, run.device)
        if run.agent or not await self.offers(run.device):
            return event
        return moves.Resume(agent=await self.agent(peer, event.agent))


def best_member(
    members: Sequence[PeerDevice],
    agent: str,
    offers: Callable[[str], tuple[AgentOffer, ...] | None],
    presence: Callable[[str], DevicePresence],
) -> PeerDevice | None:
    """Return the device of a group to ask: one that offers the agent; of those, a connected one, or the last heard.

    A device that has sent no list yet counts only if no other offers the agent. None: no device can be asked.
    """
    offered = {each.device: offers(each.device) for each in members if each.may_talk}
    able = [each for each in members if _offers(offered.get(each.device), agent)]
    able = able or [each for each in members if each.device in offered and offered[each.device] is None]

    def rank(peer: PeerDevice) -> tuple[bool, int]:
        now = presence(peer.device)
        return now.present is True, now.last_heard_ms or 0

    return max(able, key=rank, default=None)


def nobody_offers(group: str, members: Sequence[PeerDevice], agent: str) -> RemitError:
    """Return the error for a group of which no device can be asked."""
    if not any(each.may_talk for each in members):
        why, todo = f"no device of the group {group} may be asked from here", f"remit devices allow {group}"
        return RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=f"To allow them: {todo}"))
    what = f"an agent `{agent[:100]}`" if agent else "an agent"
    why = f"no device of the group {group} shares {what} with this device"
    return RemitError(fault(Code.AGENT_NOT_FOUND, why, suggestion="`remit devices list` shows what each shares."))


def _offers(offer: tuple[AgentOffer, ...] | None, agent: str) -> bool:
    return any(agent in ("", each.name) for each in offer or ())
