"""Documents about devices that several commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # encryption is not loaded to show help
    from remit_cli.config.team import Team
    from remit_relay.device.peers import PeerDevice
    from remit_relay.device.state import DeviceFile
    from remit_relay.e2e.account import Device
    from remit_server.documents.shared import DeviceShown, KnownDevice


def device_shown(team: Team, device: Device) -> DeviceShown:
    """Return the document about this device."""
    from remit_cli.places import relative_path
    from remit_relay.team.device import device_path
    from remit_server.documents.shared import DeviceShown
    from remit_server.transports.credentials.keys import fingerprint

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
    from remit_relay.messages.catalog import latest_offers, shares
    from remit_server.documents.shared import KnownDevice, OfferedAgent
    from remit_server.transports.credentials.keys import fingerprint

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
