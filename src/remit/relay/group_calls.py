"""Remembers which device of a group a call went to, so that a call or session that continues stays with it."""

import asyncio
from collections.abc import Callable

from remit.protocol.envelope import Request
from remit.protocol.errors import Code, RemitError, fault
from remit.relay.client.delivery import MessageDelivery
from remit.relay.device.peers import PeerDevice
from remit.relay.e2e.channel import MessageCipher
from remit.relay.messages.catalog import latest_offers
from remit.relay.run_targets import best_member, nobody_offers
from remit.transports.remote_calls import WINDOW_MS

# Calls that wait are far fewer; the rest are sessions, and the one used longest ago is forgotten first.
MOST = 1_000
# A gateway that answers has said by then who is connected.
NEWS_S = 2.0
_LOOK_S = 0.1
_FACT = "group-calls"

Chosen = dict[str, tuple[str, int]]
"""The device of each call or session, and when it was last used."""


class GroupCalls:
    """The devices that were chosen, in the device's file."""

    def __init__(self, sealer: MessageCipher, delivery: MessageDelivery, *, now_ms: Callable[[], int]) -> None:
        self._peers = sealer.peers
        self._state = sealer.device.state
        self._delivery = delivery
        self._now_ms = now_ms
        self._settled_at = asyncio.get_running_loop().time() + NEWS_S

    async def settle(self, group: str) -> None:
        """Soon after the start, wait until the gateway says that a device of the group is connected."""
        loop, presence = asyncio.get_running_loop(), self._delivery.presence
        while loop.time() < self._settled_at:
            members = await self._delivery.do(self._peers.members, group)
            if not members or any(presence.of(each.device).present for each in members):
                return
            await asyncio.sleep(_LOOK_S)

    def member(self, group: str, agent: str, remote: str, request: Request, *, sent: bool) -> PeerDevice:
        """Return the device of a group that a call of *agent* goes to, and remember it before anything is sent.

        Raises a `RemitError` if no device of it shares the *remote* agent; or if the call was *sent* before a restart,
        and the device is unknown now: another one could carry it out again.
        """
        key = _key(agent, request)
        with self._state.writing():
            chosen = self._chosen()
            before = self._peers.get(chosen[key][0]) if key in chosen else None
            if sent and (before is None or before.revoked):
                why = f"{agent} was called on a device of the group {group}, and which one is not known any more"
                raise RemitError(fault(Code.OUTCOME_UNKNOWN, why))
            peer = before
            if peer is None or not (sent or (peer.may_talk and group in peer.groups)):
                peer = self._best(group, remote)
            self._keep({**chosen, key: (peer.device, self._now_ms())})
            return peer

    def ended(self, agent: str, request: Request) -> None:
        """Forget the device of a call that has ended; that of a session that somebody chose is kept for a day."""
        if request.session not in (None, request.id):
            return
        with self._state.writing():
            chosen = self._chosen()
            if chosen.pop(_key(agent, request), None) is not None:
                self._keep(chosen)

    def _best(self, group: str, remote: str) -> PeerDevice:
        members, presence = self._peers.members(group), self._delivery.presence
        best = best_member(members, remote, lambda device: latest_offers(self._state, device), presence.of)
        if best is None:
            raise nobody_offers(group, members, remote)
        return best

    def _chosen(self) -> Chosen:
        return self._state.fact(_FACT, Chosen) or {}

    def _keep(self, chosen: Chosen) -> None:
        oldest = self._now_ms() - WINDOW_MS
        newest = sorted(chosen.items(), key=lambda each: each[1][1])[-MOST:]
        self._state.keep(_FACT, {key: each for key, each in newest if each[1] >= oldest})


def _key(agent: str, request: Request) -> str:
    is_chosen = request.session not in (None, request.id)
    return f"{agent}\n{request.session if is_chosen else request.path}"
