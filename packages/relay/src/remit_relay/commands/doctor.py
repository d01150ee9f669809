"""The checks of `remit doctor` for the device of a team, and for its gateway."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from remit.installed import install_command
from remit.protocol.errors import RemitError
from remit_cli.config.team import Team
from remit_cli.doctor_checks import ok, warning
from remit_cli.places import relative_path
from remit_cli.show.screen import many
from remit_relay.team.section import PROFILES, RELAY, SHARED, relay_of
from remit_server.documents.team import Check

if TYPE_CHECKING:  # slow to load, and most teams have no device
    from remit_relay.e2e.account import Device


def check_device(team: Team) -> Iterator[Check]:
    """Check the team's device, if the team has one or configures one."""
    if not (RELAY.of(team) or PROFILES.of(team) or SHARED.of(team)):
        return
    if find_spec("vodozemac") is None:
        message = "the team works with other devices, but the extra `relay` is not installed"
        yield warning("device", message, install_command("relay"))
        return
    # Slow to load, and most teams have no device.
    from remit_relay.device.peers import Peers
    from remit_relay.team.device import device_path, device_warnings, program_of, using_device, with_gateway

    try:
        with using_device(team) as device:
            known = Peers(device.state).list()
            place, count = relative_path(device_path(team)), many(len(known), "device")
            message = f"{device.card.name}, {device.id}, in {place}; {count} known"
            team = with_gateway(team, device)
    except RemitError as error:
        yield warning("device", error.fault.message, error.fault.suggestion)
        return
    yield ok("device", message)
    yield _gateway(team, device)
    for about, why, todo in device_warnings(team, known):
        yield warning(about, why, todo)
    for name, profile in PROFILES.of(team).items():
        key = "run" if profile.run is not None else "acp"
        if profile.agent is not None:
            continue
        if key == "acp" and find_spec("acp") is None:
            message = "the extra `acp` is not installed"
            yield warning(f"profiles.{name}.acp", message, install_command("acp"))
        with suppress(RemitError):  # a missing secret is reported above
            program = program_of(team, name)
            if not program.exists():
                message = f"program `{program.command}` not found"
                yield warning(f"profiles.{name}.{key}", message, "Install it, or set its path.")


def _gateway(team: Team, device: "Device") -> Check:
    """Check that the gateway is reachable, is the expected one, and knows this device."""
    from remit_relay.commands.doctor_gateway import device_status

    about, at = "gateway", relay_of(team).gateway
    try:
        status = asyncio.run(device_status(team, device))
    except RemitError as error:
        return warning(about, f"{at}: {error.fault.message}", error.fault.suggestion)
    if not status.known:
        message = f"{at} is reachable; this device has never connected to it, so other devices cannot reach it"
        return warning(about, message, "Connect once, with `remit share` or `remit chat PROFILE DEVICE`.")
    waiting = f"; {many(status.waiting, 'message')} waiting" if status.waiting else ""
    connected = "connected" if status.connected else "registered"
    return ok(about, f"{at} is reachable; this device is {connected}{waiting}")
