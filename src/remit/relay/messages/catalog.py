"""What devices share with each other: what each was told, and what was heard from each.

What is heard is a claim of the other device: it says what can be asked for there, and allows nothing here.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from remit.protocol.errors import Code, RemitError, fault
from remit.relay.device.peers import PeerDevice, Peers
from remit.relay.device.state import DeviceFile
from remit.relay.e2e.channel import Opened, Sealer
from remit.relay.messages import types
from remit.relay.messages.types import AgentOffer, OffersMessage

# As many as are read in an error.
MOST_NAMED = 20

_log = logging.getLogger("remit.relay")

# ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class CatalogSender:
    """Tells each device what is shared with it, whenever that is something else than it was told last.

    One that was told nothing yet is told also that nothing is shared with it: then the two have met, and what it has to
    tell comes at once.
    """

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._state = sealer.device.state
        self._told: dict[str, tuple[AgentOffer, ...] | None] = {}
        """As it is kept: nobody else tells while this device is at work."""

    def tell(self, peers: Iterable[PeerDevice], offered: Callable[[str], tuple[AgentOffer, ...]]) -> None:
        """Seal what *offered* says of each device for it, if it does not know that; who may not be talked to waits."""
        for peer in peers:
            if peer.may_talk and self._known(peer.device) != (now := offered(peer.device)):
                try:
                    self._seal(peer.device, now)
                except RemitError as error:  # it was revoked meanwhile, or has too much waiting: the next look decides
                    _log.info("%s is not told what is shared with it: %s", peer.device, error.fault.message)

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


# ── hearing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def hear(sealer: Sealer, opened: Opened, message: OffersMessage) -> None:
    """Keep what a device says that it shares, in place of what it said before, and forget the message."""
    state = sealer.device.state
    with state.writing():
        row, peer = sealer.peers.row(opened.sender)
        if peer.may_talk:
            state.keep(f"heard/{row}", message.agents)
        sealer.taken(opened.id)


def latest_offers(state: DeviceFile, device: str) -> tuple[AgentOffer, ...] | None:
    """Return what a device said last that it shares with this one; None if it said nothing, or does not count now."""
    row, peer = Peers(state).row(device)
    return state.fact(f"heard/{row}", tuple[AgentOffer, ...]) if peer.may_talk else None


def shares(peer: PeerDevice, offer: tuple[AgentOffer, ...] | None) -> bool:
    """Say whether a device shares something with this one: as it said last, else as its owner here was told."""
    return peer.may_talk and (peer.shared if offer is None else bool(offer))


def choose(offer: tuple[AgentOffer, ...] | None, agent: str, device: str) -> str:
    """Return which agent of a device is meant, or raise a `RemitError` that says which it has.

    Of one that has said nothing, anything may be asked; it decides.
    """
    if offer is None:
        return agent
    names = [each.name for each in offer]
    if agent in names or (not agent and len(names) == 1):
        return agent or names[0]
    if not names:
        why, suggestion = f"{device} shares nothing with this device", "Ask its owner to share an agent with it."
    elif agent:
        why = f"{device} shares no agent `{agent[:100]}` with this device, but: {join_names(names)}"
        suggestion = "Name one of those (--agent NAME)."
    else:
        why = f"{device} shares several agents with this device: {join_names(names)}"
        raise RemitError(
            fault(
                Code.INPUT_VALIDATION_FAILED,
                why,
                suggestion="Say which is meant (--agent NAME; in a chat /resume NAME).",
            )
        )
    raise RemitError(fault(Code.AGENT_NOT_FOUND, why, suggestion=suggestion))


def join_names(names: Sequence[str]) -> str:
    """Return names as they stand in a sentence, not endlessly many of them."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
