"""Documents about devices that several commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # encryption is not loaded to show help
    from remit.config.team import Team
    from remit.documents.shared import DeviceShown, KnownDevice
    from remit.relay.device.peers import PeerDevice
    from remit.relay.device.state import DeviceFile
    from remit.relay.e2e.account import Device


def device_shown(team: Team, device: Device) -> DeviceShown:
    """Return the document about this device."""
    from remit.cli.places import relative_path
    from remit.config.device import device_path
    from remit.documents.shared import DeviceShown
    from remit.transports.credentials.keys import fingerprint

    return DeviceShown(
        id=device.id,
        name=device.card.name,
        fingerprint=fingerprint(device.card.key),
        gateway=device.card.gateway,
        file=str(relative_path(device_path(team))),
        link=device.card.link(),
    )


def known_device(peer: PeerDevice, state: DeviceFile) -> KnownDevice:
    """Return the document about a known device."""
    from remit.documents.shared import KnownDevice, OfferedAgent
    from remit.relay.messages.catalog import latest_offers, shares
    from remit.transports.credentials.keys import fingerprint

    offer = latest_offers(state, peer.device)
    return KnownDevice(
        id=peer.device,
        name=peer.card.name,
        fingerprint=fingerprint(peer.card.key),
        verified=peer.verified,
        shared=shares(peer, offer),
        offers=None
        if offer is None
        else tuple(OfferedAgent(name=each.name, description=each.description) for each in offer),
        allowed=peer.allowed,
        revoked=peer.revoked,
        revoked_there=peer.revoked_there,
        agents=tuple(sorted(peer.agents)),
        profiles=tuple(sorted(peer.profiles)),
        groups=tuple(sorted(peer.groups)),
        own=peer.own,
    )
