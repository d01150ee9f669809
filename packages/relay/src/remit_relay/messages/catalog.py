"""The catalog of shared agents: what each peer was told, and what each peer announced.

An announcement is a claim of the other device: it says what can be asked there, and grants nothing here.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from remit.protocol.errors import Code, RemitError, fault
from remit_relay.device.peers import PeerDevice, Peers
from remit_relay.device.state import DeviceFile
from remit_relay.e2e.channel import MessageCipher, Opened
from remit_relay.messages import types
from remit_relay.messages.types import AgentOffer, OffersMessage

# The most names in one error message.
MOST_NAMED = 20

_log = logging.getLogger("remit.relay")

# ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class CatalogSender:
    """Sends each device the list of agents shared with it, whenever the list has changed.

    A device that got no list yet also gets an empty one: that establishes the session, so that its own list comes at
    once.
    """

    def __init__(self, sealer: MessageCipher) -> None:
        self._sealer = sealer
        self._state = sealer.device.state
        self._told: dict[str, tuple[AgentOffer, ...] | None] = {}
        """A cache of the stored lists: only one process runs the device."""

    def tell(self, peers: Iterable[PeerDevice], offered: Callable[[str], tuple[AgentOffer, ...]]) -> None:
        """Send each device the list from *offered* if it changed; devices that are not allowed get it later."""
        for peer in peers:
            if peer.may_talk and self._known(peer.device) != (now := offered(peer.device)):
                try:
                    self._seal(peer.device, now)
                except RemitError as error:  # it was revoked, or its queue is full: the next call tries again
                    _log.info("the list of shared agents is not sent to %s: %s", peer.device, error.fault.message)

    def _known(self, device: str) -> tuple[AgentOffer, ...] | None:
        if device not in self._told:
            row, _ = self._sealer.peers.row(device)
            self._told[device] = self._state.fact(f"told/{row}", tuple[AgentOffer, ...])
        return self._told[device]

    def _seal(self, device: str, offer: tuple[AgentOffer, ...]) -> None:
        with self._state.writing():
            row, _ = self._sealer.peers.row(device)
            self._sealer.seal(device, types.write(OffersMessage(agents=offer)))
            self._state.keep(f"told/{row}", offer)
        self._told[device] = offer


# ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def hear(sealer: MessageCipher, opened: Opened, message: OffersMessage) -> None:
    """Store the list of a device, replacing the previous one, and delete the message."""
    state = sealer.device.state
    with state.writing():
        row, peer = sealer.peers.row(opened.sender)
        if peer.may_talk:
            state.keep(f"heard/{row}", message.agents)
        sealer.taken(opened.id)


def latest_offers(state: DeviceFile, device: str) -> tuple[AgentOffer, ...] | None:
    """Return the last list of a device; None if it sent none, or is not allowed now."""
    row, peer = Peers(state).row(device)
    return state.fact(f"heard/{row}", tuple[AgentOffer, ...]) if peer.may_talk else None


def known_devices(state: DeviceFile) -> list[tuple[PeerDevice, tuple[AgentOffer, ...] | None]]:
    """Return the known devices, by name, each with its last list."""
    return [(peer, latest_offers(state, peer.device)) for peer in Peers(state).list()]


def shares(peer: PeerDevice, offer: tuple[AgentOffer, ...] | None) -> bool:
    """Return whether a device shares an agent with this one: by its last list, else by its stored flag."""
    return peer.may_talk and (peer.shared if offer is None else bool(offer))


def choose(offer: tuple[AgentOffer, ...] | None, agent: str, device: str) -> str:
    """Return the agent of a device that is meant, or raise a `RemitError` that lists its agents.

    If the device sent no list yet, any name is accepted, and the device decides.
    """
    if offer is None:
        return agent
    names = [each.name for each in offer]
    if agent in names or (not agent and len(names) == 1):
        return agent or names[0]
    if not names:
        why, suggestion = f"{device} shares nothing with this device", "Ask its owner to share an agent with it."
    elif agent:
        why = f"{device} shares no agent `{agent[:100]}` with this device; it shares: {join_names(names)}"
        suggestion = "Name one of those (--agent NAME)."
    else:
        why = f"{device} shares several agents with this device: {join_names(names)}"
        raise RemitError(
            fault(
                Code.INPUT_VALIDATION_FAILED,
                why,
                suggestion="Choose one (--agent NAME; in a chat /resume NAME).",
            )
        )
    raise RemitError(fault(Code.AGENT_NOT_FOUND, why, suggestion=suggestion))


def join_names(names: Sequence[str]) -> str:
    """Return names as a list for a sentence, shortened if there are many."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
