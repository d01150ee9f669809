"""The gateway of a team's device: the one that the team file names, else the one in the device's file."""

import os
from collections.abc import Mapping

from msgspec import Struct, structs

from remit.protocol.errors import Code, RemitError, fault
from remit_cli.config.team import Team
from remit_relay.e2e.account import Device
from remit_relay.team.device import device_path, open_device
from remit_relay.team.section import RELAY, RelaySection, gateway_name, host_of

_FACT = "gateway"


class KeptGateway(Struct, frozen=True, kw_only=True):
    """The gateway in a device's file: `remit pair --gateway` puts it there."""

    url: str
    name: str = ""
    """The name that it gives itself, if it is not its host."""


def kept_gateway(device: Device) -> KeptGateway | None:
    """Return the gateway in a device's file, if there is one."""
    return device.state.fact(_FACT, KeptGateway)


def keep_gateway(team: Team, device: Device, gateway: KeptGateway) -> None:
    """Put a gateway into the device's file and on its card; raise a `RemitError` if the team file names another."""
    if (relay := RELAY.of(team)) is not None:
        if (relay.gateway.rstrip("/"), gateway_name(team)) != (
            gateway.url.rstrip("/"),
            gateway.name or host_of(gateway.url),
        ):
            raise RemitError(
                fault(
                    Code.STATE_CONFLICT,
                    f"{team.file} names another gateway: {relay.gateway}, not {gateway.url}",
                    suggestion="A code holds for one gateway: both sides use the same. Change `gateway` in `[relay]`, "
                    "or pair there.",
                )
            )
        return
    with device.state.writing():
        device.state.keep(_FACT, gateway)
        if device.card.gateway != gateway.url:
            device.rename(gateway=gateway.url)


def with_gateway(team: Team, device: Device | None = None, *, environ: Mapping[str, str] = os.environ) -> Team:
    """Return the team with its gateway: from the team file, else from its device's file; or raise a `RemitError`."""
    if RELAY.of(team) is not None:
        return team
    if device is not None:
        kept = kept_gateway(device)
    elif device_path(team).exists():
        opened = open_device(team, environ=environ)
        try:
            kept = kept_gateway(opened)
        finally:
            opened.state.close()
    else:
        kept = None
    if kept is None:
        raise RemitError(
            fault(
                Code.TEAM_INVALID,
                f"this device has no gateway to other devices: {team.file} names none, nor does {device_path(team)}",
                suggestion="Pair over one, which is kept: remit pair --gateway wss://… (`remit relay` runs one).",
            )
        )
    return structs.replace(team, relay=RelaySection(gateway=kept.url, name=kept.name or None))
